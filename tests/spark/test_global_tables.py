"""Joins with global tables on Spark: each record as of the offsets that its worker has noted."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from tests.seeds import DAY
from tests.spark.rig import Rig, plant

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64
KEYS = ("ch", "de", "fr", "it")
TOPICS = ("countries", "orders", "returns", "named", "maybe", "both", "counts")
COMPACT = {"cleanup.policy": "compact"}


def topology() -> eddy.Topology:
    """Inner and left, by value and by key, after a step that makes several rows, of two topics; counts after one."""
    made = eddy.Topology("app")
    countries = made.global_table("countries", S, S)
    orders, returns = made.stream("orders", S, S), made.stream("returns", S, S)
    named = orders.join(
        countries, lambda key, order, other: f"{key} {order} {other}", "join", S, select=lambda value: value
    )
    named.to("named")
    several = orders.flat_map_values(lambda order: [order, "xx"] if order else [])
    several.left_join(countries, lambda order, country: f"{order} {country}", "left", S, select=lambda o: o).to("maybe")
    merged = orders.merge(returns)
    merged.left_join(countries, lambda one, two: f"{one} {two}", "merged", S, select=lambda key, value: key).to("both")
    named.group_by(lambda key, value: value[-2:]).count("counts").to("counts")
    return made


def moved() -> eddy.Topology:
    """A join after an exchange."""
    made = eddy.Topology("app")
    countries = made.global_table("countries", S, S)
    orders = made.stream("orders", S, S).select_key(lambda key, value: value).repartition(2, "moved")
    orders.join(countries, lambda one, two: f"{one} {two}", "join", S, select=lambda value: value).to("named")
    return made


@pytest.fixture
def rig_of(tmp_path: Path, spark: Any) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(of: Callable[[], eddy.Topology] = topology, **configs: str) -> Rig:
        specs = [TopicSpec(name, 2, configs if name == "countries" else {}) for name in TOPICS]
        made.append(Rig(tmp_path / str(len(made)), of, specs, spark))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


def work(rig: Rig) -> None:
    rig.work(cut_interval_s=0.0, on_error="skip")


def test_records_are_verified_with_the_rows_as_of_their_epochs(rig_of: Callable[..., Rig]) -> None:
    rig, dice = rig_of(), random.Random(f"{DAY} global")
    for turn in range(12):
        drawn = dice.choices(KEYS, k=dice.randint(0, 3))
        names = [f"{key}{turn}".encode() for key in drawn]
        rig.write("countries", [(k.encode(), dice.choice([n, n, None])) for k, n in zip(drawn, names, strict=True)])
        for topic in ("orders", "returns"):
            keys = dice.choices([*KEYS, None], k=dice.randint(0, 6))
            rows = [(None if key is None else key.encode(), dice.choice([*KEYS, "yy"]).encode()) for key in keys]
            rig.write(topic, [*rows, (b"ch", None)])
        if dice.random() < 0.8:
            work(rig)
    work(rig)
    joined = {value.split()[-1] for _, _, found in rig.rows("named") if (value := (found or b"").decode())}
    assert len(joined) > 3  # several versions
    verdict = rig.verify(on_error="skip")
    assert (verdict.status, verdict.undetermined) == (0, {}), list(verdict.lines())
    assert {part.name for part in verdict.compared} >= {"named", "maybe", "both", "counts"}
    key = next(key for _, key, _ in rig.rows("named") if key)
    plant(rig, "UPDATE records SET value = ?", "named", key, b"planted")
    (wrong,) = (part for part in rig.verify(on_error="skip").compared if part.differing)
    assert wrong.name == "named"


def test_a_row_joined_as_of_another_time_is_found(rig_of: Callable[..., Rig]) -> None:
    rig = rig_of()
    for name in (b"Schweiz", b"Suisse"):
        rig.write("countries", [(b"ch", name)])
        rig.write("orders", [(b"a", b"ch")])
        work(rig)
    assert sorted(value or b"" for _, _, value in rig.rows("named")) == [b"a ch Schweiz", b"a ch Suisse"]
    assert rig.verify().status == 0
    plant(rig, "UPDATE records SET value = ?", "named", b"a", b"a ch Schweiz")
    (wrong,) = (part for part in rig.verify().compared if part.differing)
    assert wrong.name == "named"


def test_a_record_of_the_table_that_does_not_decode_is_left_out_here_too(rig_of: Callable[..., Rig]) -> None:
    rig = rig_of()
    rig.write("countries", [(b"ch", b"Schweiz"), (b"ch", b"\xff"), (b"de", b"\xff")])
    rig.write("orders", [(b"a", b"ch"), (b"a", b"de")])
    work(rig)
    verdict = rig.verify(on_error="skip")
    assert verdict.status == 0, list(verdict.lines())
    assert [value for _, _, value in rig.rows("named")] == [b"a ch Schweiz"]


def changed_between(rig: Rig) -> None:
    for name in (b"Schweiz", b"Suisse"):
        rig.write("countries", [(b"ch", name)])
        rig.write("orders", [(b"a", b"ch")])
        work(rig)


def test_a_compacted_topic_that_has_changed_is_named(rig_of: Callable[..., Rig]) -> None:
    rig = rig_of(**COMPACT)
    rig.write("countries", [(b"ch", b"Schweiz")])
    rig.write("orders", [(b"a", b"ch")])
    work(rig)
    assert rig.verify().status == 0
    changed_between(rig)
    verdict = rig.verify()
    assert (verdict.status, verdict.differs) == (2, False)
    assert "topic 'countries' is compacted, and has changed" in verdict.undetermined["step 'join'"]
    accepted = rig.verify(accept=["join", "left", "merged"])
    assert set(accepted.undetermined) == {"application 'app'"}  # nothing is left to compare
    assert {"sink 'named'", "sink 'maybe'", "sink 'both'"} <= set(accepted.accepted)


def test_after_an_exchange_a_table_that_has_changed_is_named(rig_of: Callable[..., Rig]) -> None:
    rig = rig_of(moved)
    rig.write("countries", [(b"ch", b"Schweiz")])
    rig.write("orders", [(b"a", b"ch"), (b"b", b"ch")])
    work(rig)
    verdict = rig.verify()
    assert verdict.status == 0, list(verdict.lines())
    changed_between(rig)
    assert "its rows come from other workers or later epochs" in rig.verify().undetermined["step 'join'"]


def test_records_of_a_release_that_noted_no_offsets_are_named(rig_of: Callable[..., Rig]) -> None:
    rig = rig_of()
    changed_between(rig)
    storage = rig.log._storage  # private: no program removes records
    with storage.change():
        storage.rows("DELETE FROM records WHERE CAST(key AS TEXT) LIKE 'tables orders %'")
    assert "no note is kept of the table's offsets" in rig.verify().undetermined["step 'join'"]
