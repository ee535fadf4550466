"""The progress of a worker: a changing line on a terminal, otherwise a message every ten seconds."""

import contextlib
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from eddy.errors import ConnectorError
from eddy.runtime.worker import Worker

__all__ = ["LiveLine", "LogLines", "Meter", "Progress"]

_log = logging.getLogger("eddy.cli")
_LINE_INTERVAL_S = 0.25
_MESSAGE_INTERVAL_S = 10.0
_LAG_SHARE = 20


class Progress(msgspec.Struct, frozen=True):
    """A worker's figures at a moment."""

    records_per_s: int
    records: int
    epochs: int
    waves: int
    loop_rows: int
    lag: int
    restored: int
    to_restore: int

    def __str__(self) -> str:
        figures = [
            f"{self.records_per_s:,} records/s",
            f"lag {self.lag:,}",
            f"{self.waves:,} waves",
            f"{self.loop_rows:,} rows in loops",
            f"{self.records:,} records",
            f"{self.epochs:,} epochs",
        ]
        if self.to_restore:
            figures.insert(0, f"restoring {self.restored:,} of {self.to_restore:,}")
        return " · ".join(figures)


class Meter:
    """Samples a worker's statistics; rates are averages since the last sample.

    The lag is read from the log. These reads take at most a twentieth of the time; if the log does not answer, the last
    lag is kept.
    """

    def __init__(self, worker: Worker, clock: Callable[[], float] = time.monotonic) -> None:
        self._worker, self._clock = worker, clock
        self._then, self._records, self._to_restore = clock(), 0, 0
        self._lag, self._lag_due = 0, float("-inf")

    def sample(self, interval_s: float) -> Progress | None:
        """Return new figures, if at least `interval_s` seconds have passed since the last sample; otherwise None."""
        now = self._clock()
        if now - self._then < interval_s:
            return None
        statistics, left = self._worker.statistics, self._worker.restoring
        self._to_restore = max(self._to_restore, left) if left else 0
        progress = Progress(
            round((statistics.records - self._records) / (now - self._then)),
            statistics.records,
            statistics.epochs,
            statistics.waves,
            statistics.loop_rows,
            self._read_lag(),
            self._to_restore - left,
            self._to_restore,
        )
        self._then, self._records = now, statistics.records
        return progress

    def _read_lag(self) -> int:
        began = self._clock()
        if began >= self._lag_due:
            with contextlib.suppress(ConnectorError):
                self._lag = self._worker.lag()
            now = self._clock()
            self._lag_due = now + _LAG_SHARE * (now - began)
        return self._lag


class LiveLine:
    """Shows a worker's figures in the last line of a terminal, within a `with` block."""

    def __init__(self, name: str, meter: Meter, console: Console) -> None:
        self._name, self._meter = name, meter
        # stdout may be a file of data: only other output to stderr is printed above the line.
        self._live = Live(console=console, transient=True, auto_refresh=False, redirect_stdout=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def report(self) -> None:
        """Refresh the line if it is old."""
        progress = self._meter.sample(_LINE_INTERVAL_S)
        if progress is not None:
            self._live.update(Text(f"{self._name}: {progress}", overflow="ellipsis", no_wrap=True), refresh=True)


class LogLines:
    """Logs the figures every ten seconds, if they have changed."""

    def __init__(self, name: str, meter: Meter) -> None:
        self._name, self._meter = name, meter
        self._last: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def report(self) -> None:
        """Log the figures if ten seconds have passed, and the figures have changed."""
        progress = self._meter.sample(_MESSAGE_INTERVAL_S)
        if progress is not None and progress != self._last:
            _log.info("%s: %s", self._name, progress, extra={"fields": msgspec.structs.asdict(progress)})
            self._last = progress
