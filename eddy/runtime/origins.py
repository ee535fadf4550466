"""Origins: the source records from which a row was made, as far as they are known.

An epoch's rows are adjacent in a partition of an exchange. Only the first row has a header, with the number of rows
and, for each source partition, the first and the last offset that the epoch read. A row that passes several exchanges
keeps the origins from the first exchange, since each sender passes on the origins of its own input.

If no step merges rows between a source and the exchange, a row has the timestamp of its record. Then the record is
found by its timestamp, and all records with this timestamp are named.

If two workers send at the same time, their rows may alternate: such a row gets the origins of both epochs. Rows that an
earlier release has sent have no header, and their origins are unknown.
"""

from collections.abc import Container, Iterable
from typing import NamedTuple

import msgspec

from eddy.connectors.log import Headers, Log, Records, TopicPartition
from eddy.runtime.timestamp_extractors import TimestampExtractors

__all__ = ["HEADER", "Origins", "Senders"]

HEADER = "eddy.sources"
_REMEMBERED = 32
_READ_BACK = 100_000

Range = tuple[str, int, int, int]
"""(topic, partition, first offset, last offset)."""


class _Note(NamedTuple):
    rows: int
    ranges: list[Range]


_decode = msgspec.msgpack.Decoder(_Note).decode


class Origins:
    """Ranges of offsets of source partitions, both ends included."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._ranges: dict[tuple[str, int], tuple[int, int]] = {}
        self.add(ranges)

    def add(self, ranges: Iterable[Range]) -> None:
        """Add ranges. Ranges of one partition become one, from the lowest to the highest offset."""
        for topic, partition, first, last in ranges:
            low, high = self._ranges.get((topic, partition), (first, last))
            self._ranges[topic, partition] = min(low, first), max(high, last)

    @property
    def ranges(self) -> list[Range]:
        """The ranges, sorted."""
        return sorted((*where, *offsets) for where, offsets in self._ranges.items())

    @property
    def record(self) -> tuple[str, int, int] | None:
        """The (topic, partition, offset) of the source record if the ranges have only one record, otherwise None."""
        ranges = self.ranges
        return ranges[0][:3] if len(ranges) == 1 and ranges[0][2] == ranges[0][3] else None

    def header(self, rows: int) -> tuple[str, bytes]:
        """Return the header, name and value, for the first of `rows` rows that an epoch sends to a partition."""
        return HEADER, msgspec.msgpack.encode((rows, self.ranges))

    def __str__(self) -> str:
        if not self._ranges:
            return "unknown source records"
        return ", ".join(
            f"'{topic}' partition {partition} offset" + (f" {first}" if first == last else f"s {first} to {last}")
            for topic, partition, first, last in self.ranges
        )


class Senders:
    """The latest headers that one worker has read in each partition of the `internal` topics.

    A row of an `unmerged` topic is made from one record of a stream. The record is found by the timestamp of the row.
    """

    def __init__(
        self,
        log: Log,
        internal: Container[str],
        unmerged: Container[str] = (),
        extractors: TimestampExtractors | None = None,
    ) -> None:
        self._log, self._internal, self._unmerged = log, internal, unmerged
        self._extractors = extractors or TimestampExtractors({})
        self._times: tuple[list[Range], dict[int, list[Range]]] = [], {}
        self._seen: dict[TopicPartition, dict[int, _Note]] = {}

    def see(self, records: Records) -> list[Headers] | None:
        """Note the origins in the headers of received records.

        Returns the records' other headers; None if there are none.

        Cost: nothing for records without headers.
        """
        if records.headers is None:
            return None
        headers = list(records.headers)
        notes = self._seen.setdefault(TopicPartition(records.topic, records.partition), {})
        said = [index for index, one in enumerate(headers) if one]
        own = False
        for index in said:
            if headers[index][-1][0] == HEADER:
                notes[records.offsets[index]] = _decode(headers[index][-1][1])
                headers[index] = headers[index][:-1]
            own = own or bool(headers[index])
        for offset in sorted(notes)[:-_REMEMBERED]:
            if offset < records.offsets[0]:
                del notes[offset]
        return headers if own else None

    def of(self, polled: Iterable[Records]) -> Origins:
        """Return the origins of an epoch's input: its source records, and the origins of rows from internal topics."""
        found = Origins()
        for records in polled:
            if not len(records):
                continue
            first, last = records.offsets[0], records.offsets[-1]
            if records.topic not in self._internal:
                found.add([(records.topic, records.partition, first, last)])
                continue
            notes = self._seen.get(TopicPartition(records.topic, records.partition), {})
            found.add(_of_row(notes, first))
            for offset, note in notes.items():
                if first <= offset <= last:
                    found.add(note.ranges)
        return found

    def of_record(self, records: Records, index: int) -> Origins:
        """Return the origins of one polled record. If no header before it is noted, search the log for one."""
        offset, partition = records.offsets[index], TopicPartition(records.topic, records.partition)
        if records.topic not in self._internal:
            return Origins([(records.topic, records.partition, offset, offset)])
        notes = self._seen.setdefault(partition, {})
        if not any(at <= offset for at in notes):
            begin = max(self._log.begin_offsets([partition])[partition], offset - _READ_BACK)
            self.see(self._log.read(partition, begin, offset + 1, _READ_BACK))
            # The empty note lets the log be searched only once, even if no header is found.
            notes.setdefault(begin, _Note(0, []))
        ranges = _of_row(notes, offset)
        if records.topic in self._unmerged:
            ranges = self._by_time(ranges).get(records.timestamps[index], ranges)
        return Origins(ranges)

    def _by_time(self, ranges: list[Range]) -> dict[int, list[Range]]:
        """Return the records of the ranges, by timestamp. Cost: a read of the log, once for all rows of an epoch."""
        if self._times[0] != ranges:
            times: dict[int, list[Range]] = {}
            begins = self._log.begin_offsets([TopicPartition(topic, partition) for topic, partition, *_ in ranges])
            kept = all(first >= begins[TopicPartition(topic, partition)] for topic, partition, first, _ in ranges)
            # If some records of a range are deleted, the row's record cannot be determined.
            for topic, partition, first, last in ranges if kept else ():
                at = first
                while at <= last:
                    read = self._log.read(TopicPartition(topic, partition), at, last + 1, _READ_BACK)
                    records = self._extractors.timed(read)
                    for offset, time in zip(records.offsets, records.timestamps, strict=True):
                        times.setdefault(time, []).append((topic, partition, offset, offset))
                    at = max(records.next_offset, at + 1)
            self._times = ranges, times
        return self._times[1]


def _of_row(notes: dict[int, _Note], at: int) -> list[Range]:
    """Return the ranges of the last header up to offset `at`, and of earlier headers whose rows may follow it."""
    before = sorted((offset for offset in notes if offset <= at), reverse=True)
    found = [offset for offset in before if offset == before[0] or offset + notes[offset].rows > before[0]]
    return [one for offset in found for one in notes[offset].ranges]
