"""Deletes consumed rows of loops and repartitions, at an interval and at quiescence."""

import logging
from collections.abc import Callable

from eddy.connectors.log import Log
from eddy.errors import ConnectorError
from eddy.runtime.internal_topics import InternalTopics
from eddy.statistics import Statistics

__all__ = ["Purging"]

_log = logging.getLogger("eddy.worker")


class Purging:
    """Deletes consumed rows for one worker. `due`: since the last purge it has sent or read rows of internal topics."""

    def __init__(
        self,
        internal: InternalTopics,
        log: Log,
        group: str,
        interval_s: float,
        clock: Callable[[], float],
        statistics: Statistics,
    ) -> None:
        self._internal, self._log, self._group = internal, log, group
        self._interval_s, self._clock, self._statistics = interval_s, clock, statistics
        self._last = clock()
        self.due = False

    def after_epoch(self) -> None:
        """Purge if it is due and the interval has passed."""
        if self.due and self._clock() - self._last >= self._interval_s:
            self.purge()

    def purge(self) -> None:
        """Purge now. If the log fails, purge later."""
        self._last, self.due = self._clock(), False
        try:
            purged = self._internal.purge(self._log, self._group)
        except ConnectorError as error:
            self.due = True
            _log.warning("purge postponed: %s", error)
            return
        self._statistics.purges += bool(purged)
        self._statistics.purged_offsets += sum(purged.values())
