"""Knows the workers on threads of this program. Open tables ask it whether any worker still runs.

If a worker ends with an error and no other worker of its application runs in this program, no new versions follow, on a
log whose members are all in one process. So reads and waits of the tables raise the error, until another worker is
started or `stop()` has raised it. On Kafka nothing is raised, because workers of other processes may still run.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from eddy.connectors.log import Log
from eddy.errors import FencedError

__all__ = ["OwnWorkers", "Place", "own_workers", "place_of"]

Place = tuple[str, object]
"""The name of an application, and the log that it runs on."""


def place_of(application: str, log: Log) -> Place:
    """Return a value that identifies an application on a log. All clients of the same log give the same value."""
    path = getattr(log, "path", None)
    return application, getattr(log, "where", log) if path is None else Path(path).resolve()


@dataclass
class _Known:
    running: int = 0
    error: BaseException | None = None
    watchers: list[Callable[[BaseException | None], None]] = field(default_factory=list)


class OwnWorkers:
    """The workers of one program, by application and log (`Place`). Any thread may call it."""

    def __init__(self) -> None:
        self._known: dict[Place, _Known] = {}
        self._lock = threading.Lock()

    def begin(self, place: Place) -> None:
        """Note that a worker starts."""
        with self._lock:
            known = self._known.setdefault(place, _Known())
            known.running += 1
            self._set(known, None)

    def end(self, place: Place, error: BaseException | None) -> None:
        """Note that a worker has ended, with an error or because it was stopped."""
        with self._lock:
            known = self._known[place]
            known.running -= 1
            if error is not None and not known.running and not isinstance(error, FencedError):
                self._set(known, error)
            self._forget_idle(place)

    def told(self, place: Place) -> None:
        """Note that the program has got a worker's error. Its tables can then be read again, as they are."""
        with self._lock:
            if (known := self._known.get(place)) is not None:
                self._set(known, None)
                self._forget_idle(place)

    def watch(self, place: Place, watcher: Callable[[BaseException | None], None]) -> Callable[[], None]:
        """Call `watcher` now, and at each change, with the error that ended the last worker of `place`.

        `watcher` gets None if there is no such error. Returns a function that stops these calls.
        """
        with self._lock:
            known = self._known.setdefault(place, _Known())
            known.watchers.append(watcher)
            watcher(known.error)

        def end() -> None:
            with self._lock:
                known.watchers.remove(watcher)
                self._forget_idle(place)

        return end

    def _set(self, known: _Known, error: BaseException | None) -> None:
        if known.error is not error:
            known.error = error
            for watcher in known.watchers:
                watcher(error)

    def _forget_idle(self, place: Place) -> None:
        known = self._known.get(place)
        if known is not None and not (known.running or known.watchers or known.error):
            del self._known[place]


own_workers = OwnWorkers()
"""The workers of this process."""
