"""Tables whose rows expire, on Spark: at a cut they are those of the worker, whose clocks the cut has."""

import random
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddy
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark.session import ONE_TASK
from eddy.errors import ConfigurationError
from eddy.runtime.quiescence import Counters, Cut, last_cut
from tests.seeds import DAY, in_turn
from tests.spark.rig import Rig, ancestors, plant
from tests.waiting import Deadline

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S = eddy.String
AFTER_MS = 10
BY = ("event time", "wall clock")
Sign = tuple[bytes | None, bytes | None, int]
"""Key, value and time of a record."""


def living(by: Any) -> eddy.Topology:
    """Signs of life, kept for a while, and how many there are of each value."""
    topology = eddy.Topology("app")
    signs = topology.stream("in", S, S).filter(lambda key, value: value != "tick")
    live = signs.to_table("live", timedelta(milliseconds=AFTER_MS), by)
    live.to("out")
    live.group_by(lambda key, value: (value, key), key=S, value=S).count("counts").to("counts")
    return topology


def signs(rng: random.Random, count: int, at: int) -> list[Sign]:
    """Records about a moment: late ones, some expired when they come; tombstones; some that are not rows, or no
    keys.
    """
    keys, values = [*(b"%d" % n for n in range(12)), None], [b"x", b"y", b"z", b"tick", None]
    return [(rng.choice(keys), rng.choice(values), at + rng.randint(-2 * AFTER_MS, AFTER_MS)) for _ in range(count)]


class ExpiryRig(Rig):
    """Workers of given clocks, and records of given times."""

    def __init__(self, folder: Path, by: str, partitions: int, spark: Any = None, **settings: str) -> None:
        topics = [TopicSpec("in", partitions, settings), *(TopicSpec(name, partitions) for name in ("out", "counts"))]
        super().__init__(folder, lambda: living(by), topics, spark)
        self.partitions = partitions

    def send(self, rows: list[Sign]) -> None:
        self.write_at("in", rows)

    def until(self, now_ms: int) -> None:
        """A worker whose clock stands at a moment, until nothing is left to do."""
        with closing(self.worker(now_ms, "0")) as worker:
            worker.run_until_idle()
            worker.step()

    def worker(self, now_ms: int, member: str) -> eddy.Worker:
        config = eddy.Config(state_dir=self.state / member, cut_interval_s=0.0)
        return eddy.Worker(self.topology(), self.log, config, member=member, wall=lambda: now_ms / 1000)

    def equal(self, **options: Any) -> None:
        """Verify, and nothing is left out."""
        verdict = self.verify(**options)
        assert (verdict.status, verdict.undetermined, verdict.notes) == (0, {}, {}), list(verdict.lines())
        assert {part.name for part in verdict.compared} >= {"live", "live-deadlines", "live-calendar", "out"}

    @property
    def cut(self) -> Cut:
        cut = last_cut(self.log, "app-cuts")
        assert cut is not None
        return cut

    def clocks(self) -> dict[TopicPartition, tuple[int, int]]:
        """Event time and tick of each position that has them."""
        known = {"in": self.partitions, "app-counts-repartition": self.partitions}
        tps = [TopicPartition(topic, p) for topic, count in known.items() for p in range(count)]
        noted = {tp: Counters.of(position) for tp, position in self.log.committed("app", tps).items()}
        clocks = {tp: (counters.event_time, counters.tick) for tp, counters in noted.items()}
        return {tp: both for tp, both in clocks.items() if both != (-1, -1)}


@pytest.fixture
def rig_of(tmp_path: Path, spark: Any) -> Iterator[Callable[..., ExpiryRig]]:
    made: list[ExpiryRig] = []

    def make(*given: Any, **settings: str) -> ExpiryRig:
        made.append(ExpiryRig(tmp_path / str(len(made)), *given, spark, **settings))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


WAYS = [(by, partitions, way) for way in (ONE_TASK, 0) for by in BY for partitions in (1, 3)]


@pytest.mark.parametrize(("by", "partitions", "way"), [*in_turn(WAYS, 4)])
def test_a_worker_goes_on_from_a_backfill_as_from_its_own_states(
    rig_of: Callable[..., ExpiryRig], by: str, partitions: int, way: int
) -> None:
    rng, now = random.Random(f"{DAY} {by} {partitions}"), 1_000
    rig, scratch = rig_of(by, partitions), rig_of(by, partitions)
    rig.one_task = scratch.one_task = way
    for _ in range(4):
        some = signs(rng, 30, now)
        rig.send(some), scratch.send(some)
        scratch.until(now)
        now += AFTER_MS // 2
    now -= AFTER_MS // 2
    scratch.equal()
    assert rig.held()["out"] == {}
    rig.backfill(wall=lambda: now / 1000)
    assert rig.held() == scratch.held()
    assert rig.clocks() == scratch.clocks()
    assert rig.cut.event_times == scratch.cut.event_times
    assert rig.cut.ticks == scratch.cut.ticks
    assert rig.backfill().already
    rig.equal()
    for step in range(4):
        now += AFTER_MS // 3
        some = signs(rng, 8, now)
        for one in (rig, scratch):
            if step != 1:  # else the clock alone goes on
                one.send(some)
            one.until(now)
        assert rig.held() == scratch.held()
        assert rig.clocks() == scratch.clocks()
    assert rig.held()["out"]
    rig.equal()


def test_workers_with_different_clocks_have_different_ticks(rig_of: Callable[..., ExpiryRig]) -> None:
    rig, rng = rig_of("wall clock", 3), random.Random(DAY)
    rig.send([(b"%d" % key, b"x", 1_000 + rng.randint(0, AFTER_MS)) for key in range(30)])
    workers = [rig.worker(1_010, "a"), rig.worker(1_014, "b")]
    deadline = Deadline()
    while sum(worker.step() for worker in workers) or not workers[0].quiescent() or len(set(*rig.cut.ticks)) < 2:
        deadline.check("a cut of both workers")
    for worker in workers:
        worker.close()
    assert set(*rig.cut.ticks) == {1_010, 1_014}
    assert 0 < len(rig.latest("out")) < 30
    rig.equal()


@pytest.mark.parametrize("way", [*in_turn([ONE_TASK, 0], 2)])
def test_a_wrong_row_or_entry_is_found(rig_of: Callable[..., ExpiryRig], way: int) -> None:
    rig = rig_of("event time", 3)
    rig.one_task = way
    rig.send([(b"a", b"x", 5), (b"b", b"y", 9)])
    rig.until(0)
    entry = (9 + AFTER_MS).to_bytes(8, "big") + b"b"
    plant(rig, "UPDATE records SET value = NULL", "app-live-calendar-changelog", entry)
    plant(rig, "UPDATE records SET value = ?", "app-live-deadlines-changelog", b"a", (99).to_bytes(8, "big"))
    verdict = rig.verify()
    wrong = {part.name: part.examples for part in verdict.compared if part.differing}
    assert wrong.keys() == {"live-calendar", "live-deadlines"}
    assert [(e.key, e.expected, e.found) for e in wrong["live-calendar"]] == [("(19, 'b')", "'due'", "nothing")]
    assert [(e.key, e.expected, e.found) for e in wrong["live-deadlines"]] == [("'a'", "15", "99")]


@pytest.mark.parametrize("by", [*in_turn(BY, 2)])
def test_a_backfill_that_ends_in_between_goes_on_at_its_own_moment(rig_of: Callable[..., ExpiryRig], by: str) -> None:
    rig, scratch, rng = rig_of(by, 3), rig_of(by, 3), random.Random(DAY)
    some = signs(rng, 60, 1_000)
    rig.send(some), scratch.send(some)
    scratch.until(1_000)
    now = 1_000

    def end_at(stage: str) -> Callable[[str], None]:
        def reached(name: str) -> None:
            if name == stage:
                raise KeyboardInterrupt

        return reached

    for stage in ("write changelogs", "write outputs", "finish"):
        with pytest.raises(KeyboardInterrupt):
            rig.backfill(stage=end_at(stage), wall=lambda now=now: now / 1000)
        now += AFTER_MS
    program, (other,) = rig.topology, {*BY} - {by}
    rig.topology = lambda: living(other)
    with pytest.raises(ConfigurationError, match="an unfinished backfill was made with another topology"):
        rig.backfill()
    rig.topology = program
    rig.backfill(wall=lambda: now / 1000)
    assert rig.held() == scratch.held()
    assert rig.clocks() == scratch.clocks()
    rig.equal()


def test_a_worker_whose_clock_is_behind_that_of_the_backfill_goes_on_at_its_moment(
    rig_of: Callable[..., ExpiryRig],
) -> None:
    rig = rig_of("wall clock", 3)
    rig.send([(b"%d" % key, b"x", 1_000 + key) for key in range(20)])
    rig.backfill(wall=lambda: 1.02)
    assert {tick for _, tick in rig.clocks().values()} == {1_020}
    rig.send([(b"old", b"x", 1_005), (b"new", b"x", 1_015)])
    rig.until(900)
    assert {tick for _, tick in rig.clocks().values()} == {1_020}
    assert sorted(rig.latest("out")) == sorted([b"new", *(b"%d" % key for key in range(11, 20))])
    rig.equal()


@pytest.mark.parametrize("way", [*in_turn([ONE_TASK, 0], 2)])
def test_a_compacted_topic_that_has_lost_the_latest_record_is_verified_by_the_clocks_of_the_cut(
    rig_of: Callable[..., ExpiryRig], way: int
) -> None:
    rig = rig_of("event time", 1, **{"cleanup.policy": "compact"})
    rig.one_task = way
    rig.send([(b"a", b"x", 5), (b"b", b"y", 15), (b"b", b"z", 9)])
    rig.until(0)
    assert rig.cut.event_times == {"in": [15]}
    rig.log.compact("in")
    assert len(rig.rows("in")) == 2
    assert {key: value for key, (_, value) in rig.latest("out").items()} == {b"b": b"z"}
    rig.equal()
    with pytest.raises(ConfigurationError, match="rows of tables expire, and the cut has no clock"):
        rig.verify(cut=Cut(rig.cut.inputs, rig.cut.outputs))


def test_a_compacted_topic_without_records_needs_no_clock(rig_of: Callable[..., ExpiryRig]) -> None:
    rig = rig_of("event time", 1, **{"cleanup.policy": "compact"})
    rig.log.create_topics([TopicSpec("other", 1)])

    def both() -> eddy.Topology:
        topology = living("event time")
        topology.stream("other", S, S).group_by_key().count("others")
        return topology

    rig.topology = both
    rig.write("other", [(b"a", b"x")])
    rig.until(0)
    assert rig.cut.event_times == {}
    rig.equal()


def test_tables_of_different_partition_counts_have_ticks_of_their_own(rig_of: Callable[..., ExpiryRig]) -> None:
    rig, now = rig_of("wall clock", 3), 1_000
    rig.log.create_topics([TopicSpec("wide", 4), TopicSpec("far", 4)])
    after = timedelta(milliseconds=AFTER_MS)

    def with_recursion() -> eddy.Topology:
        topology = living("wall clock")
        parents = topology.stream("wide", S, S).to_table("parents", after, "wall clock")
        ancestors(parents).group_by_key().count("below").to("far")
        return topology

    rig.topology = with_recursion
    rig.send([(b"%d" % key, b"x", now + key % AFTER_MS) for key in range(30)])
    with closing(rig.log.producer(None)) as producer:
        producer.begin()
        for key in range(1, 30):
            child, parent = b"%d" % key, b"%d" % (key // 2)
            producer.send("wide", rig.log.partitioner(child, 4), [child], [parent], [now + key % AFTER_MS])
        producer.commit({}, None)
    workers = [rig.worker(now + 10, "a"), rig.worker(now + 14, "b")]
    deadline = Deadline()
    while sum(worker.step() for worker in workers) or not workers[0].quiescent() or not all_differ(rig):
        deadline.check("a cut of both workers")
    for worker in workers:
        worker.close()
    assert [len(ticks) for ticks in rig.cut.ticks] == [3, 4]
    assert rig.latest("far")
    rig.equal()


def all_differ(rig: ExpiryRig) -> bool:
    """Whether the last cut has ticks of two workers for each number of partitions."""
    cut = last_cut(rig.log, "app-cuts")
    return cut is not None and bool(cut.ticks) and all(len(set(ticks)) == 2 for ticks in cut.ticks)


def test_a_cut_of_an_earlier_release_has_no_ticks_and_is_refused(rig_of: Callable[..., ExpiryRig]) -> None:
    rig = rig_of("wall clock", 1)
    rig.until(1_000)
    rig.equal()  # no record, and so no clock
    rig.send([(b"a", b"x", 1_000)])
    rig.until(1_000)
    old = msgspec.json.encode({"inputs": rig.cut.inputs, "outputs": rig.cut.outputs})
    with pytest.raises(ConfigurationError, match="Let a worker of this release process a record"):
        rig.verify(cut=Cut.decode(old))
    rig.equal()


@pytest.mark.parametrize("way", [*in_turn([ONE_TASK, 0], 2)])
def test_a_record_of_a_file_moves_the_clock_of_its_keys_partition(
    rig_of: Callable[..., ExpiryRig], tmp_path: Path, way: int
) -> None:
    rng = random.Random(DAY)
    before, after = signs(rng, 60, 1_000), signs(rng, 20, 1_010)
    before = sorted((sign for sign in before if sign[0] is not None), key=lambda sign: sign[2])
    keys, values, times = zip(*before, strict=True)
    pq.write_table(
        pa.table({"key": [*keys], "value": [*values], "timestamp": pa.array(times, pa.int64())}),
        tmp_path / "in.parquet",
    )
    files = {"in": str(tmp_path / "in.parquet")}
    rig, scratch = rig_of("event time", 3), rig_of("event time", 3)
    rig.one_task = way
    scratch.send(before)
    for one in (rig, scratch):
        one.send(after[:10])
    scratch.until(0)
    rig.backfill(files=files)
    assert rig.held() == scratch.held()
    assert rig.clocks() == scratch.clocks()
    for one in (rig, scratch):
        one.send(after[10:])
        one.until(0)
    assert rig.held() == scratch.held()
    rig.equal(files=files)


@pytest.mark.parametrize("way", [*in_turn([ONE_TASK, 0], 2)])
def test_records_left_out_move_no_clock(rig_of: Callable[..., ExpiryRig], way: int) -> None:
    rig = rig_of("event time", 1)
    rig.one_task = way
    rig.send([(b"a", b"x", 5), (b"b", b"\xff", 99), (b"c", b"x", 6)])
    config = eddy.Config(state_dir=rig.state, on_error="skip")
    with closing(eddy.Worker(rig.topology(), rig.log, config)) as worker:
        worker.run_until_idle()
    assert rig.cut.event_times == {"in": [6]}
    rig.equal(on_error="skip")
    assert sorted(rig.latest("out")) == [b"a", b"c"]


@pytest.mark.parametrize("way", [*in_turn([ONE_TASK, 0], 2)])
def test_a_repair_of_a_table_keeps_the_moment(rig_of: Callable[..., ExpiryRig], way: int) -> None:
    rig = rig_of("wall clock", 3)
    rig.one_task = way
    rig.log.create_topics([TopicSpec("names", 3)])

    def named() -> eddy.Topology:
        topology = eddy.Topology("app")
        names = topology.table("names", S, S)
        live = topology.stream("in", S, S).to_table("live", timedelta(milliseconds=AFTER_MS), "wall clock")
        live.join(names, lambda sign, name: sign + name).to("out")
        return topology

    rig.topology = named
    rig.write("names", [(b"%d" % key, b"name") for key in range(6)])
    rig.send([(b"%d" % key, b"x", 1_000 + key) for key in range(6)])
    rig.until(1_012)
    plant(rig, "UPDATE records SET value = ?", "names", b"4", b"other")
    verdict = rig.verify(repair=True)
    assert (verdict.status, verdict.repaired.written) == (1, {"names": 1}), list(verdict.lines())
    rig.until(1_012)
    rig.equal()
    assert {key: value for key, (_, value) in rig.latest("out").items()} == {
        b"3": b"xname",
        b"4": b"xother",
        b"5": b"xname",
    }


def test_a_plan_without_clocks_has_none_in_its_cuts_and_positions(rig_of: Callable[..., ExpiryRig]) -> None:
    rig = rig_of("event time", 1)

    def counted() -> eddy.Topology:
        topology = eddy.Topology("app")
        topology.stream("in", S, S).group_by_key().count("counts").to("counts")
        return topology

    rig.topology = counted
    rig.send([(b"a", b"x", 5)])
    rig.backfill()
    assert b"event_times" not in rig.cut.encode()
    (position,) = rig.log.committed("app", [TopicPartition("in", 0)]).values()
    assert re.fullmatch(r"0 0 @topic=\d+", position.metadata)


def idling() -> eddy.Topology:
    """Signs of life, kept for a while, of a source that may be idle, and how many there are in windows."""
    topology = eddy.Topology("app")
    signs = topology.stream("in", S, S, idle_after=timedelta(milliseconds=AFTER_MS))
    signs.to_table("live", timedelta(milliseconds=AFTER_MS), "event time").to("out")
    windows = signs.group_by_key().windowed_by(eddy.TimeWindows(timedelta(milliseconds=AFTER_MS)))
    windows.count("counts").to("counts")
    return topology


def test_rows_of_an_idle_source_are_verified_by_the_clocks_of_the_cut_and_windows_are_left_out(
    rig_of: Callable[..., ExpiryRig],
) -> None:
    rig, now = rig_of("event time", 3), 1_000
    rig.topology = idling
    rig.send(signs(random.Random(DAY), 40, now))
    config = eddy.Config(state_dir=rig.state, cut_interval_s=0.0)
    with closing(eddy.Worker(idling(), rig.log, config, wall=lambda: now / 1000)) as worker:
        worker.run_until_idle()
        assert worker.store("live").all()
        now += 10 * AFTER_MS
        worker.run_until_idle()
        worker.step()
        assert worker.store("live").all() == {}
    assert min(rig.cut.event_times["in"]) == now - AFTER_MS
    verdict = rig.verify()
    assert (verdict.status, verdict.differs) == (2, False), list(verdict.lines())
    assert {part.name for part in verdict.compared} >= {"live", "live-deadlines", "live-calendar", "out"}
    assert {"store 'counts'", "store 'counts-calendar'"} <= verdict.undetermined.keys()
    assert any("idle_after" in reason for reason in verdict.undetermined.values())
    with pytest.raises(ConfigurationError, match="topic 'in' has idle_after"):
        rig.backfill()
