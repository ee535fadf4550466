"""Recursion by waves without a bound on depth: rows without a finite answer are held (`operators/withheld.py`).

    one owner            cycles are searched at iteration 64, 128, …; when the waves end, all rows that they reach
    several owners       the same by messages (`operators/marking.py`)
    endlessly new rows   the waves end at the limit: all input waits, until a row on its path changes

At one row of each cycle the waves stop, and arriving rows wait. So the waves end, and all other rows are exact.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import Any

from eddy.operators.batch import EMPTY, Batch, Row, ZSet, concat, merge_into
from eddy.operators.body import Body, Bound, trace
from eddy.operators.context import Context, Wake
from eddy.operators.endless import FIRST_LOOK, GLANCE, find_stops, outgrown, path_text
from eddy.operators.exchange import Budget, Gate
from eddy.operators.marking import FIRST_SEARCH, Marking, Place, without_messages
from eddy.operators.operator import State
from eddy.operators.recursion import ADVICE, TIME, Total, Waves
from eddy.operators.withheld import FoundCycles, Withheld, find_cycles
from eddy.state.arrangement import Arrangement, weight_in

__all__ = ["MOST_REACHED", "HeldWaves"]

_ROWS = attrgetter("rows")
_ALL = 1 << 62
_SPILLED = 16_384
_SEARCHED = 64
"""The number of rows of a frontier from which a search starts, before the limit."""
_FAR = 1 << 20
"""The greatest length of a search outside of iterations."""
_MOST_GROWN = 16
"""More rows than this, times `limit`, from one frontier are considered endless."""
_TRACED = 100
MOST_REACHED = 2_000_000
"""More rows than this, reached from a cycle, are considered endless."""


class _GrowthError(Exception):
    """Waves do not end, and no row comes back to itself. `keys` are those of all rows that were reached."""

    def __init__(self, reached: Iterable[Row], total: Total) -> None:
        super().__init__()
        self.keys = {row[0] for row in (*reached, *total.sum())}


class HeldWaves(Waves):
    """Deltas of the seed in, the delta of X without held keys out."""

    arrangement: Arrangement[Any, Any]

    def __init__(
        self,
        name: str,
        body: Body,
        gate: Gate,
        bound: Bound,
        budget: Budget,
        arrangement: Arrangement[Any, Any],
        withheld: Withheld,
    ) -> None:
        super().__init__(name, body, gate, bound, budget, arrangement)
        self._withheld = withheld
        self._marking = Marking(gate, body, withheld, self._part)
        self._stops: ZSet = {}
        self._unverified = False
        self._cycles: FoundCycles | None = None
        self._grown: set[Any] | None = None
        self._message: dict[int, str] | None = None

    def forget_waves(self) -> None:
        """The epoch is undone."""
        super().forget_waves()
        self._stops, self._cycles, self._message = {}, None, None

    def own_states(self) -> Sequence[State]:
        """X, and the states of `Withheld`."""
        return (self.arrangement, *self._withheld.states())

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Run waves until no row is left or the budget is spent; the remaining rows leave through the loop's topic.

        Called without input at a quiescent moment if it `wakes_at` one: then the held keys are determined anew.
        Cost: a step for each distinct row of each frontier.
        """
        seed, received, *externals = inputs
        received, messages = self._without_messages(received, externals)
        arrived = self._arrived(seed, received)
        self.body.open(externals)
        self._read()
        self._withheld.begin()
        self._stops = self._withheld.stops
        outboxes = [(gate.outbox, len(gate.outbox)) for gate in (self.gate, *self.body.gates)]
        try:
            total = self._waves(arrived, messages, [seed, received, *externals])
        except _GrowthError as growth:

            def undone() -> ZSet:
                for outbox, length in outboxes:
                    del outbox[length:]
                self.body.forget_waves()
                self.body.open(externals)
                return self._entry(arrived)

            total = self._grow(growth, undone)
        return self._at_rest(total, max(map(TIME, inputs)))

    def _grow(self, growth: _GrowthError, undone: Callable[[], ZSet]) -> Total:
        """Take retractions first, and hold everything if the waves do not end then. `undone` undoes the waves.

        Where a row goes and new ones come by the same change, each may follow the other around a cycle for ever.
        """
        withheld, entry = self._withheld, undone()
        self._unverified, self._marking.greets = False, True
        if not (withheld.was_whole or self.gate.shared) and min(entry.values(), default=0) < 0:
            try:
                total = Total()
                self._run_all(entry, total)
                return total
            except _GrowthError as again:
                growth, entry = again, undone()
        self._grown = growth.keys
        self._cycles = self._message = None
        withheld.hold_all(entry)
        return Total()

    def _read(self) -> None:
        """States that have to be read anew may be another worker's, and have to be verified."""
        if self._withheld.read():
            self._unverified = self._marking.greets = True
            self._cycles = self._message = None

    def _without_messages(self, received: Batch, externals: list[Batch]) -> tuple[Batch, dict[Place, Batch]]:
        """Take the messages out of the received rows, also out of those of exchanges inside op, in `externals`."""
        received, found = without_messages(received)
        messages: dict[Place, Batch] = {} if found is None else {None: found}
        for number, slot in enumerate(self.body.received):
            externals[slot - 1], found = without_messages(externals[slot - 1])
            if found is not None:
                messages[number] = found
        return received, messages

    def _waves(self, arrived: dict[int, Batch], messages: Mapping[Place, Batch], inputs: Sequence[Batch]) -> Total:
        """Run waves that end at stops, then determine the held keys. Raises: _GrowthError."""
        withheld, externals, total = self._withheld, inputs[2:], Total()
        if withheld.whole:
            self._try_again(arrived, externals, total)
            self._marking.greets |= bool(messages)
            self._unverified = self.gate.shared and not withheld.whole  # marks of others were missed
            return total
        touched = (withheld.active and self._unverified) or self._touches(externals)
        frontiers = {iteration: self._going_on(batch) for iteration, batch in arrived.items()}
        if not self.gate.shared:
            heads = self._heads(inputs, frontiers)
            self._run(frontiers, total)
            self._come_to_rest(heads, total, touched or bool(messages) or self._marking.unsettled)
            self._marking.settle()
        else:
            self._share(frontiers, messages, inputs, total, touched)
        self._unverified = False
        return total

    def _share(
        self,
        frontiers: dict[int, Batch],
        messages: Mapping[Place, Batch],
        inputs: Sequence[Batch],
        total: Total,
        touched: bool,
    ) -> None:
        """As `_come_to_rest`, where cycles go through rows of several workers."""
        marking = self._marking
        found, released, marks = marking.receive(messages)
        flows = marking.release() if released else {}
        self._stops = self._withheld.stops
        backs: ZSet = {}
        self._stop_all(found, total, backs)
        flow = Batch.of({row: weight for row, weight in flows.items() if weight}, 0)
        frontiers[0] = concat((frontiers.get(0, EMPTY), flow))
        for iteration in list(frontiers):
            frontiers[iteration] = self._going_on(frontiers[iteration])
        frontiers[0] = concat((frontiers[0], Batch.of(backs, 0))).consolidated(self.name)
        heads = self._heads(inputs, frontiers)
        self._run(frontiers, total)
        if heads:
            backs = self._cut_off(heads, total)
            left = [row for row in heads if row not in self._stops]
            self._stop_all(marking.search(left, _FAR, max(map(TIME, inputs))), total, backs)
            if backs:
                self._run({0: Batch.of(backs, 0)}, total)
        marking.mark(marks, touched or self._withheld.moved(keep_empty=True))
        if not (messages or touched or any(map(_ROWS, inputs))):
            marking.tell_release()

    def wakes_at(self) -> Wake | None:
        """At rest if the held keys have to be determined anew."""
        self._read()
        active = self._withheld.active
        release = self._marking.unsettled and (self.gate.shared or active)
        return Wake.AT_REST if release or (self._unverified and active) else None

    def _try_again(self, arrived: dict[int, Batch], externals: Sequence[Batch], total: Total) -> None:
        """Run all waiting rows if the waves may end now; no row is downstream so far. Raises: _GrowthError."""
        withheld, entry = self._withheld, self._entry(arrived)
        keys = {row[0] for batch in externals for row in batch.rows}
        touched = bool(keys) and (self._grown is None or not self.body.keyed or not self._grown.isdisjoint(keys))
        if not touched and not any(weight < 0 for weight in entry.values()):
            withheld.hold_all(entry)
            return
        self._run_all(entry, total)

    def _run_all(self, entry: ZSet, total: Total) -> None:
        """Run the epoch's input and all waiting rows, retractions first. Raises: _GrowthError."""
        waits = self._withheld.all_waiting()
        merge_into(waits, entry, entry.values())
        heads = [row for row in waits if waits[row] > 0] if min(waits.values(), default=0) < 0 else []
        self._stops = self._withheld.stops = {}
        for _ in range(self.bound.limit):
            gone = {row: weight for row, weight in waits.items() if weight < 0}
            if not gone:
                break
            frontier = Batch.of(gone, 0)
            total.add(0, frontier)
            made = self.gate.own(self.body.run(frontier, 0), 1)
            merge_into(waits, gone, (-weight for weight in gone.values()))
            merge_into(waits, made.rows, made.weights)
        self._run({0: Batch.of(waits, 0)}, total)
        self._come_to_rest(heads, total, True)

    def _entry(self, arrived: dict[int, Batch]) -> ZSet:
        """The epoch's input: arrived rows, and the rows that a change of op makes of earlier rows of X."""
        entry: ZSet = {}
        made = [self.body.run(EMPTY, 0)]
        while self.body.waiting():
            made.append(self.body.run(EMPTY, min(self.body.waiting())))
        for batch in (*arrived.values(), *(self.gate.own(batch, 1) for batch in made)):
            merge_into(entry, batch.rows, batch.weights)
        for row in entry:
            if row[0] is None:
                raise self._limit_error(row, self.bound.limit, "it has no key, so that it cannot be held")
        return entry

    def _touches(self, externals: Sequence[Batch]) -> bool:
        """Whether op may make other rows of a held row."""
        received = {slot - 1 for slot in self.body.received}
        keys = [row[0] for at, batch in enumerate(externals) if at not in received for row in batch.rows]
        if not self.gate.shared or not received:
            return self._withheld.active and bool(keys) and (not self.body.keyed or self._withheld.meets(keys))
        return self._unverified or self._marking.passed(keys)

    def _come_to_rest(self, heads: list[Row], total: Total, touched: bool) -> None:
        """Remove rows that only support one another, find the rows that cycles reach, and open the other stops."""
        withheld = self._withheld
        if heads and (backs := self._cut_off(heads, total)):
            self._run({0: Batch.of(backs, 0)}, total)
        while withheld.active and (withheld.moved() or touched):
            self._stops = withheld.stops
            self._cycles = find_cycles(self.body.look, list(withheld.stops), MOST_REACHED)
            self._message = None
            if not self._cycles.ended:
                raise _GrowthError(self._cycles.reached, total)
            opened = withheld.take(self._cycles)
            if not opened:
                return
            touched = True
            self._run({0: Batch.of(opened, 0)}, total)

    def _first_look(self, waiting: Mapping[int, Batch], total: Total) -> int:
        """With several owners at each power of 2, whichever worker has the row then."""
        if self.gate.shared:
            first = min((iteration for iteration, batch in waiting.items() if batch.rows), default=0)
            return 1 << (max(first, FIRST_SEARCH) - 1).bit_length()
        return min(GLANCE, self.bound.limit)

    def _watch(
        self, starts: Batch, made: Batch, iteration: int, waiting: dict[int, Batch], total: Total
    ) -> tuple[Batch, int]:
        limit = self.bound.limit
        if iteration < min(FIRST_LOOK, limit) and not self.gate.shared:
            self._check_encodable(starts, made, total)
            return made, min(iteration + GLANCE, limit)
        return self._search(starts, made, iteration, waiting, total)

    def _search(
        self, starts: Batch, made: Batch, iteration: int, waiting: dict[int, Batch], total: Total, most: int = _ALL
    ) -> tuple[Batch, int]:
        """Stop at rows on cycles; see `_cut_off`. At most `most` rows pay for the search. Raises: _GrowthError."""
        limit = self.bound.limit
        stops = find_stops(self._successors, starts.rows, min(total.count, most))
        if self.gate.shared and not stops:
            stops = self._marking.search(
                starts.rows[: None if iteration >= limit else _SEARCHED], 2 * iteration, made.time
            )
        if not stops and iteration >= limit:
            cycles = find_cycles(self._successors, starts.rows, max(_MOST_GROWN * limit, total.count))
            if not cycles.ended:
                raise _GrowthError(cycles.reached, total)
            stops = find_stops(self._successors, starts.rows, _ALL) if cycles.rows else []
        if not stops:
            self._check_encodable(starts, made, total)
            return made, min(2 * iteration, limit) if iteration < limit else 2 * iteration
        backs: ZSet = {}
        self._stop_all(stops, total, backs)
        for other, batch in list(waiting.items()):
            waiting[other] = self._going_on(batch)
        if backs:
            waiting[iteration + 1] = concat((Batch.of(backs, made.time), waiting.get(iteration + 1, EMPTY)))
        return self._going_on(made), iteration + FIRST_LOOK

    def _check_encodable(self, starts: Batch, made: Batch, total: Total) -> None:
        """Raises: _GrowthError where rows have outgrown what can be written."""
        if made.rows and next(outgrown(made, self.gate.encode), None) is not None:
            raise _GrowthError((*starts.rows, *made.rows), total)

    def _has_outgrown(self, row: Row) -> bool:
        return next(outgrown(Batch([row], [1]), self.gate.encode), None) is not None

    def _spilling(self, rest: Batch, iteration: int, waiting: dict[int, Batch], total: Total) -> Batch:
        """Stop before weights on a cycle grow epoch by epoch."""
        return self._search(rest, rest, iteration, waiting, total, _SPILLED)[0]

    def _stop_all(self, rows: Iterable[Row], total: Total, backs: ZSet) -> None:
        """Stop at rows that lie on cycles; `backs` takes the retractions of them from X."""
        weight_of = self._weights(total)
        for row in rows:
            if row not in self._stops and row[0] is not None:
                self._stops[row] = weight = weight_of(row)
                if weight:
                    backs[row] = -weight

    def _successors(self, row: Row) -> list[Row]:
        """The rows that op makes of one row, without stops and without rows of other workers."""
        made = self.body.look(row)
        if self.gate.shared:
            made = self.gate.mine(made)
        return [one for one in made if one not in self._stops] if self._stops else made

    def _heads(self, inputs: Sequence[Batch], waiting: dict[int, Batch]) -> list[Row]:
        """The rows that may have closed a cycle although the waves end; see `_cut_off`.

        A cycle is closed by a row that a change of op derives from earlier rows of X; the waves can end in spite of it
        only if something was retracted. Then the rows that the change of op derives are a frontier of their own.
        """
        _, received, *externals = inputs
        if not any(batch.rows and min(batch.weights) < 0 for batch in inputs):
            return []
        heads = [row for row, weight in zip(received.rows, received.weights, strict=True) if weight > 0]
        if self._meets(externals):
            made = self.body.run(EMPTY, 0)
            heads += [row for row, weight in zip(made.rows, made.weights, strict=True) if weight > 0]
            made = self._going_on(made.consolidated(self.name))
            made = self.gate.own(made, 1) if self.gate.shared else made
            if made.rows:
                waiting[1] = concat((made, waiting.get(1, EMPTY))).consolidated(self.name)
        return list(dict.fromkeys(heads))

    def _meets(self, externals: Sequence[Batch]) -> bool:
        """Whether a delta from outside may match an earlier row of X."""
        come = [
            row[0] for batch in externals for row, weight in zip(batch.rows, batch.weights, strict=True) if weight > 0
        ]
        if not self.body.keyed:
            return bool(come)
        return any(bag is not None for bag in self.arrangement.get_many(come))

    def _cut_off(self, heads: list[Row], total: Total) -> ZSet:
        """Remove rows that only support one another.

        In one epoch, a row may lose its only path from the seed, and op may begin to derive it from one of its own
        results: then retraction and insertion cancel, the waves end, and the rows of the cycle would stay for ever. So
        cycles in X are searched for. At one row of each, arriving rows wait, and op's results for it are retracted. If
        no path from the seed leads to the cycle, no row is left waiting. Returns the retractions.
        """
        weight = self._weights(total)

        def look(row: Row) -> list[Row]:
            return [one for one in self._successors(row) if weight(one)]

        backs: ZSet = {}
        there = [row for row in heads if weight(row) and row not in self._stops]
        self._stop_all(find_stops(look, there, _ALL), total, backs)
        return backs

    def _going_on(self, made: Batch) -> Batch:
        """The rows that continue; those at stops wait."""
        stops = self._stops
        if not stops or stops.keys().isdisjoint(made.rows):
            return made
        for row, weight in zip(made.rows, made.weights, strict=True):
            if row in stops:
                stops[row] += weight
        return made.select([row not in stops for row in made.rows])

    def _weights(self, total: Total) -> Callable[[Row], int]:
        """The current weight of a row in X."""
        before, come = self.arrangement.get, total.sum()
        return lambda row: weight_in(before(row[0]), row[1]) + come.get(row, 0)

    def _leaving(self, rows: ZSet) -> ZSet:
        """X's delta without the keys that are held."""
        withheld = self._withheld
        if not withheld.active:
            return rows
        leaves = withheld.visible(rows, self.arrangement)
        if withheld.settle():
            self._message = None
        return leaves

    @property
    def holds_all(self) -> bool:
        """Whether the recursion has no rows downstream, because its rows are endlessly new."""
        return self._withheld.whole

    def held(self) -> Mapping[int, str]:
        """The cycle, by the partition of its first row; see `Withheld`."""
        self._read()
        if not (self._withheld.waits or self._withheld.reaches):
            return {}
        if self._message is None:
            row, why = self._told()
            (home,) = self.gate.homes(Batch([row], [1]))
            self._message = {home: f"{self.bound.subject(self.name, row)}: {why}"}
        return self._message

    def _path(self, row: Row) -> list[Any]:
        """The path of a waiting row. It is only told: a row on which the author's function fails ends it."""
        try:
            return trace(self.body, row, self._part, ends=self._has_outgrown)[0]
        except Exception:
            return [self._part(row)]

    def _told(self) -> tuple[Row, str]:
        """The row to name, and why it has no finite answer."""
        withheld, order = self._withheld, self.gate.encode
        if not withheld.waits:
            return min(withheld.marked(), key=order), "no row waits any more; its rows come at the next release"
        if withheld.whole:
            rows = nsmallest(_TRACED, withheld.waiting, key=order)
            row, path = max(((row, self._path(row)) for row in rows), key=lambda item: len(item[1]))
            what = f"it got as far as {path_text(path)} and does not end"
        elif self.gate.shared:
            row = min(withheld.waiting, key=order)
            cycle = self._marking.paths.get(row)
            what = f"the path {path_text([*cycle, cycle[0]])} came around" if cycle else "it leads back to itself"
        else:
            cycles = self._cycles or find_cycles(self.body.look, list(withheld.stops), MOST_REACHED)
            path = cycles.shortest(order)
            row, self._cycles = path[0], None
            what = f"the path {path_text(map(self._part, path))} came around"
        held = "nothing of the recursion leaves" if withheld.whole else "the keys that it reaches have no row"
        advice = self.bound.advice(ADVICE)
        return row, f"{what}, so that there is no finite answer; {held} until the data is mended. {advice}"
