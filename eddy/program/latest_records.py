"""Finds the latest records of topics by reading backwards: dead letters, and the record that made a source table's row.

A call reads a topic backwards, from its end or from an offset that an earlier call returned, for half a second at most.
It returns the offset with which the next call continues. Only committed records count.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from eddy.connectors.log import Headers, Log, TopicPartition
from eddy.errors import QueryError
from eddy.program.open_tables import Tables, TablesSnapshot
from eddy.serde import Serde
from eddy.tables.catalog import ServedTable
from eddy.tables.key_text import key_of_text
from eddy.tables.ordering import encode_key
from eddy.topology.plan.plan import Plan

__all__ = ["Content", "FoundRecord", "LetterPage", "ShownRecord", "dead_letters", "record_of_row"]

LOOK_S = 0.5
"""The seconds for which a call reads records."""
WINDOW = 1_000
"""The number of offsets that are read at a time."""
MOST_SHOWN = 64 << 10
"""The most bytes of a key, a value or a header that are shown; `size` says how many there are."""


class Content(msgspec.Struct, omit_defaults=True):
    """Bytes for display: as text if they are UTF-8, else as hexadecimal digits; only the beginning of long bytes."""

    size: int
    text: str | None = None
    hex: str | None = None


class ShownRecord(msgspec.Struct):
    """A record. `timestamp` is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Content | None
    value: Content | None
    headers: list[tuple[str, Content]]


class LetterPage(msgspec.Struct):
    """Dead letters of the application, the latest first. `before` is the offset to continue with; None at the end."""

    topic: str
    letters: list[ShownRecord]
    before: int | None


class FoundRecord(msgspec.Struct):
    """The latest decodable record of a key; `record` is None if it is not found yet.

    The search has read `searched` records. `before` has, by partition, the offsets with which the next call continues;
    it is None if the search is over. `agrees` says whether the record has the row's value. If it has not, the
    application has rejected the record.
    """

    record: ShownRecord | None
    searched: int
    before: dict[int, int] | None
    agrees: bool


class _Row(NamedTuple):
    """A record as it is in a topic."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def dead_letters(tables: Tables, before: int | None, limit: int) -> LetterPage:
    """Return up to `limit` dead letters of the application before an offset, or the latest ones for None.

    Raises: ConnectorError.
    """
    topic = tables.catalog.internal.dead_letter
    with tables.log_client() as log:
        if topic not in log.topics([topic]):
            return LetterPage(topic, [], None)
        partition, end_s = TopicPartition(topic, 0), time.monotonic() + LOOK_S
        begin, end = log.begin_offsets([partition])[partition], log.end_offsets([partition])[partition]
        position, found = min(end, end if before is None else before), list[_Row]()
        while position > begin and len(found) < limit and time.monotonic() < end_s:
            start = max(begin, position - limit)  # fewer than `limit` records if transactions end among these offsets
            found += reversed(list(_rows(log, partition, start, position)))
            position = start
    if len(found) > limit:
        found, position = found[:limit], found[limit - 1].offset
    return LetterPage(topic, [_shown(partition, row) for row in found], position if position > begin else None)


def record_of_row(
    tables: Tables,
    plan: Plan,
    name: str,
    key_text: str,
    before: Mapping[int, int],
    snapshot: TablesSnapshot | None = None,
) -> FoundRecord:
    """Return the record of a source table's row: the latest record with its key, as of the shown version or a snapshot.

    `before` has, by partition, the offsets down to which an earlier call has read.
    Raises: QueryError if the table has no topic of its own; ConnectorError.
    """
    served = tables.catalog.table(name)
    source = next((source for source in plan.sources() if source.name == name), None)
    if served.kind != "source" or source is None:
        raise QueryError(f"table '{name}': it is computed, and no topic has its rows; a source table is needed")
    assert source.key is not None
    tables.rows.check()  # raises an error if there is no version yet, since then no row can be shown
    of = tables if snapshot is None else snapshot
    key, ends = key_of_text(served, key_text), of.version.inputs[source.topic]
    serdes = source.key.in_topic(source.topic, "key"), source.topic_value
    wanted = encode_key(served.key, key)
    partitions = {TopicPartition(source.topic, p): before.get(p, end) for p, end in enumerate(ends)}
    with tables.log_client() as log:
        begins = log.begin_offsets(partitions)
        found, searched = _search(log, partitions, begins, lambda row: _is_row_of(served, serdes, wanted, row))
    if found is None:
        is_left = any(position > begins[tp] for tp, position in partitions.items())
        left = {tp.partition: position for tp, position in partitions.items()} if is_left else None
        return FoundRecord(None, searched, left, False)
    value = _decoded(serdes[1], found[1].value, found[1])
    return FoundRecord(_shown(*found), searched, None, bool(value == of[name].get(key)))


def _is_row_of(served: ServedTable, serdes: tuple[Serde[Any], Serde[Any]], wanted: bytes, row: _Row) -> bool:
    """Return whether a record has the key `wanted` and decodes. A record that does not decode makes no row."""
    try:
        if row.key is None or encode_key(served.key, _decoded(serdes[0], row.key, row)) != wanted:
            return False
        _decoded(serdes[1], row.value, row)
    except Exception:
        return False
    return True


def _decoded(serde: Serde[Any], data: bytes | None, row: _Row) -> Any:
    (whole,) = serde.with_ids([data], [row.headers])
    return None if whole is None else serde.decode(whole)


def _search(
    log: Log,
    positions: dict[TopicPartition, int],
    begins: Mapping[TopicPartition, int],
    is_wanted: Callable[[_Row], bool],
) -> tuple[tuple[TopicPartition, _Row] | None, int]:
    """Read backwards from `positions` until a wanted record is found or the time is over.

    Returns two values: the partition and the record, or None, and the number of records read. `positions` has then the
    offsets down to which each partition was read. All records of a key are in one partition, so the last one there is
    its latest one.
    """
    end_s, searched, looks = time.monotonic() + LOOK_S, 0, 0
    while any(position > begins[tp] for tp, position in positions.items()):
        for tp, position in positions.items():
            if position <= begins[tp]:
                continue
            if looks and time.monotonic() > end_s:
                return None, searched
            start = max(begins[tp], position - WINDOW)
            rows = list(_rows(log, tp, start, position))
            searched, looks = searched + len(rows), looks + 1
            positions[tp] = start
            found = next(filter(is_wanted, reversed(rows)), None)
            if found is not None:
                return (tp, found), searched
    return None, searched


def _rows(log: Log, partition: TopicPartition, start: int, end: int) -> Iterator[_Row]:
    """Return the committed records from offset `start` up to, but without, `end`."""
    while start < end:
        found = log.read(partition, start, end, end - start)
        headers = found.headers or [()] * len(found)
        yield from map(_Row, found.offsets, found.timestamps, found.keys, found.values, headers)
        if found.next_offset == start:  # an open transaction: no later record can be read
            return
        start = found.next_offset


def _shown(partition: TopicPartition, row: _Row) -> ShownRecord:
    headers = [(name, _content(data)) for name, data in row.headers]
    key, value = (None if data is None else _content(data) for data in (row.key, row.value))
    return ShownRecord(*partition, row.offset, row.timestamp, key, value, headers)


def _content(data: bytes) -> Content:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Content(len(data), hex=data[:MOST_SHOWN].hex())
    return Content(len(data), text=text[:MOST_SHOWN])
