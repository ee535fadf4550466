"""Knows the readers of each view of live queries, and calls the readers' listeners.

Equal queries share one view, and each query has a reader, its `LiveView`. The caller has the lock of the live server.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from eddy.errors import EddyError, QueryError
from eddy.live.dataflow.patch import Buckets
from eddy.live.query.planning import PlannedView
from eddy.live.server.live_view import LiveView
from eddy.tables.version import Version

__all__ = ["Readers", "as_shown"]

_log = logging.getLogger("eddy.live")


class Readers:
    """The open readers. `ended` is called with a reader that has an error after the call of its listeners."""

    def __init__(self, ended: Callable[[LiveView], None]) -> None:
        self._ended = ended
        self._views: dict[LiveView, PlannedView] = {}
        self._readers: dict[PlannedView, dict[LiveView, None]] = {}
        self._checked: dict[LiveView, None] = {}
        self._thread: int | None = None
        self.called: LiveView | None = None
        """The reader whose listener is called at this moment."""

    def __contains__(self, live: LiveView) -> bool:
        return live in self._views

    def __getitem__(self, live: LiveView) -> PlannedView:
        return self._views[live]

    def __iter__(self) -> Iterator[LiveView]:
        return iter(list(self._views))

    def __len__(self) -> int:
        return len(self._views)

    def of(self, view: PlannedView) -> Iterator[LiveView]:
        """Yield the readers of a view, without those that a listener closes or moves to another view meanwhile."""
        for live in list(self._readers.get(view, ())):
            if self._views.get(live) is view:
                yield live

    def checked(self) -> list[LiveView]:
        """Return the readers whose rows are compared with the answer from scratch."""
        return list(self._checked)

    def rows_of(self, view: PlannedView) -> Buckets:
        """Return the rows of a view: copied from a reader or, if it has no reader, made from the view's operators."""
        for other in self._readers.get(view, ()):
            buckets = Buckets()
            buckets.entries = {bucket: list(rows) for bucket, rows in other.entries.items()}
            return buckets
        return view.filled()

    def add(self, live: LiveView, view: PlannedView) -> None:
        """Give a reader the patches of a view from now on."""
        self._views[live] = live.view = view
        self._readers.setdefault(view, {})[live] = None
        if live.checks.every is not None:
            self._checked[live] = None

    def remove(self, live: LiveView) -> PlannedView:
        """Give a reader no more patches. Returns the view that it had."""
        view = self._views.pop(live)
        self._checked.pop(live, None)
        readers = self._readers[view]
        del readers[live]
        if not readers:
            del self._readers[view]
        return view

    def clear(self) -> None:
        """Remove all readers."""
        self._views.clear()
        self._readers.clear()
        self._checked.clear()

    @property
    def in_listener(self) -> bool:
        """Whether the present thread is calling a listener."""
        return self._thread == threading.get_ident()

    def call(self, live: LiveView, function: Callable[[Any, Version], None], found: Any, version: Version) -> None:
        """Call a reader's `function`, which calls the reader's listeners. An error ends the reader."""
        outer = self._thread, self.called
        self._thread, self.called = threading.get_ident(), live
        try:
            function(found, version)
        except Exception as error:
            _log.error("live query: it has ended; other queries continue", exc_info=error)
            live._fail(as_shown(error, "live query: its patch failed"))
        finally:
            self._thread, self.called = outer
        if live.error is not None:
            self._ended(live)


def as_shown(error: Exception, where: str = "live queries") -> Exception:
    """Return the error that readers see: an EddyError itself; for any other error a QueryError."""
    return error if isinstance(error, EddyError) else QueryError(f"{where}: {error!r}")
