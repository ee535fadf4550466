"""Steps by key: a row without a key is dropped and counted.

    with_keys      the rows that have a key
    with_values    the rows that have a value
    with_both      the rows that have both

Kafka Streams has the same rule (`KStreamAggregate`, `KTableSource`, KIP-962). The rule depends only on the row, so a
row that was dropped when inserted is dropped when retracted: the filtered delta is the delta of the filtered rows.

A join of relations does not count such rows: a row without a key matches nothing there, and is not stored.
"""

from collections.abc import Mapping

from eddy.operators.batch import Batch, Row, ZSet
from eddy.operators.context import Context
from eddy.operators.operator import Operator

__all__ = ["Keyed", "WithKeys", "keyed", "keyed_rows"]


def keyed(batch: Batch) -> Batch:
    """The rows that have a key. Cost: a comparison a row, without a call."""
    if not [None for key, _ in batch.rows if key is None]:
        return batch
    return batch.select([key is not None for key, _ in batch.rows])


def keyed_rows(rows: Mapping[Row, int]) -> Mapping[Row, int]:
    """Return the rows of a Z-set that have a key."""
    if not [None for key, _ in rows if key is None]:
        return rows
    kept: ZSet = {row: weight for row, weight in rows.items() if row[0] is not None}
    return kept


class Keyed(Operator):
    """The base class of operators that drop rows without a key or value. `dropped` counts the inserted rows dropped.

    The count is of the current epoch; dropped retractions are not counted. `late` counts the windows of the current
    epoch's records that had already ended.
    """

    late = 0

    def end_epoch(self) -> None:
        """Set the counts to 0."""
        self.dropped = 0

    def with_keys(self, batch: Batch) -> Batch:
        """The rows that have a key."""
        return self._counted(batch, keyed(batch))

    def with_values(self, batch: Batch) -> Batch:
        """The rows that have a value. Cost: as `keyed`."""
        if not [None for _, value in batch.rows if value is None]:
            return batch
        return self._counted(batch, batch.select([value is not None for _, value in batch.rows]))

    def with_both(self, batch: Batch) -> Batch:
        """The rows that have a key and a value. Cost: as `keyed`."""
        if not [None for key, value in batch.rows if key is None or value is None]:
            return batch
        return self._counted(batch, batch.select([key is not None and value is not None for key, value in batch.rows]))

    def _counted(self, batch: Batch, kept: Batch) -> Batch:
        if kept is not batch:
            self.dropped += _insertions(batch) - _insertions(kept)
        return kept


def _insertions(batch: Batch) -> int:
    return sum(weight > 0 for weight in batch.weights)


class WithKeys(Keyed):
    """Input: rows. Output: the rows that have a key."""

    def __init__(self, name: str) -> None:
        self.name = name

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Select."""
        return self.with_keys(inputs[0])
