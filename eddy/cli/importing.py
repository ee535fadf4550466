"""Signals while eddy's own modules are imported: no work has begun, so the process ends immediately, without a
traceback.

`eddy run` ends with 0 when it is asked to stop, also at this moment; any other command ends as if the signal had killed
it. A SIGINT that was ignored, because a non-interactive shell started this process in the background, is handled from
here on.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["signals_end_imports"]


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(0 if sys.argv[1:2] == ["run"] else 128 + number)


@contextlib.contextmanager
def signals_end_imports() -> Iterator[None]:
    """Inside the block, SIGINT and SIGTERM end the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [signal.signal(number, _end) or signal.SIG_DFL for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler if before[0] is signal.SIG_IGN else before[0])
        signal.signal(signal.SIGTERM, before[1])
