"""Stores the rows that `quarantine.py` holds in a recursion by waves, and computes the rows downstream.

    X + P = seed + op(X)

    stop       a row at which waves end: arriving weight waits in P, X does not contain the row, and op is not applied
    reached    a row on a cycle, or derived from a row on one: its key has no row downstream
    whole      set while a path is endless: no key has a row downstream
    suspect    a row that may lead to a cycle or an endless path, which several workers have not decided yet

Because op is linear, rows that do not derive from a stop are exact, and rows in P can continue later like new rows.

There are two states:

    -held      stop → the weight that waits there, if it is not 0
    -reached   row → a sum: 1 if it is reached, 2^40 if it is the row that marks its partition while the recursion is
               held as a whole, 2^41 if it is a suspect

Invariant: the two states determine the rows downstream, so that a partition can move to another worker. Cost:
proportional to the changes of an epoch.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from eddy.operators.batch import Row, ZSet
from eddy.state.arrangement import Arrangement, pairs_of, weight_in

__all__ = ["Stops", "Withheld"]

_FLAG = 1 << 40
_SUSPECT = 1 << 41
_OLD_FLAG = -1
"""The mark by which earlier versions held the recursion as a whole, in all partitions that a worker owned."""


class Stops(Arrangement[Any, Any]):
    """An arrangement that counts how often it was rolled back or reloaded, for callers that cache its rows."""

    times_changed = 0

    def rollback(self) -> None:
        """Return to the last commit."""
        super().rollback()
        self.times_changed += 1

    def forget(self) -> None:
        """Empty the memory, because another worker has changed the store."""
        super().forget()
        self.times_changed += 1


class Withheld:
    """The stops of one recursion with the weights that wait there, and the reached rows.

    - `stops`: the weight that waits at each stop. It includes the changes of the epoch, as `suspects` does.
    - `whole`: the recursion is held as a whole, so it has no row downstream.
    - `changes`: how often the epoch has made or removed a stop, or weight has begun or ceased to wait at one.
    - `mine` selects the rows of this worker, `homes` returns the partitions of rows.
    """

    def __init__(
        self,
        waiting: Stops,
        reached: Arrangement[Any, Any],
        mine: Callable[[list[Row]], list[Row]],
        homes: Callable[[list[Row]], list[int]],
    ) -> None:
        self._waiting, self._reached, self._mine, self._homes = waiting, reached, mine, homes
        self.stops: ZSet = {}
        self.suspects: set[Row] = set()
        self.whole = False
        self.reaches = 0
        self._moves: ZSet = {}
        self._marks: dict[Row, bool] = {}
        self._suspected: set[Row] = set()
        self._flags: dict[int, Row] = {}
        self._old_flags: ZSet = {}
        self._was_whole = self._mixed = False
        self.changes = 0
        self._times_read = -1

    def states(self) -> tuple[Arrangement[Any, Any], ...]:
        """The weights that wait at stops, P, and the marks of reached rows."""
        return (self._waiting, self._reached)

    def read(self) -> bool:
        """Read the states anew if there was a rollback or a takeover. Returns whether there was one."""
        if self._times_read == self._waiting.times_changed:
            return False
        self._times_read = self._waiting.times_changed
        self.stops = self._owned(self._waiting)
        marks = self._owned(self._reached)
        self._old_flags = {row: mark for row, mark in marks.items() if mark == _OLD_FLAG}
        self.suspects = {row for row, mark in marks.items() if mark >= _SUSPECT}
        self._suspected = set(self.suspects)
        flagged = [row for row, mark in marks.items() if mark > 0 and mark & _FLAG]
        self._flags = dict(zip(self._homes(flagged), flagged, strict=True)) if flagged else {}
        self.reaches = sum(map(_reaches, marks.values()))
        self.whole = self._was_whole = self._mixed = bool(self._flags or self._old_flags)
        self._forget_epoch()
        return True

    def begin(self) -> None:
        """Begin an epoch."""
        self._was_whole = self.whole
        self._forget_epoch()

    def _forget_epoch(self) -> None:
        self._moves, self._marks, self.changes = {}, {}, 0

    def _owned(self, state: Arrangement[Any, Any]) -> dict[Row, int]:
        """Return the rows of this worker's partitions; the store may still have rows of partitions that others own."""
        rows = dict(state.items())
        mine = self._mine(list(rows))
        return rows if len(mine) == len(rows) else {row: rows[row] for row in mine}

    @property
    def active(self) -> bool:
        """Whether rows are held or suspects, now or before the epoch."""
        held = self.stops or self.reaches or self._marks or self.whole or self._was_whole or self._moves
        return bool(held or self.suspects or self._suspected)

    @property
    def waiting(self) -> list[Row]:
        """The stops at which weight waits."""
        return [row for row, weight in self.stops.items() if weight]

    # Stops

    def stop(self, row: Row, weight: int) -> None:
        """Make a row a stop, with the weight that waits there."""
        self.stops[row] = 0
        self.changes += 1
        self.add(row, weight)

    def add(self, row: Row, weight: int) -> None:
        """Add weight that arrives at a stop."""
        before = self.stops[row]
        self.stops[row] = now = before + weight
        self._moves[row] = self._moves.get(row, 0) + weight
        if bool(before) != bool(now):
            self.changes += 1

    def open(self, rows: Iterable[Row]) -> ZSet:
        """Remove stops, so that waves continue there. Returns the rows with the weights that waited there."""
        flows: ZSet = {}
        for row in rows:
            if weight := self.stops.pop(row):
                flows[row] = weight
                self._moves[row] = self._moves.get(row, 0) - weight
            self.changes += 1
        return flows

    # Reached rows

    def is_reached(self, row: Row) -> bool:
        """Whether a row is marked as reached."""
        mark = self._marks.get(row)
        return _reaches(weight_in(self._reached.get(row[0]), row[1])) if mark is None else mark

    def mark(self, rows: Iterable[Row]) -> None:
        """Mark rows as reached."""
        for row in rows:
            if not self.is_reached(row):
                self._marks[row] = True

    def unmark(self, rows: Iterable[Row]) -> None:
        """Remove the marks of rows that are not reached any more."""
        for row in rows:
            if self.is_reached(row):
                self._marks[row] = False

    def mark_only(self, rows: set[Row]) -> None:
        """Mark these rows as reached, and no other rows. Cost: proportional to the marked rows, before and after."""
        marked = {row for row, mark in self._owned(self._reached).items() if _reaches(mark)}
        self._marks = dict.fromkeys(marked - rows, False) | dict.fromkeys(rows - marked, True)

    def least(self, order: Callable[[Row], Any]) -> Row | None:
        """Return the first row by `order` that is a stop or reached; None if there is none."""
        rows = [*self.stops, *(row for row, mark in self._owned(self._reached).items() if _reaches(mark))]
        return min(rows, key=order, default=None)

    # Rows downstream

    def visible(self, delta: ZSet, x: Arrangement[Any, Any]) -> ZSet:
        """Return the delta of the rows downstream. `delta` is the delta of X, and `x` is X before the epoch.

        Cost: proportional to `delta` and the new marks; to X if the recursion begins or ceases to be held as a whole.
        """
        if self.whole and not self._turns:
            return {row: weight for row, weight in delta.items() if row[0] is None}
        marks: dict[Any, dict[Any, bool]] = {}
        for (key, value), mark in self._marks.items():
            marks.setdefault(key, {})[value] = mark
        changed = dict.fromkeys(key for key, _ in delta) | dict.fromkeys(marks)
        if self._turns:
            changed |= dict.fromkeys(key for key, _ in self._owned(x))
        changed.pop(None, None)
        keys = list(changed)
        hidden = self._hidden(keys)
        shows: dict[Any, tuple[bool, bool]] = {None: (True, True)}
        for key, was_hidden, bag in zip(keys, hidden, self._reached.get_many(keys), strict=True):
            reached = {value for value, mark in pairs_of(bag) if _reaches(mark)}
            news = marks.get(key, {})
            now = any(news.get(value, True) for value in reached) or any(news.values())
            shows[key] = not (was_hidden or reached), not (self.whole or now)
        out: ZSet = {row: weight for row, weight in delta.items() if shows[row[0]][1]}
        for key, (before, after) in shows.items():
            if before != after:
                sign = 1 if after else -1
                for value, weight in pairs_of(x.get(key)):
                    row = key, value
                    total = out.get(row, 0) + sign * weight
                    if total:
                        out[row] = total
                    else:
                        out.pop(row, None)
        return out

    @property
    def _turns(self) -> bool:
        """Whether the recursion begins or ceases to be held as a whole, in some partition."""
        return self.whole is not self._was_whole or self._mixed

    def _hidden(self, keys: Sequence[Any]) -> list[bool]:
        """Return for each key whether it had no row downstream before, because the recursion was held as a whole."""
        if self._old_flags or not self._flags:
            return [bool(self._old_flags)] * len(keys)
        return [home in self._flags for home in self._homes([(key, None) for key in keys])]

    def settle(self, delta: Iterable[Row], x: Arrangement[Any, Any]) -> None:
        """Write the changes of stops and marks to the states. `delta` has the rows that X gets, `x` is X before."""
        self._waiting.integrate({row: weight for row, weight in self._moves.items() if weight})
        moves: ZSet = {}
        for row, mark in self._marks.items():
            before = weight_in(self._reached.get(row[0]), row[1])
            reached = before % _FLAG if before > 0 else 0
            if mark is not bool(reached):
                moves[row] = 1 if mark else -reached
                self.reaches += 1 if mark else -1
        for row in self.suspects ^ self._suspected:
            moves[row] = moves.get(row, 0) + (_SUSPECT if row in self.suspects else -_SUSPECT)
        self._suspected = set(self.suspects)
        self._flag(delta, x, moves)
        if moves:
            self._reached.integrate(moves)
        self._forget_epoch()

    def _flag(self, delta: Iterable[Row], x: Arrangement[Any, Any], moves: ZSet) -> None:
        """Flag one row of each partition that has rows, while the recursion is held as a whole."""
        if not (self.whole or self._flags or self._old_flags):
            return
        if not self.whole:
            for row in self._flags.values():
                moves[row] = moves.get(row, 0) - _FLAG
            for row in self._old_flags:
                moves[row] = moves.get(row, 0) + 1
            self._flags, self._old_flags, self._mixed = {}, {}, False
            return
        rows = [row for row in (*delta, *self._moves) if row[0] is not None]
        if self._turns:
            rows += self._owned(x)
        self._mixed = False
        for row in self._old_flags:
            moves[row] = moves.get(row, 0) + 1
        self._old_flags = {}
        for row, home in zip(rows, self._homes(rows) if rows else (), strict=True):
            if home not in self._flags:
                self._flags[home] = row
                moves[row] = moves.get(row, 0) + _FLAG


def _reaches(mark: int) -> bool:
    """Return whether a number of the state marks a reached row.

    The number of a reached row is 1, or in earlier versions another number above 0, to which the flags are added.
    """
    return mark > 0 and mark % _FLAG > 0
