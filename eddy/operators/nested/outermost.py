"""An outermost loop by nested time, which queues the input that makes it meet a bound (docs/adr/0029-bounds.md).

A loop meets a bound if it reaches its limit, repeats its rows, runs out of the epoch's rows or seconds, or makes a row
that cannot be written.

    states inside   made from the input up to the last epoch that ended
    queue           the sum of the later input
    downstream      the rows of the bindings; none while a bound is met

If the iterations of an epoch meet a bound, they are undone, the epoch's input is queued, and all rows downstream are
retracted. The next input is processed together with the queue. If these iterations end, the bindings' rows are sent
again, and the states are the same as if no bound had been met.

If no step of the loop changes keys, each key is a loop of its own, and is queued and withheld separately. Such a key is
a *unit*; otherwise the whole loop is the unit.

Rows that cannot be processed are set aside inside the loop, at the steps that fail on them. Input from which a row
follows that no step can set aside, such as a row that a state cannot write, is queued, too, if its records may have
been committed earlier, because then they cannot be rejected any more.

Invariant: the rows downstream are a function of the input, however it was cut into epochs, once no unit is *owed a
try*. A unit is owed a try if its last try ran out of rows or seconds, or was postponed. Such a unit is tried again in
an epoch without input.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from eddy.errors import EddyError
from eddy.operators.batch import EMPTY, Batch, Row, ZSet, merge_into
from eddy.operators.context import Context, Wake
from eddy.operators.errors.failing_inputs import check_changes, is_of_data
from eddy.operators.errors.guarded import unguarded
from eddy.operators.errors.set_aside import Aside, Care, netted
from eddy.operators.exchange import Ownership
from eddy.operators.nested.fixpoint import Fixpoint, Results
from eddy.operators.nested.limit_errors import LimitBarrier, numbered
from eddy.operators.nested.operators import NestedLookupJoin
from eddy.operators.nested.outermost_states import Given, Note, Queue
from eddy.operators.nested.repetition import EndlessError
from eddy.operators.operator import State
from eddy.source_lines import describe_exception

__all__ = ["RESTLESS", "Outermost"]

_TIME = attrgetter("time")
RESTLESS = "does not come to rest"
"""The value of the row in a block's `errors` while a unit is queued because it meets a bound."""

_CHEAP_ROWS = 20_000  # a try of up to this number of rows is made in every epoch
_LONGEST_WAIT = 64  # the most epochs with input between two tries
_ROWS_A_BUDGET = 50_000  # the number of queued rows for one more budget of an epoch


class Outermost(Fixpoint):
    """Input: deltas from outside. Output: the deltas of the bindings, and last the deltas of a block's errors."""

    inputs_apart = True
    queue: Queue
    given: Given
    care: Care
    limits: LimitBarrier | None = None
    ownership: Ownership

    def keep(
        self, queue: Queue, given: Given, limits: LimitBarrier | None, ownership: Ownership, care: Care
    ) -> "Outermost":
        """Set the states of queued input, of the bindings' rows and of the limit's errors. Returns the loop itself."""
        self.queue, self.given, self.limits, self.ownership, self.care = queue, given, limits, ownership, care
        self._wait = self._waited = 0
        self._checks_changes = self._queues_failing = False
        self._most: int | None = None
        self._ahead = self.body.ahead() if self._seeded else None
        self._lookups = [self.body.lookups(external) for external in range(queue.inputs)]
        self._looked_up: dict[NestedLookupJoin, set[Any]] | None = None
        return self

    def _membership_test(self, total: ZSet) -> Callable[[Sequence[Row]], Sequence[bool]]:
        def known(rows: Sequence[Row]) -> list[bool]:
            before = self.given.known(0, rows)
            return [was or total.get(row, 0) > 0 for row, was in zip(rows, before, strict=True)]

        return known

    def own_states(self) -> Sequence[State]:
        """The queue, the errors, and the bindings' rows."""
        limits = self.limits.states() if self.limits is not None else ()
        return [*limits, self.queue.state, *self.given.states()]

    def end_epoch(self) -> None:
        """Drop the epoch's reports."""
        super().end_epoch()
        self.queue.owed_change = 0

    def forget_waves(self) -> None:
        """Forget the last iterations, because the epoch was undone, or the states were replaced."""
        super().forget_waves()
        self.queue.forget()

    forget_wave = forget_waves

    def wakes_at(self) -> Wake | None:
        """Return `AT_ONCE` if a unit of this worker is owed a try, else None."""
        return Wake.AT_ONCE if any(note.owed for note in self._owned().values()) else None

    def held(self) -> Mapping[int, str]:
        """Return one message for each owned partition with withheld units.

        Of several messages it is the first in order of text.
        """
        found: dict[int, str] = {}
        notes = self._owned()
        for note, partition in zip(notes.values(), self.queue.partitions(list(notes)), strict=True):
            found[partition] = min(note.why, found.get(partition, note.why))
        return found

    def _owned(self) -> Mapping[Any, Note]:
        notes = self.queue.notes()
        if not notes:
            return notes
        count = self.queue.state.spec.partitions
        homes = self.queue.partitions(list(notes))
        return {unit: notes[unit] for unit, home in zip(notes, homes, strict=True) if self.ownership.owns(home, count)}

    def step_setting_aside(self, context: Context, aside: Aside, *inputs: Batch) -> Batch:
        """Set aside the input rows that no state can write, and queue the input that fails otherwise."""
        asides = (aside, *aside.others)
        batches = [netted(one, one.without_kept(batch)) for one, batch in zip(asides, inputs, strict=True)]
        if not aside.care.on:
            return self.step(context, *batches)
        self._checks_changes = True
        try:
            return self.step(context, *batches)
        except EndlessError:
            raise
        except Exception as error:
            if not is_of_data(error):
                raise
            self._undo()
            self.forget_waves()
            for state in self.own_states():
                state.rollback()
            for index, one in enumerate(asides):
                batches[index] = one.without(batches[index], self.queue.refused(index, batches[index]))
            self._queues_failing = True
            return self.step(context, *batches)
        finally:
            self._checks_changes = self._queues_failing = False

    def _processed(self, inputs: Sequence[Batch]) -> tuple[list[ZSet], list[tuple[int, Batch]]]:
        """Run the iterations. If the epoch sets rows aside, also check that the states can write the changes."""
        totals, over = self.run_iterations(inputs)
        if self._checks_changes:
            self.given.take(totals)
            try:
                check_changes([*self.body.states(), *self.given.states()])
            finally:
                for state in self.given.states():
                    state.rollback()
        return totals, over

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Process the input together with the queued input of its units, or queue it."""
        queued = {unit for unit, note in self.queue.notes().items() if note.queued}
        time = max(map(_TIME, inputs), default=0)
        if queued:
            delta = numbered(enumerate(inputs))
            tried = self._units(delta) & queued if delta else self._owed()
            if tried and delta and not self._lookups_changed(inputs):
                return self._work(delta, queued, set(), time, idle=True)
            if delta and self._waited < self._wait:
                self._waited += 1
                tried = set()
            return self._work(delta, queued, tried, time)
        try:
            totals, over = self._processed(inputs)
        except EndlessError as error:
            if context.divisible and error.of_work:
                raise
            self._note_lookups(error)
            self._undo()
            delta = numbered(enumerate(inputs))
            alone = error.is_sure and not context.divisible
            return self._work(delta, queued, set(), time, self._notes_of_bound(error, self._units(delta), time, alone))
        except Exception as error:
            if not (self._queues_failing and is_of_data(error)):
                raise
            self._undo()
            delta = numbered(enumerate(inputs))
            return self._work(delta, queued, set(), time, self._refused(error, self._units(delta), time))
        return self._leave(_Worked(totals, over, queued, set(), {}), time)

    def _note_lookups(self, error: EndlessError) -> None:
        """Note the keys of rows outside that the iterations looked up before they met a bound.

        No key is noted if the loop might end with more rows or seconds, or if each key is a unit.
        """
        self._looked_up = None
        if error.of_work or self.queue.keyed:
            return
        ahead: set[Any] = set() if self._ahead is None else set().union(*self._ahead.asked.values())
        operators = (unguarded(step.operator) for step in self.body.steps)
        joins = [operator for operator in operators if isinstance(operator, NestedLookupJoin)]
        self._looked_up = {join: join.changed_keys() | ahead for join in joins}

    def _lookups_changed(self, inputs: Sequence[Batch]) -> bool:
        """Return whether an epoch's input can change the iterations that met a bound the last time."""
        if self._looked_up is None:
            return True
        for batch, joins in zip(inputs, self._lookups, strict=True):
            if batch.rows:
                keys = {key for key, _ in batch.rows}
                if joins is None or any(self._looked_up[join] & keys or join.met(keys) for join in joins):
                    return True
        return False

    def _units(self, delta: Iterable[Any]) -> set[Any]:
        return {key for (_, key), _ in delta} if self.queue.keyed else {None}

    def _owed(self) -> set[Any]:
        owed = [unit for unit, note in self._owned().items() if note.owed]
        return set(owed[: self._most])

    def _without(self, delta: ZSet, units: set[Any]) -> ZSet:
        if not units:
            return delta
        return {row: weight for row, weight in delta.items() if row[0][1] not in units} if self.queue.keyed else {}

    def _work(
        self,
        delta: ZSet,
        queued: set[Any],
        tried: set[Any],
        time: int,
        failed: dict[Any, Note] | None = None,
        idle: bool = False,
    ) -> Batch:
        """Process `delta` and the queued input of the `tried` units, and queue the units that meet a bound.

        `queued`: all queued units. `failed`: the units that have met a bound in this epoch already, with notes. `idle`:
        `delta` cannot change the iterations of queued units, so they are not owed a try.
        """
        queue, alone = self.queue, not delta
        back = queue.rows(tried) if tried else {}
        rows = dict(delta)
        merge_into(rows, back, back.values())
        failed = failed or {}
        dearest = self._budget.rows if failed else 0
        time = max([time, *(queue.notes()[unit].time for unit in tried)])
        totals: list[ZSet] = [{} for _ in self.bindings]
        over: list[tuple[int, Batch]] = []
        while active := self._without(rows, (queued - tried) | failed.keys()):
            self._budget.begin(1 + len(active) // _ROWS_A_BUDGET)
            try:
                totals, over = self._processed(self._batches(active, time))
                break
            except EndlessError as error:
                self._note_lookups(error)
                self._undo()
                dearest = max(dearest, self._budget.rows)
                failed |= self._notes_of_bound(error, self._units(active), time, alone)
            except Exception as error:
                if not is_of_data(error) or (self.care.possible and not self.care.on):
                    raise
                self._undo()
                waiting = active if self._queues_failing else self._without(back, set(failed))
                if not waiting or (delta and not self._queues_failing and not self._fails(waiting, time)):
                    raise
                failed |= self._refused(error, self._units(waiting), time)
        self._pace(tried, failed, dearest)
        out = (queued - tried) | failed.keys()
        queue.add({row: weight for row, weight in back.items() if not self._is_of(row, out)}, -1)
        queue.add({row: weight for row, weight in delta.items() if self._is_of(row, out)})
        put_off = {} if idle else {unit: queue.notes()[unit] for unit in self._units(delta) & (queued - tried)}
        notes = {unit: note._replace(owed=True, time=max(time, note.time)) for unit, note in put_off.items()}
        queue.note({**notes, **failed})
        return self._leave(_Worked(totals, over, queued, tried - failed.keys(), failed), time)

    def _fails(self, rows: ZSet, time: int) -> bool:
        """Whether the queued rows fail even without the epoch's input, so that no record of the epoch is the cause."""
        try:
            self._budget.begin(1 + len(rows) // _ROWS_A_BUDGET)
            self.run_iterations(self._batches(rows, time))
        except EndlessError:
            return True
        except Exception as error:
            if not is_of_data(error):
                raise
            return True
        finally:
            self._undo()
        return False

    def _refused(self, error: Exception, units: set[Any], time: int) -> dict[Any, Note]:
        """Return notes for the units in `units` whose rows cannot be processed.

        If there are several units, each gets a note, and smaller groups of them are tried later to find the failing
        ones.
        """
        why = str(error) if isinstance(error, EddyError) else f"the function raised {describe_exception(error)}"
        why = f"{self.bound.where(self.name)}: {why}"
        if len(units) > 1:
            self._halve(units)
        return dict.fromkeys(units, Note(why, len(units) > 1, time))

    def _halve(self, units: set[Any]) -> None:
        """Try fewer units together from now on."""
        self._most = max(1, min(len(units), self._most or len(units)) // 2)

    def _is_of(self, row: Any, units: set[Any]) -> bool:
        return (row[0][1] if self.queue.keyed else None) in units

    def _batches(self, rows: ZSet, time: int) -> list[Batch]:
        zsets: list[ZSet] = [{} for _ in range(self.queue.inputs)]
        for ((index, key), (_, value)), weight in rows.items():
            zsets[index][key, value] = weight
        return [Batch.of(zset, time) if zset else EMPTY for zset in zsets]

    def _undo(self) -> None:
        """Undo the iterations, so that the states inside are as before the epoch."""
        self.body.undo()

    def _notes_of_bound(self, error: EndlessError, units: set[Any], time: int, alone: bool) -> dict[Any, Note]:
        """Return notes for the units that met a bound: the processed units with new rows in the last iteration.

        If several units together exceeded the budget, each gets a note, and smaller groups of them are tried later.
        """
        if error.of_work and len(units) > 1:
            self._halve(units)
            return dict.fromkeys(units, Note(str(error), True, time))
        owed = error.of_work and not alone
        notes: dict[Any, Note] = {}
        for one in (error, *error.others):
            for unit in {row[0] for row in one.rows} & units - notes.keys() if self.queue.keyed else units:
                notes.setdefault(unit, Note(str(one), owed, time))
        return notes or dict.fromkeys(units, Note(str(error), owed, time))

    def _pace(self, tried: set[Any], failed: Mapping[Any, Note], rows: int) -> None:
        """Set how many epochs with input pass before queued input is tried again.

        After a cheap try the number is 0, otherwise it doubles. If the number of units that are tried at a time is
        limited, a try that succeeds doubles it.
        """
        if failed:
            dear = rows > _CHEAP_ROWS
            self._wait, self._waited = min(2 * self._wait or 1, _LONGEST_WAIT) if dear else 0, 0
        elif tried:
            self._wait, self._most = 0, self._most and 2 * self._most

    def _leave(self, worked: "_Worked", time: int) -> Batch:
        """Write the notes and the bindings' rows to the states. Returns the rows for downstream."""
        totals, queued, failed = worked.totals, worked.queued, worked.failed
        if not failed:
            self._note_cut(worked.over)
        self.given.take(totals)
        if self.limits is not None:
            return self._leave_limited(worked, self.limits, time)
        if not (queued or failed):
            return self._results(totals, {}, time)
        keyed, done, begun = self.queue.keyed, worked.done, failed.keys() - queued
        if not keyed:
            totals = [{} for _ in totals]
        elif done:
            totals = [{row: weight for row, weight in total.items() if row[0] not in done} for total in totals]
        self.queue.note(dict.fromkeys(done))
        for units, sign in ((done, 1), (begun, -1)):
            if units:
                for total, rows in zip(totals, self.given.rows(units if keyed else None), strict=True):
                    merge_into(total, rows, [sign * weight for weight in rows.values()])
        errors = {self._error_row(unit): 1 for unit in begun} | {self._error_row(unit): -1 for unit in done}
        return self._results(totals, errors, time)

    def _error_row(self, unit: Any) -> Any:
        return self.name, (unit, RESTLESS)

    def _leave_limited(self, worked: "_Worked", limits: LimitBarrier, time: int) -> Batch:
        """Return the rows for downstream, for a loop that can also be withheld by its own limit.

        Such a loop is one unit.
        """
        was, was_queued, queued = self.queue.notes().get(None), bool(worked.queued), bool(worked.failed)
        queued = queued or (was_queued and not worked.done)
        was_withheld = was_queued or (was is not None and not was.queued)
        errors = {} if queued else limits.take(worked.over if self.bound.on_limit == "rows" else ())
        back = limits.taken_back(len(self.bindings))
        if queued and not was_queued:
            errors = {**dict.fromkeys(limits.rows(), -1), self._error_row(None): 1}
        elif was_queued and not queued:
            errors = {**limits.rows(), self._error_row(None): -1}
        withheld = queued or bool(limits)
        if not queued:
            why = f"{self.bound.where(self.name)}: {limits.least()}. {self.advice('limit=')}" if withheld else ""
            self.queue.note({None: Note(why, False, time, False) if withheld else None})
        made: list[ZSet] = [{} for _ in self.bindings]
        if not (was_withheld or withheld):
            made = worked.totals
        elif was_withheld is not withheld:
            made = self.given.rows(None)
            if withheld:
                for total, rows in zip(made, worked.totals, strict=True):
                    merge_into(total, rows, [-weight for weight in rows.values()])
                made = [{row: -weight for row, weight in zset.items()} for zset in made]
        if not was_withheld:
            for total, rows in zip(made, back, strict=True):
                merge_into(total, rows, rows.values())
        return self._results(made, errors, time)

    def _results(self, made: Sequence[ZSet], errors: ZSet, time: int) -> Batch:
        batches = [Batch.of(zset, time) if zset else EMPTY for zset in made]
        if errors and not self._seeded:
            batches.append(Batch.of(errors, time))
        return Results(batches, time)


class _Worked(NamedTuple):
    """What an epoch has done: the bindings' deltas `totals`, and the changes `over` that exceed the last iteration.

    `queued`: the units that were queued before the epoch. `done`: the queued units that it has processed. `failed`: the
    units that it has queued, with their notes.
    """

    totals: list[ZSet]
    over: list[tuple[int, Batch]]
    queued: set[Any]
    done: set[Any]
    failed: Mapping[Any, Note]
