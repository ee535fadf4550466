"""A call of the author's code by the engine: the only time at which a context and its stores may be used."""

from collections.abc import Iterable, Iterator
from threading import get_ident
from typing import TypeVar

from eddy.errors import ProcessorError

__all__ = ["RunningCall"]

R = TypeVar("R")


class RunningCall:
    """The current call of one processor. `thread` has the thread of a running call; `number` rises with each call."""

    __slots__ = ("number", "thread", "where")

    def __init__(self, where: str) -> None:
        self.where = where
        self.thread: int | None = None
        self.number = 0

    def begin(self) -> None:
        """A call begins, on this thread."""
        self.thread = get_ident()
        self.number += 1

    def end(self) -> None:
        """The call has ended."""
        self.thread = None

    def check(self, what: str, number: int | None = None) -> None:
        """Refuse a use outside of a call, or of the call with this number. Raises: ProcessorError."""
        mine = self.thread == get_ident()
        if mine and number in {None, self.number}:
            return
        when = "after its call has ended" if mine or self.thread is None else "from another thread"
        raise ProcessorError(
            f"{self.where}: {what} {when}; contexts and stores are used only within init, process and punctuations, "
            "on their thread. Keep rows in a store until the next call"
        )

    def within(self, rows: Iterable[R], what: str) -> Iterator[R]:
        """Yield the rows while this call runs. Raises: ProcessorError, with `what` was done, where it has ended."""
        return self._within(iter(rows), what, self.number)

    def _within(self, rows: Iterator[R], what: str, number: int) -> Iterator[R]:
        while True:
            self.check(what, number)
            try:
                row = next(rows)
            except StopIteration:
                return
            yield row
