"""The operator that runs processors: the author's object takes the records of a partition one by one.

    before the records    punctuations by wall clock that are due at the epoch's tick, by partition and schedule
    for each record       punctuations up to the event time that the source partition has reached with this record;
                          then `process(record)`
    after the records     punctuations up to the event time that the source partition has reached in the epoch

The event time also counts records that a filter has dropped between the source and this step. So the calls of a
partition are a function of its input, of the ticks, and of the stores, however the input was cut into epochs. A record
on which `process` raises has no effect on stores and makes no rows; the error policy decides about it.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from threading import get_ident
from types import MappingProxyType
from typing import Any, NamedTuple

from eddy.errors import DataError, EddyError
from eddy.operators.batch import EMPTY, Batch, Place, keys_of
from eddy.operators.context import Context, Tick, TickOrWatermark, TimesRead, Wake, Watermark
from eddy.operators.errors.set_aside import Aside
from eddy.operators.keyed import Keyed
from eddy.operators.operator import ClocksRead, State
from eddy.operators.processors.processor_context import Cycle
from eddy.operators.processors.record import Record, RecordMetadata, new_record
from eddy.operators.processors.task import Factory, Task
from eddy.operators.processors.timed_store import RetainedStore
from eddy.state.global_rows import GlobalRows
from eddy.state.partitioned_map import PartitionedMap
from eddy.state.spec import StateSpec

__all__ = ["Process", "ProcessorSpec"]


_NO_TABLES: Mapping[str, GlobalRows[Any, Any]] = MappingProxyType({})
_NONE_RETAINED: Mapping[str, RetainedStore] = MappingProxyType({})


class ProcessorSpec(NamedTuple):
    """The definition of a step of processors.

    - `source`: the topic whose event time the step reads; if it is empty, `no_event_time` has the reason.
    - `keeps_keys`: a forwarded record must have the key of the current record, or in a punctuation a key of the
      processor's partition.
    - `retained`: the stores whose rows are removed after a retention time, by name.
    - `children`: the names of the children to which records may be forwarded; see `child_stream`.
    - `weights`: the processor gets a row once, with its weight, also a retracted row. Otherwise it gets a row `weight`
      times, as a record.
    """

    application: str
    name: str
    factory: Factory
    source: str = ""
    no_event_time: str = ""
    keeps_keys: bool = False
    weights: bool = False
    retained: Mapping[str, RetainedStore] = _NONE_RETAINED
    children: tuple[str, ...] = ()


class Process(Keyed):
    """Input: rows of (K, V). Output: the records that the processors forward.

    `maps` has the stores by name, `tables` the global tables that the processors read. `rows` is the spec by which
    partitions of input rows are found. A row that has neither a place in a source nor a key is dropped.

    Invariant: `moments` has the next moment of each schedule by wall clock, and -1 for a cancelled schedule.
    Cost: a call of `process` for each record.
    """

    def __init__(
        self,
        spec: ProcessorSpec,
        maps: Mapping[str, PartitionedMap[Any, Any]],
        moments: PartitionedMap[str, int],
        rows: StateSpec,
        owned: Callable[[], Collection[int]],
        tables: Mapping[str, GlobalRows[Any, Any]] = _NO_TABLES,
    ) -> None:
        self.name, self.spec, self.maps, self.moments, self.rows = spec.name, spec, maps, moments, rows
        self._owned, self._tables = owned, tables
        self._tasks: dict[int, Task] = {}
        self._seen: dict[int, int] = {}
        self._run: _Run | None = None

    def states(self) -> Sequence[State]:
        """The stores and the moments."""
        return (*self.maps.values(), self.moments)

    @property
    def reads(self) -> ClocksRead:
        """The event time and the wall clock, because a processor chooses its clock only when it runs."""
        return ClocksRead(frozenset({self.spec.source} - {""}), wall=True)

    def wakes_at(self) -> Wake | Tick | Watermark | TickOrWatermark | None:
        """Return `AT_ONCE` if a processor has to be created, else the first moment of a schedule."""
        owned = self._owned()
        if not all(partition in self._tasks for partition in owned):
            return Wake.AT_ONCE
        ticks = [tick for partition in owned if (tick := self._tasks[partition].next_tick()) is not None]
        times = {p: self._tasks[p].next_event_time(self._seen.get(p, -1)) for p in owned if self.spec.source}
        watermark = Watermark((self.spec.source,), {p: time for p, time in times.items() if time is not None})
        if ticks and watermark.at_ms:
            return TickOrWatermark(min(ticks), watermark)
        if ticks:
            return Tick(min(ticks))
        return watermark if watermark.at_ms else None

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Call the processors. Raises: the first error of a record; ProcessorError."""
        run = self._begin(context, inputs[0])
        for _ in run.errors():
            raise run.error
        return run.end()

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Call the processors, and set aside the rows on which they fail, or whose puts a changelog does not accept."""
        batch = aside.without_kept(inputs[0])
        run = self._begin(context, batch)
        run.careful = aside.care.on
        aside.without(run.batch, dict(run.errors()))
        return run.end()

    @property
    def tells_failures(self) -> bool:
        """True, because the operator tries the rows after a failing row, too."""
        return True

    def failures(self, *inputs: Batch) -> Mapping[int, Exception]:
        """Return the errors of all failing rows, by index; the rows after the first failing one are tried, too.

        The caller rolls back afterwards.
        """
        run = self._run
        return {} if run is None or run.failing is None else {run.failing: run.error, **dict(run.errors())}

    def _begin(self, context: Context, batch: Batch) -> "_Run":
        run = self._run = _Run(self, context, batch)
        for task in self._tasks.values():
            task.run = run
        run.begin()
        return run

    def task(self, partition: int) -> Task:
        """Return the task of a partition, and make it at the first call. Raises: ProcessorError if that fails."""
        task = self._tasks.get(partition)
        if task is None:
            spec = self.spec
            maps = {name: rows.partition(partition) for name, rows in self.maps.items()}
            names = (spec.application, spec.name)
            run = self._run
            assert run is not None
            moments = self.moments.partition(partition)
            task = Task(names, partition, spec.factory, maps, moments, run, self._tables, spec.retained)
            self._tasks[partition] = task
        return task

    def forget(self) -> None:
        """Close all processors, because an epoch was undone, or partitions have moved."""
        tasks, self._tasks, self._seen, self._run = self._tasks, {}, {}, None
        for task in tasks.values():
            task.close()

    def end_epoch(self) -> None:
        """Set the counts to 0."""
        super().end_epoch()
        self.late = 0

    def end_calls(self, context: Context) -> None:
        """Remove the rows of stores whose retention is over, and note the event times."""
        if self.spec.retained:
            self.late += sum([self._tasks[partition].expire() for partition in sorted(self._tasks)])
        times, source = context.event_time, self.spec.source
        if source:
            self._seen = {partition: times.get((source, partition), -1) for partition in self._owned()}

    @property
    def owned(self) -> list[int]:
        """The partitions of this worker."""
        return sorted(self._owned())


_NOWHERE = -1


class _Moment(NamedTuple):
    """An event time that a record has advanced its partition to, with the schedules that are due then."""

    offset: int
    time: int
    cycles: list[Cycle]


class _Run:
    """One step over a batch: calls the processors row by row, and collects the rows that they forward."""

    def __init__(self, operator: Process, context: Context, batch: Batch) -> None:
        self.operator, self.context, self.batch = operator, context, batch
        self.careful = False
        self.failing: int | None = None
        self.error: Exception = DataError(operator.name)
        self._index = -1
        self._rows: list[tuple[Any, Any]] = []
        self._times: list[int] = []
        self._headers: list[Any] = []
        self._mark = 0
        self._task: Task | None = None
        self._time: int | None = None  # the time of the running punctuation by event time
        self._moments: dict[int, list[_Moment]] = {}
        self._clocks: dict[int, list[int]] = {}
        self._by_number = context.timestamps is not None
        self._numbers = batch.times_of_rows() if self._by_number else None
        self._keeps_keys, self._addressed = operator.spec.keeps_keys, bool(operator.spec.children)
        self._places: list[Place | None] = batch.places_of_rows()

    def begin(self) -> None:
        """Make missing processors, and call the punctuations that are due by wall clock."""
        operator, tick = self.operator, self.context.tick
        self._homes = self._partitions()
        if _NOWHERE in self._homes:
            homes = zip(self._homes, self.batch.weights, strict=True)
            operator.dropped += sum(home == _NOWHERE and weight > 0 for home, weight in homes)
        for partition in operator.owned:
            task = operator.task(partition)
            if tick is not None:
                self._task = task
                task.punctuate_by_tick(tick)
        if operator.spec.source:
            for partition in operator.owned:
                if moments := list(self._reached(partition)):
                    self._moments[partition] = moments
        self._mark = len(self._rows)

    def _partitions(self) -> list[int]:
        """Return the partition of each row, -1 for a row without a key and a place."""
        rows, spec = self.batch.rows, self.operator.rows
        if spec.partitions == 1 and None not in keys_of(rows):
            return [0] * len(rows)
        unplaced = [n for n, place in enumerate(self._places) if place is None and rows[n][0] is not None]
        homes = [_NOWHERE if place is None else place[1] for place in self._places]
        found = spec.partitions_of(spec.key.identify_many([rows[index][0] for index in unplaced]))
        for index, home in zip(unplaced, found, strict=True):
            homes[index] = home
        return homes

    def _reached(self, partition: int) -> Iterator[_Moment]:
        """Yield the moments at which the epoch's records make schedules due by event time, in the order of offsets."""
        read = self.context.read.get((self.operator.spec.source, partition))
        cycles = self.operator.task(partition).by("event time")
        if read is None or not cycles:
            return
        clock = read.before
        latest = max(read.timestamps, default=-1)
        if clock >= 0 and all(cycle.after(clock) > latest for cycle in cycles):
            return
        for offset, time in zip(read.offsets, read.timestamps, strict=True):
            if time > clock:
                passed = [cycle for cycle in cycles if clock >= 0 and cycle.after(clock) <= time]
                clock = time
                if passed:
                    yield _Moment(offset, time, passed)

    # Rows

    def errors(self) -> Iterator[tuple[int, Exception]]:
        """Process the remaining rows. Yields the index and the error of each row that fails. Its effects are undone."""
        self.failing = None
        while self._index < len(self.batch) - 1:
            try:
                self._take(self._index + 1)
            except Exception as error:
                if isinstance(error, EddyError) and not isinstance(error, DataError):
                    raise
                self.failing, self.error = self._index, error
                self._drop()
                yield self._index, error

    def _take(self, start: int) -> None:
        batch, operator = self.batch, self.operator
        rows, weights, headers, homes = batch.rows, batch.weights, batch.headers, self._homes
        times = self._real_times()
        tasks, moments, thread, signed = operator._tasks, self._moments, get_ident(), operator.spec.weights
        out = self._rows
        for index in range(start, len(rows)):
            self._index = index
            home = homes[index]
            if home == _NOWHERE:
                continue
            if moments and home in moments:
                self._punctuate(home, self._places[index])
            task = self._task = tasks.get(home) or operator.task(home)
            (key, value), weight, call = rows[index], weights[index], task.call
            header = () if headers is None else headers[index]
            record = task.current = new_record(Record, (key, value, times[index], header, weight if signed else 1))
            left = 1 if signed else weight
            while left > 0:
                call.thread = thread
                call.number += 1
                task.process(record)
                call.thread = None
                left -= 1
            for part in task.parts:
                if part.journal:
                    if self.careful:
                        part.check()
                    part.journal.clear()
            self._mark = len(out)

    def _drop(self) -> None:
        """Undo the effects of the current row."""
        for column in (self._rows, self._times, self._headers):
            del column[self._mark :]
        assert self._task is not None
        self._task.make_anew()
        self._mark = len(self._rows)

    def _real_times(self) -> list[int]:
        stamps = self.context.timestamps
        if stamps is None or self._numbers is None:
            return self.batch.times_of_rows()
        return [stamps[number - 1] if number else 0 for number in self._numbers]

    def _punctuate(self, partition: int, place: Place | None) -> None:
        """Call the punctuations that are due by event time before the record at `place`; none if that is None."""
        moments = self._moments[partition]
        while place is not None and moments and moments[0].offset <= place[2]:
            self._call(partition, moments.pop(0))

    def _call(self, partition: int, moment: _Moment) -> None:
        task = self._task = self.operator.task(partition)
        self._time = moment.time
        for cycle in moment.cycles:
            task.punctuate(self._of(task, cycle), moment.time)
        self._time, self._mark = None, len(self._rows)

    def _of(self, task: Task, cycle: Cycle) -> Cycle:
        """Return the present processor's own schedule with the clock, length and number of `cycle`.

        The processor may have been made anew during the step.
        """
        return next((one for one in task.cycles if one.name == cycle.name), cycle)

    def end(self) -> Batch:
        """Call the punctuations by event time that are still due. Returns the forwarded rows."""
        for partition, moments in self._moments.items():
            for moment in moments:
                self._call(partition, moment)
        self.operator.end_calls(self.context)
        rows, times, time = self._rows, self._times, self.batch.time
        headers = self._headers if any(self._headers) else None
        self.batch, self._rows, self._places = EMPTY, [], []  # tasks refer to this object until the next step
        if not rows:
            return EMPTY
        return Batch(rows, [1] * len(rows), time if self._by_number else max(times), times, headers)

    # For tasks

    @property
    def no_event_time(self) -> str:
        """The reason why there are no punctuations by event time; empty if there are."""
        return self.operator.spec.no_event_time

    @property
    def children(self) -> tuple[str, ...]:
        """The names of the children."""
        return self.operator.spec.children

    def emit(self, task: Task, record: Record[Any, Any], child: str | None) -> None:
        """Pass a record of a task on, to the named child or, if `child` is None, to all children. Raises: DataError."""
        current = task.current
        if type(record) is not Record:
            raise DataError(
                f"process '{self.operator.name}': forward({record!r}); a Record is needed. Write "
                "context.forward(record.replace(value=…)), or eddy.Record(key, value)"
            )
        if self._keeps_keys and (current is None or record.key is not current.key):
            self._check_key(task, record.key)
        time = record.timestamp_ms
        if time is None:
            time = task.now_ms if current is None else current.timestamp_ms
            assert time is not None
        elif type(time) is not int or time < 0:
            raise DataError(
                f"process '{self.operator.name}': forward of a record with timestamp_ms={time!r}; milliseconds since "
                "1970, a whole number from 0 on, or None for the time of the current record are needed"
            )
        if self._by_number:
            time = 0 if current is None or self._numbers is None else self._numbers[self._index]
        self._rows.append((record.key, (child, record.value) if self._addressed else record.value))
        self._times.append(time)
        self._headers.append(record.headers)

    def _check_key(self, task: Task, key: Any) -> None:
        name = self.operator.name
        if task.current is not None:
            if key != task.current.key:
                raise DataError(
                    f"process_values '{name}': forward of key {key!r} while the record has {task.current.key!r}; the "
                    "key of the record is needed. To change keys write process(…)"
                )
            return
        spec = self.operator.rows
        home = -1 if key is None else spec.partitions_of(spec.key.identify_many([key]))[0]
        if home != task.partition:
            raise DataError(
                f"process_values '{name}': forward of key {key!r} in a punctuation of partition {task.partition}; a "
                "key of that partition is needed. To forward any key write process(…)"
            )

    def place(self) -> RecordMetadata | None:
        """Return topic, partition and offset of the current row's record; None if they are not known."""
        place = self._places[self._index]
        return None if place is None else RecordMetadata(*place)

    def tick(self) -> int:
        """The tick of the epoch."""
        return self.context.tick or 0

    def event_time(self, partition: int) -> int | None:
        """Return the event time of a partition at the current row or punctuation; None if it has none yet."""
        if self._time is not None:
            return self._time
        source = self.operator.spec.source
        read = self.context.read.get((source, partition))
        if read is None:
            time = self.context.event_time.get((source, partition), -1)
        else:
            time = self._at(partition, read)
        return None if time < 0 else time

    def _at(self, partition: int, read: TimesRead) -> int:
        place = self._places[self._index] if self._index >= 0 and self._task and self._task.current else None
        if place is None:
            return read.before
        if partition not in self._clocks:
            self._clocks[partition] = list(accumulate(read.timestamps, max, initial=read.before))
        return self._clocks[partition][bisect_right(read.offsets, place[2])]
