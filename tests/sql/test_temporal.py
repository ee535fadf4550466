"""Conditions on the present time in SQL: an oracle in plain Python over ticks, and what is refused."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.errors import TopologyError
from eddy.operators.valid_rows import LATEST_MS

N = eddy.Int64
HOUR = 3_600_000
Row = tuple[str, str, int]


class Met(msgspec.Struct, frozen=True):
    """Two people, when they met, and a number."""

    one: str
    other: str
    at: int | None
    n: int


def pairs_of(links: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """Who reaches whom."""
    pairs = set(links)
    while more := {(one, last) for one, two in pairs for first, last in links if first == two} - pairs:
        pairs |= more
    return pairs


def view_of(text: str, key: Any = None) -> eddy.Topology:
    topology = eddy.Topology("app")
    met = topology.table("met", key=N, value=eddy.Struct(Met))
    view = topology.sql(text, {"met": met}, name="now", key=key)
    view.map(lambda key, row: (str(row), 1), key=eddy.String, value=N).group_by_key().count("found")
    return topology


def found(driver: eddy.TopologyTestDriver) -> Counter[str]:
    return Counter(driver.store("found").all())


CONDITIONS: dict[str, Any] = {
    "now() < at + INTERVAL '1 hour'": lambda now, at, n: at is not None and now < at + HOUR,
    "now() <= at": lambda now, at, n: at is not None and now <= at,
    "at < now()": lambda now, at, n: at is not None and at < now,
    "at <= now() AND now() <= at + n": lambda now, at, n: at is not None and at <= now <= at + n,
    "at > now() - INTERVAL '30 minutes'": lambda now, at, n: at is not None and at > now - HOUR // 2,
    "CURRENT_TIMESTAMP BETWEEN at AND at + 5000": lambda now, at, n: at is not None and at <= now <= at + 5000,
    "now() + n >= at AND n > 3": lambda now, at, n: at is not None and now + n >= at and n > 3,
    "INTERVAL '1 second' + now() > at * 2": lambda now, at, n: at is not None and now + 1_000 > at * 2,
    "now() >= at AND now() < at + INTERVAL '2 hours' AND now() < at + n * 60000": lambda now, at, n: (
        at is not None and at <= now < at + min(2 * HOUR, n * 60_000)
    ),
}
moments = st.one_of(st.none(), st.integers(0, 2 * HOUR), st.sampled_from([-5, 2**62, LATEST_MS, LATEST_MS + 1]))
changes = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 4), st.one_of(st.none(), st.tuples(moments, st.integers(-9, 9_000)))),
        st.integers(1, HOUR),
        st.just("restart"),
    ),
    max_size=20,
)


@given(st.sampled_from(sorted(CONDITIONS)), changes, st.integers(1, 3))
def test_rows_are_there_while_the_condition_is_true(condition: str, changes: list[Any], partitions: int) -> None:
    topology = view_of(f"SELECT at, n FROM met WHERE {condition}")
    now, rows = 0, dict[int, tuple[int | None, int]]()
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="skip"), partitions=partitions) as driver:
        for change in changes:
            if isinstance(change, tuple):
                key, value = change
                if value is not None and value[0] is not None and value[0] >= 2**62 and ("* 2" in condition):
                    continue  # out of the range of a bigint
                driver.input("met").pipe(key, None if value is None else Met("a", "b", *value))
                rows = {**rows, key: value} if value else {k: row for k, row in rows.items() if k != key}
            elif change == "restart":
                driver.restart(lose_state=True)
            else:
                driver.advance_wall_clock_time(change / 1000)
                now += change
            there = Counter(str(row) for row in rows.values() if CONDITIONS[condition](now, *row))
            assert found(driver) == there


REACH = """
    WITH RECURSIVE recent AS (SELECT one, other FROM met WHERE now() < at + INTERVAL '1 hour'),
    reach(a, b) AS (
        SELECT one, other FROM recent
        UNION SELECT reach.a, recent.other FROM reach JOIN recent ON reach.b = recent.one
    )
    SELECT a, b FROM reach
"""
links = st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.integers(0, HOUR))


@given(st.lists(st.one_of(links, st.integers(1, HOUR // 2)), max_size=12))
def test_a_recursion_over_them_follows(steps: list[Any]) -> None:
    now, rows = 0, list[Row]()
    with eddy.TopologyTestDriver(view_of(REACH)) as driver:
        for number, step in enumerate([*steps, HOUR // 3, HOUR]):
            if isinstance(step, tuple):
                rows.append(step)
                driver.input("met").pipe(number, Met(*step, 0))
            else:
                driver.advance_wall_clock_time(step / 1000)
                now += step
            recent = [(one, other) for one, other, at in rows if now < at + HOUR]
            assert found(driver) == Counter(str(pair) for pair in pairs_of(recent))


def test_groups_joins_and_subqueries_follow() -> None:
    text = """
        SELECT m.one, count(*) AS links FROM met AS m
        WHERE now() < m.at + INTERVAL '10 seconds'
          AND EXISTS (SELECT 1 FROM met AS o WHERE o.one = m.other AND o.at <= now())
        GROUP BY m.one
    """
    with eddy.TopologyTestDriver(view_of(text, "one")) as driver:
        driver.input("met").pipe_all(
            [(1, Met("a", "b", 0, 0)), (2, Met("a", "b", 5_000, 0)), (3, Met("b", "c", 3_000, 0))]
        )
        assert found(driver) == {}
        driver.advance_wall_clock_time(3)
        assert found(driver) == {"('a', 2)": 1}
        driver.advance_wall_clock_time(7)
        assert found(driver) == {"('a', 1)": 1}
        driver.advance_wall_clock_time(5)
        assert found(driver) == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT now() FROM met", "the present time here is not supported; compare it alone, in WHERE"),
        ("SELECT at FROM met WHERE now() < at OR n > 3", r"now\(\) in this condition is not supported"),
        ("SELECT at FROM met WHERE NOT now() < at", r"now\(\) in this condition is not supported"),
        ("SELECT at FROM met WHERE now() = at", r"now\(\) in this condition is not supported"),
        ("SELECT at FROM met WHERE now() * 2 < at", r"now\(\) in this condition is not supported"),
        ("SELECT at FROM met WHERE now() < now() + 5", r"now\(\) in this condition is not supported"),
        ("SELECT at FROM met WHERE now() < at * 1.5", r"now\(\) in this condition .* number of milliseconds"),
        ("SELECT at FROM met WHERE now() < (SELECT max(at) FROM met)", r"now\(\) in this condition"),
        ("SELECT at FROM met WHERE at < INTERVAL '1 hour'", r"INTERVAL without now\(\) in its condition"),
        ("SELECT at FROM met WHERE now() < at + INTERVAL '1 month'", "this INTERVAL .* weeks is needed"),
        ("SELECT at FROM met WHERE now() < at + INTERVAL '1 day 2 hours'", "this INTERVAL .* weeks is needed"),
        ("SELECT at FROM met WHERE now() < at + INTERVAL '1.5 hours'", "this INTERVAL"),
        ("SELECT at + INTERVAL '1 hour' FROM met", "INTERVAL here is not supported"),
        ("SELECT m.at FROM met AS m JOIN met AS o ON now() < m.at", "the present time here"),
        ("SELECT n, count(*) AS c FROM met GROUP BY n HAVING now() < n", "the present time here"),
        ("SELECT at FROM met WHERE CURRENT_DATE < at", "the present date is not supported"),
        ("SELECT at FROM met WHERE CURRENT_TIMESTAMP(3) < at", "the present time here"),
        (
            "WITH RECURSIVE r(a) AS (SELECT at FROM met UNION SELECT a + 1 FROM r WHERE now() < a) SELECT a FROM r",
            "inside a recursive table, where no time passes; put the condition into a common table expression before",
        ),
        (
            "WITH RECURSIVE r(a) AS (SELECT at FROM met UNION SELECT a + 1 FROM r WHERE a < 9) "
            "SELECT a FROM r WHERE now() < a",
            "results of the recursion",
        ),
    ],
)
def test_what_has_no_answer_that_is_kept_is_refused_by_name(text: str, told: str) -> None:
    with pytest.raises(TopologyError, match=told):
        view_of(text)


def test_a_one_off_query_has_no_time_that_passes() -> None:
    with pytest.raises(TopologyError, match="a one-off query has no time that passes; write the time as a number"):
        eddy.query("SELECT a FROM t WHERE now() < a", {"t": (["a"], [(1,)])})
