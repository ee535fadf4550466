"""Finds out early that a recursion will not end: by a row met again on its own path, by rows that outgrow their serdes,
or by a state that comes back.

A row in a second frontier proves nothing: two paths of different length may lead to one row. So rows are followed
forward, one by one, depth first: a row that leads back to an earlier row of its path lies on a cycle. Repeated keys
prove nothing either (a countdown, a walk of so many steps), so keys are not compared.

Cost: before wave 64 only that some rows are encoded. A search runs at waves 64, 128, 256, …, and follows a sixteenth of
the loop's rows so far, at least 64.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter

from eddy.errors import LoopLimitError
from eddy.operators.batch import Batch, Row, ZSet, merge_into

__all__ = [
    "FIRST_LOOK",
    "GLANCE",
    "LARGEST_WEIGHT",
    "EndlessError",
    "Repetition",
    "find_cycle",
    "find_stops",
    "outgrown",
    "path_text",
]

FIRST_LOOK = 64
"""The wave of the first search."""

GLANCE = 8
"""Before the first search, rows of every eighth wave are encoded: numbers that are squared soon fill the memory."""

LARGEST_WEIGHT = 2**63 - 1
"""States and topics keep weights in eight bytes."""

_SHARE = 16
_SAMPLE = 1_000


class EndlessError(LoopLimitError):
    """Nested time met a bound. `rows` were new in the last iteration; `of_work`: a larger budget might suffice."""

    def __init__(self, message: str, rows: Sequence[Row], of_work: bool = False) -> None:
        super().__init__(message)
        self.rows, self.of_work = rows, of_work
        self.others: Sequence[EndlessError] = ()


class Repetition:
    """Tells that the bindings of a loop have the same rows as some iterations before, so that it repeats for ever.

    Differences of this epoch tell how the bindings move only in iterations of which earlier epochs have no difference:
    those after `quiet_from`. The iterations compared are a power of two and those after it.

    Source: Brent, "An improved Monte Carlo factorization algorithm", BIT 20 (1980).
    """

    def __init__(self, bindings: int, quiet_from: int) -> None:
        self._quiet_from = quiet_from
        self._since: list[ZSet] | None = None
        self._bindings = bindings

    def met(self, iteration: int, made: Sequence[Batch]) -> bool:
        """Take in by what an iteration has changed the bindings, at least one of them."""
        if iteration <= self._quiet_from:
            return False
        if self._since is None or iteration & (iteration - 1) == 0:
            self._since = [{} for _ in range(self._bindings)]
            return False
        for since, batch in zip(self._since, made, strict=True):
            merge_into(since, batch.rows, batch.weights)
        return not any(self._since)


Look = Callable[[Row], Sequence[Row]]


def find_cycle(look: Look, starts: Sequence[Row], rows: int) -> list[Row] | None:
    """A path from a row back to itself, `[r, …, r]`, reachable from `starts`; None if none is found.

    `look` returns op of one row; `rows` is the number of the loop's rows so far.
    """
    for row, path in _closings(look, starts, rows):
        whole = list(path)
        return [*whole[whole.index(row) :], row]
    return None


def find_stops(look: Look, starts: Sequence[Row], rows: int) -> list[Row]:
    """Rows on the cycles reachable from `starts`, at least one on each that is found; see `find_cycle`."""
    return list(dict.fromkeys(row for row, _ in _closings(look, starts, rows)))


def _closings(look: Look, starts: Sequence[Row], rows: int) -> Iterator[tuple[Row, Iterable[Row]]]:
    """Each row to which a depth-first search comes back, with the path on which it lies."""
    budget = max(FIRST_LOOK, rows // _SHARE)
    done: set[Row] = set()
    for start in starts:
        if start in done:
            continue
        path: dict[Row, Iterator[Row]] = {start: iter(look(start))}
        while path:
            row, nexts = next(reversed(path.items()))
            child = next(nexts, None)
            if child is None:
                done.add(row)
                del path[row]
            elif child in path:
                yield child, path
            elif child not in done:
                budget -= 1
                if budget < 0:
                    return
                path[child] = iter(look(child))


def outgrown(frontier: Batch, encode: Callable[[Row], object] | None) -> Iterator[tuple[Row, str]]:
    """The rows of the frontier that can no longer be encoded, each with the reason, the heaviest first.

    `encode` is None if rows are never encoded, so that they may be of any type.
    """
    if max(map(abs, frontier.weights)) > LARGEST_WEIGHT:
        heavy = [
            (weight, row)
            for row, weight in zip(frontier.rows, map(abs, frontier.weights), strict=True)
            if weight > LARGEST_WEIGHT
        ]
        for _, row in sorted(heavy, key=itemgetter(0), reverse=True):
            yield row, "its weight is beyond 64 bits"
    elif encode is not None:
        for row in islice(frontier.rows, _SAMPLE):
            try:
                encode(row)
            except Exception as error:
                yield row, f"it can no longer be encoded ({error})"


def path_text(path: Iterable[object]) -> str:
    """A path as text, shortened in the middle if it is long.

    >>> path_text("abc")
    'a → b → c'
    """
    parts = list(path)
    return " → ".join(map(str, parts if len(parts) <= 12 else [*parts[:6], "…", *parts[-5:]]))
