"""The tables of the embedded log.

topics      name → configs
partitions  (topic, partition) → id, begin_offset ≤ offset < next_offset
records     (partition id, offset) → timestamp, key, value, headers
positions   (group, topic, partition) → offset, metadata
producers   transactional id → epoch

Invariant: offsets only increase, and a partition's id is never used again. No Python code runs for each record,
except to unpack headers. Transactions, groups and polls are defined elsewhere.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from eddy.connectors.local.database import Database
from eddy.connectors.log import UNBOUNDED, Headers, Position, Records, TopicPartition, TopicSpec
from eddy.errors import ConnectorError

__all__ = ["Extent", "RecordBatch", "Storage", "encode_headers"]

_ROWS_PER_INSERT = 200
_ROWS_PER_FETCH = 256
_WEIGH_AFTER = 100_000

encode_headers = msgspec.msgpack.Encoder().encode
_decode_headers = msgspec.msgpack.Decoder(Headers).decode


class Extent(NamedTuple):
    """A partition's id and the offsets it holds: `begin` ≤ offset < `end`."""

    id: int
    begin: int
    end: int


class RecordBatch(NamedTuple):
    """Columns of records to be appended; `headers` are encoded already."""

    timestamps: tuple[int, ...]
    keys: tuple[bytes | None, ...]
    values: tuple[bytes | None, ...]
    headers: tuple[bytes | None, ...] | None


class Storage(Database):
    """Typed access to the tables. "Inside a change" means: between `hold` and the end of `changing`."""

    _reserved: Mapping[TopicPartition, int] = MappingProxyType({})

    def topics(self, name: str | None = None) -> dict[str, TopicSpec]:
        """Return all topics by name, or only the topic `name`."""
        rows = self.rows(
            "SELECT name, count(*), configs FROM topics JOIN partitions ON topic = name"
            f" {'WHERE name = ?' if name is not None else ''} GROUP BY name",
            () if name is None else (name,),
        )
        return {name: TopicSpec(name, partitions, json.loads(configs)) for name, partitions, configs in rows}

    def spec(self, partition: TopicPartition) -> TopicSpec:
        """Return the spec of a partition's topic. Raises: ConnectorError if the partition does not exist."""
        found = self.topics(partition.topic)
        if partition.topic not in found:
            raise self._missing(partition)
        return found[partition.topic]

    def topic_ids(self, names: Sequence[str]) -> dict[str, int]:
        """Return the ids of those topics that exist; the id of a topic is the id of its first partition."""
        places = ", ".join("?" * len(names))
        found = self.rows(f"SELECT topic, id FROM partitions WHERE partition = 0 AND topic IN ({places})", tuple(names))
        return dict(found)

    def create_topic(self, spec: TopicSpec) -> None:
        """Make a topic that does not exist, inside a change."""
        self.rows("INSERT INTO topics VALUES (?, ?)", (spec.name, json.dumps(dict(spec.configs))))
        self.insert(
            "INSERT INTO partitions (topic, partition) VALUES (?, ?)",
            [(spec.name, partition) for partition in range(spec.partitions)],
        )

    def delete_topic(self, name: str) -> None:
        """Remove a topic with its records and all groups' positions in it, inside a change."""
        self.rows("DELETE FROM records WHERE partition_id IN (SELECT id FROM partitions WHERE topic = ?)", (name,))
        for table, column in (("partitions", "topic"), ("positions", "topic"), ("topics", "name")):
            self.rows(f"DELETE FROM {table} WHERE {column} = ?", (name,))

    def extent(self, partition: TopicPartition) -> Extent:
        """Return a partition's id and its current first and end offset. Raises: ConnectorError if it does not exist."""
        found = self.rows(
            "SELECT id, begin_offset, next_offset FROM partitions WHERE topic = ? AND partition = ?",
            partition,
        )
        if not found:
            raise self._missing(partition)
        return Extent(*found[0])

    def _missing(self, partition: TopicPartition) -> ConnectorError:
        return ConnectorError(
            f"{self.where}: there is no partition {partition.partition} of topic {partition.topic!r};"
            f" it must exist before it is used. Create the topic, or check the number of its partitions."
        )

    def reserve(self, ends: Mapping[TopicPartition, int]) -> None:
        """Set the offsets after the flushed records of the open transaction, by partition; {} if there are none.

        `end` takes them into account.
        """
        self._reserved = ends

    def end(self, partition: TopicPartition) -> int:
        """Return the offset after all records written, including the open transaction of this process."""
        with self.mutex:
            return max(self.extent(partition).end, self._reserved.get(partition, 0))

    def take_offsets(self, partition: TopicPartition, records: int) -> tuple[int, int]:
        """Reserve offsets for `records` and a control record, inside a change. Return (partition id, first offset)."""
        taken = self.rows(
            "UPDATE partitions SET next_offset = next_offset + ? WHERE topic = ? AND partition = ?"
            " RETURNING id, next_offset",
            (records + 1, *partition),
        )
        if not taken:
            raise self._missing(partition)
        return taken[0][0], taken[0][1] - records - 1

    def append(self, partition: TopicPartition, batches: Sequence[RecordBatch]) -> None:
        """Append the batches as the records of one transaction, inside a change."""
        id_, first = self.take_offsets(partition, sum(len(batch.keys) for batch in batches))
        for batch in batches:
            rows = len(batch.keys)
            offsets = range(first, first + rows)
            given = batch if batch.headers is not None else batch[:3]
            self._insert_columns(id_, (offsets, *given))
            first += rows

    def _insert_columns(self, id_: int, columns: tuple[Sequence[Any], ...]) -> None:
        """Insert rows, many by one statement: half the cost of a single row is the start and end of its statement."""
        width = len(columns)
        names = ("offset", "timestamp", "key", "value", "headers")[:width]
        row = f"({id_}{', ?' * width})"
        head = f"INSERT INTO records (partition_id, {', '.join(names)}) VALUES "
        whole = len(columns[0]) // _ROWS_PER_INSERT * _ROWS_PER_INSERT
        if whole:
            flat = chain.from_iterable(zip(*(column[:whole] for column in columns), strict=True))
            many = head + ", ".join([row] * _ROWS_PER_INSERT)
            self.insert(many, _chunks(flat, width * _ROWS_PER_INSERT))
        self.insert(head + row, zip(*(column[whole:] for column in columns), strict=True))

    def read(
        self, partition: TopicPartition, start: int, end: int, max_records: int, max_bytes: int = UNBOUNDED
    ) -> Records:
        """Read records as `Log.read`, and stop before the first record that exceeds `max_bytes`.

        Raises: ConnectorError if records at `start` were deleted.
        """
        extent = self.extent(partition)
        stop = min(end, extent.end)
        budget = _Budget(max_bytes)
        rows = self.rows_while(
            "SELECT offset, timestamp, key, value, headers FROM records"
            " WHERE partition_id = ? AND offset >= ? AND offset < ? ORDER BY offset LIMIT ?",
            (extent.id, start, stop, max_records + 1),
            budget.spend,
            _ROWS_PER_FETCH,
        )
        if not rows or rows[0][0] != start:
            self._check_kept(partition, start)
        # One row more than requested is read, which has the offset of the next record, after any control records.
        wanted = min(max_records, budget.rows)
        next_offset = rows[wanted][0] if len(rows) > wanted else max(start, stop)
        del rows[wanted:]
        offsets, timestamps, keys, values, packed = zip(*rows, strict=True) if rows else ((),) * 5
        headers = [_decode_headers(h) if h else () for h in packed] if any(packed) else None
        return Records(*partition, offsets, timestamps, keys, values, headers, next_offset)

    def _check_kept(self, partition: TopicPartition, start: int) -> None:
        """Check that no record from `start` on is deleted. Called after the read, as others may delete meanwhile."""
        extent = self.extent(partition)
        if start < extent.begin:
            raise ConnectorError(
                f"{self.where}: position {start} of {partition.topic}-{partition.partition} lies before its"
                f" first offset {extent.begin}: the records between were deleted; all of them are needed."
                f" Seek to {extent.begin} to continue without them, or reset the application."
            )

    def delete_before(self, partition: TopicPartition, offset: int) -> None:
        """Delete the records before `offset`, inside a change. Raises: ConnectorError beyond the end."""
        extent = self.extent(partition)
        if offset > extent.end:
            raise ConnectorError(
                f"{self.where}: cannot delete records of {partition.topic}-{partition.partition} before"
                f" {offset}: it ends at {extent.end}. Give an offset up to that."
            )
        self.rows("DELETE FROM records WHERE partition_id = ? AND offset < ?", (extent.id, offset))
        self.rows("UPDATE partitions SET begin_offset = max(begin_offset, ?) WHERE id = ?", (offset, extent.id))

    def grew(self, topic: str) -> bool:
        """Whether a topic has grown by more than 100,000 offsets since it was last checked for compaction."""
        rows = self.rows("SELECT sum(next_offset - weighed_offset) FROM partitions WHERE topic = ?", (topic,))
        return int(rows[0][0] or 0) > _WEIGH_AFTER

    def mostly_superseded(self, topic: str) -> bool:
        """Whether more than half of a topic's records have a later record of their key. Cost: a scan of the topic."""
        counts: list[tuple[int, int]] = self.rows(
            "SELECT count(*), count(DISTINCT key) FROM records JOIN partitions ON id = partition_id"
            " WHERE topic = ? GROUP BY partition_id",
            (topic,),
        )
        return sum(records for records, _ in counts) > 2 * sum(keys for _, keys in counts)

    def mark_weighed(self, topic: str) -> None:
        """Record that a topic was checked for compaction now, inside a change."""
        self.rows("UPDATE partitions SET weighed_offset = next_offset WHERE topic = ?", (topic,))

    def compact(self, partition: TopicPartition, drop_tombstones: bool) -> None:
        """Keep the latest record of each key, inside a change; offsets do not change.

        A record remains if the later record of its key was not read by all groups, so that the records that a group has
        read can be read again (docs/adr/0009).
        """
        extent = self.extent(partition)
        bound = self.rows("SELECT min(offset) FROM positions WHERE topic = ? AND partition = ?", partition)[0][0]
        older = "partition_id = ? AND key IS NOT NULL AND offset < ?"
        below = (extent.id, extent.end if bound is None else bound)
        self.rows(
            f"DELETE FROM records WHERE {older} AND offset NOT IN"
            f" (SELECT max(offset) FROM records WHERE {older} GROUP BY key)",
            (*below, *below),
        )
        if drop_tombstones:
            self.rows(f"DELETE FROM records WHERE {older} AND value IS NULL", below)

    def committed(self, group: str) -> dict[TopicPartition, Position]:
        """Return all positions of a group."""
        rows = self.rows("SELECT topic, partition, offset, metadata FROM positions WHERE group_name = ?", (group,))
        return {TopicPartition(*row[:2]): Position(*row[2:]) for row in rows}

    def groups(self) -> list[str]:
        """Return the groups that have positions."""
        return [row[0] for row in self.rows("SELECT DISTINCT group_name FROM positions")]

    def move(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """Set positions of a group, inside a change."""
        self.insert(
            "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?)",
            [(group, *partition, *position) for partition, position in positions.items()],
        )

    def delete_group(self, group: str) -> None:
        """Delete a group's positions, inside a change."""
        self.rows("DELETE FROM positions WHERE group_name = ?", (group,))

    def next_epoch(self, transactional_id: str) -> int:
        """Take over a transactional id, inside a change, and return its new epoch."""
        taken = self.rows(
            "INSERT INTO producers VALUES (?, 0) ON CONFLICT DO UPDATE SET epoch = epoch + 1 RETURNING epoch",
            (transactional_id,),
        )
        return int(taken[0][0])

    def epoch(self, transactional_id: str) -> int:
        """Return the epoch of the latest producer of a transactional id."""
        return int(self.rows("SELECT epoch FROM producers WHERE transactional_id = ?", (transactional_id,))[0][0])


class _Budget:
    """Counts, in `rows`, how many rows from the first one on fit into a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._left, self.rows = max_bytes, 0

    def spend(self, rows: Sequence[Sequence[Any]]) -> bool:
        """Count further rows (…, key, value, headers). Returns whether all of them fit."""
        size = sum(sum(map(len, filter(None, column))) for column in list(zip(*rows, strict=True))[2:])
        if size <= self._left:
            self._left -= size
            self.rows += len(rows)
            return True
        for row in rows:
            self._left -= sum(map(len, filter(None, row[2:])))
            if self._left < 0:
                break
            self.rows += 1
        return False


def _chunks(values: Iterator[Any], size: int) -> Iterator[tuple[Any, ...]]:
    while chunk := tuple(islice(values, size)):
        yield chunk
