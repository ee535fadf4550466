"""The rows of a global table, as processors read them: every processor reads all rows, ordered by the keys' bytes.

The table and the store change together, and only between epochs. So both have the same rows during a processor's call.
"""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from eddy.errors import DataError
from eddy.serde import reason_of
from eddy.state.spec import StateSpec
from eddy.state.store import Store
from eddy.state.table_state import Table

__all__ = ["GlobalRows"]

K = TypeVar("K")
V = TypeVar("V")

_UNCHANGEABLE = frozenset({str, bytes, int, float, bool})
_ROWS_A_SCAN = 1_000


class GlobalRows(Generic[K, V]):
    """Reads a global table: `table` and its rows in `store`.

    A reader gets copies of values, because joins use the values of the table themselves.
    """

    def __init__(self, table: Table[K, V], store: Store) -> None:
        self._table, self._store = table, store

    @property
    def spec(self) -> StateSpec:
        """The identity of the table."""
        return self._table.spec

    def value(self, key: K) -> V | None:
        """The value of a key, or None. Raises: DataError for a key that the serde refuses."""
        value = self._table.get(key)
        if value is None:
            self.key_bytes(key)
            return None
        serde = self.spec.value
        return value if type(value) in _UNCHANGEABLE else serde.decode(serde.encode(value))

    def key_bytes(self, key: Any) -> bytes:
        """The bytes of a key. Raises: DataError where the serde refuses it."""
        serde = self.spec.key
        try:
            return (serde.identify or serde.encode)(key)
        except Exception as error:
            raise DataError(
                f"global table '{self.spec.name}': the key {key!r} is not a valid {serde.name}: {reason_of(error)}; a "
                "key of "
                "its serde is needed. Name another where it is read: topology.global_table(…, key=…)"
            ) from error

    def between(self, start: bytes, stop: bytes | None) -> Iterator[tuple[K, V]]:
        """Yield the rows with `start` ≤ key bytes < `stop`. If `stop` is None, there is no upper bound.

        Cost: the rows read.
        """
        spec, prefix = self.spec, self.spec.prefix(0)
        end = spec.prefix(1) if stop is None else prefix + stop
        position = prefix + start
        while position < end:
            rows = self._store.scan_between(position, end, _ROWS_A_SCAN)
            for key, data in rows:
                yield spec.key.decode(key[len(prefix) :]), spec.value.decode(data)
            if len(rows) < _ROWS_A_SCAN:
                return
            position = rows[-1][0] + b"\x00"

    def count(self) -> int:
        """The number of rows. Cost: a pass over all of them."""
        return sum(1 for _ in self.between(b"", None))
