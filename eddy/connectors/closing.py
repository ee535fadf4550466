"""Closing with a deadline, for clients whose close may wait for ever.

A call that has not ended in time is left to its thread. The thread also keeps the client alive, because freeing a
client that cannot be closed may take for ever, too. A process with such a thread may not end when its main program
returns. So the command line then ends the process without cleaning up (`os._exit`).
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

__all__ = ["CLOSE_S", "any_abandoned", "close_within", "free_within", "keep"]

T = TypeVar("T")

_log = logging.getLogger("eddy.closing")
_abandoned = threading.Event()

CLOSE_S = 5.0
"""Seconds that closing one client may take. A worker has four clients, and a supervisor waits for 30 seconds."""


def close_within(close: Callable[[], object], what: str, patience_s: float = CLOSE_S) -> bool:
    """Call `close` in a thread and wait up to `patience_s` for its end. Returns whether it has ended.

    An exception of `close` is only logged: the client is not used again, and the caller could not act on it.
    """

    def call() -> None:
        try:
            close()
        except Exception as error:
            _log.info("%s: closed with an error: %s", what, error)

    thread = threading.Thread(target=call, name="eddy-closing", daemon=True)
    thread.start()
    thread.join(patience_s)
    if thread.is_alive():
        _abandoned.set()
        _log.warning("%s: not closed within %g s; abandoned", what, patience_s)
        return False
    return True


def free_within(held: list[T], what: str, patience_s: float = CLOSE_S) -> bool:
    """Empty the list `held`, which frees its objects. Returns whether this has ended within `patience_s` seconds."""
    return close_within(held.clear, what, patience_s)


def keep(client: object, until: "Future[Any] | None" = None) -> None:
    """Keep `client` alive in a thread of its own until the future `until` is done; for ever if `until` is None.

    The waiting thread refers to the client, so that the client is not freed at the end of the interpreter either.
    """
    _abandoned.set()
    threading.Thread(target=_hold, args=(client, until or Future()), name="eddy-abandoned", daemon=True).start()


def _hold(client: object, until: "Future[Any]") -> None:
    wait([until])


def any_abandoned() -> bool:
    """Whether a client of this process could not be closed, so that a normal exit may wait for ever."""
    return _abandoned.is_set()
