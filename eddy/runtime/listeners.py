"""Calls the functions with which a program observes a worker. An exception in one is logged; the worker continues."""

import logging
from collections.abc import Callable

from eddy.config import Config
from eddy.runtime.lifecycle import Event, WorkerState

__all__ = ["Listeners"]

_log = logging.getLogger("eddy.worker")


class Listeners:
    """Calls `Config.on_state` and `Config.on_restore`, if the program has set them."""

    def __init__(self, config: Config) -> None:
        self._on_state, self._on_restore = config.on_state, config.on_restore

    def transition(self, left: WorkerState, event: Event, entered: WorkerState) -> None:
        """Call `on_state` if a transition has changed the worker's state."""
        if left is not entered and self._on_state is not None:
            _call(self._on_state, str(left), str(entered))

    def restored(self, store: str, done: int, total: int) -> None:
        """Call `on_restore` after a slice of a store's restore: `done` of `total` offsets are read."""
        if self._on_restore is not None:
            _call(self._on_restore, store, done, total)


def _call(listener: Callable[..., object], *arguments: object) -> None:
    try:
        listener(*arguments)
    except Exception:
        _log.exception("a listener failed with %s", ", ".join(map(repr, arguments)))
