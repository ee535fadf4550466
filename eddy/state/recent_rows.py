"""The rows of moments that are in memory: of some keys all rows from a moment on, in the order of moments.

A key's rows are kept when they are read from the store, and are few; from then on they follow the changes of the state.
So a key that is looked at again, at later moments, needs no scan of the store.

Invariant: from its first moment on, a key has the rows of the state, with the changes of the current epoch.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

__all__ = ["RecentRows", "TimedRow"]

_PASSED = 2
"""So many rows before the moment that is asked for may remain, since a record may be earlier than the one before it."""


TimedRow = tuple[int, bytes, bytes, int]
"""The moment of a row, its place in the store, the bytes of its value and its weight."""


class _Key:
    """The rows of a key from `first_ms` on."""

    __slots__ = ("first_ms", "rows")

    def __init__(self, first_ms: int, rows: list[TimedRow]) -> None:
        self.first_ms, self.rows = first_ms, rows


class RecentRows:
    """Rows by the bytes of their key. `cells` is the number of keys and rows."""

    def __init__(self) -> None:
        self.cells = 0
        self._keys: dict[bytes, _Key] = {}  # the keys that were asked for last are the last ones

    def between(self, plain: bytes, first_ms: int, last_ms: int) -> list[TimedRow] | None:
        """The rows of a key from a moment to another; None if they are not known.

        Earlier rows are dropped, since a key is asked for later and later moments.
        """
        key = self._keys.pop(plain, None)
        if key is None:
            return None
        self._keys[plain] = key
        if key.first_ms > first_ms:
            return None
        rows = key.rows
        begin = bisect_left(rows, (first_ms,))
        if begin > _PASSED:
            del rows[:begin]
            key.first_ms = first_ms
            self.cells -= begin
            begin = 0
        return rows[begin : bisect_left(rows, (last_ms + 1,), begin)]

    def keep(self, plain: bytes, first_ms: int, rows: list[TimedRow]) -> None:
        """Keep the rows of a key from a moment on, which are all that there are."""
        self._drop(plain)
        self._keys[plain] = _Key(first_ms, rows)
        self.cells += 1 + len(rows)

    def at(self, plain: bytes, moment: int) -> list[TimedRow] | None:
        """The rows of a key and a moment; None if they are not known."""
        key = self._keys.get(plain)
        if key is None or key.first_ms > moment:
            return None
        return key.rows[bisect_left(key.rows, (moment,)) : bisect_left(key.rows, (moment + 1,))]

    def put_many(self, plain: Sequence[bytes], rows: Iterable[TimedRow]) -> None:
        """Add rows of keys, or replace their weights, where the rows of key and moment are known."""
        for key, row in zip(map(self._keys.get, plain), rows, strict=True):
            if key is None or key.first_ms > row[0]:
                continue
            there = key.rows
            index = bisect_left(there, row[:2]) if there and there[-1][0] >= row[0] else len(there)
            if index < len(there) and there[index][1] == row[1]:
                there[index] = row
            else:
                there.insert(index, row)
                self.cells += 1

    def remove(self, plain: bytes, moment: int) -> None:
        """Remove the rows of a key and a moment."""
        key = self._keys.get(plain)
        if key is None:
            return
        begin, end = (bisect_left(key.rows, (at,)) for at in (moment, moment + 1))
        del key.rows[begin:end]
        self.cells -= end - begin

    def age(self) -> int:
        """Drop half of the cells, of the keys not asked for of late. Returns the number of dropped cells."""
        before = self.cells
        for plain in list(self._keys):
            if self.cells <= before // 2:
                break
            self._drop(plain)
        return before - self.cells

    def clear(self) -> None:
        """Drop all keys."""
        self._keys = {}
        self.cells = 0

    def _drop(self, plain: bytes) -> None:
        if (key := self._keys.pop(plain, None)) is not None:
            self.cells -= 1 + len(key.rows)
