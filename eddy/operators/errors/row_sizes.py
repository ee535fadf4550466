"""The check for rows that no state and no topic can store: too large, or with values that their serdes cannot write.

A row is too large if its encoded key and value have more than `max_bytes` bytes. That depends on the row alone.

Most rows are never checked here. A state refuses a row that is too large, and then the recursion repeats the epoch
*carefully*: it checks each row of each wave. Rows that grow from wave to wave are noticed before they fill the memory:
some rows of every eighth wave are encoded, and some of every wave once rows are wide.
"""

from collections.abc import Callable, Sequence

from eddy.operators.batch import Batch, Row

__all__ = ["GLANCE", "MAX_ROW_BYTES", "OVERHEAD", "RowSizes"]

MAX_ROW_BYTES = 1 << 20
"""The bytes of the largest row, with the headers and the framing that a log adds to it."""

OVERHEAD = 1_024
"""Room for the headers, the weights and the record's frame that a log adds to a row."""

GLANCE = 8
"""Every so many waves or iterations some rows are encoded, because numbers that are squared soon fill the memory."""

_WIDE = 4_096
_HUGE = 16
_SAMPLE = 1_000
_UNIT = 64
_FEW = 8


class RowSizes:
    """Checks the rows of one recursion. `encode` returns the bytes of a row.

    `careful`: each row of each wave is checked. `lenient`: the rows are never stored, so they may be of any type.
    """

    def __init__(self, encode: Callable[[Row], bytes], max_bytes: int = MAX_ROW_BYTES, lenient: bool = False) -> None:
        self._encode, self._max_bytes, self._lenient = encode, max_bytes, lenient
        self.careful = self._has_wide = False

    def begin(self) -> None:
        """Begin an epoch."""
        self._has_wide = False

    @property
    def wide(self) -> bool:
        """Whether rows are so large that rows of every wave are checked, not only of every eighth."""
        return self.careful or self._has_wide

    def refused(self, row: Row) -> str:
        """Return the reason why a row cannot be written; empty if it can be written."""
        try:
            size = len(self._encode(row))
        except Exception as error:
            return "" if self._lenient else f"it can no longer be encoded ({error})"
        if size > _WIDE:
            self._has_wide = True
        if size + OVERHEAD <= self._max_bytes:
            return ""
        return (
            f"it takes {size:,} bytes and {OVERHEAD:,} of a log; at most max_row_bytes={self._max_bytes:,} are written"
        )

    def is_huge(self, row: Row) -> bool:
        """Whether a row is too large to apply `op` to it; False for a row that cannot be encoded."""
        try:
            return len(self._encode(row)) > _HUGE * self._max_bytes
        except Exception:
            return False

    def refused_rows(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows of a wave that cannot be written. Unless `wide`, only a sample of the rows is checked."""
        if not self.wide and len(rows) > _SAMPLE:
            rows = rows[:: len(rows) // _SAMPLE]
        return [row for row in rows if self.refused(row)]

    def order(self, row: Row) -> bytes:
        """Return the sort key of a row, its bytes; empty if it cannot be encoded."""
        try:
            return self._encode(row)
        except Exception:
            return b""

    def share(self, batch: Batch) -> int:
        """Estimate the mean size of the batch's rows from a few of them.

        The unit is the size of a usual row; the result is at least 1.
        """
        rows = batch.rows[:: max(1, len(batch.rows) // _FEW)]
        try:
            return max(1, sum(len(self._encode(row)) for row in rows) // (len(rows) * _UNIT))
        except Exception:
            return 1
