"""Functions over Arrow batches that run in Spark's Python workers.

    entry   columns → rows, decoded once
    steps   the stateless steps of `decoded_rows.py`, one after the other
    exit    rows → columns, encoded once

A row is identified by `k` and `v`, the bytes of `Serde.identify`: equal rows have equal bytes, so Spark can join and
group them. `kc` and `vc` hold the original bytes of a key or value where these differ from the identity. Equal rows of
relations and tables are merged before they are returned.

Facts have three more columns: the time, the position in the order of their partition, the headers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from eddy.connectors.log import Headers
from eddy.connectors.spark.decoded_rows import DecodedRows, Row, Stamp, Step, calling, pair
from eddy.errors import DataError, EddyError
from eddy.runtime.decoded_columns import decoded, note_unhashable
from eddy.runtime.encoding import encoded
from eddy.runtime.timestamp_extractors import extracted_times
from eddy.serde import Native, Serde

__all__ = [
    "FACTS",
    "RECORDS",
    "ROWS",
    "SENT",
    "ArrowFunction",
    "BatchEntry",
    "Exit",
    "JoinedEntry",
    "LookedUpEntry",
    "Reader",
    "RecordsEntry",
    "RowsEntry",
    "RowsExit",
    "SentExit",
    "TablesEntry",
    "arrow_schema",
    "columns_of",
    "encode_rows",
    "identified",
    "pack_headers",
    "place_of",
    "record_batch",
    "unpack_headers",
]

ROWS = "k binary, kc binary, v binary, vc binary, w long"
"""Columns of rows of relations and tables."""
FACTS = f"{ROWS}, t long, s binary, h binary"
"""Columns of facts: the records of a stream, or of a table's topic before the last record of each key is chosen."""
SENT = "k binary, v binary, t long, s binary, h binary"
"""Columns of records to be written to a topic; merged rows have no time."""
RECORDS = f"{FACTS}, p int, o long, bad string"
"""Facts with partition and offset. `bad` is the reason why a record is rejected; its key and value are then the
original bytes."""

Reader = Callable[[Iterable[Any]], Iterator[Any]]
"""A function from Arrow batches to Arrow batches."""
_UNMARKED = frozenset({str, int, bytes})
"""Types whose equal values have one native encoding, if all values of the column are of this type."""
_LONG_S = 8
FILE, _TOPIC = b"\x00", b"\x01"
"""The first bytes of orders: records of files sort before the topic's records. The partition of files is -1."""
_EARLIEST = -(2**63)
_pack = msgspec.msgpack.Encoder().encode


class BatchEntry(Protocol):
    """Decodes an Arrow batch's columns into rows. Rows of a stream also have their times, order and headers."""

    @property
    def facts(self) -> bool:
        """Whether the rows are records of a stream."""

    def rows(self, columns: dict[str, list[Any]]) -> DecodedRows:
        """Decode the columns."""


class Exit(Protocol):
    """Encodes rows as the columns of a batch."""

    @property
    def schema(self) -> str:
        """The columns, as a Spark schema string."""

    def columns(self, rows: DecodedRows) -> list[list[Any]]:
        """Encode rows as columns, in the order of the schema."""


@dataclass(frozen=True)
class ArrowFunction:
    """The function that Spark calls with Arrow batches: `entry` decodes rows, `steps` apply, `exit` encodes."""

    entry: BatchEntry
    steps: tuple[Step, ...]
    exit: Exit

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield a batch of results for each Arrow batch. Raises: DataError naming the step whose function raised."""
        schema = arrow_schema(self.exit.schema)
        for arrived in batches:
            rows = self.entry.rows(columns_of(arrived))
            for step in self.steps:
                rows = step(rows)
            if rows.rows:
                yield record_batch(self.exit.columns(rows), schema)


def columns_of(arrived: Any) -> dict[str, list[Any]]:
    """Return the columns of an Arrow batch, by name."""
    return dict(zip(arrived.schema.names, map(_pylist, arrived.columns), strict=True))


def _pylist(column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


_TYPES = {
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
}


def arrow_schema(schema: str) -> Any:
    """Turn a Spark schema string into an Arrow schema."""
    pairs = [column.strip().split(" ") for column in schema.split(",")]
    return pa.schema([pa.field(name, _TYPES[kind]) for name, kind in pairs])


def record_batch(columns: Sequence[Any], schema: Any) -> Any:
    """Make an Arrow batch of columns, which are in the order of the schema."""
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _values(columns: dict[str, list[Any]], name: str, serde: Serde[Any]) -> list[Any]:
    """Decode a column: the original bytes if they differ from the identity, else the identity."""
    identities, originals = columns[name], columns[f"{name}c"]
    if originals.count(None) == len(originals):
        return _decode(identities, serde)
    pairs = zip(identities, originals, strict=True)
    return _decode([identity if came is None else came for identity, came in pairs], serde)


def _decode(data: list[bytes | None], serde: Serde[Any]) -> list[Any]:
    if None not in data:
        return serde.decode_many(data)  # type: ignore[arg-type]
    return [None if item is None else serde.decode(item) for item in data]


@dataclass(frozen=True)
class RowsEntry:
    """Decodes rows, by a key serde and a value serde."""

    key: Serde[Any]
    value: Serde[Any]
    facts: bool = False

    def rows(self, columns: dict[str, list[Any]]) -> DecodedRows:
        """Decode the rows of a batch."""
        rows = list(zip(_values(columns, "k", self.key), _values(columns, "v", self.value), strict=True))
        return DecodedRows(rows, columns["w"], _stamps(columns) if self.facts else None)


def _stamps(columns: dict[str, list[Any]]) -> list[Stamp]:
    return list(zip(columns["t"], columns["s"], columns["h"], strict=True))


@dataclass(frozen=True)
class JoinedEntry:
    """Decodes matches of two relations. `r` and `rc` have the value of the right side; `merge` makes the row."""

    name: str
    key: Serde[Any]
    left: Serde[Any]
    right: Serde[Any]
    merge: Callable[[Any, Any, Any], Row]
    facts: bool = False

    def rows(self, columns: dict[str, list[Any]]) -> DecodedRows:
        """Decode the matches, and make the joined rows. Raises: DataError naming the join."""
        keys, lefts, rights = self.sides(columns)
        with calling(self.name):
            made = [pair(row, self.name) for row in map(self.merge, keys, lefts, rights)]
        return DecodedRows(made, columns["w"])

    def sides(self, columns: dict[str, list[Any]]) -> tuple[list[Any], list[Any], list[Any]]:
        """Decode the matches: return their keys, their left values and their right values."""
        return _values(columns, "k", self.key), _values(columns, "v", self.left), _values(columns, "r", self.right)


@dataclass(frozen=True)
class LookedUpEntry:
    """Decodes facts joined with a table.

    Columns `r` and `rc` have the table's value for the key, null if it has none.
    """

    name: str
    key: Serde[Any]
    value: Serde[Any]
    right: Serde[Any]
    joiner: Callable[[Any, Any], Any]
    facts: bool = True

    def rows(self, columns: dict[str, list[Any]]) -> DecodedRows:
        """Decode facts, and join each with the table's value. Raises: DataError naming the join."""
        keys = _values(columns, "k", self.key)
        lefts, rights = _values(columns, "v", self.value), _values(columns, "r", self.right)
        with calling(self.name):
            made = list(zip(keys, map(self.joiner, lefts, rights), strict=True))
        return DecodedRows(made, columns["w"], _stamps(columns))


@dataclass(frozen=True)
class TablesEntry:
    """Decodes a join of two tables: columns `v` and `r` have a key's left and right value, null for no value."""

    name: str
    key: Serde[Any]
    left: Serde[Any]
    right: Serde[Any]
    joiner: Callable[[Any, Any], Any]
    facts: bool = False

    def rows(self, columns: dict[str, list[Any]]) -> DecodedRows:
        """Decode pairs of values, and join them; a joined value of None makes no row.

        Raises: DataError naming the join.
        """
        keys = _values(columns, "k", self.key)
        lefts, rights = _values(columns, "v", self.left), _values(columns, "r", self.right)
        with calling(self.name):
            joined = list(map(self.joiner, lefts, rights))
        made = [(key, value) for key, value in zip(keys, joined, strict=True) if value is not None]
        return DecodedRows(made, [1] * len(made))


@dataclass(frozen=True)
class RecordsEntry:
    """Turns records of a source into facts. With `fail` a record that does not decode is an error, otherwise `bad`."""

    topic: str
    key: Serde[Any]
    value: Serde[Any]
    fail: bool
    left_out: frozenset[tuple[int, int]] = frozenset()
    by_time: bool = False
    timestamp: Callable[[Any, Any], Any] | None = None
    reader: Reader = iter
    from_state: bool = False
    """Whether the records are rows of a changelog, rather than of the topic."""

    def after(self, reader: Reader) -> "RecordsEntry":
        """Return the same entry, which first applies `reader` to the batches."""
        return replace(self, reader=reader)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Turn batches of undecoded records, with the columns `k v t h p o`, into batches of facts.

        Raises: DataError naming the record.
        """
        schema = arrow_schema(RECORDS)
        for arrived in self.reader(batches):
            yield record_batch(self._columns(columns_of(arrived)), schema)

    def decoded(self, raw: dict[str, list[Any]]) -> tuple[dict[str, list[Any]], list[Any], list[Any], dict[int, str]]:
        """Decode records.

        Returns (columns, keys, values, errors of bad rows by index). Records that are known to be rejected are left
        out. The column `t` has event times, `log t` the timestamps of the log if they differ.
        """
        if self.left_out:
            keep = [at not in self.left_out for at in zip(raw["p"], raw["o"], strict=True)]
            raw = {
                name: [item for item, kept in zip(column, keep, strict=True) if kept] for name, column in raw.items()
            }
        problems: dict[int, str] = {}
        key, value = self.key, self.value
        if not self.from_state:
            key, value = key.in_topic(self.topic, "key"), value.in_topic(self.topic, "value")
        for serde in (key, value):
            self._check_ids(serde, raw)
        keys = decoded(raw["k"], key, "key", problems, headers=None)
        values = decoded(raw["v"], value, "value", problems, headers=None)
        if not self.key.hashable:
            note_unhashable(keys, problems)
        if self.timestamp is not None and not self.from_state:
            timeless: dict[int, str] = {}
            times = extracted_times(self.timestamp, keys, values, raw["t"], problems, timeless)
            raw = {**raw, "t": times, "log t": raw["t"]}
            problems |= timeless
        if problems and self.fail:
            at = min(problems)
            where = f"topic '{self.topic}' partition {raw['p'][at]} offset {raw['o'][at]} key {raw['k'][at]!r}"
            raise DataError(f"{where}: {problems[at]}")
        return raw, keys, values, problems

    def _check_ids(self, serde: Serde[Any], raw: dict[str, list[Any]]) -> None:
        name = serde.id_header.encode()
        for at, packed in enumerate(raw["h"] if name and not self.from_state else ()):
            if packed is not None and name in packed and serde.id_header in dict(unpack_headers(packed)):
                raise DataError(
                    f"topic '{self.topic}' partition {raw['p'][at]} offset {raw['o'][at]}: the id of its schema is in "
                    f"the header '{serde.id_header}', which a worker reads, and backfill and verify do not; an id at "
                    "the beginning is needed. Write with confluent-kafka's prefix_schema_id_serializer, its default"
                )

    def _columns(self, raw: dict[str, list[Any]]) -> list[list[Any]]:
        raw, keys, values, problems = self.decoded(raw)
        for at in problems:
            keys[at] = values[at] = None
        where = f"topic '{self.topic}'"
        k, kc = identified(keys, self.key, f"{where}: key", nulls=True)
        v, vc = identified(values, self.value, f"{where}: value", nulls=True)
        for at in problems:
            k[at], v[at] = raw["k"][at], raw["v"][at]
        places = list(map(self._place, raw["p"], raw.get("log t", raw["t"]), raw["o"]))
        bad = [problems.get(at) for at in range(len(k))]
        return [k, kc, v, vc, [1] * len(k), raw["t"], places, raw["h"], raw["p"], raw["o"], bad]

    def _place(self, partition: int, time: int, offset: int) -> bytes:
        """Return bytes by which the records of the source are sorted in their order."""
        if partition >= 0:
            return _TOPIC + place_of(offset)
        return FILE + (place_of(time - _EARLIEST) if self.by_time else b"") + place_of(offset)


def place_of(number: int) -> bytes:
    """Encode a non-negative number as bytes that sort like the number."""
    return number.to_bytes(_LONG_S, "big")


def identified(
    values: Sequence[Any], serde: Serde[Any], where: str, nulls: bool = False
) -> tuple[list[bytes | None], list[bytes | None]]:
    """Return the identities of a column's values, and their original bytes, None where these equal the identity.

    Raises: DataError naming the value that does not fit the serde.
    """
    if None in values and (nulls or serde.name != Native.name):
        there = [value for value in values if value is not None]
        identities, originals = identified(there, serde, where)
        found = iter(zip(identities, originals, strict=True))
        pairs = [(None, None) if value is None else next(found) for value in values]
        return [identity for identity, _ in pairs], [came for _, came in pairs]
    try:
        identities = list(serde.identify_many(values))
        if serde.identify is None or (serde.name == Native.name and set(map(type, values)) <= _UNMARKED):
            return identities, [None] * len(values)
        written = serde.encode_many(values)
    except EddyError:
        raise
    except Exception:
        encoded(values, serde, where)  # raises an error that names the value
        raise
    return identities, [None if came == identity else came for identity, came in zip(identities, written, strict=True)]


def encode_rows(rows: Sequence[Row], key: Serde[Any], value: Serde[Any], where: str, nulls: bool) -> list[list[Any]]:
    """Encode rows as the columns k, kc, v, vc. Raises: DataError."""
    k, kc = identified([row[0] for row in rows], key, f"{where}: key", nulls)
    v, vc = identified([row[1] for row in rows], value, f"{where}: value", nulls)
    return [k, kc, v, vc]


@dataclass(frozen=True)
class RowsExit:
    """Encodes rows by a key serde and a value serde; `where` names the step in errors."""

    where: str
    key: Serde[Any]
    value: Serde[Any]
    facts: bool = False
    schema: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", FACTS if self.facts else ROWS)

    def columns(self, rows: DecodedRows) -> list[list[Any]]:
        """Encode rows as columns. Equal rows are merged, unless they are facts. Raises: DataError."""
        columns = encode_rows(rows.rows, self.key, self.value, f"step '{self.where}'", self.facts)
        if rows.stamps is not None:
            return [*columns, rows.weights, *_turned(rows.stamps, 3)]
        merged: dict[tuple[Any, Any], list[Any]] = {}
        for k, kc, v, vc, weight in zip(*columns, rows.weights, strict=True):
            merged.setdefault((k, v), [k, kc, v, vc, 0])[4] += weight
        return _turned((row for row in merged.values() if row[4]), 5)


@dataclass(frozen=True)
class SentExit:
    """Encodes rows as records of a sink: a fact as often as its weight, a row of a table once."""

    topic: str
    key: Serde[Any]
    value: Serde[Any]
    facts: bool
    schema: str = SENT

    def columns(self, rows: DecodedRows) -> list[list[Any]]:
        """Encode rows as columns. Raises: DataError naming the value that does not fit."""
        keys = encoded([key for key, _ in rows.rows], self.key, f"sink '{self.topic}': key")
        values = encoded([value for _, value in rows.rows], self.value, f"sink '{self.topic}': value")
        stamps = rows.stamps or [(None, b"", None)] * len(keys)
        records = zip(keys, values, stamps, rows.weights, strict=True)
        return _turned(
            ((key, value, *stamp) for key, value, stamp, weight in records for _ in range(weight if self.facts else 1)),
            5,
        )


def _turned(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    """Turn rows of `width` values into columns."""
    return list(map(list, zip(*rows, strict=True))) or [[] for _ in range(width)]


def pack_headers(headers: Headers) -> bytes | None:
    """Pack a record's headers into one value of a column."""
    return _pack(headers) if headers else None


def unpack_headers(data: bytes | None) -> Headers:
    """Unpack the headers that `pack_headers` has packed."""
    return msgspec.msgpack.decode(data, type=Headers) if data else ()
