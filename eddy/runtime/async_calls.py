"""The calls of a worker's coroutine functions, in an event loop of their own.

The worker's thread begins calls, checks which have ended, and cancels calls that it no longer needs. All else
happens in the loop's thread.
"""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from eddy.operators.async_map import AsyncMap, EndedCall
from eddy.operators.batch import Row
from eddy.operators.processors.record import RecordContext

__all__ = ["AsyncCalls", "OpenCall"]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0
_CLOSE_S = 5.0


class OpenCall:
    """A call of an author's coroutine function for one row of a record.

    `ended` is the result or the error of the call. It is None until the call has ended, and for ever if it is
    cancelled."""

    __slots__ = ("ended", "operator", "record", "row", "task")

    def __init__(self, operator: AsyncMap, row: Row, record: RecordContext) -> None:
        self.operator, self.row, self.record = operator, row, record
        self.ended: EndedCall | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def turn(self) -> object:
        """The name of the queue in which the call waits for earlier calls; None if it waits for no other call."""
        order = self.operator.limits.order
        if order == "none":
            return None
        return (self.operator, self.row[0]) if order == "key" else (self.operator, *self.record[:2])


class AsyncCalls:
    """Runs calls in an event loop, in a thread that is started for the first call."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._some_ended = threading.Event()
        self._slots: dict[AsyncMap, asyncio.Semaphore] = {}
        self._last: dict[object, asyncio.Task[None]] = {}

    def begin(self, calls: Sequence[OpenCall]) -> None:
        """Begin calls. Calls with an equal `turn` are made one after the other, in the order of `calls`."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="eddy-calls", daemon=True)
            self._thread.start()
        self._loop.call_soon_threadsafe(self._begin, calls)

    def cancel(self, calls: Sequence[OpenCall]) -> None:
        """Cancel calls that have begun and may have ended."""
        if self._loop is not None and calls:
            self._loop.call_soon_threadsafe(self._cancel, calls)

    def wait(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` seconds until a call ends; do not wait if one has ended since the last wait."""
        self._some_ended.wait(timeout_s)
        self._some_ended.clear()

    def close(self) -> None:
        """Cancel all calls and end the thread. A thread that a function blocks is left running after five seconds."""
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(lambda: loop.create_task(_end(loop)))
        thread.join(_CLOSE_S)
        if not thread.is_alive():
            loop.close()

    def _begin(self, calls: Sequence[OpenCall]) -> None:
        loop = asyncio.get_running_loop()
        for call in calls:
            turn = call.turn
            call.task = loop.create_task(self._run(call, turn, self._last.get(turn)))
            if turn is not None:
                self._last[turn] = call.task

    def _cancel(self, calls: Sequence[OpenCall]) -> None:
        for call in calls:
            if call.task is not None:
                call.task.cancel()

    async def _run(self, call: OpenCall, turn: object, before: asyncio.Task[None] | None) -> None:
        limits = call.operator.limits
        slots = self._slots.setdefault(call.operator, asyncio.Semaphore(limits.at_most))
        try:
            if before is not None:
                await asyncio.wait([before])
            async with slots:
                call.ended = await _result(call)
        finally:
            if self._last.get(turn) is call.task:
                del self._last[turn]
            self._some_ended.set()


async def _result(call: OpenCall) -> EndedCall:
    """Make a call, and retry it if it fails. Returns the function's result, or the error of the last try."""
    limits, (key, value), pause_s = call.operator.limits, call.row, _FIRST_PAUSE_S
    for tries_left in range(limits.retries, -1, -1):
        try:
            async with asyncio.timeout(limits.timeout_s) as deadline:
                made = await call.operator.function(key, value, call.record)
            return EndedCall(call.row, made, None)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            failed = _failure(error, limits.timeout_s if deadline.expired() else None)
        if tries_left:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return EndedCall(call.row, None, failed)


def _failure(error: BaseException, timeout_s: float | None) -> Exception:
    """Return the reason why a call has failed. Raises: CancelledError if this task itself is cancelled.

    SystemExit and CancelledError that the function itself has raised become a RuntimeError: otherwise SystemExit would
    end the loop, and the call with a CancelledError would never end.
    """
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    if isinstance(error, TimeoutError) and timeout_s is not None:
        return TimeoutError(f"it took more than timeout={timeout_s:g} s")
    return error if isinstance(error, Exception) else RuntimeError(f"it raised {type(error).__name__}")


async def _end(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all other tasks, and stop the loop once they have ended."""
    others: list[asyncio.Task[Any]] = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_CLOSE_S / 2)
    loop.stop()
