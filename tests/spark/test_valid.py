"""Rows that are true for a while, on Spark: at a cut they are those of the worker, whose clocks the cut has."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark.session import ONE_TASK
from eddy.operators import valid_rows
from eddy.runtime.quiescence import Counters
from tests.seeds import DAY, in_turn
from tests.spark.rig import Rig

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S = eddy.String
SPAN_MS = 10
BY = ("event time", "wall clock")
Link = tuple[bytes | None, bytes | None, int]
"""Key, value and time of a record."""


def moment(value: str, at: int) -> int | None:
    text = value.split(" ")[at]
    return int(text) if text else None


def links(by: Any) -> eddy.Topology:
    """Links that are there for a while, and who reaches whom over them."""
    topology = eddy.Topology("app")
    rows = topology.table("in", S, S).to_relation()
    live = rows.valid(
        clock=by, from_=lambda key, value: moment(value, 0), until=lambda key, value: moment(value, 1), name="live"
    )
    live.to_table("there").to("out")
    steps = live.map(lambda link, _: (link[0], link[1]), key=S, value=S)
    pairs = steps.recursively(
        lambda found: (
            found.map(lambda one, other: (other, one), key=S, value=S)
            .join(steps, lambda _, one, other: (one, other), "step", S, S)
            .distinct("once")
        ),
        "reaching",
    )
    pairs.group_by_key().count("counts").to("counts")
    return topology


def some_links(rng: random.Random, count: int, at: int) -> list[Link]:
    """Links that come and go about a moment; without a beginning or an end; deletions."""

    def bound() -> bytes:
        return b"" if rng.random() < 0.2 else b"%d" % (at + rng.randint(-2 * SPAN_MS, 2 * SPAN_MS))

    keys = [one + other for one in (b"a", b"b", b"c", b"d") for other in (b"a", b"b", b"c", b"d") if one != other]
    values = [None if rng.random() < 0.1 else bound() + b" " + bound() for _ in range(count)]
    return [(rng.choice(keys), value, at + rng.randint(-SPAN_MS, SPAN_MS)) for value in values]


class ValidRig(Rig):
    """Workers of given clocks, and records of given times."""

    def __init__(self, folder: Path, by: str, partitions: int, spark: Any) -> None:
        topics = [TopicSpec(name, partitions) for name in ("in", "out", "counts")]
        super().__init__(folder, lambda: links(by), topics, spark)
        self.partitions = partitions

    def until(self, now_ms: int) -> None:
        """A worker whose clock stands at a moment, until nothing is left to do."""
        config = eddy.Config(state_dir=self.state / "0", cut_interval_s=0.0)
        with closing(eddy.Worker(self.topology(), self.log, config, member="0", wall=lambda: now_ms / 1000)) as worker:
            worker.run_until_idle()
            worker.step()

    def equal(self) -> None:
        """Verify, and nothing is left out."""
        verdict = self.verify()
        assert (verdict.status, verdict.undetermined, verdict.notes) == (0, {}, {}), list(verdict.lines())
        assert {part.name for part in verdict.compared} >= {"live-rows", "live-moments", "live-calendar", "out"}

    def clocks(self) -> dict[TopicPartition, tuple[int, int]]:
        """Event time and tick of each position of the source."""
        tps = [TopicPartition("in", number) for number in range(self.partitions)]
        noted = {tp: Counters.of(position) for tp, position in self.log.committed("app", tps).items()}
        return {tp: (counters.event_time, counters.tick) for tp, counters in noted.items()}


@pytest.fixture
def rig_of(tmp_path: Path, spark: Any) -> Iterator[Callable[..., ValidRig]]:
    made: list[ValidRig] = []

    def make(by: str, partitions: int) -> ValidRig:
        made.append(ValidRig(tmp_path / str(len(made)), by, partitions, spark))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


WAYS = [(by, partitions, way) for way in (ONE_TASK, 0) for by in BY for partitions in (1, 3)]


@pytest.mark.parametrize(("by", "partitions", "way"), [*in_turn(WAYS, 3)])
def test_a_worker_goes_on_from_a_backfill_as_from_its_own_states(
    rig_of: Callable[..., ValidRig], by: str, partitions: int, way: int
) -> None:
    rng, now = random.Random(f"{DAY} {by} {partitions}"), 1_000
    rig, scratch = rig_of(by, partitions), rig_of(by, partitions)
    rig.one_task = scratch.one_task = way
    for _ in range(3):
        some = some_links(rng, 20, now)
        rig.write_at("in", some), scratch.write_at("in", some)
        scratch.until(now)
        now += SPAN_MS // 2
    now -= SPAN_MS // 2
    scratch.equal()
    rig.backfill(wall=lambda: now / 1000)
    assert rig.held() == scratch.held()
    assert rig.clocks() == scratch.clocks()
    rig.equal()
    for step in range(3):
        now += SPAN_MS // 3
        some = some_links(rng, 6, now)
        for one in (rig, scratch):
            if step != 1:  # else the clock alone goes on
                one.write_at("in", some)
            one.until(now)
        assert rig.held() == scratch.held()
    rig.equal()


def test_rows_that_a_worker_keeps_for_too_long_are_found(
    rig_of: Callable[..., ValidRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, there = rig_of("event time", 2), valid_rows.Span.is_valid_at
    rig.one_task = 0
    rig.write_at("in", [(b"ab", b" 40", 1), (b"bc", b" 90", 2), (b"ab", b" 40", 45), (b"bc", b" 90", 45)])
    with monkeypatch.context() as patched:
        patched.setattr(valid_rows.Span, "is_valid_at", lambda span, clock: there(span, clock - 10))
        rig.until(1)
    verdict = rig.verify()
    assert verdict.status == 1
    assert {part.name for part in verdict.compared if part.differing} >= {"out", "counts"}


def in_sql() -> eddy.Topology:
    """Who reaches whom over the links of a while, in SQL."""
    topology = eddy.Topology("app")
    links = topology.table("in", S, eddy.Int64)
    view = topology.sql(
        "SELECT key, value AS at FROM links WHERE now() < value + 10 AND value <= now() + 5",
        {"links": links},
        name="now",
    )
    view.map(lambda key, row: row, key=S, value=eddy.Int64).to_table("there").to("out")
    return topology


def test_conditions_on_the_present_time_in_sql_are_verified(tmp_path: Path, spark: Any) -> None:
    rig = Rig(tmp_path, in_sql, [TopicSpec(name, 2) for name in ("in", "out")], spark)
    moments = [(b"a", 95), (b"b", 91), (b"c", 105), (b"d", 106), (b"e", 90)]
    rig.write("in", [(key, eddy.Int64.encode(at)) for key, at in moments])
    config = eddy.Config(state_dir=rig.state / "0", cut_interval_s=0.0)
    with closing(eddy.Worker(rig.topology(), rig.log, config, member="0", wall=lambda: 0.1)) as worker:
        worker.run_until_idle()
        worker.step()
    assert set(rig.held()["out"]) == {b"a", b"b", b"c"}
    verdict = rig.verify()
    assert (verdict.status, verdict.undetermined, verdict.notes) == (0, {}, {}), list(verdict.lines())
    assert {part.name for part in verdict.compared} >= {"now-now-rows", "now-now-moments", "now-now-calendar", "out"}
    rig.close()
