"""Sets aside the pairs (key, (left, right)) of a join on which the author's function fails.

A failed pair stands in the join's result in place of the row that could not be made. So it gets this row's weight and,
in nested time, this row's iteration. Then `without_failed_pairs` takes the failed pair out of the result.
"""

from collections.abc import Callable
from itertools import compress
from typing import Any

from eddy.operators.batch import Batch, Row
from eddy.operators.errors.set_aside import Aside
from eddy.operators.stateless import check_rows

__all__ = ["merge_or_fail", "without_failed_pairs"]


class _Failed(tuple[Row, Exception | None]):
    """Stands for the row of a pair that cannot be merged. It has the pair and the error.

    The error is None if an equal pair is set aside already.
    """

    __slots__ = ()


def merge_or_fail(aside: Aside, merge: Callable[[Any, Any, Any], Row], where: str) -> Callable[[Any, Any, Any], Row]:
    """Return a function like `merge` that never raises.

    For a pair on which `merge` raises, or which is set aside already, it returns a failed pair.
    """

    def merged(key: Any, left: Any, right: Any) -> Row:
        pair = (key, (left, right))
        if aside.kept and aside.reason_of(pair):
            return _Failed((pair, None))
        try:
            row = merge(key, left, right)
            check_rows([row], where)
            return row
        except Exception as error:
            return _Failed((pair, error))

    return merged


def without_failed_pairs(aside: Aside, batch: Batch) -> Batch:
    """Set aside the failed pairs in the batch, and return the batch without them. Raises: as `Aside.take` does."""
    failed = [type(row) is _Failed for row in batch.rows]
    if not any(failed):
        return batch
    for (pair, error), weight in compress(zip(batch.rows, batch.weights, strict=True), failed):
        if error is None:
            aside.add_weight(pair, weight)
        else:
            aside.take(pair, weight, error)
    return batch.select([not one for one in failed])
