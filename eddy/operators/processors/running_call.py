"""Knows whether eddy is calling a processor's method now, because only then the context and the stores may be used."""

from collections.abc import Iterable, Iterator
from threading import get_ident
from typing import TypeVar

from eddy.errors import ProcessorError

__all__ = ["RunningCall"]

R = TypeVar("R")


class RunningCall:
    """The call of one processor's methods that is running now. `thread` is its thread; None if no call runs.

    `number` counts the calls.
    """

    __slots__ = ("number", "thread", "where")

    def __init__(self, where: str) -> None:
        self.where = where
        self.thread: int | None = None
        self.number = 0

    def begin(self) -> None:
        """Begin a call, on this thread."""
        self.thread = get_ident()
        self.number += 1

    def end(self) -> None:
        """End the call."""
        self.thread = None

    def check(self, what: str, number: int | None = None) -> None:
        """Raise ProcessorError unless a call runs on this thread.

        If `number` is given, the call must also have this number.
        """
        mine = self.thread == get_ident()
        if mine and number in {None, self.number}:
            return
        when = "after its call has ended" if mine or self.thread is None else "from another thread"
        raise ProcessorError(
            f"{self.where}: {what} {when}; contexts and stores are used only within init, process and punctuations, "
            "on their thread. Keep rows in a store until the next call"
        )

    def within(self, rows: Iterable[R], what: str) -> Iterator[R]:
        """Yield the rows while this call runs. Raises: ProcessorError, which says `what` was done after the call."""
        return self._within(iter(rows), what, self.number)

    def _within(self, rows: Iterator[R], what: str, number: int) -> Iterator[R]:
        while True:
            self.check(what, number)
            try:
                row = next(rows)
            except StopIteration:
                return
            yield row
