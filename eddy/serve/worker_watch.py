"""The figures of a worker for other threads: recorded by the worker's thread after each step.

Readers never use objects of the worker's thread, such as the log's clients or the store. They get the figures that were
recorded last, which are immutable, and the plain numbers of `Statistics`.

Reading the lag takes a call to the log, on Kafka over the network. The lag is read every few seconds, and less often if
a call takes long, so that calls take at most a twentieth of the time. It is read at least every half minute.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from eddy.connectors.log import TopicPartition
from eddy.errors import ConnectorError, EddyError
from eddy.operators.context import Context
from eddy.operators.windows.windowed_fold import OpenWindow
from eddy.runtime.lifecycle import WorkerState
from eddy.runtime.retries import Retries
from eddy.runtime.worker import Worker
from eddy.serve.state import Facts, Restoring, patience_s

__all__ = ["LagReading", "WorkerWatch"]

_SHARE = 20
_MAX_INTERVAL_S = 30.0


@dataclass(frozen=True, slots=True)
class LagReading:
    """The lags that were read from the log at the time `at`, and whether everything was quiescent then.

    `lags` are by topic, `partition_lags` has the worker's own partitions. `open_windows` has, for each step with
    windows, its first open window at that time.
    """

    at: float
    took_s: float
    lags: dict[str, int] = field(default_factory=dict)
    partition_lags: dict[TopicPartition, int] = field(default_factory=dict)
    quiescent: bool = False
    open_windows: Sequence[OpenWindow] = ()


@dataclass(frozen=True, slots=True)
class _Noted:
    """The figures of a worker after the step that ended at `at`."""

    at: float
    worker: WorkerState | None = None
    owned: frozenset[TopicPartition] = frozenset()
    in_loops: int = 0
    restoring: Restoring | None = None
    trouble: Retries | None = None
    error: str = ""
    held: Mapping[tuple[str, int], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Unread:
    """The time since which the log could not be read, and the reason."""

    since: float
    error: str


class WorkerWatch:
    """Watches one worker, from before its creation until after its close.

    Args:
        stopping: whether the worker was asked to stop; any thread may ask.
        clock: the worker's clock.
        lag_interval_s: the least number of seconds between two readings of the lag.
    """

    def __init__(
        self,
        stopping: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        lag_interval_s: float = 5.0,
    ) -> None:
        self._stopping, self._clock, self._lag_interval_s = stopping, clock, lag_interval_s
        self._noted = _Noted(clock())
        self._read_at = float("-inf")
        self._reads = False
        self._unread: _Unread | None = None
        self._restore: tuple[float, int] | None = None
        self._closed = self._ended = False
        self._failure: str | None = None
        self.worker: Worker | None = None
        self.reading: LagReading | None = None

    def attach(self, worker: Worker) -> None:
        """Watch this worker from now on."""
        self._noted = _Noted(self._clock())
        self.worker = worker

    def refresh(self) -> None:
        """Record the figures. Only for the worker's thread, after a step; cost: some microseconds."""
        worker = self.worker
        assert worker is not None, "a worker is attached before it is watched"
        now, entry, trouble = self._clock(), worker.positions.entry, worker.trouble
        self._noted = _Noted(
            now,
            worker=worker.state,
            owned=frozenset(entry.positions),
            in_loops=entry.in_loops,
            restoring=self._restoring(worker.restoring, now, worker.recovery.held_back),
            trouble=trouble,
            error=trouble.error if trouble is not None else "",
            held=worker.held(),
        )
        if trouble is not None:
            # While the log fails, the lag is not read; it is read as soon as the log answers again.
            self._read_at = now
        elif now >= self._read_at:
            self._read(worker)

    def end(self, error: BaseException | None = None) -> None:
        """Note that the worker takes no more steps, because of `error` or because it was asked to stop."""
        if error is None:
            self._ended = True
            return
        self._noted = _Noted(self._clock(), self._noted.worker, error=str(error))
        self._failure = error.code if isinstance(error, EddyError) else type(error).__name__

    def close(self) -> None:
        """Note that the worker is closed."""
        self._closed = True

    @property
    def over(self) -> bool:
        """Whether the worker takes no more steps."""
        return self._ended or self._closed or self._failure is not None

    def facts(self) -> Facts:
        """Return the current figures. For any thread."""
        now, noted, worker, unread = self._clock(), self._noted, self.worker, self._unread
        trouble = noted.trouble
        return Facts(
            worker=noted.worker,
            owned=len(noted.owned),
            restoring=noted.restoring,
            stopping=self._ended or self._stopping(),
            closed=self._closed,
            failure=self._failure,
            silent_s=now - noted.at,
            patience_s=patience_s(worker.config.max_epoch_s if worker else 0.0),
            doing="lag" if self._reads else worker.doing if worker else "",
            failing_s=None if trouble is None else now - trouble.since,
            fenced=trouble is not None and trouble.fenced,
            unread_s=None if unread is None else now - unread.since,
            error=noted.error or (unread.error if unread else ""),
        )

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that the worker owned after its last step."""
        return self._noted.owned

    @property
    def in_loops(self) -> int:
        """Rows in loops and repartitions after the last step, as counted on this worker's partitions."""
        return self._noted.in_loops

    @property
    def held(self) -> Mapping[tuple[str, int], str]:
        """Messages about parts without a finite answer after the last step, by recursion and partition."""
        return self._noted.held

    def age_s(self, at: float) -> float:
        """Return the seconds since a moment of the clock."""
        return self._clock() - at

    def _restoring(self, left: int, now: float, held_back: str) -> Restoring | None:
        if not left:
            self._restore = None
            return None
        began, end = self._restore or (now, left)
        self._restore = began, max(end, left)
        position = max(end, left) - left
        rate = position / (now - began) if now > began else 0.0
        return Restoring(position, max(end, left), rate, left / rate if rate else None, held_back)

    def _read(self, worker: Worker) -> None:
        began = self._clock()
        self._reads = True
        try:
            lags, own_lags = worker.lags(), worker.positions.own_lags()
            quiescent = not any(lags.values()) and worker.quiescent()
        except ConnectorError as error:
            self._unread = _Unread(self._unread.since if self._unread else began, str(error))
        else:
            self._unread = None
            windows = worker.circuit.open_windows(Context(event_time=worker.positions.entry.event_time))
            self.reading = LagReading(began, self._clock() - began, lags, own_lags, quiescent, windows)
        finally:
            self._reads = False
            pause_s = min(_MAX_INTERVAL_S, _SHARE * (self._clock() - began))
            self._read_at = self._clock() + max(self._lag_interval_s, pause_s)
