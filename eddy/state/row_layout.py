"""The layout of rows in states with several rows for a key, in the store and in the changelog.

    arrangement, trace    len(key)(4) key value  ->  weight (8 bytes, big-endian, signed) original value
    ranks                 len(node)(4) node root ->  cell
    calendar              moment(8) key          ->  1

The row key has the identities of key and value, so that equal rows are one row. The original value is written only if
its bytes differ from the identity's. A trace's value is a pair (time, value). A weight beyond 64 bits is written as the
least number of 64 bits, followed by the weight's length (2 bytes) and its bytes.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from eddy.errors import UnwritableRowError
from eddy.state.spec import Changes, StateSpec, refuses_none
from eddy.state.store import Store

__all__ = [
    "changelog_refusals",
    "key_in",
    "row_key",
    "split",
    "stored_rows",
    "weight_at",
    "weight_bytes",
    "weighted",
    "weighted_rows",
]

_LENGTH = struct.Struct(">I")
_WEIGHT = struct.Struct(">q")
_LEAST = -(2**63)
_MOMENT_BYTES = 8
_ROOM = bytes(64)


def row_key(key: bytes, rest: bytes = b"") -> bytes:
    """Return the row key of `key` and `rest`; without `rest`, the prefix of all row keys of `key`."""
    return _LENGTH.pack(len(key)) + key + rest


def split(row: bytes) -> tuple[bytes, bytes]:
    """The two parts of a row key.

    >>> split(row_key(b"key", b"value"))
    (b'key', b'value')
    """
    end = 4 + _LENGTH.unpack_from(row)[0]
    return row[4:end], row[end:]


def key_in(kind: str, row: bytes) -> bytes:
    """Return the key in a row key, which determines the partition. `kind` is the kind of the state, such as "table"."""
    if kind == "table":
        return row
    return row[_MOMENT_BYTES:] if kind == "calendar" else split(row)[0]


def weight_bytes(weight: int) -> bytes:
    """A weight of any size as bytes.

    >>> weight_bytes(2), weight_at(weight_bytes(10**30) + b"rest")
    (b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02', (1000000000000000000000000000000, 23))
    """
    if _LEAST < weight <= -(_LEAST + 1):
        return _WEIGHT.pack(weight)
    size = weight.bit_length() // 8 + 1
    return _WEIGHT.pack(_LEAST) + size.to_bytes(2, "big") + weight.to_bytes(size, "big", signed=True)


def weight_at(data: bytes) -> tuple[int, int]:
    """Return the weight at the beginning of `data`, and the number of bytes that it takes."""
    (weight,) = _WEIGHT.unpack_from(data)
    if weight != _LEAST:
        return weight, _WEIGHT.size
    end = _WEIGHT.size + 2 + int.from_bytes(data[_WEIGHT.size : _WEIGHT.size + 2], "big")
    return int.from_bytes(data[_WEIGHT.size + 2 : end], "big", signed=True), end


def weighted(value: bytes, data: bytes) -> tuple[bytes, int]:
    """Return the original value and the weight in `data`, the data of a row whose row key ends with `value`."""
    weight, end = weight_at(data)
    return data[end:] or value, weight


def weighted_rows(spec: StateSpec, keys: Sequence[Any], values: Sequence[Any], weights: Sequence[int]) -> Changes:
    """Encode rows with their weights for the store and the changelog; a row with weight 0 is a deletion."""
    key_data, value_data = spec.key.identify_many(keys), spec.value.identify_many(values)
    originals = spec.value.encode_many(values) if spec.value.identify else value_data
    _check_sizes(spec, key_data, originals)
    heads = {weight: weight_bytes(weight) for weight in set(weights)}
    new: list[bytes] = [heads[weight] for weight in weights]
    if originals is not value_data:
        parts = zip(new, originals, value_data, strict=True)
        new = [head + original if original != value else head for head, original, value in parts]
    lengths = {length: _LENGTH.pack(length) for length in set(map(len, key_data))}
    return Changes(
        spec.partitions_of(key_data),
        [lengths[len(key)] + key + value for key, value in zip(key_data, value_data, strict=True)],
        new if 0 not in heads else [data if weight else None for data, weight in zip(new, weights, strict=True)],
    )


def _check_sizes(spec: StateSpec, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
    """Raise UnwritableRowError if a row is larger than `spec.max_row_bytes`."""
    most = spec.max_row_bytes
    if most is None or not keys or max(map(len, keys)) + max(map(len, values)) <= most:
        return
    for key, value in zip(keys, values, strict=True):
        if (size := len(key) + len(value)) > most:
            raise UnwritableRowError(
                f"state '{spec.name}': a row of {size:,} bytes, key {key[:80]!r}; at most max_row_bytes={most:,} are "
                "written. Make the row smaller, or raise max_row_bytes",
                spec.name,
            )


def changelog_refusals(spec: StateSpec, rows: Sequence[tuple[Any, Any]]) -> Mapping[int, Exception]:
    """Return the errors of the rows whose records the changelog does not accept, by the row's index.

    The serdes have to accept the rows. A row without a value stands for a key to be written: it needs room for a small
    value.
    """
    if spec.changelog is None or spec.refusals is refuses_none:
        return {}
    keys = spec.key.identify_many([key for key, _ in rows])
    values = [_ROOM if value is None else spec.value.encode(value) for _, value in rows]
    if spec.kind in ("table", "key-value"):
        return spec.refusals(spec.changelog, keys, values, None)
    identities = values if spec.value.identify is None else _identities(spec, rows)
    pairs = list(zip(keys, identities, values, strict=True))
    row_keys = [row_key(key, identity) for key, identity, _ in pairs]
    head = weight_bytes(1)
    cells = [head + value if value != identity else head for _, identity, value in pairs]
    return spec.refusals(spec.changelog, row_keys, cells, None)


def _identities(spec: StateSpec, rows: Sequence[tuple[Any, Any]]) -> list[bytes]:
    return [_ROOM if value is None else spec.value.identify_many([value])[0] for _, value in rows]


def stored_rows(spec: StateSpec, store: Store, keys: Iterable[Any]) -> Iterator[tuple[Any, list[tuple[bytes, bytes]]]]:
    """Yield each of `keys` with its rows in the store.

    A row is a pair: the second part of its row key, and its data.
    """
    keys = list(keys)
    encoded = spec.key.identify_many(keys)
    prefixes = [
        spec.prefix(partition) + row_key(data)
        for partition, data in zip(spec.partitions_of(encoded), encoded, strict=True)
    ]
    for key, prefix, rows in zip(keys, prefixes, store.scan_many(prefixes), strict=True):
        yield key, [(row[len(prefix) :], data) for row, data in rows]
