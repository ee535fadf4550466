"""The search ahead of rows, by repeated application of op: it finds cycles, and rows that never end.

    step       from a row to a row that op makes of it
    cycle      steps that return to a row
    endless    more than `limit` stale steps on one path
    stale      all rows outside that the step has met were met on the path before

The rows outside are finitely many, and a path down a tree meets each once, however deep it is. A path with more steps
than there are rows outside has stale ones, and a path without an end has an unbounded number of them. A step that meets
no rows outside, such as in a countdown, counts as a sixteenth of a stale step. A row that cannot be written ends a
path, too.

Rows are followed depth first. Children whose key is on the path come first, because stale paths continue with them.

Source: Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1, 1972, for the components.
"""

import functools
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eddy.operators.batch import Row
from eddy.operators.errors.row_sizes import GLANCE, RowSizes
from eddy.operators.waves.body import Asked, Explored
from eddy.operators.waves.explorer import Explorer, Round

__all__ = ["MOST_REACHED", "Endless", "Explore", "Survey", "comes_to_an_end", "cycle_among", "survey", "way_around"]

Explore = Callable[[Row], Explored]
"""A function that applies op to one row. If it is an `Explorer`, the search can follow a path beyond its budget."""
Order = Callable[[Row], Any]

MOST_REACHED = 2_000_000
"""If there are so many rows ahead of stops, they count as endless."""

_WHOLE = 16  # the weight of a stale step that meets rows outside; a stale step that meets none has weight 1
_ROUND = 16 * _WHOLE  # from this staleness on, a path is followed further with the rows outside of its last steps
_MOST_ROUNDS = 4  # the most paths that are followed so
# With `beyond`, the most rows that are explored after stale steps, since these rows multiply if paths fork.
_MOST_STALE = 2_048
_FEW = 4  # the number of rows of one label that are explored
_MOST_TRIED = 100
_MOST_LABELLED = 20_000  # the most rows among which a way around is searched


class Endless(NamedTuple):
    """The rows of an endless path. `unwritten` says why a row that op makes of the last row cannot be written."""

    path: list[Row]
    unwritten: str = ""


@dataclass
class Survey:
    """The result of a search. `ended`: all rows ahead were explored.

    If it is false, `cyclic` and `reached` are unknown.

    - `edges`: the rows that op makes of each row.
    - `closings`: a row on each cycle. `closing_path`: the first cycle that was found, `[r, …, r]`.
    - `cyclic`: all rows on cycles. `reached`: these rows, and all rows derived from them.
    - `asked`: the keys that were looked up outside.
    - `endless`: a path without an end, None if none was found.
    """

    edges: dict[Row, Sequence[Row]] = field(default_factory=dict)
    closings: list[Row] = field(default_factory=list)
    closing_path: list[Row] = field(default_factory=list)
    cyclic: set[Row] = field(default_factory=set)
    reached: set[Row] = field(default_factory=set)
    asked: set[Asked] = field(default_factory=set)
    endless: Endless | None = None
    ended: bool = True


def survey(
    explore: Explore,
    starts: Iterable[Row],
    limit: int | None = None,
    budget: int | None = None,
    refused: Callable[[Row], str] = lambda row: "",
    beyond: bool = False,
) -> Survey:
    """Search ahead of `starts`, until a path is endless, or `budget` rows were explored.

    `limit`: the number of stale steps after which a path is endless; None to look for cycles only. `refused` returns
    the reason why a row cannot be written, empty if it can be. `beyond`: a path is abandoned after a few stale steps,
    and the search continues, to find cycles beside it.
    """
    found = Survey()
    search = _Search(found, explore, limit, budget, refused, beyond)
    found.ended = all(search.follow(start) for start in starts)
    if found.ended:
        found.reached = _closure(found.cyclic, found.edges)
    found.closings = list(dict.fromkeys(found.closings))
    return found


def comes_to_an_end(explore: Explorer, starts: Iterable[Row], budget: int, sizes: RowSizes) -> bool:
    """Return whether op, applied to a whole frontier again and again, soon makes no rows, so that no cycle is ahead.

    Also returns False if that takes more than `budget` rows, or if rows are wide and may grow.
    """
    frontier = list(starts)
    for level in itertools.count(1):
        frontier = explore.all_of(frontier)
        budget -= len(frontier)
        if not frontier or budget < 0:
            break
        if level % GLANCE == 0 and (sizes.refused_rows(frontier) or sizes.wide):
            break
    return not frontier


class _Frame:
    """A row on the path: its remaining children, its number in the search, and the staleness of the path up to it."""

    __slots__ = ("children", "low", "met", "number", "row", "stale")

    def __init__(self, row: Row, children: Iterator[Row], number: int, stale: int, met: Sequence[Asked]) -> None:
        self.row, self.children, self.number, self.low, self.stale, self.met = row, children, number, number, stale, met


class _Search:
    def __init__(
        self,
        found: Survey,
        explore: Explore,
        limit: int | None,
        budget: int | None,
        refused: Callable[[Row], str],
        beyond: bool,
    ) -> None:
        self._found, self._explore, self._refused, self._beyond = found, explore, refused, beyond
        self._most = None if limit is None else limit * _WHOLE
        self._budget = MOST_REACHED if budget is None else budget
        self._bounded, self._rounds, self._stale_rows = budget is not None, _MOST_ROUNDS, 0
        self._numbers: dict[Row, int] = {}
        self._stack: list[Row] = []
        self._stacked: set[Row] = set()
        self._path: dict[Row, _Frame] = {}
        self._met: Counter[Asked] = Counter()
        self._keys: Counter[Any] = Counter()

    def follow(self, start: Row) -> bool:
        """Explore all rows ahead of one row. Returns False if the search has to end."""
        if start in self._numbers:
            return True
        numbers, stacked, path = self._numbers, self._stacked, self._path
        if not self._enter(start, 0):
            return False
        while path:
            frame = next(reversed(path.values()))
            for child in frame.children:
                if child not in numbers:
                    if not self._enter(child, frame.stale):
                        return False
                    break
                if child in stacked:
                    frame.low = min(frame.low, numbers[child])
            else:
                self._leave(frame)
        return True

    def _close(self, row: Row) -> None:
        """Note a cycle: the path has returned to `row`."""
        found = self._found
        found.closings.append(row)
        if not found.closing_path:
            path = list(self._path)
            found.closing_path = [*path[path.index(row) :], row]

    def _enter(self, row: Row, stale: int) -> bool:
        found, numbers = self._found, self._numbers
        if len(numbers) >= self._budget:
            if not self._bounded:
                found.endless = Endless([*self._path, row])
            return False
        refusal = "" if self._most is None else self._refused(row)
        if refusal and not self._beyond:
            found.endless = Endless(list(self._path) or [row], refusal)
            return False
        rows, asked, met = self._explore(row) if not refusal else Explored([], [], [])
        found.edges[row] = rows
        found.asked.update(asked)
        if not met:
            stale += 1
        elif all(self._met[each] for each in met):
            stale += _WHOLE
        frame = _Frame(row, iter(self._ordered(rows)), len(numbers), stale, met)
        numbers[row] = frame.number
        self._stack.append(row)
        self._stacked.add(row)
        self._path[row] = frame
        for child in rows:
            if child in self._path:  # noted now, since the search may end in another child
                self._close(child)
        self._met.update(met)
        self._keys[row[0]] += 1
        if self._most is None or stale < _WHOLE:
            return True
        if self._beyond:
            self._stale_rows += 1
            if stale >= _ROUND or self._stale_rows > _MOST_STALE:
                frame.children, found.edges[row] = iter(()), []
            return True
        return stale < _ROUND or not self._is_endless(frame, self._most)

    def _is_endless(self, frame: _Frame, most: int) -> bool:
        """Whether a path with many stale steps is endless."""
        found, path = self._found, list(self._path)
        if frame.stale > most:
            found.endless = Endless(path)
        elif self._rounds and isinstance(self._explore, Explorer):
            self._rounds -= 1
            found.endless = self._around_again(path, most - frame.stale)
        return found.endless is not None

    def _around_again(self, path: list[Row], left: int) -> Endless | None:
        """Follow a path further with the rows outside of its last steps. Returns the path if it is endless."""
        assert isinstance(self._explore, Explorer)
        why: list[str] = []
        seen = set(path)

        def ends(row: Row) -> bool:
            if refusal := self._refused(row):
                why.append(refusal)
            return bool(refusal) or row in seen

        steps = left // _WHOLE + 1
        for row in Round(self._explore, path[-_ROUND:]).follow(path[-1], steps, ends):
            seen.add(row)
            path.append(row)
        return Endless(path, *why) if why or len(path) > len(self._path) + left // _WHOLE else None

    def _ordered(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Sort rows so that those whose key is on the path come first."""
        keys = self._keys
        if len(rows) < 2 or not any(keys[row[0]] for row in rows):
            return rows
        return sorted(rows, key=lambda row: not keys[row[0]])

    def _leave(self, frame: _Frame) -> None:
        path, row = self._path, frame.row
        del path[row]
        self._keys[row[0]] -= 1
        self._met.subtract(frame.met)
        if path:
            parent = next(reversed(path.values()))
            parent.low = min(parent.low, frame.low)
        if frame.low == frame.number:
            self._found.cyclic |= self._component(row)

    def _component(self, root: Row) -> set[Row]:
        """Pop a strongly connected component from the stack, and return its rows.

        Returns an empty set if it is a single row that does not lead to itself.
        """
        rows = {row := self._stack.pop()}
        while row != root:
            rows.add(row := self._stack.pop())
        self._stacked -= rows
        return rows if len(rows) > 1 or root in self._found.edges[root] else set()


def _closure(rows: set[Row], edges: Mapping[Row, Sequence[Row]]) -> set[Row]:
    reached, left = set(rows), list(rows)
    while left:
        new = [child for child in edges[left.pop()] if child not in reached]
        reached.update(new)
        left += new
    return reached


def cycle_among(found: Survey, order: Order) -> list[Row]:
    """Return the shortest path `[r, …, r]` from the first cyclic row by `order` back to itself.

    Of several such paths it returns the first by `order`.
    """
    first = min(found.cyclic, key=order)
    cyclic = found.cyclic
    return _path(lambda row: [child for child in found.edges[row] if child in cyclic], first, first.__eq__, order)


class Stage(NamedTuple):
    """A row on a path, with its *label*: the key by which it meets rows outside, or its own key if it meets none."""

    row: Row
    label: Any


def way_around(explore: Explore, starts: Sequence[Row], order: Order) -> list[Stage]:
    """Return a path ahead of `starts` from a row to another row with the same label; empty if there is none.

    It is the shortest such path from the first label, by `order`, that has one. Only a few rows of each label are
    explored.
    """
    labels: dict[Row, Any] = {}

    def label_of(row: Row) -> Any:
        if row not in labels:
            met = explore(row).met
            labels[row] = met[0][1] if met else row[0]
        return labels[row]

    def few() -> Callable[[Row], Sequence[Row]]:
        looked: Counter[Any] = Counter()

        def look(row: Row) -> Sequence[Row]:
            looked[label_of(row)] += 1
            return explore(row).rows if looked[label_of(row)] <= _FEW else ()

        return look

    edges: dict[Any, list[Row]] = {}
    firsts: dict[Any, Row] = {}
    look = few()

    def noted(row: Row) -> Sequence[Row]:
        rows = look(row)
        firsts.setdefault(label_of(row), row)
        edges.setdefault(label_of(row), []).extend(rows)
        return rows

    def is_other(label: Any, row: Row) -> bool:
        return row != firsts[label] and bool(label_of(row) == label)

    left = itertools.count(_MOST_LABELLED, -1)
    _breadth_first(noted, starts, lambda row: not next(left))
    ways = {(label, None): [(label_of(row), None) for row in rows] for label, rows in edges.items()}
    cyclic = survey(lambda row: Explored(ways.get(row, []), [], []), ways).cyclic
    for label, _ in sorted(cyclic, key=lambda row: (order(row), repr(row)))[:_MOST_TRIED]:
        path = _path(few(), firsts[label], functools.partial(is_other, label), order)
        if path:
            return [Stage(row, label_of(row)) for row in path]
    return []


def _path(look: Callable[[Row], Sequence[Row]], start: Row, is_end: Callable[[Row], bool], order: Order) -> list[Row]:
    """Return the shortest path of one or more steps from `start` to a row for which `is_end`; empty if there is none.

    Of several such paths it returns the first by `order`.
    """
    before: dict[Row, Row] = {}

    def step(row: Row) -> Sequence[Row]:
        made = sorted(look(row), key=order)
        for child in made:
            before.setdefault(child, row)
        return made

    end = _breadth_first(step, [start], is_end)
    if end is None:
        return []
    path = [end, before[end]]
    while path[-1] != start:
        path.append(before[path[-1]])
    return path[::-1]


def _breadth_first(
    look: Callable[[Row], Sequence[Row]], starts: Iterable[Row], is_end: Callable[[Row], bool]
) -> Row | None:
    """Search ahead of `starts`, breadth first. Returns the first row for which `is_end`; None if there is none."""
    queue, seen = deque(starts), set(starts)
    while queue:
        for child in look(queue.popleft()):
            if is_end(child):
                return child
            if child not in seen:
                seen.add(child)
                queue.append(child)
    return None
