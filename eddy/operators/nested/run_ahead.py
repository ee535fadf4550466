"""Finds out whether a recursion by nested time will meet its limit, by a fast run with sets of rows in place of traces.

    new(n + 1) = op(new(n)) - all rows so far          until no row is new, or the limit is met

If each step makes its rows from single rows and retracts none, op makes the new rows of an iteration from the new rows
of the previous iteration. So sets of rows suffice to find the iteration that makes the last row, at a fraction of the
cost of iterations with traces, weights and states.

Source: Bancilhon and Ramakrishnan, "An amateur's introduction to recursive query processing strategies", SIGMOD 1986,
for the evaluation by new rows.
"""

from collections.abc import Callable, Sequence
from typing import Any

from eddy.operators.batch import EMPTY, Batch, Row, keys_of
from eddy.operators.errors.guarded import unguarded
from eddy.operators.errors.row_sizes import RowSizes
from eddy.operators.nested.operators import NestedLookupJoin
from eddy.operators.operator import Step

__all__ = ["MOST_ROWS", "RunAhead"]

MOST_ROWS = 2_000_000
"""With more rows the run is abandoned, because it might not fit into memory beside the traces."""


class RunAhead:
    """Runs the body of a recursion of one binding ahead: `steps`, which begin at slot 0 and end at the slot `result`.

    `possible`: each step makes its rows from single rows, so a run ahead finds all rows.
    """

    def __init__(self, steps: Sequence[Step], result: int) -> None:
        self._steps, self._result = steps, result
        self.possible = all(unguarded(step.operator).follows_rows for step in steps)
        self.asked: dict[int, set[Any]] = {}
        readers = [unguarded(step.operator) for step in steps if 0 in step.inputs]
        self._first = readers[0] if len(readers) == 1 and isinstance(readers[0], NestedLookupJoin) else None
        self._dead: set[Any] = set()

    def look(
        self,
        rows: Sequence[Row],
        iterations: int,
        known: Callable[[Sequence[Row]], Sequence[bool]],
        sizes: RowSizes | None,
    ) -> tuple[list[Row], str]:
        """Return the rows that are still new after `iterations` iterations, and an empty text.

        If a row cannot be written, the result is a list with this row, and the reason. If op makes no new rows before
        that, or the run is abandoned, the list is empty. `rows` are the rows that are new now. `known` returns for each
        row whether it exists already. Afterwards `asked` has the keys that each join has looked up.
        """
        self.asked, self._dead = {}, set()
        seen, new = set(rows), self._going_on(list(rows))
        for left in range(iterations, 0, -1):
            made = [row for row in self._apply_op(new) if row not in seen]
            if left > 1:
                made = self._going_on(made)
            made = list(dict.fromkeys(made))
            new = [row for row, is_known in zip(made, known(made), strict=True) if not is_known]
            seen.update(new)
            if sizes is not None and (refused := sizes.refused_rows(new)):
                return refused[:1], sizes.refused(refused[0])
            if not new or len(seen) > MOST_ROWS:
                return [], ""
        return new, ""

    def _going_on(self, rows: list[Row]) -> list[Row]:
        """Return the rows from which op may make further rows: those whose keys match rows outside."""
        if self._first is None or not rows:
            return rows
        asked = self.asked.setdefault(0, set())
        if keys := set(keys_of(rows)) - asked:
            new = list(keys)
            asked |= keys
            self._dead.update(
                key for key, found in zip(new, self._first.outside.get_many(new), strict=True) if found is None
            )
        dead = self._dead
        return [row for row in rows if row[0] not in dead] if dead else rows

    def _apply_op(self, rows: list[Row]) -> list[Row]:
        values: dict[int, Batch] = {0: Batch(rows, [1] * len(rows))}
        for step in self._steps:
            batches = [values.get(slot, EMPTY) for slot in step.inputs]
            if any(batch.rows for batch in batches):
                if isinstance(unguarded(step.operator), NestedLookupJoin):
                    self.asked.setdefault(step.output, set()).update(keys_of(batches[0].rows), self.asked.get(0, ()))
                values[step.output] = step.operator.explore(*batches)
        return values.get(self._result, EMPTY).rows
