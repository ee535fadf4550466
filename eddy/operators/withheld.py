"""Rows of a recursion by waves that have no finite answer, and are held.

    X + P = seed + op(X)

A *stop* is a row at which waves end: arriving weight waits in P, and op is not applied to it. With a stop on each cycle
the waves end. Because op is linear, rows that no cycle reaches are exact, and rows in P continue later as if they had
just arrived.

    stops      rows on cycles, with the weight that has arrived there; X does not contain them
    reached    all rows on these cycles, and all rows that op derives from them, in any number of steps

The keys of reached rows have no row downstream. A stop that no cycle reaches is opened: the cycle is mended. Where
waves do not end although no row comes back to itself, because each iteration makes new rows, they are stopped at the
limit: then the reached rows are unknown, and no key has a row downstream.

Invariant: the rows downstream are a function of X's seed and of op, for any order of epochs.
Cost: the reached rows are searched only when stops are added or removed, or op derives other rows from one of them.

Source: Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1, 1972, for the cycles.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eddy.operators.batch import Row, ZSet, merge_into
from eddy.state.arrangement import Arrangement, pairs_of, weight_in

__all__ = ["FoundCycles", "Stops", "Withheld", "find_cycles"]

Look = Callable[[Row], Sequence[Row]]

_WHOLE = -1
"""The mark of a recursion without any rows downstream."""


class Stops(Arrangement[Any, Any]):
    """An arrangement that counts its rollbacks and reloads, for callers that cache its rows."""

    times_changed = 0

    def rollback(self) -> None:
        """Return to the last commit."""
        super().rollback()
        self.times_changed += 1

    def forget(self) -> None:
        """Empty the memory: the store has been written to by someone else."""
        super().forget()
        self.times_changed += 1


@dataclass(frozen=True, slots=True)
class FoundCycles:
    """The rows that lie on cycles, and all rows that op makes of them, with the rows that op makes of each.

    Where the search did not end, `reached` are the rows that it met.
    """

    rows: set[Row]
    reached: set[Row]
    edges: Mapping[Row, Sequence[Row]]
    ended: bool = True

    def shortest(self, order: Callable[[Row], Any]) -> list[Row]:
        """The shortest path from the first row by `order` back to itself, `[r, …, r]`; the first one by `order`."""
        first = min(self.rows, key=order)
        before: dict[Row, Row] = {}
        queue = deque([first])
        while queue:
            row = queue.popleft()
            for child in sorted(self.edges[row], key=order):
                if child == first:
                    path = [first, row]
                    while path[-1] != first:
                        path.append(before[path[-1]])
                    return path[::-1] if row != first else [first, first]
                if child in self.rows and child not in before:
                    before[child] = row
                    queue.append(child)
        return []


def find_cycles(look: Look, starts: Sequence[Row], most: int) -> FoundCycles:
    """All cycles to which `starts` lead, and all that they reach. At most `most` rows are looked at.

    `look` tells the rows that op makes of one row.
    """
    edges: dict[Row, Sequence[Row]] = {}
    number: dict[Row, int] = {}
    low: dict[Row, int] = {}
    stack: list[Row] = []
    stacked: set[Row] = set()
    cyclic: set[Row] = set()

    def enter(row: Row) -> tuple[Row, Iterator[Row]]:
        number[row] = low[row] = len(number)
        stack.append(row)
        stacked.add(row)
        edges[row] = made = look(row)
        return row, iter(made)

    for start in starts:
        if start in number:
            continue
        path = [enter(start)]
        while path:
            row, children = path[-1]
            child = next((c for c in children if c not in number or c in stacked), None)
            if child is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[row])
                if low[row] == number[row]:
                    cyclic |= _component(row, stack, stacked, edges)
            elif child in number:
                low[row] = min(low[row], number[child])
            else:
                if len(number) >= most:
                    return FoundCycles(set(), set(number), {}, ended=False)
                path.append(enter(child))
    return FoundCycles(cyclic, _closure(cyclic, edges), edges)


def _component(root: Row, stack: list[Row], stacked: set[Row], edges: Mapping[Row, Sequence[Row]]) -> set[Row]:
    """Take a strongly connected component off the stack; empty where it is one row that does not lead to itself."""
    rows = {row := stack.pop()}
    while row != root:
        rows.add(row := stack.pop())
    stacked -= rows
    return rows if len(rows) > 1 or root in edges[root] else set()


def _closure(rows: set[Row], edges: Mapping[Row, Sequence[Row]]) -> set[Row]:
    reached, left = set(rows), list(rows)
    while left:
        new = [child for child in edges[left.pop()] if child not in reached]
        reached.update(new)
        left += new
    return reached


class Withheld:
    """The stops of one recursion, what waits at them, and the rows that cycles reach, kept in two arrangements.

    `reaches` counts the reached rows, as of the last epoch.
    `stops` maps each stop to the weight that waits there, also within an epoch. A stop at which nothing waits is
    forgotten when the epoch ends; with several workers only at a release, because rows that cancel may be on their way.
    A reached row has a mark above 0: 1 with one worker, with several the generation in which it was found.
    """

    def __init__(self, waiting: Stops, reached: Arrangement[Any, Any], mine: Callable[[list[Row]], list[Row]]) -> None:
        self._waiting, self._reached, self._mine = waiting, reached, mine
        self.stops: ZSet = {}
        self._before: ZSet = {}
        self._empty: set[Row] = set()
        self._entry: ZSet | None = None
        self._times_read = -1
        self._marks: dict[Row, int] = {}
        self.reaches = 0
        self.was_whole = self.whole = False
        self.latest = 0

    def states(self) -> tuple[Arrangement[Any, Any], ...]:
        """P, and the marks of reached rows."""
        return (self._waiting, self._reached)

    def read(self) -> bool:
        """Read the states anew after a rollback or a takeover. Returns whether there was one."""
        if self._times_read == self._waiting.times_changed:
            return False
        self._times_read = self._waiting.times_changed
        self.stops = self._before = self._owned(self._waiting)
        marks = list(self._owned(self._reached).values())
        self.latest, self.reaches = max(marks, default=0), sum(mark > 0 for mark in marks)
        self.whole, self._empty, self._marks = _WHOLE in marks, set(), {}
        return True

    def begin(self) -> None:
        """Begin an epoch. Cost: by the number of stops, unless nothing leaves."""
        self.was_whole, self._marks, self._entry = self.whole, {}, None
        self.stops = self._before if self.whole else self._before | dict.fromkeys(self._empty, 0)

    def _owned(self, state: Arrangement[Any, Any]) -> dict[Row, int]:
        """The rows of this worker's partitions: the store may still have those of partitions that others own."""
        rows = dict(state.items())
        mine = self._mine(list(rows))
        return rows if len(mine) == len(rows) else {row: rows[row] for row in mine}

    @property
    def active(self) -> bool:
        """Whether something was held before the epoch, or is now."""
        return bool(self._before or self._empty or self.stops or self.reaches or self._marks)

    @property
    def waits(self) -> bool:
        """Whether something waits, as of the last epoch."""
        return bool(self._before)

    @property
    def waiting(self) -> list[Row]:
        """The stops at which something waits."""
        return [row for row, weight in self.stops.items() if weight]

    def all_waiting(self) -> ZSet:
        """A copy of P before the epoch."""
        return dict(self._before)

    def moved(self, keep_empty: bool = False) -> bool:
        """Whether there are other stops than before the epoch; empty ones are forgotten, unless they are kept."""
        if not keep_empty and not all(self.stops.values()):
            self.stops = {row: weight for row, weight in self.stops.items() if weight}
        return self.stops.keys() != self._before.keys() | self._empty or self._before.keys() != set(self.waiting)

    def meets(self, keys: list[Any]) -> bool:
        """Whether a reached row, or a stop, has one of these keys."""
        return any(bag is not None for bag in self._reached.get_many(keys)) or not {
            key for key, _ in self.stops
        }.isdisjoint(keys)

    def mark_of(self, row: Row) -> int:
        """The mark of a row, 0 for none."""
        mark = self._marks.get(row)
        return weight_in(self._reached.get(row[0]), row[1]) if mark is None else mark

    def mark(self, row: Row, mark: int) -> None:
        """Give a row a mark; 0 takes it away."""
        self._marks[row] = mark

    def marked(self) -> dict[Row, int]:
        """All rows with their marks."""
        marks = self._owned(self._reached) | self._marks
        return {row: mark for row, mark in marks.items() if mark}

    def take(self, cycles: FoundCycles) -> ZSet:
        """Take the reached rows in, and open the stops that no cycle reaches. Returns the rows that waited there."""
        self.whole = False
        for row in self.marked():
            if row not in cycles.reached:
                self.mark(row, 0)
        for row in cycles.reached:
            if self.mark_of(row) <= 0:
                self.mark(row, 1)
        return self.open([row for row in self.stops if row not in cycles.reached])

    def open(self, rows: list[Row]) -> ZSet:
        """Remove stops; return the rows that waited there."""
        return {row: self.stops.pop(row) for row in rows}

    def hold_all(self, entry: ZSet) -> None:
        """Let the epoch's input wait with the rows that waited before; no row leaves.

        Cost: by `entry`, once nothing leaves.
        """
        self.stops = self._before if self.was_whole else dict(self._before)
        merge_into(self.stops, entry, entry.values())
        self._entry = entry if self.was_whole else None
        self._marks = dict.fromkeys(self._owned(self._reached), 0)
        self.whole = bool(self.stops)
        if self.stops:
            self.mark(next(iter(self.stops)), _WHOLE)

    def visible(self, delta: ZSet, x: Arrangement[Any, Any]) -> ZSet:
        """The delta of X without held keys. `x` is X before the epoch."""
        marks: dict[Any, dict[Any, int]] = {}
        for (key, value), mark in self._marks.items():
            marks.setdefault(key, {})[value] = mark

        def left_before(key: Any) -> bool:
            return not self.was_whole and not any(mark > 0 for _, mark in pairs_of(self._reached.get(key)))

        def leaves_now(key: Any) -> bool:
            now = dict(pairs_of(self._reached.get(key))) | marks.get(key, {})
            return not self.whole and not any(mark > 0 for mark in now.values())

        changed = {key for key, _ in delta} | marks.keys()
        if self.whole != self.was_whole:
            changed |= {key for key, _ in self._owned(x)}
        shows = {key: (left_before(key), leaves_now(key)) for key in changed}
        out: ZSet = {row: weight for row, weight in delta.items() if shows[row[0]][1]}
        for key, (before, after) in shows.items():
            if before != after and key is not None:
                bag = pairs_of(x.get(key))
                sign = 1 if after else -1
                merge_into(out, [(key, value) for value, _ in bag], [sign * weight for _, weight in bag])
        return out

    def settle(self) -> bool:
        """Write the changed stops and marks to the states. Returns whether there are other stops or marks."""
        moves: ZSet = {}
        for row, mark in self._marks.items():
            old = weight_in(self._reached.get(row[0]), row[1])
            if mark != old and row[0] is not None:
                moves[row] = mark - old
                self.reaches += (mark > 0) - (old > 0)
        if moves:
            self._reached.integrate(moves)
        self._marks = {}
        if self._entry is not None:
            if self._entry:
                self._waiting.integrate(self._entry)
            return bool(moves)
        before, now = self._before, {row: weight for row, weight in self.stops.items() if weight}
        delta = {row: weight for row in now.keys() | before.keys() if (weight := now.get(row, 0) - before.get(row, 0))}
        if delta:
            self._waiting.integrate(delta)
        self._before, self._empty = now, self.stops.keys() - now.keys()
        return bool(moves) or now.keys() != before.keys()
