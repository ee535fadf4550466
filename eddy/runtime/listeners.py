"""Calls the functions with which a program observes a worker. An exception in one is logged; the worker continues."""

import logging
from collections.abc import Callable

from eddy.config import Config
from eddy.runtime.lifecycle import Event, WorkerState

__all__ = ["Listeners"]

_log = logging.getLogger("eddy.worker")


class Listeners:
    """Calls `Config.on_state` and `Config.on_restore`, where they are given."""

    def __init__(self, config: Config) -> None:
        self._on_state, self._on_restore = config.on_state, config.on_restore

    def transition(self, left: WorkerState, event: Event, entered: WorkerState) -> None:
        """The worker's state may have changed."""
        if left is not entered and self._on_state is not None:
            _call(self._on_state, str(left), str(entered))

    def restored(self, store: str, done: int, total: int) -> None:
        """A slice of a store's restore is done."""
        if self._on_restore is not None:
            _call(self._on_restore, store, done, total)


def _call(listener: Callable[..., object], *arguments: object) -> None:
    try:
        listener(*arguments)
    except Exception:
        _log.exception("a listener failed with %s", ", ".join(map(repr, arguments)))
