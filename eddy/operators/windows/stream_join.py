"""Joins the records of two streams that are near one another in time.

    pairs        (k, v) on the left at t with (k, w) on the right at u, if t - before ≤ u ≤ t + after; time max(t, u)
    unmatched    (k, v) of an outer side at t, if no row of the other side is in its window; time t

A row is in the state of its side until the frontier of the other side reaches the last moment of its window. After that
no record that matches it can arrive, so the row is removed. If it is unmatched, and its side is outer, it is sent once.
Both frontiers, and which records are late, are functions of the input. So are the rows of the join, however the input
is cut into epochs, and whichever workers read it at whatever pace.

The author's joiner is the next step. Records without a key do not reach this step.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from eddy.join_windows import JoinSide
from eddy.operators.batch import Batch
from eddy.operators.context import Context, FirstOf, Moment
from eddy.operators.errors.set_aside import Aside
from eddy.operators.operator import ClocksRead, Operator, State
from eddy.operators.windows.due_keys import DueKeys
from eddy.operators.windows.frontier import Frontier
from eddy.operators.windows.timed_batches import Arrived, ByKey, JoinedRows
from eddy.operators.windows.windowed_fold import OpenWindow
from eddy.state.calendar import MOST_MS, Calendar
from eddy.state.table_state import Table
from eddy.state.timed_rows import TimedRows
from eddy.windows import Windowed

__all__ = ["Side", "StreamStreamJoin"]

_MOMENT = itemgetter(0)


@dataclass(frozen=True)
class Side:
    """The rows of one side, their windows, and the frontier of the other side, which says when they are removed.

    `calendar` has the moment at which the rows of each key and time are removed; `due` finds the entries that the
    frontier has reached. `unmatched` has the keys and times without a match if the side is outer, else it is None.
    """

    windows: JoinSide
    rows: TimedRows[Any, Any]
    calendar: Calendar[Any]
    others: Frontier
    due: DueKeys[Any]
    unmatched: Table[Any, bool] | None

    def stored_ms(self) -> dict[int, int]:
        """Return, by partition, a time after which the store has no row.

        This is the latest moment at which a row is removed, minus the time for which rows are stored.
        """
        later = self.windows.later_ms
        latest = {home: self.calendar.latest(home) for home in range(self.rows.spec.partitions)}
        return {home: due if due in (-1, MOST_MS) else due - later for home, due in latest.items()}

    def states(self) -> Iterator[State]:
        """Yield the states of this side."""
        yield from (self.rows, self.calendar)
        if self.unmatched is not None:
            yield self.unmatched


class StreamStreamJoin(Operator):
    """Input: records (Windowed(K, t, t), V) and (Windowed(K, u, u), W). Output: records (K, (V | None, W | None)).

    Cost: for each key of an epoch's records, a scan of the other side's rows in their windows.
    """

    def __init__(self, name: str, left: Side, right: Side) -> None:
        self.name, self._sides = name, (left, right)

    def states(self) -> Sequence[State]:
        """The states of both sides."""
        return [state for side in self._sides for state in side.states()]

    @property
    def reads(self) -> ClocksRead:
        """The clocks of both frontiers."""
        left, right = (side.others.reads for side in self._sides)
        return ClocksRead(left.sources | right.sources)

    def wakes_at(self) -> Moment | None:
        """Return the moment at which rows of a side are to be removed."""
        moments = [moment for side in self._sides if (moment := side.due.wakes_at()) is not None]
        return FirstOf(moments) if moments else None

    def first_open(self, context: Context) -> OpenWindow | None:
        """Return the open window that will be over first, between epochs; None if no window is open.

        `context` has the event times.
        """
        found = []
        for side, other in zip(self._sides, reversed(self._sides), strict=True):
            first = side.due.first()
            if first is not None:
                found.append((first[0] + other.windows.lag_ms, side.others, first[1]))
        if not found:
            return None
        over_at, frontier, partition = min(found, key=_MOMENT)
        latest = max(context.event_time.values(), default=-1)
        return OpenWindow(self.name, *frontier.slowest(context, partition), max(0, latest - over_at))

    def end_epoch(self) -> None:
        """Drop the epoch's list of partitions with due work."""
        self.left_due = ()

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the rows that the states cannot write."""
        sides = zip(self._sides, map(aside.without_kept, inputs), strict=True)
        return self.step(context, *(aside.without(batch, Arrived.errors(side.rows, batch)) for side, batch in sides))

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Join new left rows with stored right rows, and new right rows with all left rows; then remove rows.

        Raises: DataError for a row that a state cannot write.
        """
        (left, right), made = self._sides, JoinedRows(context.timestamps is not None)
        one, other = (Arrived.at(side.rows, batch) for side, batch in zip(self._sides, inputs, strict=True))
        matched: tuple[set[Windowed[Any]], set[Windowed[Any]]] = (set(), set())
        lefts, rights = one.by_key(), other.by_key()
        self._match(made, lefts, left, right, {}, matched, flipped=False)
        self._match(made, rights, right, left, lefts, matched[::-1], flipped=True)
        left.rows.add(one.encoded, one.batch.weights, left.stored_ms())
        right.rows.add(other.encoded, other.batch.weights, right.stored_ms())
        left_due: set[int] = set()
        for side, arrived, found in zip(self._sides, (one, other), matched, strict=True):
            due = side.windows.all_due_at([key[1] for key in arrived.keys])
            self._note(side, arrived, due, found)
            left_due.update(self._remove_due(context, side, arrived, due, made))
        self.left_due = left_due
        return made.batch()

    def _match(
        self,
        made: JoinedRows,
        arrived: ByKey,
        side: Side,
        other: Side,
        others: ByKey,
        matched: Sequence[set[Windowed[Any]]],
        flipped: bool,
    ) -> None:
        """Pair the new rows of a side, `arrived`, with the stored rows and the new rows, `others`, of the other side.

        `matched` gets the keys and times of matched rows: first those on this side, then those on the other side.
        `flipped`: this side is the right one. Cost: one scan for all new rows of a key.
        """
        between, add, stored_ms = other.rows.between, made.add, other.stored_ms()
        earlier, later = side.windows.earlier_ms, side.windows.later_ms
        own, theirs = matched
        notes, notes_own, numbered = other.unmatched is not None, side.unmatched is not None, made.numbered
        for place, rows in arrived.items():
            times = [row[0][1] for row in rows]
            first, last = max(0, min(times) - earlier), min(max(times) + later, MOST_MS)
            found = between(*place, first, last, stored_ms[place[0]])
            if news := others.get(place):
                found = sorted([*found, *((key[1], value, weight) for key, value, weight, _ in news)], key=_MOMENT)
            if not found:
                continue
            moments = [row[0] for row in found]
            for key, value, weight, time in rows:
                at = key[1]
                near = found[bisect_left(moments, at - earlier) : bisect_right(moments, at + later)]
                if near and notes_own:
                    own.add(key)
                for moment, match, count in near:
                    if notes:
                        theirs.add(Windowed(key[0], moment, moment))
                    pair = (match, value) if flipped else (value, match)
                    if not numbered:
                        time = moment if moment > at else at
                    add(key[0], pair, weight * count, time)

    def _note(self, side: Side, arrived: Arrived, due: Sequence[int], matched: set[Windowed[Any]]) -> None:
        """Note which rows of a side have no match, and the moments at which new rows are to be removed."""
        encoded = arrived.encoded
        side.calendar.add_encoded(encoded.homes, encoded.keys, due)
        if side.unmatched is not None:
            news = {**dict.fromkeys(matched), **{key: True for key in arrived.keys if key not in matched}}
            side.unmatched.put_many(news, side.unmatched.get_many(list(news)))

    def _remove_due(
        self, context: Context, side: Side, arrived: Arrived, new: Sequence[int], made: JoinedRows
    ) -> list[int]:
        """Remove the rows that are due. If the side is outer, send the rows among them without a match.

        `new`: the moments at which the arrived rows are due. Returns the partitions in which more rows are due.
        """
        frontiers = side.due.frontiers(context)
        earlier, left_due = side.due.due(frontiers)
        due = {key: moment for moment, key in earlier}
        if new and min(new) <= max(frontiers.values(), default=-1):  # `due` does not find entries of this epoch
            arrivals = zip(arrived.keys, new, arrived.encoded.homes, strict=True)
            due |= {key: moment for key, moment, home in arrivals if moment <= frontiers.get(home, -1)}
        if due:
            self._remove(side, due, made)
        return left_due

    def _remove(self, side: Side, due: Mapping[Windowed[Any], int], made: JoinedRows) -> None:
        spec, keys = side.rows.spec, list(due)
        lonely = side.unmatched.get_many(keys) if side.unmatched is not None else [None] * len(keys)
        encoded = spec.key.identify_many(keys)
        places = zip(keys, encoded, spec.partitions_of(encoded), lonely, strict=True)
        decode, first = spec.value.decode, side is self._sides[0]
        for key, data, home, alone in places:
            for value, weight in side.rows.take(home, data[: -spec.key.tail], key[1]):
                if alone:
                    single = decode(value)
                    time = 0 if made.numbered else key[1]
                    made.add(key[0], (single, None) if first else (None, single), weight, time)
        side.calendar.move(keys, list(due.values()), [None] * len(keys))
        if side.unmatched is not None:
            gone = {key: None for key, alone in zip(keys, lonely, strict=True) if alone}
            side.unmatched.put_many(gone, [True] * len(gone))
