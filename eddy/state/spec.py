"""The name of a state, and the layout of its rows in a store and in its changelog.

A row of the state `name` has the key  name 00 partition(2) row-key  in the store, so that one prefix scan reads a
partition, and the key  row-key  in the changelog's partition. Prefixes never collide, because names contain no zero
byte, and no name begins with FF, the first byte of metadata keys.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eddy.partitioner import Partitioner, partitions_of
from eddy.serde import Serde

__all__ = ["UNCHANGED", "Changes", "Refusals", "StateSpec", "refuses_none"]

_Headers = Sequence[tuple[tuple[str, bytes], ...]] | None
Refusals = Callable[[str, Sequence[bytes | None], Sequence[bytes | None], _Headers], Mapping[int, Exception]]
"""A function of a topic and its records' keys, values and headers. It returns errors of refused records, by index."""


def refuses_none(
    topic: str, keys: Sequence[bytes | None], values: Sequence[bytes | None], headers: _Headers
) -> dict[int, Exception]:
    """Return no errors: the `Refusals` of topics that accept all records."""
    return {}


@dataclass(slots=True)
class Changes:
    """The changed rows of a state, as columns. A row has a partition, a row key, and a value; None for a deletion."""

    partitions: Sequence[int]
    keys: Sequence[bytes]
    values: Sequence[bytes | None]

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        return zip(self.partitions, self.keys, self.values, strict=True)


UNCHANGED = Changes([], [], [])
"""No changed rows."""


@dataclass(frozen=True, slots=True)
class StateSpec:
    """The identity of one state. `changelog` is None if a compacted source topic restores it.

    `optional`: an application of an earlier release without this state may continue; the state begins empty. Rows of
    more than `max_row_bytes` bytes are refused; None is no limit. `memory`: the rows are not in the worker's store.
    `refusals` returns the errors of records that the changelog does not accept.
    """

    name: str
    kind: str
    key: Serde[Any]
    value: Serde[Any]
    partitions: int
    partitioner: Partitioner
    changelog: str | None = None
    source: str | None = None
    optional: bool = False
    max_row_bytes: int | None = None
    memory: bool = False
    refusals: Refusals = field(default=refuses_none, compare=False, repr=False)

    def with_key(self, key: Serde[Any]) -> "StateSpec":
        """The same spec with another key serde."""
        return replace(self, key=key)

    def prefix(self, partition: int) -> bytes:
        """The prefix of a partition's rows in the store."""
        return self.name.encode() + b"\x00" + partition.to_bytes(2, "big")

    def stored(self, changes: Changes) -> list[tuple[bytes, bytes | None]]:
        """Return the changed rows as pairs for a store: the key with the partition's prefix, and a value or None."""
        prefixes = {partition: self.prefix(partition) for partition in set(changes.partitions)}
        return [(prefixes[partition] + key, value) for partition, key, value in changes]

    def partitions_of(self, keys: Sequence[bytes]) -> list[int]:
        """The partition of each encoded key."""
        return partitions_of(keys, self.partitions, self.partitioner, self.key.tail)
