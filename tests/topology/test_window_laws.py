"""Windows are a function of the records of each partition: an oracle in plain Python over the whole input.

Whatever the cut into epochs, the pace of partitions, the number of partitions and workers, restarts and lost states.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.operators.context import Context
from eddy.partitioner import partition_of
from eddy.runtime.lifecycle import WorkerState
from eddy.state.memory import MemoryStore
from tests.waiting import PATIENCE_S, Deadline, step_to_rest

S, N = eddy.String, eddy.Int64
TOPICS = ("in", "more")
Record = tuple[int, str, int, int]
"""The number of its topic, its key, value and timestamp."""
IDLE = -1
"""In place of a topic: all partitions are idle, and their event time is at least the timestamp."""
Window = tuple[str, int, int]
"""A key with the start and the end of a window."""


@dataclass(frozen=True)
class Program:
    """Aggregates of windows; `size`, `advance`, `grace` and `retention` in milliseconds."""

    size: int
    advance: int
    grace: int
    retention: int
    emit: Literal["update", "close", "suppress"]
    aggregate: Literal["sum", "reduce", "kinds", "lists"]
    """The numbers' sum, with a total in a state of its own, or by a fold; the number of last digits in base 3; or all
    values, if they are three at most.
    """
    by_value: bool
    """Whether groups are of the values' last digit, so that records have to be sent."""
    filtered: bool
    topics: int
    kind: Literal["time", "sessions", "sliding"] = "time"
    """Sessions have a gap of `size`, sliding windows this difference."""

    idle_after: int = 0
    """The time after which a partition without records is idle; 0 for never."""
    sent: Literal["", "once", "twice", "keyed", "merged"] = ""
    """The exchanges that are written before the groups; merged: those of the first topic alone."""

    @property
    def sessions(self) -> bool:
        return self.kind == "sessions"

    @property
    def sliding(self) -> bool:
        return self.kind == "sliding"

    @property
    def valued(self) -> bool:
        """Whether the values of windows are in a state of their own."""
        return self.aggregate in ("kinds", "lists")

    def made_of(self, values: Sequence[int]) -> Any:
        """The aggregate of the values of a window; None for none."""
        match self.aggregate:
            case "kinds":
                return len({value % 3 for value in values})
            case "lists":
                return tuple(sorted(values)) if len(values) <= 3 else None
            case _:
                return sum(values)

    def sends(self, topic: int) -> bool:
        """Whether records of a topic are sent before they are grouped."""
        return topic == 0 if self.sent == "merged" else bool(self.sent)

    def topology(self) -> eddy.Topology:
        made = eddy.Topology("app")
        idle = ms(self.idle_after) if self.idle_after else None
        streams = [made.stream(topic, key=S, value=N, idle_after=idle) for topic in TOPICS[: self.topics]]
        if self.sent == "merged":
            streams[0] = streams[0].repartition(name="first")
        stream = streams[0].merge(*streams[1:]) if self.topics > 1 else streams[0]
        if self.sent in ("once", "twice"):
            stream = stream.repartition(3, "first").peek(lambda key, value: None)
        if self.sent == "twice":
            stream = stream.repartition(2, "second")
        if self.sent == "keyed":
            stream = stream.select_key(lambda key, value: str(value % 10), key=S).repartition(2, "first")
        if self.filtered:
            stream = stream.filter(lambda key, value: value % 3 != 0)
        by_value = self.by_value and self.sent != "keyed"
        groups = stream.group_by(lambda key, value: str(value % 10), key=S) if by_value else stream.group_by_key()
        windows: eddy.TimeWindows | eddy.SessionWindows | eddy.SlidingWindows
        if self.sliding:
            windows = eddy.SlidingWindows(ms(self.size), ms(self.grace))
        elif self.sessions:
            windows = eddy.SessionWindows(ms(self.size), ms(self.grace))
        else:
            windows = eddy.TimeWindows(ms(self.size), ms(self.advance), ms(self.grace))
        emit: Literal["update", "close"] = "close" if self.emit == "close" else "update"
        summed = self.aggregated(groups.windowed_by(windows, emit, ms(self.retention)))
        if self.emit == "suppress":
            summed = summed.map_values(lambda value: value, value=eddy.Native).suppress()
        summed.to_stream().map(lambda key, value: (key.key, (key.start_ms, value)), key=S).to("out", value=eddy.Native)
        return made

    def aggregated(self, groups: eddy.KGroupedStream[eddy.Windowed[str], int]) -> eddy.KTable[eddy.Windowed[str], Any]:
        match self.aggregate:
            case "sum":
                return groups.sum("sums")
            case "reduce":
                return groups.reduce(lambda a, b: a + b, "sums")
            case "kinds":
                return groups.distinct_count("sums", of=lambda value: value % 3)
            case "lists":
                return groups.collect("sums", max=3)


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


@dataclass(frozen=True)
class Oracle:
    """What has to come of records, by the rule alone."""

    program: Program
    partitions: int
    records: Sequence[Record]

    def __post_init__(self) -> None:
        program = self.program
        self.times: dict[tuple[int, int], int]
        times: dict[tuple[int, int], int] = {}
        values: dict[Window, tuple[int, ...]] = {}
        alone: list[tuple[str, int, int]] = []
        slid: list[tuple[str, int, int, int]] = []
        late = 0
        for topic, key, value, stamp in self.records:
            place = (topic, partition_of(key.encode(), self.partitions))
            moved = itertools.product(range(program.topics), range(self.partitions)) if topic == IDLE else [place]
            times |= {at: max(times.get(at, -1), stamp) for at in moved}
            if topic == IDLE or (program.filtered and value % 3 == 0):
                continue
            group = str(value % 10) if program.by_value or program.sent == "keyed" else key
            if program.sessions or program.sliding:
                if stamp + program.size + program.grace < times[place]:
                    late += 1
                elif program.sliding:
                    slid.append((group, stamp, value, times[place] - program.grace))
                else:
                    alone.append((group, stamp, value))
                continue
            for start in range(0, stamp + 1, program.advance):
                end = start + program.size
                if start <= stamp < end:
                    if end + program.grace <= times[place]:
                        late += 1
                    else:
                        window = (group, start, end)
                        values[window] = (*values.get(window, ()), value)
        last: Window | None = None
        for group, stamp, value in sorted(alone):
            if last is not None and last[0] == group and stamp - last[2] <= program.size:
                there, last = values.pop(last), (group, last[1], stamp)
            else:
                there, last = (), (group, stamp, stamp)
            values[last] = (*there, value)
        values |= self._slid(slid)
        sums = {window: program.made_of(there) for window, there in values.items()}
        kept = [(group, stamp + 1, stamp + 1 + program.size) for group, stamp, _, _ in slid]
        object.__setattr__(self, "kept", sum(not self._passed(times, window) for window in kept))
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "sums", {window: made for window, made in sums.items() if made is not None})
        object.__setattr__(self, "late", late)

    def _slid(self, records: list[tuple[str, int, int, int]]) -> dict[Window, tuple[int, ...]]:
        """The windows that records make; each record is (group, time, value, first end for which it is not late)."""
        size, found = self.program.size, dict[Window, tuple[int, ...]]()
        for group, stamp, _, over in records:
            for start in (max(0, stamp - size), stamp + 1):
                end = start + size
                there = [
                    value
                    for of, time, value, first_end in records
                    if of == group and start <= time <= end and first_end <= end
                ]
                if over <= end and there:
                    found[group, start, end] = tuple(there)
        return found

    values: dict[Window, tuple[int, ...]] = None  # type: ignore[assignment]
    """The values of each window that there ever was."""
    sums: dict[Window, Any] = None  # type: ignore[assignment]
    """The row of each window that there ever was, unless its aggregate is None."""
    late: int = 0
    kept: int = 0
    """The records of sliding windows that may still be in one."""

    def passed(self, window: Window, later: int = 0) -> bool:
        """Whether all partitions with records of a window's group have passed its end, the grace, and `later`."""
        return self._passed(self.times, window, later)

    def _passed(self, times: Mapping[tuple[int, int], int], window: Window, later: int = 0) -> bool:
        group, _, end = window
        home = partition_of(group.encode(), self.partitions)
        places = [
            (topic, partition)
            for topic in range(self.program.topics)
            for partition in range(self.partitions)
            if self.program.by_value or self.program.sends(topic) or partition == home
        ]
        if self.program.sessions:
            end += 2 * self.program.size + 1
        elif self.program.sliding:
            end += 1
        return all(times.get(place, -1) >= end + self.program.grace + later for place in places)

    def closed(self) -> dict[tuple[str, int], Any]:
        return {(w[0], w[1]): value for w, value in self.sums.items() if self.passed(w)}

    def table(self) -> dict[Window, Any]:
        """The rows that are there."""
        return {window: value for window, value in self.sums.items() if not self.removed(window)}

    def removed(self, window: Window) -> bool:
        """Whether a row has gone: at the first end of a window, of any, at which the retention is over."""
        program = self.program
        if program.kind != "time":
            return self.passed(window, program.retention)
        over = next(
            start + program.size
            for start in range(0, 1_000, program.advance)
            if start + program.size >= window[2] + program.retention
        )
        return self.passed(window, over - window[2])

    def values_kept(self) -> int:
        """The number of values of windows to which some can be added; of different ones, if these are counted."""
        over = self.passed if self.program.emit == "close" else self.removed
        there = [values for window, values in self.values.items() if not over(window)]
        if self.program.aggregate == "kinds" and not self.program.sessions:
            return sum(self.program.made_of(values) for values in there)
        return sum(map(len, there))


def write(log: LocalLog, records: Iterable[Record], partitions: int) -> None:
    producer = log.producer(None)
    producer.begin()
    for topic, key, value, stamp in records:
        home = partition_of(key.encode(), partitions)
        producer.send(TOPICS[topic], home, [key.encode()], [N.encode(value)], [stamp])
    producer.commit({}, None)
    producer.close()


def written(log: LocalLog, partitions: int) -> list[tuple[tuple[str, int], int]]:
    """What is in `out`, each with the key and the start of its window."""
    found = []
    for partition in range(partitions):
        at = TopicPartition("out", partition)
        end = log.end_offsets([at])[at]
        records = log.read(at, 0, end, 100_000)
        for key, value in zip(records.keys, records.values, strict=True):
            assert key is not None
            assert value is not None
            start, total = eddy.Native.decode(value)
            found.append(((key.decode(), start), total))
    return found


class Running:
    """Workers on a log, each with a store in memory."""

    def __init__(
        self, program: Program, partitions: int, count: int, most: int, topology: eddy.Topology | None = None
    ) -> None:
        self.log, self.topology = LocalLog(None), topology or program.topology()
        self.log.create_topics(TopicSpec(topic, partitions) for topic in (*TOPICS, "out"))
        self.partitions = partitions
        self.config = eddy.Config(max_epoch_records=most)
        self.now_ms, self.idle_after = 0, program.idle_after
        self.stores = [MemoryStore() for _ in range(count)]
        self.workers = [self._worker(number) for number in range(count)]

    def _worker(self, number: int) -> eddy.Worker:
        return eddy.Worker(
            self.topology,
            self.log,
            self.config,
            member=str(number),
            store=self.stores[number],
            clock=lambda: 0.0,
            wall=lambda: self.now_ms / 1000,
        )

    def replace(self, number: int) -> None:
        """A worker ends, and another one with nothing on its disk takes its place."""
        self.workers[number].close()
        self.stores[number] = MemoryStore()
        self.workers[number] = self._worker(number)

    def idle(self, by_ms: int) -> list[Record]:
        """All records are read; then there are none for a while."""
        self.finish()
        self.now_ms += self.idle_after + by_ms
        self.finish()
        return [(IDLE, "", 0, self.now_ms - self.idle_after)]

    def finish(self) -> None:
        step_to_rest(self.workers)

    def table(self, name: str = "sums") -> dict[Window, Any]:
        deadline = Deadline(PATIENCE_S)
        busy = min(self.partitions, len(self.workers))  # the others own nothing
        while sum(worker.state is WorkerState.PROCESSING for worker in self.workers) < busy:  # some may still restore
            deadline.check("workers that process")
            for worker in self.workers:
                worker.step()
        found: dict[Window, int] = {}
        for worker in self.workers:
            found |= {tuple(key): value for key, value in worker.store(name).all().items()}  # type: ignore[misc]
        return found

    def rows(self, name: str) -> list[int]:
        """The weights of the rows that the workers keep in an arrangement."""
        states = [worker.circuit.states[name] for worker in self.workers]
        return [weight for state in states for _, weight in state.items()]


programs = st.builds(
    Program,
    size=st.integers(1, 12),
    advance=st.integers(1, 12),
    grace=st.sampled_from([0, 0, 3, 10]),
    retention=st.sampled_from([0, 0, 5, 20]),
    emit=st.sampled_from(["update", "close", "suppress"]),
    aggregate=st.sampled_from(["sum", "reduce", "kinds", "lists"]),
    by_value=st.booleans(),
    filtered=st.booleans(),
    topics=st.integers(1, 2),
    kind=st.sampled_from(["time", "sessions", "sliding"]),
    idle_after=st.sampled_from([0, 0, 2]),
    sent=st.sampled_from(["", "", "once", "twice", "keyed", "merged"]),
).filter(lambda program: program.advance <= program.size)
record = st.tuples(st.integers(0, 1), st.sampled_from("abcd"), st.integers(1, 40), st.integers(0, 60))
parts = st.lists(st.lists(record, max_size=8), max_size=5)


@given(programs, parts, st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 3, 1000]), st.data())
def test_windows_are_a_function_of_the_records_of_each_partition(
    program: Program, parts: list[list[Record]], partitions: int, count: int, most: int, data: st.DataObject
) -> None:
    parts = [[(topic % program.topics, *rest) for topic, *rest in part] for part in parts]  # type: ignore[misc]
    running = Running(program, partitions, count, most)
    came: list[Record] = []
    for part in parts:
        write(running.log, part, partitions)
        came += part
        match data.draw(st.sampled_from(["finish", "step", "replace", *(["idle"] if program.idle_after else [])])):
            case "finish":
                running.finish()
            case "idle":
                came += running.idle(data.draw(st.integers(0, 20)))
            case "step":
                running.workers[data.draw(st.integers(0, count - 1))].step()
            case _:
                running.replace(data.draw(st.integers(0, count - 1)))
    running.finish()
    oracle = Oracle(program, partitions, came)
    out = written(running.log, partitions)
    if program.emit != "update":
        assert sorted(out) == sorted(oracle.closed().items())
    else:
        last = dict(out)
        last = {key: value for key, value in last.items() if value is not None}
        assert last == {(w[0], w[1]): value for w, value in oracle.sums.items()}
    assert running.table() == oracle.table()
    if program.sliding:
        assert sum(running.rows("sums-records")) == oracle.kept
    calendars = [worker.circuit.states["sums-calendar"] for worker in running.workers]
    moments = sum(len(list(calendar.items())) for calendar in calendars)
    assert moments == sum(not oracle.removed(window) for window in oracle.values)
    if program.valued:
        kept = running.rows("sums-values")
        alone = program.aggregate == "kinds" and not program.sessions
        assert (len(kept) if alone else sum(kept)) == oracle.values_kept()
    if program.aggregate == "sum":
        assert running.table("sums-totals").keys() == oracle.table().keys()


def test_a_mark_passes_three_exchanges_of_which_it_was_sent_through_the_first_alone() -> None:
    """The worker that receives it keeps it in memory at the second one, and has received nothing there."""
    made = eddy.Topology("app")
    stream = made.stream("in", key=S, value=N)
    for name in ("c", "b", "a"):  # marks of a later exchange are read first
        stream = stream.repartition(name=name)
    summed = stream.group_by_key().windowed_by(eddy.TimeWindows(ms(10)), "close").sum("sums")
    summed.to_stream().map(lambda key, value: (key.key, (key.start_ms, value)), key=S).to("out", value=eddy.Native)
    program = Program(10, 10, 0, 0, "close", "sum", False, False, 1)
    for partitions, count in itertools.product((2, 3), repeat=2):
        running = Running(program, partitions, count, 1, made)
        write(running.log, [(0, key, 1, time) for time in (1, 99) for key in "abcdefgh"], partitions)
        running.finish()
        assert sorted(written(running.log, partitions)) == [((key, 0), 1) for key in "abcdefgh"]


@pytest.mark.parametrize("silent", [0, 1, 2])
@pytest.mark.parametrize("sent", ["once", "twice"])
def test_the_source_partition_that_holds_windows_back_is_named_after_exchanges(
    sent: Literal["once", "twice"], silent: int
) -> None:
    program = Program(10, 10, 0, 0, "close", "reduce", True, False, 1, sent=sent)
    running = Running(program, 3, 2, 1_000)
    keys = {partition_of(key.encode(), 3): key for key in "abcdefgh"}
    write(running.log, [(0, key, 1, time) for time in (1, 99) for home, key in keys.items() if home != silent], 3)
    running.finish()
    contexts = [Context(event_time=worker.positions.entry.event_time) for worker in running.workers]
    found = [w.circuit.open_windows(context) for w, context in zip(running.workers, contexts, strict=True)]
    assert {window[1:3] for windows in found for window in windows} == {("in", silent)}
    write(running.log, [(0, keys[silent], 1, 99)], 3)
    running.finish()
    assert written(running.log, 3) == [(("1", 0), 2)]


@pytest.mark.parametrize("times", [range(100, 140), range(139, 99, -1), [*range(100, 140, 2), *range(101, 140, 2)]])
def test_a_record_writes_one_row_of_the_values_of_its_session(times: Iterable[int]) -> None:
    """Whichever way the session grows or merges."""
    program = Program(1, 1, 1_000, 0, "update", "kinds", False, False, 1, kind="sessions")
    running = Running(program, 1, 1, 1)
    write(running.log, [(0, "a", time, time) for time in times], 1)
    running.finish()
    at = TopicPartition("app-sums-values-changelog", 0)
    end = running.log.end_offsets([at])[at]
    rows = running.log.read(at, 0, end, 100_000)
    assert len(rows.keys) == len(set(rows.keys)) == 40
    assert running.table() == {("a", 100, 139): 3}
