"""The limits of a topic for its records, checked before any record of a column is sent."""

from collections.abc import Sequence
from typing import Any

from eddy.connectors.log import Headers, TopicSpec
from eddy.errors import ConnectorError, DataError, RecordRefusedError

__all__ = ["DEFAULT_MAX_BYTES", "check_records", "max_bytes", "record_sizes", "refusals"]

DEFAULT_MAX_BYTES = 1 << 20
"""The most bytes of a record in a topic without `max.message.bytes`."""

_PER_HEADER_BYTES = 8


def check_records(
    where: str,
    spec: TopicSpec,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Sequence[Headers] | None,
    overhead_bytes: int = 0,
) -> None:
    """Check that a topic accepts records, given as columns.

    Raises: RecordRefusedError naming a record that `spec` does not allow; DataError for a key or value that is not
    bytes; ConnectorError for unequal columns.
    """
    for what, column in (("keys", keys), ("values", values)):
        _check_bytes(where, what, column)
    lengths = {len(column) for column in (keys, values, timestamps, headers) if column is not None}
    if len(lengths) > 1:
        raise ConnectorError(
            f"{where}: columns of {sorted(lengths)} entries; keys, values, timestamps and headers need "
            "equally many. Pass one entry a record."
        )
    for error in refusals(where, spec, keys, values, headers, overhead_bytes).values():
        raise error


def refusals(
    where: str,
    spec: TopicSpec,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None,
    overhead_bytes: int = 0,
) -> dict[int, RecordRefusedError]:
    """Return the errors of records that `spec` does not allow, by index.

    Cost: two maxima, unless a record is large or has headers.
    """
    found: dict[int, RecordRefusedError] = {}
    if spec.compacted and None in keys:
        found = {
            row: RecordRefusedError(
                f"{where}: record {row} of {len(keys)} has no key; a compacted topic keeps the latest value of each "
                "key. Give it a key, or create the topic with cleanup.policy=delete."
            )
            for row, key in enumerate(keys)
            if key is None
        }
    limit = max_bytes(spec)
    if headers is not None or _longest(keys) + _longest(values) + overhead_bytes > limit:
        found |= _too_large(where, keys, values, headers, limit, overhead_bytes)
    return found


_BYTES_OR_NONE = frozenset({bytes, type(None)})


def _check_bytes(where: str, what: str, column: Any) -> None:
    """Check a column of keys or values. Raises: DataError unless it is a sequence of bytes and None."""
    if isinstance(column, list | tuple) and set(map(type, column)) <= _BYTES_OR_NONE:
        return
    if isinstance(column, str | bytes | None):
        raise DataError(f"{where}: {what}={column!r}; a list with one entry a record is needed. Write [{column!r}]")
    for row, data in enumerate(column):
        if data is not None and not isinstance(data, bytes):
            raise DataError(
                f"{where}: record {row} of {len(column)}: {what[:-1]} {data!r} is {type(data).__name__}; bytes or None "
                "are needed. Encode it, e.g. eddy.String.encode(…), or write rows with serdes: "
                "log.write(topic, {key: value})"
            )


def max_bytes(spec: TopicSpec) -> int:
    """Return the topic's limit, in bytes, for a record and for a batch of records."""
    return int(spec.configs.get("max.message.bytes", DEFAULT_MAX_BYTES))


def record_sizes(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None,
    overhead_bytes: int,
) -> list[int]:
    """Return each record's size in bytes, with headers and `overhead_bytes`, as it counts for the topic's limit."""
    sizes = [len(key or b"") + len(value or b"") + overhead_bytes for key, value in zip(keys, values, strict=True)]
    if headers is None:
        return sizes
    return [
        size + sum(len(name.encode()) + len(data) + _PER_HEADER_BYTES for name, data in pairs)
        for size, pairs in zip(sizes, headers, strict=True)
    ]


def _longest(column: Sequence[bytes | None]) -> int:
    return max(map(len, filter(None, column)), default=0)


def _too_large(
    where: str,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None,
    limit: int,
    overhead_bytes: int,
) -> dict[int, RecordRefusedError]:
    return {
        row: RecordRefusedError(
            f"{where}: record {row} of {len(keys)}, key {(keys[row] or b'')[:80]!r}, has {size} bytes; the topic takes "
            f"up to {limit}. Send less, or give the topic a higher max.message.bytes."
        )
        for row, size in enumerate(record_sizes(keys, values, headers, overhead_bytes))
        if size > limit
    }
