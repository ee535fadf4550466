"""Decides which rows of a recursion by waves are held; `stopping.py` ends waves at them, `withheld.py` stores them.

It finds the rows by searches (`survey.py`), and decides when they are released.

    during the waves    at iteration 64, 128, … a search ahead of the frontier; waves stop at a row of each cycle, and
                        everywhere if a path is endless. With several workers rows are suspects from iteration 16 on
    after the waves     a search ahead of the stops finds the reached rows; stops that no cycle reaches are opened
    several workers     one of them, the arbiter, does this for all, with rows that it borrows (`agreement.py`)

The keys of reached rows have no row downstream. While a path is endless, no key has one (`withheld.py`).

A cycle may also be closed although the waves end, because insertions and retractions cancel. So in epochs with
retractions the search includes rows of X that a change of op derives, and rows that only support one another are
removed.

Cost: without a cycle or deep data, a comparison in each wave. An epoch that does not affect held rows has no cost for
them.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from eddy.errors import DataError
from eddy.operators.batch import EMPTY, Batch, Row, ZSet, concat, keys_of
from eddy.operators.bound import FIRST_LOOK, Bound
from eddy.operators.context import Wake
from eddy.operators.errors.row_sizes import RowSizes
from eddy.operators.exchange import Gate
from eddy.operators.operator import State
from eddy.operators.waves.agreement import Agreement
from eddy.operators.waves.body import Body, OwnRows
from eddy.operators.waves.explorer import Explorer
from eddy.operators.waves.held_message import held_message
from eddy.operators.waves.messages import Message, News
from eddy.operators.waves.stopping import Stopping
from eddy.operators.waves.survey import Survey, comes_to_an_end, survey
from eddy.operators.waves.total import Total
from eddy.operators.waves.wave_watch import Wave, WaveWatch
from eddy.operators.waves.withheld import Withheld
from eddy.state.arrangement import Arrangement, weight_in

__all__ = ["Quarantine"]

_FIRST_ASKED = 16
"""The iteration at which a worker first asks for a search among the rows of several workers."""
_ASKED = 64
"""The most rows of a frontier that become suspects, from which such a search begins."""
_USUAL_WEIGHT = 1 << 32
_LEVELS, _SHARE = 1_024, 4
"""So many rows, plus a multiple of the rows of the waves, are made ahead of heads by whole frontiers. If op still makes
rows then, they are explored one by one.
"""
_MOST_BESIDE = 100_000
"""The most rows that are explored to find cycles if paths may be endless."""


RunWaves = Callable[[dict[int, Batch], Total], None]


class Quarantine:
    """Finds, holds and releases the rows of one recursion by waves that have no finite answer.

    `x` is the arrangement of X.
    """

    def __init__(
        self,
        name: str,
        body: Body,
        gate: Gate,
        bound: Bound,
        x: Arrangement[Any, Any],
        withheld: Withheld,
        sizes: RowSizes,
    ) -> None:
        self._name, self._body, self._gate, self._bound, self._x = name, body, gate, bound, x
        self._withheld, self._sizes = withheld, sizes
        self.stopping = Stopping(name, body, gate, bound, x, withheld, sizes)
        self._agreement = Agreement(gate, body, withheld, self._is_there, self._closings, self._found_ahead)
        self._own = OwnRows(body, gate)
        self._alone = True
        self._unverified = True
        self._found: Survey | None = None
        self._looked_up: set[Any] = set()
        self._message: str | None = None
        self._messages: list[Message | None] = []

    def states(self) -> Sequence[State]:
        """The states of `Withheld`: the weights that wait at stops, and the reached rows."""
        return self._withheld.states()

    def forget(self) -> None:
        """Forget searches and messages, because the epoch is undone."""
        self._forget_found()
        self._agreement.forget()

    def _forget_found(self) -> None:
        self._found, self._message, self._unverified = None, None, True
        self._looked_up = set()

    # An epoch

    def begin(self, received: Batch, externals: list[Batch]) -> Batch:
        """Begin an epoch, and separate the messages of other workers from the received rows. Returns these rows."""
        self._read()
        self._alone = self._agreement.alone
        self._withheld.begin()
        self._sizes.begin()
        received, self._messages = self._agreement.split(received, externals)
        return received

    @property
    def limit(self) -> int:
        """The limit of the bound."""
        return self._bound.limit

    def run(self, arrived: dict[int, Batch], inputs: Sequence[Batch], run: RunWaves) -> Total:
        """Run waves that end at stops, then determine the held rows.

        At the moment that `wakes_at` returns, it is called without input, to determine the held rows anew.
        """
        total = Total()
        externals = inputs[2:]
        touched = self._lookups_changed(externals)
        if self._sizes.careful:
            self._check_arrived(arrived)
        let_go = EMPTY if self._alone else self._take_messages(arrived, total)
        frontiers = {iteration: self.stopping.admit(batch) for iteration, batch in arrived.items()}
        if let_go.rows:
            frontiers[0] = concat((frontiers.get(0, EMPTY), let_go)).consolidated(self._name)
        heads = self._heads((*inputs, let_go), frontiers, total)
        run(frontiers, total)
        if heads:
            self._remove_unsupported(heads, total, run)
        if self._alone:
            self._decide(touched or self._unverified, total, run)
            self._unverified = False
        else:
            self._agree(total)
        return total

    def _take_messages(self, arrived: Mapping[int, Batch], total: Total) -> Batch:
        """Process the messages of this epoch. Returns the released rows, and the retractions from X."""
        taken = self._agreement.take(self._messages)
        self._suspect(taken.suspects)
        backs = (self.stopping.stop(taken.stops, total), *self._stop_arrived(arrived, total))
        return concat((self.stopping.admit(Batch.of(taken.flows, 0)), *backs))

    def _check_arrived(self, arrived: Mapping[int, Batch]) -> None:
        """Raise DataError for a row of the seed that cannot be written.

        It cannot be held, because there is no row that makes it, at which waves could stop.
        """
        for batch in arrived.values():
            for row in batch.rows:
                if why := self._sizes.refused(row):
                    raise DataError(
                        f"{self._bound.subject(self._name, row)} enters the recursion, and {why}; a row that can be "
                        "written is needed. Make it smaller before recursively(...), or raise max_row_bytes"
                    )

    def leaving(self, rows: ZSet) -> ZSet:
        """Write the states, and return the delta of the rows downstream.

        `rows` is the delta of X, which has not changed yet.
        """
        withheld = self._withheld
        if not withheld.active:
            return rows
        leaves = withheld.visible(rows, self._x)
        withheld.settle(rows, self._x)
        return leaves

    def _read(self) -> None:
        """Read the states. After a rollback or a takeover, searches and messages are forgotten."""
        if self._withheld.read():
            self._forget_found()
            self._agreement.forget()

    def wakes_at(self) -> Wake | None:
        """Return the moment at which the held rows have to be determined without any input; None if there is none."""
        self._read()
        if not self._agreement.alone:
            return Wake.AT_ONCE if self._agreement.due else None
        return Wake.AT_REST if self._unverified and self._withheld.active else None

    # During the waves

    def _stop_arrived(self, arrived: Mapping[int, Batch], total: Total) -> list[Batch]:
        """Make rows that have arrived with an unusual weight stops. Returns the retractions from X.

        While the recursion is held as a whole, all arrived rows of late iterations become stops. This is for several
        workers.
        """
        far = [] if not self._withheld.whole else [iteration for iteration in arrived if iteration >= _FIRST_ASKED]
        return [
            self.stopping.stop(batch.rows if iteration in far else self._heavy(batch), total)
            for iteration, batch in arrived.items()
        ]

    def _heavy(self, batch: Batch) -> list[Row]:
        """Return the rows that this worker owns and whose weights are unusually large.

        A cycle of many links multiplies weights before the workers find the cycle, and steps downstream process a row
        as often as its weight says.
        """
        if not batch.rows or max(map(abs, batch.weights)) <= _USUAL_WEIGHT:
            return []
        return self._gate.mine(
            [row for row, w in zip(batch.rows, batch.weights, strict=True) if abs(w) > _USUAL_WEIGHT]
        )

    def without_heavy(self, wave: Wave, total: Total) -> Batch:
        """Make the rows of a wave with unusual weights stops. Returns the rows that continue.

        This is for several workers.
        """
        heavy = self._heavy(wave.made)
        return self.stopping.stop_in(heavy, wave, total) if heavy else wave.made

    def watch(self, waiting: dict[int, Batch], total: Total) -> WaveWatch:
        """Return the object that checks a run of waves, which begins with the rows in `waiting`."""
        first = min((iteration for iteration, batch in waiting.items() if batch.rows), default=0)
        searched = 1 << (max(first, FIRST_LOOK if self._alone else _FIRST_ASKED) - 1).bit_length()
        rows = sum(len(batch.rows) for batch in waiting.values())
        return WaveWatch(self, self._sizes, total, rows, searched, not self._alone)

    def search(self, wave: Wave, budget: int | None, total: Total) -> tuple[bool, Batch]:
        """Search ahead of a wave. Returns whether the waves will surely end, and the rows of the wave that continue.

        See `WaveWatch`.
        """
        ahead = wave.made.rows if self._alone else wave.frontier.rows
        found = survey(self._explorer(self._going_on), ahead, self._bound.limit, budget, self._sizes.refused)
        if not self._alone:
            self._suspect(wave.frontier.rows[:_ASKED])
        if found.endless is not None:
            self._note(found)
        if found.endless is not None or self._withheld.whole:
            return False, self.hold_whole(wave, total)
        if found.closings:
            return False, self.stopping.stop_in(found.closings, wave, total)
        return found.ended and self._alone, wave.made

    def hold_whole(self, wave: Wave, total: Total) -> Batch:
        """Hold the recursion as a whole: stop at every row, because a row cannot be written or a path is endless.

        Whether the recursion remains held is decided after the waves.
        """
        self._withheld.whole = True
        return self.stopping.stop_all(wave, total, self._explorer())

    def _explorer(self, keeps: Callable[[list[Row]], list[Row]] | None = None) -> Explorer:
        return Explorer(self._body, None if self._alone else self._own, keeps)

    def _going_on(self, rows: list[Row]) -> list[Row]:
        """Select the rows that this worker owns and that are not stops."""
        rows = rows if self._alone else self._gate.mine(rows)
        stops = self._withheld.stops
        return [row for row in rows if row not in stops] if stops else rows

    # When the waves have ended

    def _heads(self, inputs: Sequence[Batch], waiting: dict[int, Batch], total: Total) -> list[Row]:
        """Return the rows that may have closed a cycle although the waves end; see `_remove_unsupported`.

        A cycle is closed by a row that a change of op derives from earlier rows of X. The waves can end despite the
        cycle only if rows were retracted. Then the search begins at the rows that the change of op derives; they are
        also added to `waiting`. The last of `inputs` has the rows that were released.
        """
        _, received, *externals, released = inputs
        if not any(batch.rows and min(batch.weights) < 0 for batch in inputs):
            return []
        came = concat((received, released))
        heads = [row for row, weight in zip(came.rows, came.weights, strict=True) if weight > 0]
        if any(weight > 0 for batch in externals for weight in batch.weights):
            made = self._body.run(EMPTY, 0)
            heads += [row for row, weight in zip(made.rows, made.weights, strict=True) if weight > 0]
            made = self.stopping.admit(made.consolidated(self._name))
            if self._sizes.careful and self._sizes.refused_rows(made.rows):
                made = self.hold_whole(Wave(0, EMPTY, made, waiting), total)
            made = self._gate.own(made, 1)
            if made.rows:
                waiting[1] = concat((made, waiting.get(1, EMPTY))).consolidated(self._name)
        return list(dict.fromkeys(heads))

    def _remove_unsupported(self, heads: Iterable[Row], total: Total, run: RunWaves) -> None:
        """Remove rows that only support one another.

        In one epoch, a row may lose its only path from the seed while op begins to derive it from one of its own
        results. Then retraction and insertion cancel, the waves end, and the rows of the cycle would remain for ever.
        So cycles of rows that X has now are searched for. Each such cycle contains one of the heads or of the epoch's
        new rows, so the search begins at these. Waves then stop at one row of each cycle: arriving weight waits there,
        and op's results for the row are retracted. If no path from the seed leads to the cycle, no weight is left
        there. Usually a search ahead of the heads alone shows that there is no cycle.
        """
        withheld, most = self._withheld, _LEVELS + _SHARE * total.count
        ahead = [row for row in heads if row not in withheld.stops]
        if withheld.changes or not comes_to_an_end(self._explorer(self._going_on), ahead, most, self._sizes):
            there = self._present_rows(total)
            explore = self._explorer(there)
            starts = there([*ahead, *(row for row, weight in total.sum().items() if weight > 0)])
            if not comes_to_an_end(explore, starts, most, self._sizes):
                run({0: self.stopping.stop(survey(explore, starts, budget=sys.maxsize).closings, total)}, total)
        if not self._alone:
            self._suspect(ahead)

    def _suspect(self, rows: Sequence[Row]) -> None:
        """Mark rows as suspects, because a cycle or an endless path may be ahead of them; a review will find out."""
        withheld, mine = self._withheld, self._gate.mine(list(rows))
        if new := set(mine) - withheld.stops.keys() - withheld.suspects:
            withheld.suspects |= new
            self._agreement.change(News.SUSPECTS)
        if len(mine) < len(rows):
            self._agreement.suspect_elsewhere(set(rows).difference(mine))

    def _decide(self, touched: bool, total: Total, run: RunWaves) -> None:
        """Find the rows that cycles reach, and open the other stops.

        Does nothing if neither the stops nor rows outside that the last search has met have changed.
        """
        withheld, known = self._withheld, 0
        if withheld.suspects:  # they are from a time with several workers
            self._remove_unsupported(withheld.suspects, total, run)
            withheld.suspects.clear()
        while withheld.active and (touched or withheld.changes != known):
            known = withheld.changes
            if self._is_still_endless(touched):
                return
            touched = False
            self._note(self._ahead(self._explorer(), withheld.waiting))
            assert self._found is not None
            withheld.whole = self._found.endless is not None
            if withheld.whole:
                return
            reached = self._found.reached
            opened = withheld.open([row for row in withheld.stops if row not in reached])
            withheld.mark_only(reached)
            goes = concat((Batch.of(opened, 0), self.stopping.stop(self._found.closings, total)))
            if goes.rows:
                run({0: goes}, total)

    def _is_still_endless(self, touched: bool) -> bool:
        """Return whether the last endless path is still endless.

        It is if its first row waits, and no row outside that its steps have met has changed.
        """
        found, stops = self._found, self._withheld.stops
        if touched or not self._withheld.whole or found is None or found.endless is None:
            return False
        return bool(stops.get(found.endless.path[0]))

    def _agree(self, total: Total) -> None:
        """With several workers: report changes to the arbiter. If this worker is the arbiter, continue its review."""
        withheld, weight = self._withheld, self.stopping.weights(total)
        if withheld.changes or self._agreement.counts_on(row for row in total.sum() if not weight(row)):
            self._agreement.change(News.STOPS)
        self._agreement.report()
        self._agreement.arbiter.decide()

    def _lookups_changed(self, externals: Sequence[Batch]) -> bool:
        """Whether rows outside have changed on which the held rows depend."""
        if self._alone and not self._withheld.active:
            return False
        received = {slot - 1 for slot in self._body.received}
        batches = [batch for at, batch in enumerate(externals) if at not in received and batch.rows]
        if not self._alone:
            self._agreement.change_outside(key for batch in batches for key in keys_of(batch.rows))
            return False
        return any(not self._looked_up.isdisjoint(keys_of(batch.rows)) for batch in batches)

    def _present_rows(self, total: Total) -> Callable[[list[Row]], list[Row]]:
        """Return a function that selects, among rows, those that this worker owns and that are in X now.

        No stop is in X.
        """
        weight = self.stopping.weights(total)
        return lambda rows: [row for row in self._gate.mine(rows) if weight(row)]

    def _is_there(self, row: Row) -> bool:
        """Whether a row was in X when the epoch began."""
        return bool(weight_in(self._x.get(row[0]), row[1]))

    def _ahead(self, explore: Explorer, starts: Sequence[Row]) -> Survey:
        return survey(explore, starts, self._bound.limit, refused=self._sizes.refused)

    def _closings(self, explore: Explorer, starts: Sequence[Row]) -> list[Row]:
        """Return a row on each cycle ahead of `starts`, also on cycles beside endless paths."""
        sizes, limit = self._sizes, self._bound.limit
        return survey(explore, starts, limit, _MOST_BESIDE, sizes.refused, beyond=True).closings

    def _note(self, found: Survey) -> None:
        self._found, self._message = found, None
        self._looked_up = {key for _, key in found.asked}

    # The held rows and their message

    @property
    def holds_all(self) -> bool:
        """Whether the recursion has no rows downstream, because its rows are endless."""
        return self._withheld.whole

    def held(self) -> Mapping[int, str] | None:
        """Return the message about held rows, by partition 0; None while several workers have not agreed yet."""
        self._read()
        if not self._agreement.alone:
            return self._agreed()
        withheld = self._withheld
        if not (withheld.stops or withheld.reaches or withheld.whole):
            return {}
        if self._found is None:
            self._note(self._ahead(self._explorer(), withheld.waiting))
        assert self._found is not None
        if self._message is None:
            self._message = self._message_of(self._found, withheld.waiting, self._explorer())
        return {0: self._message} if self._message else {}

    def _agreed(self) -> Mapping[int, str] | None:
        if not self._agreement.arbiter.is_mine:
            return {}
        message = self._agreement.arbiter.message
        return None if message is None else {0: message} if message else {}

    def _found_ahead(self, explore: Explorer, starts: Sequence[Row]) -> tuple[Survey, str]:
        found = self._ahead(explore, starts)
        return found, self._message_of(found, starts, explore)

    def _message_of(self, found: Survey, stops: Sequence[Row], explore: Explorer) -> str:
        return held_message(self._name, self._bound, found, stops, explore, self._sizes)
