"""Decides, for each table, whether a restarted table server continues with the stored rows or reads the table anew.

A table is read anew if the stored rows are of another table, plan or incarnation of the application; if its topic was
made anew; if records or tombstones that were not applied may have been deleted from the topic; and if the application
has rejected records that were applied. The reason is logged each time.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from zlib import crc32

import msgspec

from eddy.connectors.log import Log, Records, TopicPartition, TopicSpec
from eddy.runtime.changelog_replay import TOMBSTONES_LAST_S
from eddy.state.offsets import StoreStamp, decode_offset, encode_offset
from eddy.tables.catalog import Catalog, ServedTable
from eddy.tables.served_rows import NOTED, ServedRows

__all__ = ["Place", "ReadingStart", "Stored", "fingerprint", "noted_row", "taken_in"]

_log = logging.getLogger("eddy.tables")

Place = tuple[str, int, int]
"""(topic, partition, offset)."""


@dataclass(frozen=True, slots=True)
class ReadingStart:
    """Where reading starts: the offset of each partition, the ends at that time, and the tables that are read anew."""

    positions: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    anew: list[str]


def fingerprint(records: Records) -> bytes:
    """Return a fingerprint of the last of these records: its offset, and a checksum of its contents."""
    key, value = records.keys[-1], records.values[-1]
    held = repr((records.timestamps[-1], key, value)).encode()
    return encode_offset(records.offsets[-1]) + crc32(held).to_bytes(4, "big")


class Stored:
    """Compares the rows that an earlier run has stored with the present log."""

    def __init__(self, catalog: Catalog, log: Log, rows: ServedRows, wall: Callable[[], float]) -> None:
        self._catalog, self._log, self._rows, self._wall = catalog, log, rows, wall

    def begin(self, specs: Mapping[str, TopicSpec], incarnation: str, noted: set[Place]) -> ReadingStart:
        """Compare stored rows with the log, and remove rows of tables to read anew. Returns the start of reading."""
        tables = self._catalog.tables
        every = [tp for table in tables.values() for tp in table.parts]
        begins, ends = self._log.begin_offsets(every), self._log.end_offsets(every)
        notes = self._rows.noted() ^ noted
        anew = []
        for table in tables.values():
            stored = self._rows.offsets()
            positions = {tp: stored[tp] for tp in table.parts if tp in stored}
            reason = self._reason(table, positions, begins, ends, specs, incarnation)
            if not reason and (taken := taken_in(notes, [table], positions)):
                reason = f"the application has rejected records that were applied, such as {taken[table.name]}"
            if reason is not None:
                self.forget(table, reason, incarnation)
                anew += [table.name] if reason else []
        stored = self._rows.offsets()
        return ReadingStart({tp: stored.get(tp, begins[tp]) for tp in every}, ends, anew)

    def forget(self, table: ServedTable, reason: str, incarnation: str) -> None:
        """Remove the rows of a table; the reason is logged unless it is empty."""
        if reason:
            _log.warning("table '%s' is read anew: %s", table.name, reason)
        self._rows.forget(table.name, table.parts, table.identity(incarnation))

    def stamp(self, incarnation: str) -> tuple[bytes, bytes]:
        """Return the row with the incarnation and the time, which every batch writes."""
        return StoreStamp(incarnation, int(self._wall())).row()

    def _reason(
        self,
        table: ServedTable,
        positions: Mapping[TopicPartition, int],
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        specs: Mapping[str, TopicSpec],
        incarnation: str,
    ) -> str | None:
        """Return the reason why a table has to be read anew.

        The reason is empty if the table has no stored rows. None is returned if the table can continue.
        """
        known = self._rows.identity(table.name)
        if known is None:
            return ""
        if known != (wanted := table.identity(incarnation)):
            return f"stored rows are of another plan or incarnation of the application: {known}, not {wanted}"
        spec = specs.get(table.topic)
        retention_ms = spec.configs.get("delete.retention.ms", "") if spec else ""
        kept_s = int(retention_ms) / 1000 if retention_ms.isdecimal() else TOMBSTONES_LAST_S
        age_s = self._rows.age_s(self._wall())
        for tp, position in positions.items():
            where = f"topic '{tp.topic}' partition {tp.partition}"
            if position > ends[tp]:
                return f"{where} ends at offset {ends[tp]}, before {position}: it was made anew"
            if position < begins[tp]:
                return f"{where} begins at offset {begins[tp]}, after {position}: records were deleted in between"
            if position < ends[tp] and age_s > kept_s / 2 and spec is not None and spec.compacted:
                return f"{where}: stored rows are {age_s / 3600:.0f} h old, and deletions may have been compacted away"
            if not self._is_unchanged(tp, begins[tp], ends[tp]):
                return f"{where} has other records than the applied ones: it was made anew"
        return None

    def _is_unchanged(self, tp: TopicPartition, begin: int, end: int) -> bool:
        """Return whether the last record that was applied is still the same in the topic.

        It is, if it was compacted away.
        """
        last = self._rows.last(tp)
        if last is None:
            return True
        offset = decode_offset(last[:8])
        if not begin <= offset < end:
            return True
        records = self._log.read(tp, offset, offset + 1, 1)
        return not len(records) or fingerprint(records) == last


def taken_in(
    notes: Iterable[Place], tables: Iterable[ServedTable], positions: Mapping[TopicPartition, int]
) -> dict[str, Place]:
    """Return the tables to which a rejected record was applied, by name, each with one such record.

    `notes` are the rejected records.
    """
    topics = {table.topic: table for table in tables if table.kind == "source" and not table.internal}
    return {
        topics[topic].name: (topic, partition, offset)
        for topic, partition, offset in notes
        if topic in topics and offset < positions.get(TopicPartition(topic, partition), 0)
    }


def noted_row(notes: Iterable[Place]) -> tuple[bytes, bytes]:
    """Return the row of the store that lists the records known to be rejected."""
    return NOTED, msgspec.json.encode(sorted(notes))
