"""The context of a processor: its stores, its schedules, the clocks, and the method that forwards records."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from threading import get_ident
from typing import Any, Literal, Protocol, get_args

from eddy.errors import ProcessorError
from eddy.operators.processors.record import Record, RecordMetadata
from eddy.operators.processors.running_call import RunningCall
from eddy.operators.processors.session_store import SessionStore
from eddy.operators.processors.state_store import StateStore
from eddy.operators.processors.timed_store import TimedStore
from eddy.operators.processors.versioned_store import VersionedStore
from eddy.operators.processors.window_store import WindowStore

__all__ = ["Clock", "Cycle", "ProcessorContext", "Schedule"]

Clock = Literal["event time", "wall clock"]
_METHODS: dict[type, str] = {
    WindowStore: "window_store",
    SessionStore: "session_store",
    VersionedStore: "versioned_store",
}
_MILLISECOND, _LONGEST = timedelta(milliseconds=1), timedelta(days=36_500)


class Cycle:
    """A schedule of punctuations: `function` is called at the multiples of `every_ms` since 1970.

    `number` distinguishes schedules of one processor with the same clock and length, in the order of creation.
    """

    def __init__(self, every_ms: int, by: Clock, number: int, function: Callable[[int], object]) -> None:
        self.every_ms, self.by, self.function = every_ms, by, function
        self.name = f"{by}/{every_ms}/{number}"

    def after(self, time: int) -> int:
        """Return the first moment after a time."""
        return (time // self.every_ms + 1) * self.every_ms


class Schedule:
    """A schedule of punctuations, which can be cancelled: for good, and on every worker."""

    def __init__(self, context: "ProcessorContext", cycle: Cycle) -> None:
        self._context, self._cycle = context, cycle

    def cancel(self) -> None:
        """Do not call the function any more. If the epoch is undone, the cancellation is undone, too."""
        self._context._call.check("cancel() is called")
        self._context._task.cancel(self._cycle)


class _RunningStep(Protocol):
    """The step that is running."""

    def emit(self, task: Any, record: Record[Any, Any], child: str | None) -> None:
        """Pass a record of a task on, to one child or to all."""


class _Task(Protocol):
    """The part of a task that its context calls."""

    @property
    def stores(self) -> Mapping[str, StateStore[Any, Any]]:
        """The stores by name."""

    @property
    def timed_stores(self) -> Mapping[str, TimedStore]:
        """The stores whose rows are removed after a retention time, by name."""

    @property
    def no_event_time(self) -> str:
        """The reason why there is no event time; empty if there is."""

    @property
    def children(self) -> tuple[str, ...]:
        """The names of the step's children."""

    @property
    def run(self) -> "_RunningStep":
        """The step that is running."""

    def add(self, every_ms: int, by: Clock, function: Callable[[int], object]) -> Cycle:
        """Add a schedule."""

    def cancel(self, cycle: Cycle) -> None:
        """End a schedule."""

    def place(self) -> RecordMetadata | None:
        """The place of the current record."""

    def event_time(self) -> int | None:
        """The event time of the current record or punctuation."""

    def tick(self) -> int:
        """The tick of the epoch."""


class ProcessorContext:
    """Gives a processor its stores, clocks and schedules, and forwards its records.

    It can be used only within `init`, `process` and punctuations. A processor has the records of one partition,
    `partition`. `application` is the topology's name, and `name` is the step's name.
    """

    def __init__(self, application: str, name: str, partition: int, task: _Task, call: RunningCall) -> None:
        self.application, self.name, self.partition = application, name, partition
        self._task, self._call = task, call
        self._initializes = False

    def store(self, name: str) -> StateStore[Any, Any]:
        """A store that the step names in `stores=`. Raises: ProcessorError for any other name."""
        found = self._task.stores.get(name)
        if found is None:
            raise self._no_store(name)
        return found

    def window_store(self, name: str) -> WindowStore[Any, Any]:
        """A store of kind "window" that the step names in `stores=`. Raises: ProcessorError for any other name."""
        found = self._task.timed_stores.get(name)
        if not isinstance(found, WindowStore):
            raise self._no_store(name)
        return found

    def session_store(self, name: str) -> SessionStore[Any, Any]:
        """A store of kind "session" that the step names in `stores=`. Raises: ProcessorError for any other name."""
        found = self._task.timed_stores.get(name)
        if not isinstance(found, SessionStore):
            raise self._no_store(name)
        return found

    def versioned_store(self, name: str) -> VersionedStore[Any, Any]:
        """A store of kind "versioned" that the step names in `stores=`. Raises: ProcessorError for any other name."""
        found = self._task.timed_stores.get(name)
        if not isinstance(found, VersionedStore):
            raise self._no_store(name)
        return found

    def _no_store(self, name: str) -> ProcessorError:
        """Return the error for a name that is not a store of the step, or that is a store of another kind."""
        where, stores = f"process '{self.name}': store {name!r}", {**self._task.stores, **self._task.timed_stores}
        if name in stores:
            method = _METHODS.get(type(stores[name]), "store")
            return ProcessorError(f"{where} is of another kind than is asked for. Write context.{method}({name!r})")
        known = ", ".join(f"'{one}'" for one in stores) or "none"
        return ProcessorError(
            f"{where} is not one of its stores, which are {known}; a store that the step names is needed. Declare it, "
            "topology.store('…', …), and name it: stores=['…']"
        )

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        """Pass a record on to the steps downstream. With `child`, only the step's child of this name gets the record.

        Raises: DataError for an object that is not a record, or a key that `process_values` does not allow;
        ProcessorError outside of a call, and for a child that the step does not name.
        """
        if self._call.thread != get_ident():
            self._call.check("forward() is called")
        if self._initializes:
            raise ProcessorError(
                f"process '{self.name}': forward() is called in init, which is called again after each restart and "
                "abort; records are forwarded in process and in punctuations"
            )
        if child is not None and child not in self._task.children:
            raise self._no_child(child)
        self._task.run.emit(self._task, record, child)

    def _no_child(self, child: object) -> ProcessorError:
        children = self._task.children
        there = f"the step's children are {', '.join(map(repr, children))}" if children else "the step has no children"
        return ProcessorError(
            f"process '{self.name}': forward(child={child!r}): {there}; the name of one is needed. Name it where the "
            f"step is added: children={[*children, child]!r}"
        )

    def schedule(self, every: timedelta, by: Clock, function: Callable[[int], object]) -> Schedule:
        """Call `function(time_ms)` whenever a clock has reached a multiple of `every` since 1970.

        If the clock passes several multiples at once, there is one call. By `event time` the call is before the first
        record of the processor's source partition whose timestamp reaches the multiple, so the calls are a function of
        the input; `time_ms` is that timestamp. By `wall clock` the call is before the records of the first epoch that
        begins at the multiple or later; `time_ms` is the epoch's tick.

        Only in `init`. Raises: ProcessorError.
        """
        where = f"process '{self.name}': schedule"
        self._call.check("schedule() is called")
        if not self._initializes:
            raise ProcessorError(
                f"{where} is called outside of init; a schedule made later would be lost where the processor is made "
                "anew. Make it in init, keep in a store whether it is wanted, and ask the store in the function"
            )
        if not isinstance(every, timedelta) or not _MILLISECOND <= every <= _LONGEST:
            raise ProcessorError(
                f"{where}: every={every!r}; a timedelta from a millisecond to 100 years is needed, such as "
                "timedelta(seconds=10)"
            )
        if every % _MILLISECOND:
            raise ProcessorError(f"{where}: every={every!r}; whole milliseconds are needed")
        if by not in get_args(Clock):
            raise ProcessorError(f"{where}: by={by!r}; one of 'event time' and 'wall clock' is needed")
        if not callable(function):
            raise ProcessorError(f"{where}: {function!r} is not a function; a callable of a time is needed")
        if by == "event time" and self._task.no_event_time:
            raise ProcessorError(f"{where}: by='event time': {self._task.no_event_time}")
        return Schedule(self, self._task.add(every // _MILLISECOND, by, function))

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """The topic, partition and offset of the current record.

        None in init and in punctuations, for changes of tables, and for rows that were sent through an exchange.
        """
        self._call.check("record_metadata is read")
        return self._task.place()

    @property
    def event_time_ms(self) -> int | None:
        """The greatest timestamp that the source partition has had up to the current record or punctuation.

        None before the first record, and if the step has no source with event times; see `schedule`.
        """
        self._call.check("event_time_ms is read")
        return self._task.event_time()

    @property
    def wall_clock_ms(self) -> int:
        """The wall-clock time of the epoch, in milliseconds since 1970. It is committed with the epoch."""
        self._call.check("wall_clock_ms is read")
        return self._task.tick()
