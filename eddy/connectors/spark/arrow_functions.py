"""Functions over Arrow batches that run in Spark's Python workers.

    entry   columns → a batch of rows, decoded once
    steps   the worker's own stateless operators, one after the other
    exit    rows → columns, encoded once

A row is identified by `k` and `v`, the bytes of `Serde.identify`: equal rows have equal bytes, so Spark can join and
group them. `kc` and `vc` hold the original bytes of a key or value where these differ from the identity. Equal rows of
relations and tables are merged before they are returned.

Facts have three more columns: the time, the position in the order of their partition, the headers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from eddy.connectors.log import Headers
from eddy.errors import DataError, EddyError
from eddy.operators.batch import EMPTY, Batch, Row
from eddy.operators.context import OUTSIDE
from eddy.operators.errors.set_aside import reason_in
from eddy.operators.operator import Operator
from eddy.operators.stateless import check_rows
from eddy.runtime.decoding import decoded, note_unhashable
from eddy.runtime.encoding import encoded, repeated
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
    "encode_rows",
    "pack_headers",
    "place_of",
    "record_batch",
    "stepped",
    "unpack_headers",
]

ROWS = "k binary, kc binary, v binary, vc binary, w long"
"""Columns of rows of relations and tables."""
FACTS = f"{ROWS}, t long, s binary, h binary"
"""Columns of records of streams, and of sources before they become tables."""
SENT = "k binary, v binary, t long, s binary, h binary"
"""Columns of records to be written to a topic; merged rows have no time."""
RECORDS = f"{FACTS}, p int, o long, bad string"
"""Facts with partition and offset. `bad` is the reason why a record is rejected; its key and value are then the
original bytes."""

Reader = Callable[[Iterable[Any]], Iterator[Any]]
"""A function from Arrow batches to Arrow batches."""
_UNMARKED = frozenset({str, int, bytes})
"""The types whose equal values have one native encoding, as long as a column has no value of another type."""
_LONG_S, _INDEX_BYTES = 8, 4
_FILE, _TOPIC = b"\x00", b"\x01"
"""Records of files sort before those of the topic; their partition is -1."""
_EARLIEST = -(2**63)
_pack = msgspec.msgpack.Encoder().encode


class BatchEntry(Protocol):
    """Decodes the columns of a batch into rows; facts also have times, order and headers."""

    @property
    def facts(self) -> bool:
        """Whether the rows are records of a stream."""

    def batch(self, columns: dict[str, list[Any]]) -> Batch:
        """Decode the columns."""


class Exit(Protocol):
    """Encodes rows as the columns of a batch."""

    @property
    def schema(self) -> str:
        """The columns, as a Spark schema string."""

    def columns(self, batch: Batch) -> list[list[Any]]:
        """Encode, in the order of the schema."""


@dataclass(frozen=True)
class ArrowFunction:
    """The function that Spark calls with Arrow batches: `entry`, then `steps`, then `exit`."""

    entry: BatchEntry
    steps: tuple[Operator, ...]
    exit: Exit

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Process Arrow batches. Raises: DataError naming the step whose function raised."""
        spreads = any(type(step).__name__.startswith("FlatMap") for step in self.steps)
        schema = arrow_schema(self.exit.schema)
        for arrived in batches:
            batch = self.entry.batch(dict(zip(arrived.schema.names, map(_pylist, arrived.columns), strict=True)))
            for step in self.steps:
                batch = stepped(step, batch)
            if spreads and self.entry.facts:
                batch = _numbered(batch)
            if batch.rows:
                columns = self.exit.columns(batch)
                yield record_batch(columns, schema)


def stepped(step: Operator, *batches: Batch) -> Batch:
    """Run one step. Raises: DataError naming it."""
    if not any(batch.rows for batch in batches):
        return EMPTY
    try:
        return step.step(OUTSIDE, *batches)
    except EddyError:
        raise
    except Exception as error:
        raise DataError(reason_in(step.name, error)) from error


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
    """A Spark schema string as an Arrow schema."""
    pairs = [column.strip().split(" ") for column in schema.split(",")]
    return pa.schema([pa.field(name, _TYPES[kind]) for name, kind in pairs])


def record_batch(columns: Sequence[Any], schema: Any) -> Any:
    """An Arrow batch of columns, given in the order of the schema."""
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _numbered(batch: Batch) -> Batch:
    """Number the rows made of one record: an index is appended to the record's position."""
    times: list[Any] = []
    last, index = None, 0
    stamps: list[Any] = batch.times or []
    for time, place in stamps:
        index = index + 1 if place == last else 0
        last = place
        times.append((time, place + index.to_bytes(_INDEX_BYTES, "big")))
    return Batch(batch.rows, batch.weights, batch.time, times, batch.headers)


def _values(columns: dict[str, list[Any]], name: str, serde: Serde[Any]) -> list[Any]:
    """Decode a column: the original bytes where they differ from the identity."""
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
    """Rows of a key serde and a value serde."""

    key: Serde[Any]
    value: Serde[Any]
    facts: bool = False

    def batch(self, columns: dict[str, list[Any]]) -> Batch:
        """Decode; the times of facts are pairs (time, position)."""
        keys = _values(columns, "k", self.key)
        values = _values(columns, "v", self.value)
        rows = list(zip(keys, values, strict=True))
        if not self.facts:
            return Batch(rows, columns["w"])
        times: list[Any] = list(zip(columns["t"], columns["s"], strict=True))
        return Batch(rows, columns["w"], 0, times, columns["h"])


@dataclass(frozen=True)
class JoinedEntry:
    """Matches of two relations. `r` and `rc` hold the value of the right side; `merge` makes the row."""

    name: str
    key: Serde[Any]
    left: Serde[Any]
    right: Serde[Any]
    merge: Callable[[Any, Any, Any], Row]
    facts: bool = False

    def batch(self, columns: dict[str, list[Any]]) -> Batch:
        """Decode and merge. Raises: DataError naming the join."""
        keys = _values(columns, "k", self.key)
        lefts = _values(columns, "v", self.left)
        rights = _values(columns, "r", self.right)
        rows = _called(self.name, self.merge, keys, lefts, rights)
        check_rows(rows, self.name)
        return Batch(rows, columns["w"])


@dataclass(frozen=True)
class LookedUpEntry:
    """Facts with the table's value for their key in `r` and `rc`; null where there is none."""

    name: str
    key: Serde[Any]
    value: Serde[Any]
    right: Serde[Any]
    joiner: Callable[[Any, Any], Any]
    facts: bool = True

    def batch(self, columns: dict[str, list[Any]]) -> Batch:
        """Decode and join. Raises: DataError naming the join."""
        batch = RowsEntry(self.key, self.value, True).batch(columns)
        others = _values(columns, "r", self.right)
        joined = _called(self.name, self.joiner, [value for _, value in batch.rows], others)
        return batch.with_rows([(row[0], value) for row, value in zip(batch.rows, joined, strict=True)])


@dataclass(frozen=True)
class TablesEntry:
    """The values of two tables for one key in `v` and `r`; null where a table has no value."""

    name: str
    key: Serde[Any]
    left: Serde[Any]
    right: Serde[Any]
    joiner: Callable[[Any, Any], Any]
    facts: bool = False

    def batch(self, columns: dict[str, list[Any]]) -> Batch:
        """Decode and join; a joined value of None makes no row. Raises: DataError naming the join."""
        keys = _values(columns, "k", self.key)
        lefts = _values(columns, "v", self.left)
        rights = _values(columns, "r", self.right)
        joined = _called(self.name, self.joiner, lefts, rights)
        rows = [(key, value) for key, value in zip(keys, joined, strict=True) if value is not None]
        return Batch(rows, [1] * len(rows))


def _called(name: str, function: Callable[..., Any], *columns: list[Any]) -> list[Any]:
    try:
        return list(map(function, *columns))
    except EddyError:
        raise
    except Exception as error:
        raise DataError(reason_in(name, error)) from error


@dataclass(frozen=True)
class RecordsEntry:
    """Records of a source as facts. With `fail` a record that does not decode raises, otherwise it is `bad`."""

    topic: str
    key: Serde[Any]
    value: Serde[Any]
    fail: bool
    left_out: frozenset[tuple[int, int]] = frozenset()
    by_time: bool = False
    reader: Reader = iter

    def after(self, reader: Reader) -> "RecordsEntry":
        """The same entry with `reader` applied to the batches first."""
        return replace(self, reader=reader)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """From columns `k v t h p o` to facts. Raises: DataError naming the record."""
        schema = arrow_schema(RECORDS)
        for arrived in self.reader(batches):
            columns = self._columns(dict(zip(arrived.schema.names, map(_pylist, arrived.columns), strict=True)))
            yield record_batch(columns, schema)

    def taken_in(self, raw: dict[str, list[Any]]) -> tuple[Batch, list[int], dict[str, list[Any]]]:
        """Decode records as a worker does.

        Returns them, their partitions, and the rejected records in `RECORDS` columns.

        Raises: DataError.
        """
        raw, keys, values, problems = self._decoded(raw)
        headers = None if raw["h"].count(None) == len(keys) else raw["h"]
        batch = Batch(list(zip(keys, values, strict=True)), [1] * len(keys), 0, raw["t"], headers)
        if not problems:
            return batch, raw["p"], {"k": []}
        bad = {name: [column[at] for at in problems] for name, column in raw.items() if name in "kvthpo"}
        bad |= {"s": [b""] * len(problems), "w": [1] * len(problems), "bad": list(problems.values())}
        good = [at not in problems for at in range(len(keys))]
        return batch.select(good), list(compress(raw["p"], good)), bad

    def _decoded(self, raw: dict[str, list[Any]]) -> tuple[dict[str, list[Any]], list[Any], list[Any], dict[int, str]]:
        """Decode records.

        Returns the columns without records known to be rejected, the keys, the values, and the error of each bad row.
        """
        if self.left_out:
            keep = [at not in self.left_out for at in zip(raw["p"], raw["o"], strict=True)]
            raw = {
                name: [item for item, kept in zip(column, keep, strict=True) if kept] for name, column in raw.items()
            }
        problems: dict[int, str] = {}
        keys = decoded(raw["k"], self.key, "key", problems)
        values = decoded(raw["v"], self.value, "value", problems)
        if not self.key.hashable:
            note_unhashable(keys, problems)
        if problems and self.fail:
            at = min(problems)
            where = f"topic '{self.topic}' partition {raw['p'][at]} offset {raw['o'][at]} key {raw['k'][at]!r}"
            raise DataError(f"{where}: {problems[at]}")
        return raw, keys, values, problems

    def _columns(self, raw: dict[str, list[Any]]) -> list[list[Any]]:
        raw, keys, values, problems = self._decoded(raw)
        for at in problems:
            keys[at] = values[at] = None
        where = f"topic '{self.topic}'"
        k, kc = identified(keys, self.key, f"{where}: key", nulls=True)
        v, vc = identified(values, self.value, f"{where}: value", nulls=True)
        for at in problems:
            k[at], v[at] = raw["k"][at], raw["v"][at]
        places = list(map(self._place, raw["p"], raw["t"], raw["o"]))
        bad = [problems.get(at) for at in range(len(k))]
        return [k, kc, v, vc, [1] * len(k), raw["t"], places, raw["h"], raw["p"], raw["o"], bad]

    def _place(self, partition: int, time: int, offset: int) -> bytes:
        """Bytes that sort like the source's records."""
        if partition >= 0:
            return _TOPIC + place_of(offset)
        return _FILE + (place_of(time - _EARLIEST) if self.by_time else b"") + place_of(offset)


def place_of(number: int) -> bytes:
    """A non-negative number as bytes that sort like the number."""
    return number.to_bytes(_LONG_S, "big")


def identified(
    values: Sequence[Any], serde: Serde[Any], where: str, nulls: bool = False
) -> tuple[list[bytes | None], list[bytes | None]]:
    """The identities of a column, and the original bytes where these differ from the identity.

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
    """The columns k, kc, v, vc. Raises: DataError."""
    k, kc = identified([row[0] for row in rows], key, f"{where}: key", nulls)
    v, vc = identified([row[1] for row in rows], value, f"{where}: value", nulls)
    return [k, kc, v, vc]


@dataclass(frozen=True)
class RowsExit:
    """Rows under two serdes; `where` names the step in errors."""

    where: str
    key: Serde[Any]
    value: Serde[Any]
    facts: bool = False
    schema: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", FACTS if self.facts else ROWS)

    def columns(self, batch: Batch) -> list[list[Any]]:
        """Encode. Equal rows are merged, unless they are facts. Raises: DataError."""
        if not self.facts:
            batch = batch.consolidated(self.where)
        columns = encode_rows(batch.rows, self.key, self.value, f"step '{self.where}'", self.facts)
        return [*columns, batch.weights, *(_stamps(batch) if self.facts else [])]


@dataclass(frozen=True)
class SentExit:
    """Rows as records of a sink: a fact is repeated by its weight, a row of a table is written once."""

    topic: str
    key: Serde[Any]
    value: Serde[Any]
    facts: bool
    schema: str = SENT

    def columns(self, batch: Batch) -> list[list[Any]]:
        """Encode. Raises: DataError naming the value that does not fit."""
        if self.facts:
            batch = repeated(batch)
        keys = encoded([row[0] for row in batch.rows], self.key, f"sink '{self.topic}': key")
        values = encoded([row[1] for row in batch.rows], self.value, f"sink '{self.topic}': value")
        count = len(keys)
        stamps = _stamps(batch) if self.facts else [[None] * count, [b""] * count, [None] * count]
        return [keys, values, *stamps]


def _stamps(batch: Batch) -> list[list[Any]]:
    times: list[Any] = batch.times or []
    return [[time for time, _ in times], [place for _, place in times], batch.headers or [None] * len(batch)]


def pack_headers(headers: Headers) -> bytes | None:
    """Headers packed into one column value."""
    return _pack(headers) if headers else None


def unpack_headers(data: bytes | None) -> Headers:
    """The headers of a packed column value."""
    return msgspec.msgpack.decode(data, type=Headers) if data else ()
