"""Rate-limited log lines, one a step, for rows that steps leave out: without a key or value, or late for windows."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping

__all__ = ["LATE", "Dropping"]

DROPPED = "step '%s': %d row(s) without the key or the value that it needs were dropped"
LATE = "windows after '%s': records were late for %d window(s), which were over with their grace"

_log = logging.getLogger("eddy.worker")
_INTERVAL_S = 10.0


class Dropping:
    """Logs how many rows each step drops: the first rows at once, later rows at most every `_INTERVAL_S` seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._unsaid: Counter[tuple[str, str]] = Counter()
        self._said: dict[tuple[str, str], float] = {}

    def report(self, left_out: Mapping[str, int], what: str = DROPPED) -> int:
        """Add the numbers of rows that steps left out in an epoch, and log them. Returns their sum.

        `what` is the text of the log line, with places for a step and a number.
        """
        for step, rows in left_out.items():
            self._unsaid[what, step] += rows
            now = self._clock()
            if now - self._said.get((what, step), float("-inf")) >= _INTERVAL_S:
                self._said[what, step], unsaid = now, self._unsaid.pop((what, step))
                _log.warning(what, step, unsaid, extra={"fields": {"step": step, "rows": unsaid}})
        return sum(left_out.values())
