"""Tables of an application as frames: the latest row of each key, as of the last cut or of the end of their topics.

A cut names the offsets of outputs and changelogs at which these are exactly the results of its inputs. One task reads
one partition of a table and holds its rows.

In a compacted topic a record after the cut may have replaced a record before the cut, but not at once. If a reading
ends long after its cut, and a key has records only after the cut, it is unknown whether the key had a row at the cut.
So the reading is refused.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eddy.connectors.log import Log, Records, TopicPartition
from eddy.connectors.spark.inputs import OffsetRange, committed_records
from eddy.connectors.spark.source.pinned_source import PinnedSource, TopicForm
from eddy.connectors.spark.source.source_options import NamedLog, option_error
from eddy.connectors.spark.source.source_program import SourceProgram
from eddy.connectors.spark.source.source_reading import RecordReading, Request, decoded_or_error
from eddy.errors import DataError
from eddy.runtime.decoded_columns import decoded
from eddy.runtime.internal_topics import metadata_topic
from eddy.runtime.metadata import read_metadata
from eddy.runtime.quiescence import last_dated_cut
from eddy.tables.catalog import catalog_of
from eddy.tables.reading import FRESH_S

__all__ = ["TableReading", "pinned_table"]

_ROWS_A_BATCH = 10_000
_AS_OF = ("cut", "end")


def pinned_table(options: Mapping[str, str]) -> "tuple[PinnedSource, TableReading]":
    """Return the table that the options name, up to its cut or end. Raises: ConfigurationError; TableNotServedError."""
    name = options["table"]
    for other in ("topic", "key", "value", "until"):
        if other in options:
            raise option_error("read", f"options 'table' and '{other}' are given; a table has its own. Omit '{other}'")
    if "app" not in options:
        raise option_error(
            "read",
            f"table '{name}' without an application; the application that has it is needed. "
            "Write .option('app', 'app.py:topology')",
        )
    if (as_of := options.get("as_of", "cut")) not in _AS_OF:
        raise option_error(
            "read",
            f"option 'as_of' is '{as_of}'; 'cut' or 'end' is needed, for a time does not name a cut: compaction keeps "
            "the last one. Write one of them",
        )
    named, program = NamedLog.of("read", options), SourceProgram.load("read", options["app"])
    with contextlib.closing(named.open_log()) as log:
        catalog = catalog_of(program.topology, log)
        table = catalog.table(name)
        whole = TopicForm(table.topic, table.partitions, table.topic_key, table.value, program.module)
        form = whole.choosing(options)
        named.check_topic("read", log, table.topic)
        begins = log.begin_offsets(form.parts)
        dated = last_dated_cut(log, catalog.internal.cuts) if as_of == "cut" else None
        if dated is not None:
            cut, written_ms = dated
            offsets = (cut.outputs | cut.inputs if table.kind == "source" else cut.outputs).get(table.topic)
            ends = offsets and dict(zip(form.parts, offsets, strict=True))
        else:
            written_ms, ends = None, log.stable_offsets(form.parts) if as_of == "end" else None
        if not ends:
            raise option_error(
                "read",
                f"table '{name}' of application '{program.topology.name}' has no cut; a worker writes one when "
                "nothing is left to do. Start it: eddy run …; or read all that is committed: .option('as_of', 'end')",
            )
        compacted = log.topics([table.topic])[table.topic].drops_replaced
        left_out = None
        if table.kind == "source" and not table.internal:
            metadata = read_metadata(log, metadata_topic(program.topology.name))
            left_out = frozenset(place for place in metadata.left_out if place[0] == table.topic)
    ranges = tuple(OffsetRange(tp.partition, begins[tp], max(begins[tp], ends[tp])) for tp in form.parts)
    source = PinnedSource(form, named.open_log, ranges)
    cut_s = written_ms / 1000 if compacted and written_ms is not None else None
    return source, TableReading(RecordReading(form, named.open_log), name, cut_s, left_out)


@dataclass(frozen=True)
class TableReading:
    """Reads the latest rows of a table's partitions.

    `cut_s` is the time of the cut in seconds since 1970; None if records after the cut do no harm. `left_out` is not
    None if a worker may have rejected records of the table's topic. It has the rejected records that the worker has
    noted, by topic, partition and offset. Records that do not decode are rejected, too.
    """

    records: RecordReading
    name: str
    cut_s: float | None
    left_out: frozenset[tuple[str, int, int]] | None = None
    wall: Callable[[], float] = time.time

    def __call__(self, requests: Iterable[Request]) -> Iterator[Any]:
        """Yield the rows as Arrow batches. Raises: DataError; ConnectorError. Memory: the rows of one partition."""
        with contextlib.closing(self.records.open_log()) as log:
            for wanted, schema in requests:
                part = TopicPartition(self.records.form.topic, wanted.partition)
                latest = self._latest(log, part, wanted)
                if self.cut_s is not None and self.wall() - self.cut_s > FRESH_S:
                    self._check_later(log, part, wanted.end, latest)
                rows = [row for row in latest.values() if row[2] is not None]
                for at in range(0, len(rows), _ROWS_A_BATCH):
                    offsets, keys, values, times, headers = zip(*rows[at : at + _ROWS_A_BATCH], strict=True)
                    found = Records(*part, offsets, times, keys, values, headers, wanted.end)
                    yield self.records.batch(found, schema)

    def _latest(self, log: Log, part: TopicPartition, wanted: OffsetRange) -> dict[bytes, tuple[Any, ...]]:
        """Return the last record of each key, by the key's identity: offset, key, value, timestamp, headers."""
        latest: dict[bytes, tuple[Any, ...]] = {}
        for records in self._accepted(log, part, wanted.start, wanted.end):
            headers: Any = records.headers or [()] * len(records)
            columns = zip(records.offsets, records.keys, records.values, records.timestamps, headers, strict=True)
            for identity, row in zip(self._identities(records), columns, strict=True):
                if identity is not None:
                    latest[identity] = row
        return latest

    def _accepted(self, log: Log, part: TopicPartition, start: int, end: int) -> Iterator[Records]:
        """Yield the committed records of a range, without rejected records."""
        for records in committed_records(log, part, start, end):
            if self.left_out is None:
                yield records
                continue
            problems: dict[int, str] = {}
            decoded(records.keys, self.records.form.key, "key", problems, headers=records.headers)
            decoded(records.values, self.records.form.value, "value", problems, headers=records.headers)
            start = 0
            for place, offset in enumerate(records.offsets):
                if place in problems or (*part, offset) in self.left_out:
                    yield records.slice(start, place)
                    start = place + 1
            yield records.slice(start, len(records))

    def _identities(self, records: Records) -> list[bytes | None]:
        """Return the identities of keys, which are equal for equal keys; None for a record without a key."""
        serde = self.records.form.key
        if serde.identify is None:
            return list(records.keys)
        keys = decoded_or_error(records, serde, "key")
        return [None if key is None else serde.identify(key) for key in keys]

    def _check_later(self, log: Log, part: TopicPartition, end: int, latest: Mapping[bytes, object]) -> None:
        """Refuse the reading if a key has records only after the cut. Raises: DataError."""
        last, later = log.stable_offsets([part])[part], set()
        for records in self._accepted(log, part, end, last):
            later |= {identity for identity in self._identities(records) if identity is not None}
        if unknown := len(later - latest.keys()):
            raise DataError(
                f"spark read of format 'eddy': table '{self.name}': in partition {part.partition} of '{part.topic}' "
                f"{unknown} keys have records after the cut alone, and compaction may have dropped earlier ones: "
                "their rows at the cut are unknown; a later cut is needed. Let the worker become idle and load "
                "again; or read all that is committed: .option('as_of', 'end')"
            )
