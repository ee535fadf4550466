"""Rows that no state and no topic can take: too large, or of values that their serdes cannot write.

A row is too large if its key and value, as they are written, take more than `max_bytes`: a property of the row.

Most rows are never looked at here. A state that writes one that is too large refuses it, and the recursion repeats the
epoch *carefully*, looking at each row of each wave. Rows that grow from wave to wave are noticed before they fill the
memory: some rows of every eighth wave are encoded, and some of every wave once rows are wide.
"""

from collections.abc import Callable, Sequence

from eddy.operators.batch import Batch, Row

__all__ = ["GLANCE", "MAX_ROW_BYTES", "OVERHEAD", "RowSizes"]

MAX_ROW_BYTES = 1 << 20
"""The bytes of the largest row, with what a log adds to it."""

OVERHEAD = 1_024
"""Room for what a log adds to a row: headers, weights, the frame of a record."""

GLANCE = 8
"""Some rows of every eighth wave or iteration are encoded: numbers that are squared soon fill the memory."""

_WIDE = 4_096
_HUGE = 16
_SAMPLE = 1_000
_UNIT = 64
_FEW = 8


class RowSizes:
    """Looks at the rows of one recursion. `encode` writes a row.

    `careful`: each row of each wave is looked at. `lenient`: rows are not written, so that they may be of any type.
    """

    def __init__(self, encode: Callable[[Row], bytes], max_bytes: int = MAX_ROW_BYTES, lenient: bool = False) -> None:
        self._encode, self._max_bytes, self._lenient = encode, max_bytes, lenient
        self.careful = self._has_wide = False

    def begin(self) -> None:
        """An epoch begins."""
        self._has_wide = False

    @property
    def wide(self) -> bool:
        """Whether rows of each wave are looked at."""
        return self.careful or self._has_wide

    def refused(self, row: Row) -> str:
        """Why a row cannot be written, empty if it can."""
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
        """Whether a row is so large that nothing is computed of it; of one that cannot be encoded a few are."""
        try:
            return len(self._encode(row)) > _HUGE * self._max_bytes
        except Exception:
            return False

    def refused_rows(self, rows: Sequence[Row]) -> list[Row]:
        """The rows of a wave that cannot be written, of those that are looked at."""
        if not self.wide and len(rows) > _SAMPLE:
            rows = rows[:: len(rows) // _SAMPLE]
        return [row for row in rows if self.refused(row)]

    def order(self, row: Row) -> bytes:
        """The place of a row among others: by its bytes."""
        try:
            return self._encode(row)
        except Exception:
            return b""

    def share(self, batch: Batch) -> int:
        """How many rows of usual width one row of the batch is worth, by a few of them."""
        rows = batch.rows[:: max(1, len(batch.rows) // _FEW)]
        try:
            return max(1, sum(len(self._encode(row)) for row in rows) // (len(rows) * _UNIT))
        except Exception:
            return 1
