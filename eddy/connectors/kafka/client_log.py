"""The log lines of Kafka's clients: one line in ten seconds for each cause, over all clients of the process.

A client that cannot reach a broker retries twenty times a second and logs each attempt; a worker has four clients.
Suppressed lines are counted, and the next line of the same cause gives their number.
"""

import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["ClientLog", "cause", "client_logger"]

_INTERVAL_S = 10.0
_MAX_CAUSES = 256
_OF_ONE_CLIENT = re.compile(r"\[thrd:[^\]]*\]: |\S+: (?=Connect to )|\([^)]*\)|(?<![\w.:#/-])\d+(\.\d+)?(ms)?\b")
"""The parts that differ between lines of one cause: the thread, the connection's name, durations and counts."""


class ClientLog(logging.Filter):
    """Lets one line of each cause through in ten seconds, and all debug lines. `clock` returns rising seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._guard = threading.Lock()
        # For each cause the time at which its next line is due, and the number of suppressed lines.
        self._causes: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is shown."""
        if record.levelno <= logging.DEBUG:
            return True
        shown, held_back = self._counted(cause(record))
        if shown and held_back:
            record.msg, record.args = f"{record.getMessage()}; {held_back} similar lines were suppressed", ()
        return shown

    def _counted(self, what: str) -> tuple[bool, int]:
        """Return whether a line of a cause is due, and how many lines were suppressed since the last shown line."""
        with self._guard:
            now = self._clock()
            due, held_back = self._causes.pop(what, (now, 0))
            shown = now >= due
            self._causes[what] = (now + _INTERVAL_S, 0) if shown else (due, held_back + 1)
            if len(self._causes) > _MAX_CAUSES:
                self._causes.popitem(last=False)
        return shown, held_back


def cause(record: logging.LogRecord) -> str:
    """Return the part of a log line that names its cause. The line has the client's kind, its name and a text."""
    parts = record.args if isinstance(record.args, tuple) and len(record.args) == 3 else ("", "", record.getMessage())
    return f"{parts[0]} {_OF_ONE_CLIENT.sub('', str(parts[2]))}"


def client_logger() -> logging.Logger:
    """Return the logger that all clients of this process share."""
    logger = logging.getLogger("eddy.kafka.client")
    if not any(isinstance(each, ClientLog) for each in logger.filters):
        logger.addFilter(ClientLog())
    return logger
