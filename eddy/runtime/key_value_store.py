"""Reads of a table's store or a state store: the rows of the keys that a worker owns, as of its last epoch."""

from collections.abc import Iterator, Mapping
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
    """A table's store, or a state store, to read. The value of a key is read from the first partition that has it."""

    def __init__(self, table: Table[K, V] | PartitionedMap[K, V]) -> None:
        self._table = table

    def get(self, key: K) -> V | None:
        """Return the value of `key`, or None."""
        self._encode(key)
        return self._table.get(key)

    def all(self) -> Mapping[K, V]:
        """Return every key with its value, in the order of the keys' bytes."""
        encode = self._table.spec.key.encode
        return dict(sorted(self._table.items(), key=lambda item: encode(item[0])))

    def range(self, first: K, last: K) -> Mapping[K, V]:
        """Return the keys from `first` to `last`, both included, with their values, in the order of the keys' bytes."""
        encode = self._encode
        low, high = encode(first), encode(last)
        return {key: value for key, value in self.all().items() if low <= encode(key) <= high}

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
    return KeyValueStore(state)
