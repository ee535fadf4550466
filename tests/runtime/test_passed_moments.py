"""Moments of the wall clock that pass while no worker runs: the next worker does what is due, once, in order.

The oracle computes the outputs of each partition from its commits alone: the position and the tick of each. It shares
no code with the operators.
"""

import re
import uuid
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from operator import le
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from tests.children import KilledError
from tests.connectors.steps import KEPT, QUICK_SESSIONS, read_all
from tests.simulation.witness import KeptStore
from tests.waiting import Deadline, wait_for

S, N = eddy.String, eddy.Int64
EVERY_MS, AFTER_MS, LIMIT_MS = 10, 12, 15
SIZE_MS, IDLE_MS = 10, 20
OUT = ("valid", "alive", "calm", "calls", "closed")
SLOW_MS = 7
"""Milliseconds by which the clock of the second worker is behind."""

Sent = tuple[str, int | None, int]
"""A key, a value and a timestamp. The value n is true from n to n + `AFTER_MS`."""


class Caller:
    """Forwards the time of each of its calls."""

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context = context
        context.schedule(timedelta(milliseconds=EVERY_MS), "wall clock", self.call)

    def process(self, record: eddy.Record[str, int]) -> None:
        """Nothing."""

    def call(self, time_ms: int) -> None:
        self.context.forward(eddy.Record(f"{self.context.partition}", time_ms))


def topology(name: str) -> eddy.Topology:
    """One step of each kind that the wall clock moves."""
    made = eddy.Topology(name)
    records = made.stream(f"{name}-in", S, N, idle_after=timedelta(milliseconds=IDLE_MS))
    table = records.to_table("latest")
    true = table.to_relation().valid(
        clock="wall clock", from_=lambda key, n: n, until=lambda key, n: n + AFTER_MS, name="true"
    )
    true.to_table("rows").to(f"{name}-valid")
    records.to_table("online", timedelta(milliseconds=AFTER_MS), "wall clock").to(f"{name}-alive")
    table.suppress("seldom", until_time_limit=timedelta(milliseconds=LIMIT_MS)).to(f"{name}-calm")
    records.process(Caller, [], "caller", S, N).to(f"{name}-calls")
    windows = eddy.TimeWindows(timedelta(milliseconds=SIZE_MS))
    counts = records.group_by_key().windowed_by(windows, emit="close").count("counts").to_stream()
    counts.map(lambda window, n: (f"{window.key} {window.start_ms}", n), key=S, value=N).to(f"{name}-closed")
    return made


@dataclass
class Plain:
    """A partition as its commits made it; `told` has the rows of its outputs, in their order."""

    partition: int
    rows: dict[str, int] = field(default_factory=dict)
    valid: dict[str, int] = field(default_factory=dict)
    alive: dict[str, tuple[int, int]] = field(default_factory=dict)
    calm: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    called: int | None = None
    event: int = -1
    windows: dict[tuple[str, int], int] = field(default_factory=dict)
    told: dict[str, list[tuple[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    def commit(self, records: list[Sent], tick: int, event: int) -> None:
        """Apply a commit of these records, with its tick and its event time."""
        if self.called is not None and tick // EVERY_MS > self.called // EVERY_MS:
            self.told["calls"].append((f"{self.partition}", tick))
        self.called = tick
        alive = dict(self.alive)
        for key, n, stamp in records:
            self.rows.pop(key, None)
            alive.pop(key, None)
            if n is not None:
                self.rows[key], alive[key] = n, (n, stamp)
        self._count(records, tick, event)
        alive = {key: row for key, row in alive.items() if tick < row[1] + AFTER_MS}
        self._tell("alive", {k: n for k, (n, _) in self.alive.items()}, {k: n for k, (n, _) in alive.items()})
        valid = {key: n for key, n in self.rows.items() if n <= tick < n + AFTER_MS}
        self._tell("valid", self.valid, valid)
        self.alive, self.valid = alive, valid
        for key in {key for key, _, _ in records}:
            if self.rows.get(key) == self.calm.get(key):
                self.waiting.pop(key, None)
            else:
                self.waiting.setdefault(key, tick + LIMIT_MS)
        due = {key for key, moment in self.waiting.items() if moment <= tick}
        calm = {**{k: n for k, n in self.calm.items() if k not in due}, **{k: self.rows[k] for k in due & {*self.rows}}}
        self._tell("calm", self.calm, calm)
        self.calm, self.waiting = calm, {k: at for k, at in self.waiting.items() if k not in due}

    def _count(self, records: list[Sent], tick: int, event: int) -> None:
        windows, now = dict(self.windows), self.event
        for key, n, stamp in records:
            start = stamp // SIZE_MS * SIZE_MS
            if n is not None and now < start + SIZE_MS:
                windows[key, start] = windows.get((key, start), 0) + 1
            now = max(now, stamp)
        assert event == now or (not records and now < event <= tick - IDLE_MS)
        over = {window: n for window, n in windows.items() if window[1] + SIZE_MS <= event}
        self.told["closed"] += [(f"{key} {start}", n) for (key, start), n in over.items()]
        self.event, self.windows = event, {window: n for window, n in windows.items() if window not in over}

    def _tell(self, name: str, before: dict[str, int], after: dict[str, int]) -> None:
        keys = sorted(before.keys() | after.keys())
        self.told[name] += [(key, after.get(key)) for key in keys if before.get(key) != after.get(key)]

    def due(self, now: int) -> bool:
        """Whether a commit without records would tell something now; the clock of a partition never goes back."""
        other = replace(self, told=defaultdict(list))
        other.commit([], max(now, self.called or 0), self.event)
        return any(other.told.values())


class World:
    """Workers on a log, with a clock that a test sets, and what they have committed."""

    def __init__(self, log: Any, partitions: int) -> None:
        self.log, self.partitions, self.now_ms = log, partitions, 1
        self.name = f"moments-{uuid.uuid4().hex[:8]}"
        self.log.create_topics([TopicSpec(f"{self.name}-{name}", partitions, KEPT) for name in ("in", *OUT)])
        self.plain = [Plain(partition) for partition in range(partitions)]
        self.seen = [(0, -1, -1)] * partitions
        self.workers: dict[str, eddy.Worker] = {}
        self.stores = {member: KeptStore() for member in "ab"}

    def start(self, member: str, lost: bool, kill_at: int = 0) -> None:
        """Start a worker; it is killed at a step of an epoch, the first one being 1."""
        if lost:
            self.stores[member] = KeptStore()
        slow, steps = SLOW_MS * (member == "b"), iter(range(1, 1 << 30))

        def observe(step: str) -> None:
            if next(steps) == kill_at:
                raise KilledError

        self.workers[member] = eddy.Worker(
            topology(self.name),
            self.log,
            member=member,
            store=self.stores[member],
            wall=lambda: max(0, self.now_ms - slow) / 1000,
            observe=observe,
        )

    def send(self, records: list[Sent]) -> None:
        producer = self.log.producer(None)
        producer.begin()
        for key, n, stamp in records:
            home = partition_of(key.encode(), self.partitions)
            producer.send(f"{self.name}-in", home, [key.encode()], [None if n is None else N.encode(n)], [stamp])
        producer.commit({}, None)
        producer.close()

    def look(self) -> None:
        """Apply what was committed since the last look to the oracle."""
        found = self.log.committed(self.name, self.at("in"))
        for at, position in found.items():
            clocks = {name: int(time) for name, time in re.findall(r"@(tick|event)=(\d+)", position.metadata)}
            now = position.offset, clocks.get("tick", -1), clocks.get("event", -1)
            before = self.seen[at.partition]
            if "tick" not in clocks or now == before:
                continue
            assert now[1] <= self.now_ms
            assert all(map(le, before, now))
            plain = self.plain[at.partition]
            plain.commit(self.read(at, before[0], now[0]), *now[1:])
            self.seen[at.partition] = now

    def step(self) -> int:
        """Step each worker once; one that is killed goes."""
        taken = 0
        for member, worker in list(self.workers.items()):
            try:
                taken += worker.step()
            except KilledError:
                self.log.evict(self.name, member)
                del self.workers[member]
            self.look()
        return taken

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.close()
        self.look()
        self.workers.clear()

    def rest(self) -> None:
        deadline = Deadline()
        while self.workers and (self.step() or not all(worker.idle() for worker in self.workers.values())):
            deadline.check("the workers are idle")
        for _ in range(3):
            self.step()

    def at(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(f"{self.name}-{topic}", partition) for partition in range(self.partitions)]

    def read(self, at: TopicPartition, first: int = 0, end: int = 1 << 60) -> list[Sent]:
        found = read_all(self.log, *at)
        columns = zip(found.offsets, found.keys, found.values, found.timestamps, strict=True)
        return [
            ((key or b"").decode(), None if value is None else N.decode(value), stamp)
            for offset, key, value, stamp in columns
            if first <= offset < end
        ]

    def done(self) -> bool:
        """Whether workers have nothing left to do: all records are read, and nothing is due by the slower clock."""
        positions = {at: seen[0] for at, seen in zip(self.at("in"), self.seen, strict=True)}
        ends = self.log.end_offsets(self.at("in"))
        return positions == ends and not any(plain.due(max(0, self.now_ms - SLOW_MS)) for plain in self.plain)

    def check(self) -> None:
        """All that was committed was told, once and in order; nothing is left to do where workers run."""
        for name in OUT:
            out = [row for at in self.at(name) for row in self.read(at)]
            told = [row for plain in self.plain for row in plain.told[name]]
            assert by_key(out) == by_key(told), name
        assert not self.workers or self.done()


def by_key(rows: list[Any]) -> dict[str, list[Any]]:
    found = defaultdict(list)
    for key, value, *_ in rows:
        found[key].append(value)
    return dict(found)


sent = st.tuples(
    st.sampled_from("abcdef"),
    st.one_of(st.none(), st.integers(0, 150)),
    st.integers(0, 150),
)
turns = st.lists(
    st.one_of(
        st.lists(sent, min_size=1, max_size=5),
        st.integers(1, 40),
        st.tuples(st.just("start"), st.sampled_from("ab"), st.booleans(), st.integers(0, 60)),
        st.sampled_from(["stop", "step"]),
    ),
    max_size=14,
)


@given(turns, st.integers(1, 3))
def test_what_is_due_happens_once_whenever_workers_run(story: list[Any], partitions: int) -> None:
    world = World(LocalLog(None), partitions)
    for turn in [*story, "stop", 50, ("start", "a", False, 0), ("start", "b", False, 0), 1, *[IDLE_MS] * 3]:
        match turn:
            case list():
                world.send(turn)
            case int():
                world.now_ms += turn
            case "stop":
                world.stop()
            case "step":
                world.step()
                continue
            case ("start", member, lost, kill_at):
                if member not in world.workers:
                    world.start(member, lost, kill_at)
        if not isinstance(turn, list):
            world.rest()
            world.check()
    late = {
        start for plain in world.plain for _, start in plain.windows if start + SIZE_MS < world.now_ms - 3 * IDLE_MS
    }
    assert not late
    world.stop()


def test_on_kafka_what_is_due_happens_once_after_workers_were_stopped(broker: str) -> None:
    with closing(KafkaLog(KafkaSettings.of(broker, pairs=QUICK_SESSIONS))) as log:
        world = World(log, 2)
        world.now_ms = 1_000
        for at, members in enumerate(["a", "ab", "b"]):
            world.send([(key, world.now_ms + 3 * n, world.now_ms + n) for n, key in enumerate("abcdef"[at:])])
            for member in members:
                world.start(member, lost=at == 2)
            wait_for(lambda: world.step() == 0 and world.done())
            world.stop()
            world.check()
            world.now_ms += 35  # everything that waits becomes due while no worker runs
        for member in "ab":
            world.start(member, lost=False)
        wait_for(lambda: world.step() == 0 and world.done())
        world.now_ms += IDLE_MS + SLOW_MS
        wait_for(lambda: world.step() == 0 and world.done())
        world.check()
        world.stop()
    assert {name for plain in world.plain for name, rows in plain.told.items() if rows} == {*OUT}
