"""Handles signals while eddy's own modules are imported: the process ends immediately, without a traceback.

`eddy run` ends with 0 when it is asked to stop, also at this moment; any other command ends as if the signal had killed
it. A SIGINT that was ignored, because a non-interactive shell started this process in the background, is handled from
here on.

The command line imports this module first, and this module imports little. A signal that arrives even earlier is
handled by Python, with a traceback.
"""

import os
import signal
import sys
from types import FrameType

__all__ = ["signals_end_imports"]


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(0 if sys.argv[1:2] == ["run"] else 128 + number)


class signals_end_imports:  # noqa: N801 - a context manager, called like a function
    """Inside the block, SIGINT and SIGTERM end the process. In a thread other than the main one it does nothing."""

    _interrupt: object = None
    _terminate: object = None

    def __enter__(self) -> None:
        try:
            self._interrupt = signal.signal(signal.SIGINT, _end) or signal.SIG_DFL
        except ValueError:  # signals are handled by the main thread only
            return
        self._terminate = signal.signal(signal.SIGTERM, _end) or signal.SIG_DFL

    def __exit__(self, *error: object) -> None:
        if self._interrupt is None:
            return
        ignored = self._interrupt is signal.SIG_IGN
        signal.signal(signal.SIGINT, signal.default_int_handler if ignored else self._interrupt)  # type: ignore[arg-type]
        signal.signal(signal.SIGTERM, self._terminate)  # type: ignore[arg-type]
