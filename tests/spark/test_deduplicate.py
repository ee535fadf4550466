"""Records that pass once on Spark: at a cut they are those of the worker, and a worker goes on from a backfill."""

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark.arrival_order import order_dependent
from eddy.connectors.spark.decoded_rows import DecodedRows
from eddy.connectors.spark.deduplicated_frames import FactOrders, OrderStep
from eddy.errors import ConfigurationError
from tests.seeds import DAY, in_turn, on_days
from tests.spark.rig import Rig, plant

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64
TOPICS = ("calls", "texts", "by-value", "by-key", "both", "counts", "spread", "sent", "alike")

NAMES = ("value", "key", "two", "rows", "sent", "alike")


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def once() -> eddy.Topology:
    """By a function over two topics and of rows of one record, by key of one topic and of two; windows after one.

    Also after exchanges, of two topics one of which is sent, and of equal rows of a record that two have parted.
    """
    topology = eddy.Topology("app")
    calls, texts = (
        topology.stream(topic, S, S).filter(lambda key, value: value != "tick") for topic in ("calls", "texts")
    )
    both = calls.merge(texts)
    value = both.deduplicate(lambda key, value: value, within=ms(9), grace=ms(3), name="value", key=S)
    value.to("by-value")
    own = calls.deduplicate(within=ms(6), grace=ms(2), name="key")
    own.to("by-key")
    own.group_by_key().windowed_by(eddy.TimeWindows(ms(20))).count("windows").to("counts", value=N)
    both.deduplicate(within=ms(12), name="two").to("both")
    rows = texts.flat_map_values(lambda value: [] if value is None else [(value, n) for n in (1, 2)], value=eddy.Native)
    rows.deduplicate(lambda key, row: (row[1], key), within=ms(5), name="rows").to("spread", value=eddy.Native)
    half = calls.repartition(name="half").merge(texts).filter(lambda key, value: value is not None)
    half.deduplicate(lambda key, value: value, within=ms(9), grace=ms(3), name="sent").to("sent")
    apart = rows.map(lambda key, row: (f"{row[1]}{key}", row[0]), key=S, value=S).repartition(2, "apart")
    alike = apart.select_key(lambda key, value: key[1:], key=S).repartition(name="again")
    alike.deduplicate(within=ms(6), grace=ms(2), name="alike").to("alike")
    return topology


def some_records(rng: random.Random, count: int, at: int) -> list[tuple[bytes | None, bytes | None, int]]:
    """Records about a moment, late ones among them; some have no value, some no key, and some are equal."""
    keys, values = [*(b"%d" % n for n in range(6)), b"x", b"y", None], [b"x", b"y", b"z", b"tick", None]
    return [(rng.choice(keys), rng.choice(values), at + rng.randint(-12, 5)) for _ in range(count)]


class OnceRig(Rig):
    def __init__(self, folder: Path, partitions: int, spark: Any = None) -> None:
        super().__init__(folder, once, [TopicSpec(name, partitions) for name in TOPICS], spark)
        self.seen = set[str]()

    def send(self, calls: list[tuple[bytes | None, bytes | None, int]], texts: list[Any]) -> None:
        self.write_at("calls", calls)
        self.write_at("texts", texts)

    def run(self) -> None:
        self.work(cut_interval_s=0.0)

    def outcome(self) -> dict[str, Any]:
        """What topics hold; of a stream the records in no order, as two streams have none."""
        held = self.held()
        return {topic: sorted(map(repr, rows)) if isinstance(rows, list) else rows for topic, rows in held.items()}

    def equal(self) -> None:
        verdict = self.verify()
        assert verdict.status == 0, list(verdict.lines())
        suffixes = ("passed", "calendar", "waiting", "waiting-calendar")
        states = {f"{name}-{suffix}" for name in NAMES for suffix in suffixes}
        states |= {"value-marks", "rows-marks", "sent-marks", "alike-marks"}
        assert {part.name for part in verdict.compared} >= states | {*TOPICS[2:]}
        self.seen |= {part.name for part in verdict.compared if part.keys}


@pytest.fixture
def rig_of(tmp_path: Path, spark: Any) -> Iterator[Callable[[int], OnceRig]]:
    made: list[OnceRig] = []

    def make(partitions: int) -> OnceRig:
        made.append(OnceRig(tmp_path / str(len(made)), partitions, spark))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@on_days({0, 2}, 4)
@pytest.mark.parametrize("partitions", [*in_turn([1, 3], 2)])
def test_a_worker_goes_on_from_a_backfill_as_from_its_own_states(
    rig_of: Callable[[int], OnceRig], partitions: int
) -> None:
    rng, now = random.Random(f"{DAY} once {partitions}"), 86_400_000
    rig, scratch = rig_of(partitions), rig_of(partitions)
    for _ in range(4):
        calls, texts = some_records(rng, 30, now), some_records(rng, 30, now + 3)
        rig.send(calls, texts), scratch.send(calls, texts)
        scratch.run()
        now += 9
    scratch.equal()
    rig.backfill()
    assert rig.outcome() == scratch.outcome()
    rig.equal()
    for _ in range(3):
        calls, texts = some_records(rng, 12, now), some_records(rng, 12, now)
        for one in (rig, scratch):
            one.send(calls, texts)
            one.run()
        now += 8
        assert rig.outcome() == scratch.outcome()
    rig.equal()
    filled = {f"{name}-passed" for name in NAMES} | {f"{name}-waiting" for name in ("value", "two", "sent", "alike")}
    assert rig.seen | scratch.seen >= filled


@on_days({1}, 4)
def test_a_wrong_record_is_found(rig_of: Callable[[int], OnceRig]) -> None:
    rig = rig_of(2)
    rig.send([(b"1", b"x", 100), (b"1", b"x", 104), (b"1", b"x", 110)], [(b"%d" % n, b"tick", 200) for n in range(9)])
    rig.run()
    rig.equal()
    plant(rig, "UPDATE records SET value = ?", "by-key", b"1", b"y")
    verdict = rig.verify()
    (wrong,) = (part for part in verdict.compared if part.differing)
    assert wrong.name == "by-key"


def by_key() -> eddy.Topology:
    topology = eddy.Topology("app")
    topology.stream("calls", S, N).deduplicate(within=ms(6), name="key").to("by-key")
    return topology


@on_days({3}, 4)
def test_records_of_files_are_deduplicated_in_their_own_partitions(tmp_path: Path, spark: Any) -> None:
    rows = [("a", 1, 100), ("b", 2, 101), ("a", 3, 104), ("a", 4, 106), ("b", 5, 90), ("b", 6, 96), ("c", 7, 95)]
    lines = [f'{{"key": "{key}", "value": {value}, "timestamp": {time}}}' for key, value, time in rows]
    (tmp_path / "old.jsonl").write_text("\n".join([*lines, ""]))
    rig = Rig(tmp_path / "rig", by_key, [TopicSpec(name, 2) for name in ("calls", "by-key")], spark)
    rig.backfill(files={"calls": str(tmp_path / "old.jsonl")})
    passed = sorted((key, N.decode(value or b"")) for _, key, value in rig.rows("by-key") if key is not None)
    assert passed == [(b"a", 1), (b"a", 4), (b"b", 5), (b"b", 6), (b"c", 7)]  # a history is in the order of its times
    rig.close()


def test_records_of_files_that_several_partitions_may_have_are_refused() -> None:
    where = "deduplicate 'once'"
    place = b"\0" + (101).to_bytes(8, "big") + bytes(8) + bytes(8)
    given = DecodedRows([("x", ("k", "v"))], [1], [(100, place, None)])
    assert OrderStep("once", 10, FactOrders(where, {0: 0}, True, None))(given).weights == [1]
    with pytest.raises(ConfigurationError, match="deduplicate 'once': it orders the records of several partitions"):
        OrderStep("once", 10, FactOrders(where, {0: 0}, False, None))(given)


def test_rows_of_branches_that_are_merged_again_are_left_out_by_name() -> None:
    topology = eddy.Topology("app")
    calls = topology.stream("calls", S, S)
    calls.merge(calls.map_values(str.upper, value=S)).deduplicate(within=ms(6), name="twice")
    calls.merge(topology.stream("texts", S, S)).deduplicate(lambda key, value: value, within=ms(6), name="once")
    found = order_dependent(topology.plan, {"calls": 3, "texts": 3})
    assert {name for name, why in found.items() if "through several branches" in why} >= {"twice"}
    assert "once" not in found
