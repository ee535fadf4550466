"""Receipts of SQL: the counts and sums of a group, each by its name; parts of recursions have the keys of joins."""

import random
from typing import Any

import msgspec
import pytest

import eddy
from tests.seeds import of_today
from tests.topology.tracing.traced import NAMES, Traced, below, check

S = eddy.String


class Person(msgspec.Struct, frozen=True):
    id: str
    boss: str | None
    pay: int | None


UNDER = """
    WITH RECURSIVE under(boss, who, pay) AS (
        SELECT boss, id, pay FROM people
        UNION ALL SELECT p.boss, u.who, u.pay FROM under u JOIN people p ON p.id = u.boss)
    SELECT boss, COUNT(*) AS size, COUNT(pay) AS paid, SUM(pay) AS pay, MAX(pay) AS most FROM under
    WHERE boss IS NOT NULL GROUP BY boss"""
REACHED = """
    WITH RECURSIVE under(boss, who) AS (
        SELECT boss, id FROM people UNION SELECT u.boss, p.id FROM under u JOIN people p ON p.boss = u.who)
    SELECT boss, COUNT(*) AS size FROM under GROUP BY boss"""
MUTUAL = REACHED.replace("RECURSIVE under(boss, who)", "MUTUALLY RECURSIVE under(boss TEXT, who TEXT)")


def view(text: str) -> eddy.Topology:
    topology = eddy.Topology("view")
    people = topology.table("people", key=S, value=eddy.Struct(Person))
    topology.sql(text, name="view", tables={"people": people}, key="boss")
    return topology


@pytest.mark.parametrize(
    "text", [UNDER, UNDER.replace("MAX(pay) AS most", "COUNT(who) AS again")], ids=["all", "folded"]
)
@pytest.mark.parametrize("seed", range(5))
def test_counts_and_sums_of_recursive_sql_are_receipts(seed: int, text: str) -> None:
    draw = random.Random(seed)
    bosses = {name: draw.choice(["top", *NAMES[:at]]) for at, name in enumerate(NAMES)}
    pays = {name: draw.choice([None, 1, 2, 3]) for name in NAMES}
    rows = {name: Person(name, bosses[name], pays[name]) for name in NAMES}
    traced = Traced(view(text), "view-group", {"people": rows})

    def all_below(node: str) -> list[str]:
        return [each for child in below(bosses, node) for each in (child, *all_below(child))]

    for boss in {*bosses.values()}:
        found = traced.trace((boss,))[0].sums
        is_paid = any(pays[name] is not None for name in all_below(boss))
        sums = ["sum"] if "again" in text or is_paid else []  # a sum of nulls is null
        assert [receipt.name for receipt in found] == ["count", "count", *sums] + ["count"] * ("again" in text)
        numbers: list[Any] = [lambda _: 1, lambda name: int(pays[name] is not None), lambda name: pays[name] or 0]
        for receipt, number in zip(found, numbers, strict=False):
            parts = {(child,): sum(map(number, all_below(child))) for child in below(bosses, boss)}
            check(receipt, parts, sum(map(number, below(bosses, boss))))
        opens = [child for child in below(bosses, boss) if below(bosses, child)]
        if opens:
            opened = traced.trace((boss,), f'["{opens[0]}"]')[0].sums[0].opened
            assert opened is not None
            check(opened, {(c,): len(all_below(c)) for c in below(bosses, opens[0])}, len(below(bosses, opens[0])))


@pytest.mark.parametrize("text", [REACHED, MUTUAL], ids=["reached", "mutual"])
def test_counts_of_sets_are_sums_of_their_rows(text: str) -> None:
    rows = {"b": Person("b", "a", 1), "c": Person("c", "a", 1), "d": Person("d", "b", 1)}
    receipt = Traced(view(text), "view-group", {"people": rows}).trace(("a",))[0].sums[0]
    check(receipt, {("a", "b"): 1, ("a", "c"): 1, ("a", "d"): 1}, 0)


class Click(msgspec.Struct, frozen=True):
    page: str
    at: int
    seen: int


WINDOWS = {
    "tumble": "TUMBLE(clicks, at, INTERVAL '10 milliseconds')",
    "hop": "HOP(clicks, at, INTERVAL '5 milliseconds', INTERVAL '10 milliseconds')",
    "session": "TABLE(SESSION(TABLE clicks PARTITION BY page, DESCRIPTOR(at), INTERVAL '4' MILLISECONDS))",
}


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("seed", of_today(3))
def test_parts_of_windows_are_the_rows_of_the_table(kind: str, seed: int) -> None:
    draw = random.Random(seed)
    clicks = {f"c{n}": Click(draw.choice("ab"), draw.randrange(60), draw.randint(1, 9)) for n in range(20)}
    topology = eddy.Topology("view")
    table = topology.table("clicks", key=S, value=eddy.Struct(Click))
    text = f"SELECT page, window_start, window_end, COUNT(*), SUM(seen) FROM {WINDOWS[kind]} GROUP BY 1, 2, 3"
    topology.sql(text, name="view", tables={"clicks": table})
    traced = Traced(topology, "view-group", {"clicks": clicks})
    spans = {name: spans_of(kind, name, clicks) for name in clicks}
    for key in {(click.page, *span) for name, click in clicks.items() for span in spans[name]}:
        there = {name: click for name, click in clicks.items() if click.page == key[0] and key[1:] in spans[name]}
        count, total = traced.trace(key)[0].sums
        check(count, dict.fromkeys(there, 1), 0)
        check(total, {name: click.seen for name, click in there.items()}, 0)


def spans_of(kind: str, name: str, clicks: dict[str, Click]) -> list[tuple[int, int]]:
    """The windows of a click."""
    at = clicks[name].at
    if kind != "session":
        step = 10 if kind == "tumble" else 5
        return [(start, start + 10) for start in range(step - 10, 60, step) if 0 <= at - start < 10]
    first = last = at
    moments = {click.at for click in clicks.values() if click.page == clicks[name].page}
    while earlier := [moment for moment in moments if first - 4 < moment < first]:
        first = min(earlier)
    while later := [moment for moment in moments if last < moment < last + 4]:
        last = max(later)
    return [(first, last + 4)]
