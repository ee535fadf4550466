"""Joins of streams on Spark: at a cut they are those of the worker, and a worker goes on from a backfill."""

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from tests.seeds import DAY, in_turn, on_days
from tests.spark.rig import Rig, plant

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64
Sent = tuple[bytes | None, bytes | None, int]
"""Key, value and time of a record."""


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def joins() -> eddy.Topology:
    """Joins of all three kinds, where the sources' partitions are and behind exchanges; a count after one of them."""
    topology = eddy.Topology("app")
    orders = topology.stream("orders", S, S).filter(lambda key, value: value != "tick")
    paid = topology.stream("paid", S, S)
    near = orders.join(paid, lambda one, other: f"{one} {other}", eddy.JoinWindows(ms(6), grace=ms(4)), S, name="near")
    near.to("near")
    near.group_by_key().count("pairs").to("pairs", value=N)
    windows = eddy.JoinWindows(before=ms(-2), after=ms(9))
    orders.left_join(paid, lambda one, other: (one, other), windows, name="left").to("left", value=eddy.Native)
    goods, sums = (side.select_key(lambda key, value: value, key=S) for side in (orders, paid))
    windows = eddy.JoinWindows(ms(5), before=ms(0), grace=ms(3))
    goods.outer_join(sums, lambda key, one, other: (key, one, other), windows, name="both").to(
        "both", value=eddy.Native
    )
    paid.outer_join(goods, lambda one, other: (one, other), windows, name="mixed").to("mixed", value=eddy.Native)
    return topology


TOPICS = ("orders", "paid", "near", "pairs", "left", "both", "mixed")


def some_records(rng: random.Random, count: int, at: int) -> list[Sent]:
    """Records about a moment, late ones among them; some have no value, some no key, and some are equal."""
    keys, values = [*(b"%d" % n for n in range(8)), None], [b"x", b"y", b"z", b"tick", None]
    return [(rng.choice(keys), rng.choice(values), at + rng.randint(-20, 5)) for _ in range(count)]


class JoinsRig(Rig):
    def __init__(self, folder: Path, partitions: int, spark: Any = None) -> None:
        super().__init__(folder, joins, [TopicSpec(name, partitions) for name in TOPICS], spark)

    def send(self, orders: list[Sent], paid: list[Sent]) -> None:
        self.write_at("orders", orders)
        self.write_at("paid", paid)

    def run(self) -> None:
        self.work(cut_interval_s=0.0)

    def outcome(self) -> dict[str, Any]:
        """What topics hold; of a stream the records in no order, as the two streams have none."""
        held = self.held()
        return {topic: sorted(map(repr, rows)) if isinstance(rows, list) else rows for topic, rows in held.items()}

    def equal(self) -> None:
        verdict = self.verify()
        assert verdict.status == 0, list(verdict.lines())
        assert set(verdict.notes) == {f"sink '{name}'" for name in ("near", "left", "both", "mixed")}  # their order
        sides = {f"{name}-{side}" for name in ("near", "left", "both", "mixed") for side in ("left", "right")}
        states = {f"{side}{kind}" for side in sides for kind in ("", "-calendar")}
        others = {"left-left-unmatched", "both-left-unmatched", "both-right-unmatched", "mixed-right-unmatched"}
        others |= {"both-left-marks", "both-right-marks", "mixed-right-marks", *TOPICS[2:]}
        assert {part.name for part in verdict.compared} >= states | others


@pytest.fixture
def rig_of(tmp_path: Path, spark: Any) -> Iterator[Callable[[int], JoinsRig]]:
    made: list[JoinsRig] = []

    def make(partitions: int) -> JoinsRig:
        made.append(JoinsRig(tmp_path / str(len(made)), partitions, spark))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@on_days({2, 3}, 4)
@pytest.mark.parametrize("partitions", [*in_turn([1, 3], 2)])
def test_a_worker_goes_on_from_a_backfill_as_from_its_own_states(
    rig_of: Callable[[int], JoinsRig], partitions: int
) -> None:
    rng, now = random.Random(f"{DAY} joins {partitions}"), 86_400_000
    rig, scratch = rig_of(partitions), rig_of(partitions)
    for _ in range(4):
        orders, paid = some_records(rng, 30, now), some_records(rng, 30, now + 3)
        rig.send(orders, paid), scratch.send(orders, paid)
        scratch.run()
        now += 9
    scratch.equal()
    rig.backfill()
    assert rig.outcome() == scratch.outcome()
    rig.equal()
    for _ in range(3):
        orders, paid = some_records(rng, 12, now), some_records(rng, 12, now)
        for one in (rig, scratch):
            one.send(orders, paid)
            one.run()
        now += 8
        assert rig.outcome() == scratch.outcome()
    rig.equal()


@on_days({0}, 4)
def test_a_wrong_row_of_a_join_is_found(rig_of: Callable[[int], JoinsRig]) -> None:
    rig = rig_of(2)
    rig.send([(b"1", b"x", 100)], [(b"1", b"y", 104), (b"2", b"z", 104)])
    rig.run()
    rig.equal()
    plant(rig, "UPDATE records SET value = ?", "near", b"1", b"x z")
    verdict = rig.verify()
    (wrong,) = (part for part in verdict.compared if part.differing)
    assert wrong.name == "near"
    found = {(example.key, example.expected, example.found) for example in wrong.examples}
    assert found == {("'1'", "'x y'", "nothing"), ("'1'", "nothing", "'x z'")}
