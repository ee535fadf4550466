"""Reads of a table's store or a state store: the rows of the keys that a worker owns, as of its last epoch."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from eddy.errors import DataError, TopologyError
from eddy.operators.circuit import Circuit
from eddy.serde import refusal
from eddy.state.partitioned_map import PartitionedMap
from eddy.state.table_state import Table

__all__ = ["KeyValueStore", "table_store"]

K = TypeVar("K")
V = TypeVar("V")


class KeyValueStore(Generic[K, V]):
    """A table's store, or a state store, to read. The value of a key is read from the first partition that has it.

    `owned` returns the partitions of the worker. Rows of other partitions may be on its disk since it owned them, and
    are not shown.
    """

    def __init__(self, table: Table[K, V] | PartitionedMap[K, V], owned: Callable[[], Collection[int]]) -> None:
        self._table, self._owned = table, owned

    def get(self, key: K) -> V | None:
        """Return the value of `key`, or None."""
        self._encode(key)
        owned = self._owned()
        if isinstance(self._table, PartitionedMap):
            return self._table.get(key, owned)
        value = self._table.get(key)
        return value if value is None or self._homes([key])[0] in owned else None

    def all(self) -> Mapping[K, V]:
        """Return every key with its value, in the order of the keys' bytes."""
        encode = self._table.spec.key.encode
        return dict(sorted(self._rows(), key=lambda item: encode(item[0])))

    def range(self, first: K, last: K) -> Mapping[K, V]:
        """Return the keys from `first` to `last`, both included, with their values, in the order of the keys' bytes."""
        encode = self._encode
        low, high = encode(first), encode(last)
        return {key: value for key, value in self.all().items() if low <= encode(key) <= high}

    def _rows(self) -> Iterable[tuple[K, V]]:
        """Return the rows of the partitions that the worker owns."""
        owned = self._owned()
        if isinstance(self._table, PartitionedMap):
            return self._table.items(owned)
        if len(owned) == self._table.spec.partitions:
            return self._table.items()
        rows = list(self._table.items())
        homes = self._homes([key for key, _ in rows])
        return [row for row, home in zip(rows, homes, strict=True) if home in owned]

    def _homes(self, keys: list[K]) -> list[int]:
        spec = self._table.spec
        return spec.partitions_of(spec.key.identify_many(keys))

    def _encode(self, key: K) -> bytes:
        """Encode a key. Raises: DataError if the key does not fit the store's serde."""
        spec = self._table.spec
        if key is not None and (why := refusal(spec.key, key)):
            raise DataError(
                f"store '{spec.name}': key {key!r} is not a valid {spec.key.name}: {why}; a key of that serde is needed"
            )
        return b"" if key is None else spec.key.encode(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.all())

    def __len__(self) -> int:
        return len(self.all())


def table_store(circuit: Circuit, name: str) -> KeyValueStore[Any, Any]:
    """Return the store of a table, or a state store, by name. Raises: TopologyError if there is none."""
    state = circuit.states.get(name) or circuit.global_tables.get(name)
    if not isinstance(state, Table | PartitionedMap):
        tables = sorted(
            n for n, s in {**circuit.states, **circuit.global_tables}.items() if isinstance(s, Table | PartitionedMap)
        )
        raise TopologyError(
            f"worker: no table has a store '{name}', and no store is declared so; one of {tables} is needed"
        )
    count = state.spec.partitions
    if name not in circuit.states:
        return KeyValueStore(state, lambda: range(count))  # a global table is whole on every worker
    return KeyValueStore(state, lambda: circuit.ownership.of(count) if circuit.ownership.partitions else ())
