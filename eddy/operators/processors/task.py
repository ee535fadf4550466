"""A task: the processor of one partition, with its stores and schedules.

The author's object is made anew when a partition arrives, after an abort, and after a record on which it has raised.
Data that it does not have in a store is lost then (docs/adr/0055).
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from eddy.errors import DataError, EddyError, ProcessorError
from eddy.operators.processors.processor_context import Clock, Cycle, ProcessorContext
from eddy.operators.processors.record import Record, RecordMetadata
from eddy.operators.processors.running_call import RunningCall
from eddy.operators.processors.session_store import SessionStore
from eddy.operators.processors.state_store import GlobalStore, StateStore
from eddy.operators.processors.timed_store import RetainedStore, TimedStore
from eddy.operators.processors.versioned_store import VersionedStore
from eddy.operators.processors.window_store import WindowStore
from eddy.source_lines import describe_exception
from eddy.state.global_rows import GlobalRows
from eddy.state.partitioned_map import MapPartition

__all__ = ["Factory", "Processor", "Run", "Task"]

_log = logging.getLogger("eddy.worker")
_CANCELLED = -1
_TIMED: dict[str, Callable[..., TimedStore]] = {
    "window": WindowStore,
    "session": SessionStore,
    "versioned": VersionedStore,
}


class Processor(Protocol):
    """The object that the author's factory makes. Its methods `init` and `close` may be missing."""

    def process(self, record: Record[Any, Any]) -> object:
        """Take one record."""


Factory = Callable[[], Processor]


class Run(Protocol):
    """The step that is running: it takes the forwarded records, and knows the clocks."""

    @property
    def no_event_time(self) -> str:
        """The reason why there are no punctuations by event time; empty if there are."""

    @property
    def children(self) -> tuple[str, ...]:
        """The names of the step's children."""

    def emit(self, task: "Task", record: Record[Any, Any], child: str | None) -> None:
        """Pass a record of a task on, to one child or to all."""

    def place(self) -> RecordMetadata | None:
        """Return topic, partition and offset of the current row's record; None if they are not known."""

    def event_time(self, partition: int) -> int | None:
        """The event time at the current row."""

    def tick(self) -> int:
        """The tick of the epoch."""


class Task:
    """The processor of one partition."""

    def __init__(
        self,
        names: tuple[str, str],
        partition: int,
        factory: Factory,
        maps: Mapping[str, MapPartition[Any, Any]],
        moments: MapPartition[str, int],
        run: Run,
        tables: Mapping[str, GlobalRows[Any, Any]],
        retained: Mapping[str, RetainedStore],
    ) -> None:
        self.partition, self.run = partition, run
        self._names, self._factory, self._moments = names, factory, moments
        self.parts = [*maps.values(), moments]
        self.where = f"process '{names[1]}'"
        self.call = RunningCall(self.where)
        others = {name for one in retained.values() for name in one.states}
        plain = maps.keys() - retained.keys() - others
        self.stores = {name: StateStore(name, maps[name], self.call) for name in maps if name in plain}
        self.stores |= {name: GlobalStore(name, rows, self.call) for name, rows in tables.items()}
        self.timed_stores: dict[str, TimedStore] = {
            name: _TIMED[one.kind](name, [maps[state] for state in (name, *one.states)], one, self.call)
            for name, one in retained.items()
        }
        self.cycles: list[Cycle] = []
        self.current: Record[Any, Any] | None = None
        self.now_ms: int | None = None
        self._make()

    # The object

    def _make(self) -> None:
        self.cycles.clear()
        self.processor = self._called("the factory", self._factory)
        self.process = self._called("what the factory returned", getattr, self.processor, "process")
        init = getattr(self.processor, "init", None)
        if init is not None:
            context = ProcessorContext(*self._names, self.partition, self, self.call)
            context._initializes = True
            self._called("init", init, context)
            context._initializes = False

    def make_anew(self) -> None:
        """Undo the current call, and replace the author's object by a new one."""
        self.call.end()
        for part in self.parts:
            part.take_back()
        self.current = self.now_ms = None
        self.close()
        self._make()

    def close(self) -> None:
        """Close the author's object. If its `close` raises, the error is only logged, because nothing depends on it."""
        close = getattr(self.processor, "close", None)
        self.call.end()
        if close is None:
            return
        try:
            close()
        except Exception as error:
            _log.warning("%s: close raised %s", self.where, describe_exception(error))

    def _called(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the author's outside of `process`. Raises: ProcessorError if the function raises.

        Then no record is at fault, so no record can be rejected.
        """
        self.call.begin()
        try:
            made = function(*arguments)
        except Exception as error:
            if isinstance(error, EddyError) and not isinstance(error, DataError):
                raise
            raise ProcessorError(
                f"{self.where}, partition {self.partition}: {what} raised {describe_exception(error)}; no record can "
                "be left out for it. Mend the processor, and start again"
            ) from error
        finally:
            self.call.end()
        self.accept()
        return made

    def accept(self) -> None:
        """Keep the changes of the call, so that `make_anew` does not undo them."""
        for part in self.parts:
            part.accept()

    def expire(self) -> int:
        """Remove the rows whose retention is over, at the end of an epoch. Returns the number of late puts."""
        ignored = sum([store._expire() for store in self.timed_stores.values()])
        self.accept()
        return ignored

    # Punctuations

    def punctuate(self, cycle: Cycle, now_ms: int) -> None:
        """Call a schedule's function, unless it is cancelled. Raises: ProcessorError."""
        if self.is_cancelled(cycle):
            return
        self.current, self.now_ms = None, now_ms
        self._called(f"the punctuation by {cycle.by}, every {cycle.every_ms} ms,", cycle.function, now_ms)
        self.now_ms = None

    def is_cancelled(self, cycle: Cycle) -> bool:
        """Whether a schedule was cancelled."""
        return self._moments.value(cycle.name) == _CANCELLED

    def by(self, clock: Clock) -> list[Cycle]:
        """The schedules by a clock that are not cancelled."""
        return [cycle for cycle in self.cycles if cycle.by == clock and not self.is_cancelled(cycle)]

    def punctuate_by_tick(self, tick: int) -> None:
        """Call the functions that are due by the wall clock. Raises: ProcessorError."""
        for cycle in self.by("wall clock"):
            moment = self._moments.value(cycle.name)
            if moment is None or moment <= tick:
                self._moments.put(cycle.name, cycle.after(tick))
                if moment is not None:
                    self.punctuate(cycle, tick)
        self._moments.accept()

    def next_tick(self) -> int | None:
        """Return the first wall-clock time at which a function is due; None if none is scheduled."""
        moments = (self._moments.value(cycle.name) for cycle in self.by("wall clock"))
        return min((moment for moment in moments if moment is not None), default=None)

    def next_event_time(self, seen: int) -> int | None:
        """Return the first event time after `seen` at which a function is due; None if none is scheduled."""
        cycles = self.by("event time")
        if seen < 0:
            return 0 if cycles else None
        return min((cycle.after(seen) for cycle in cycles), default=None)

    # For the context

    @property
    def no_event_time(self) -> str:
        """The reason why there are no punctuations by event time; empty if there are."""
        return self.run.no_event_time

    @property
    def children(self) -> tuple[str, ...]:
        """The names of the step's children."""
        return self.run.children

    def add(self, every_ms: int, by: Clock, function: Callable[[int], object]) -> Cycle:
        """Add a schedule."""
        number = sum(cycle.every_ms == every_ms and cycle.by == by for cycle in self.cycles)
        self.cycles.append(Cycle(every_ms, by, number, function))
        return self.cycles[-1]

    def cancel(self, cycle: Cycle) -> None:
        """End a schedule."""
        self._moments.put(cycle.name, _CANCELLED)

    def place(self) -> RecordMetadata | None:
        """The place of the current record."""
        return None if self.current is None else self.run.place()

    def event_time(self) -> int | None:
        """The event time of the current record or punctuation."""
        return self.run.event_time(self.partition)

    def tick(self) -> int:
        """The tick of the epoch."""
        return self.run.tick()
