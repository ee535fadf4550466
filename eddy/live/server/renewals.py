"""Computes the rows of live views anew, while the views' readers keep the rows that they have.

One thread renews views one after the other; it is started for the first one. A view that cannot be renewed yet, because
its tables are not whole, is tried again later.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator

from eddy.errors import NotReadyError
from eddy.live.server.live_view import LiveView

__all__ = ["Renewals", "Restarts"]

_AGAIN_S = 0.05


class Renewals:
    """The views that wait to be renewed. All methods except `_run` are called with the live server's `lock` held."""

    def __init__(self, lock: threading.RLock, renew: Callable[[LiveView], None]) -> None:
        """`renew` is called without the lock. It raises only NotReadyError, and is then called again later."""
        self._changed = threading.Condition(lock)
        self._renew = renew
        self._waiting: dict[LiveView, bool] = {}
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def __contains__(self, live: LiveView) -> bool:
        return live in self._waiting

    def is_frozen(self, live: LiveView) -> bool:
        """Return whether a view waits to be renewed, and its rows do not change until then."""
        return self._waiting.get(live, False)

    def any_frozen(self) -> bool:
        """Whether any view is frozen."""
        return any(self._waiting.values())

    def __iter__(self) -> Iterator[LiveView]:
        return iter(list(self._waiting))

    def add(self, live: LiveView, *, frozen: bool) -> None:
        """Let a view be renewed.

        If it is `frozen`, its rows do not change until then; otherwise they are kept up to date.
        """
        self._waiting[live] = frozen or self._waiting.get(live, False)
        if self._thread is None and not self._is_stopped:
            self._thread = threading.Thread(target=self._run, name="eddy-live-renewals", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def discard(self, live: LiveView) -> None:
        """Remove a view, because it was renewed or needs no renewal any more."""
        self._waiting.pop(live, None)

    def stop(self) -> threading.Thread | None:
        """Stop renewing. Returns the thread, which is about to end, if there is one. Join it without the lock."""
        self._is_stopped = True
        self._waiting.clear()
        self._changed.notify_all()
        return self._thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped or self._waiting)
                if self._is_stopped:
                    return
                live = next(iter(self._waiting))
            try:
                self._renew(live)
            except NotReadyError:
                with self._changed:
                    if live in self._waiting:
                        # Move the view to the end, so that others do not wait for it.
                        self._waiting[live] = self._waiting.pop(live)
                    self._changed.wait_for(lambda: self._is_stopped, _AGAIN_S)


class Restarts:
    """Limits how often all queries are opened anew: at most `most` times within `within_s` seconds."""

    def __init__(self, most: int, within_s: float) -> None:
        self.most, self.within_s = most, within_s
        self.count = 0
        self._times: deque[float] = deque()

    def admits(self, now: float) -> bool:
        """Whether all queries may be opened anew at this time; if so, the time is noted."""
        while self._times and self._times[0] <= now - self.within_s:
            self._times.popleft()
        if len(self._times) >= self.most:
            return False
        self._times.append(now)
        self.count += 1
        return True
