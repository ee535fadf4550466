"""Joins as of a time on Spark: at a cut they are those of the worker, and a worker goes on from a backfill."""

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
TOPICS = ("orders", "rates", "rated", "all", "by-good", "by-kind", "sent", "counts")

NAMES = ("rated", "all", "by-good", "by-kind", "sent")
MARKS = ("by-kind-marks", "by-kind-versions-marks", "sent-versions-marks-rates-repartition")


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def joins() -> eddy.Topology:
    """Joins of both kinds, where the source's partitions are and behind exchanges; a count after one of them."""
    topology = eddy.Topology("app")
    orders = topology.stream("orders", S, S).filter(lambda key, value: value != "tick")
    rates = topology.stream("rates", S, S).filter(lambda key, value: value != "tick")
    rated = orders.join(rates, lambda one, other: f"{one} {other}", eddy.AsOf(ms(30), grace=ms(4)), S, name="rated")
    rated.to("rated")
    rated.group_by_key().count("counts").to("counts", value=N)
    every = orders.left_join(rates, lambda key, one, other: (key, one, other), eddy.AsOf(ms(9)), name="all")
    every.to("all", value=eddy.Native)
    goods = orders.select_key(lambda key, value: value, key=S)
    goods.left_join(rates, lambda one, other: (one, other), eddy.AsOf(ms(20), grace=ms(2)), name="by-good").to(
        "by-good", value=eddy.Native
    )
    kinds = rates.select_key(lambda key, value: value or "x", key=S)
    goods.left_join(kinds, lambda one, other: (one, other), eddy.AsOf(ms(20), grace=ms(2)), name="by-kind").to(
        "by-kind", value=eddy.Native
    )
    sent = rates.merge(orders.repartition(name="orders")).repartition(name="rates")
    orders.join(sent, lambda one, other: (one, other), eddy.AsOf(ms(20), grace=ms(2)), name="sent").to(
        "sent", value=eddy.Native
    )
    return topology


def some_records(rng: random.Random, count: int, at: int) -> list[tuple[bytes | None, bytes | None, int]]:
    """Records about a moment, late ones among them; some have no value, some no key, and some are equal."""
    keys, values = [*(b"%d" % n for n in range(6)), b"x", b"y", None], [b"x", b"y", b"z", b"tick", None]
    return [(rng.choice(keys), rng.choice(values), at + rng.randint(-12, 5)) for _ in range(count)]


class JoinsRig(Rig):
    def __init__(self, folder: Path, partitions: int, spark: Any = None) -> None:
        super().__init__(folder, joins, [TopicSpec(name, partitions) for name in TOPICS], spark)

    def send(self, orders: list[tuple[bytes | None, bytes | None, int]], rates: list[Any]) -> None:
        self.write_at("orders", orders)
        self.write_at("rates", rates)

    def run(self) -> None:
        self.work(cut_interval_s=0.0)

    def outcome(self) -> dict[str, Any]:
        """What topics hold; of a stream the records in no order, as the two streams have none."""
        held = self.held()
        return {topic: sorted(map(repr, rows)) if isinstance(rows, list) else rows for topic, rows in held.items()}

    def equal(self) -> None:
        verdict = self.verify()
        assert verdict.status == 0, list(verdict.lines())
        assert set(verdict.notes) == {f"sink '{name}'" for name in NAMES}  # their order
        states = {
            f"{name}-{side}{kind}" for name in NAMES for side in ("waiting", "versions") for kind in ("", "-calendar")
        }
        assert {part.name for part in verdict.compared} >= states | {"by-good-marks", *MARKS, *TOPICS[2:]}


@pytest.fixture
def rig_of(tmp_path: Path, spark: Any) -> Iterator[Callable[[int], JoinsRig]]:
    made: list[JoinsRig] = []

    def make(partitions: int) -> JoinsRig:
        made.append(JoinsRig(tmp_path / str(len(made)), partitions, spark))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@on_days({0, 3}, 4)
@pytest.mark.parametrize("partitions", [*in_turn([1, 3], 2)])
def test_a_worker_goes_on_from_a_backfill_as_from_its_own_states(
    rig_of: Callable[[int], JoinsRig], partitions: int
) -> None:
    rng, now = random.Random(f"{DAY} as of {partitions}"), 86_400_000
    rig, scratch = rig_of(partitions), rig_of(partitions)
    for _ in range(4):
        orders, rates = some_records(rng, 30, now), some_records(rng, 30, now + 3)
        rig.send(orders, rates), scratch.send(orders, rates)
        scratch.run()
        now += 9
    scratch.equal()
    rig.backfill()
    assert rig.outcome() == scratch.outcome()
    rig.equal()
    for _ in range(3):
        orders, rates = some_records(rng, 12, now), some_records(rng, 12, now)
        for one in (rig, scratch):
            one.send(orders, rates)
            one.run()
        now += 8
        assert rig.outcome() == scratch.outcome()
    rig.equal()


@on_days({1}, 4)
def test_a_wrong_value_is_found(rig_of: Callable[[int], JoinsRig]) -> None:
    rig = rig_of(2)
    rig.send([(b"1", b"x", 104)], [(b"1", b"y", 100), (b"1", b"z", 105), (b"1", b"w", 120)])
    rig.run()
    rig.equal()
    plant(rig, "UPDATE records SET value = ?", "rated", b"1", b"x z")
    verdict = rig.verify()
    (wrong,) = (part for part in verdict.compared if part.differing)
    assert wrong.name == "rated"
    found = {(example.key, example.expected, example.found) for example in wrong.examples}
    assert found == {("'1'", "'x y'", "nothing"), ("'1'", "nothing", "'x z'")}
