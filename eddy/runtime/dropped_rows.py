"""Log lines for rows that steps drop because they have no key or value: one line a step, rate-limited."""

import logging
from collections.abc import Callable, Mapping

__all__ = ["Dropping"]

_log = logging.getLogger("eddy.worker")
_INTERVAL_S = 10.0


class Dropping:
    """Logs a step's drops at once, and after that at most every `_INTERVAL_S`, with the number since the last line."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._unsaid: dict[str, int] = {}
        self._said: dict[str, float] = {}

    def report(self, dropped: Mapping[str, int]) -> int:
        """Add the rows that each step dropped in an epoch. Returns their number."""
        for step, rows in dropped.items():
            self._unsaid[step] = self._unsaid.get(step, 0) + rows
            now = self._clock()
            if now - self._said.get(step, float("-inf")) >= _INTERVAL_S:
                self._said[step], unsaid = now, self._unsaid.pop(step)
                what = "step '%s': %d row(s) without the key or the value that it needs were dropped"
                _log.warning(what, step, unsaid, extra={"fields": {"step": step, "rows": unsaid}})
        return sum(dropped.values())
