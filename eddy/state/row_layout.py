"""The layout of rows in states with several rows for a key, in the store and in the changelog.

    arrangement, trace    len(key)(4) key value  ->  weight (8 bytes, big-endian) original value
    ranks                 len(node)(4) node root ->  cell
    calendar              moment(8) key          ->  1

The row key holds the identities of key and value, so that equal rows are one row. The original value is written only if
its bytes differ from the identity's. A trace's value is a pair (time, value).
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from eddy.serde import Int64
from eddy.state.spec import Changes, StateSpec
from eddy.state.store import Store

__all__ = ["key_in", "row_key", "split", "stored_rows", "weighted", "weighted_rows"]

_LENGTH = struct.Struct(">I")
_WEIGHT_BYTES = 8
_MOMENT_BYTES = 8


def row_key(key: bytes, rest: bytes = b"") -> bytes:
    """The key of a row; without `rest`, the prefix of all rows of `key`."""
    return _LENGTH.pack(len(key)) + key + rest


def split(row: bytes) -> tuple[bytes, bytes]:
    """The two parts of a row key.

    >>> split(row_key(b"key", b"value"))
    (b'key', b'value')
    """
    end = 4 + _LENGTH.unpack_from(row)[0]
    return row[4:end], row[end:]


def key_in(kind: str, row: bytes) -> bytes:
    """The key in a row key of a state of this kind: that which decides the partition."""
    if kind == "table":
        return row
    return row[_MOMENT_BYTES:] if kind == "calendar" else split(row)[0]


def weighted(value: bytes, data: bytes) -> tuple[bytes, int]:
    """The original value and the weight of a row whose row key ends with `value`."""
    return data[_WEIGHT_BYTES:] or value, Int64.decode(data[:_WEIGHT_BYTES])


def weighted_rows(spec: StateSpec, keys: Sequence[Any], values: Sequence[Any], weights: Sequence[int]) -> Changes:
    """Rows with their weights, in the format of the store and the changelog; weight 0 is a deletion."""
    key_data, value_data = spec.key.identify_many(keys), spec.value.identify_many(values)
    originals = spec.value.encode_many(values) if spec.value.identify else value_data
    pack, encode = _LENGTH.pack, Int64.encode
    return Changes(
        spec.partitions_of(key_data),
        [pack(len(key)) + key + value for key, value in zip(key_data, value_data, strict=True)],
        [
            (encode(weight) + (original if original != value else b"") if weight else None)
            for value, original, weight in zip(value_data, originals, weights, strict=True)
        ],
    )


def stored_rows(spec: StateSpec, store: Store, keys: Iterable[Any]) -> Iterator[tuple[Any, list[tuple[bytes, bytes]]]]:
    """Each of `keys` with its rows in the store: pairs of the second part of the row key, and the row's data."""
    keys = list(keys)
    encoded = spec.key.identify_many(keys)
    prefixes = [
        spec.prefix(partition) + row_key(data)
        for partition, data in zip(spec.partitions_of(encoded), encoded, strict=True)
    ]
    for key, prefix, rows in zip(keys, prefixes, store.scan_many(prefixes), strict=True):
        yield key, [(row[len(prefix) :], data) for row, data in rows]
