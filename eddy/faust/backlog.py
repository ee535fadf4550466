"""The records of one source partition that were read and not yet committed, in the order of their offsets.

Faust's consumer delivers them. Within a generation of the group it delivers every record in order, so a missing offset
belongs to a control record or a compacted record. The first record of a generation may have any offset. Records that
the backlog already has are ignored. Records before the first one of a generation, and records that Faust delivers late,
are read from the log, up to `wanted` and in slices. Until then Faust's later records wait in `_later`, and count as
under way (`Feed`).
"""

from bisect import bisect_left

from eddy.connectors.log import Headers, Records, TopicPartition

__all__ = ["Backlog"]


class Backlog:
    """The records of one partition from the committed position on, as far as they were read.

    - `next_offset`: the offset after the last record.
    - `position`: the offset after the last record that was returned.
    - `wanted`: records before this offset are to be read from the log.

    The backlog has all records from `_first` up to `next_offset`; control records may precede its first record.
    """

    def __init__(self, partition: TopicPartition, start: int) -> None:
        self._partition = partition
        self._restart(start, start)

    def _restart(self, start: int, wanted: int) -> None:
        self._offsets: list[int] = []
        self._timestamps: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[Headers] = []
        self._later: list[Records] = []
        self._cursor = 0
        self.joined = False
        self._first = self.next_offset = self.position = start
        self.wanted = max(start, wanted)

    def __len__(self) -> int:
        """The number of records to return."""
        return len(self._offsets) - self._cursor

    @property
    def kept(self) -> int:
        """The number of records that are not committed yet, returned or not."""
        return len(self._offsets)

    def add(self, records: Records) -> None:
        """Append records from Faust, or keep them until the earlier records are read. Known records are ignored."""
        known = bisect_left(records.offsets, self.next_offset)
        if known == len(records):
            return
        records = records.slice(known, len(records))
        if self._later or (not self.joined and records.offsets[0] > self.next_offset):
            self._later.append(records)
            self.wanted = max(self.wanted, self._later[0].offsets[0])
            return
        self._append(records)
        self.joined = True

    def extend(self, records: Records) -> None:
        """Append records that were read from the log at `next_offset`."""
        self._append(records)
        if self._later and self.next_offset >= self._later[0].offsets[0]:
            later, self._later = self._later, []
            self.joined = True
            for waiting in later:
                self.add(waiting)

    def _append(self, records: Records) -> None:
        self._offsets += records.offsets
        self._timestamps += records.timestamps
        self._keys += records.keys
        self._values += records.values
        self._headers += records.headers or [()] * len(records)
        self.next_offset = records.next_offset

    def first(self, max_records: int) -> Records | None:
        """Return up to `max_records` next records; empty if only control records follow, None if nothing follows."""
        if self.position == self.next_offset or not max_records:
            return None
        start, stop = self._cursor, min(len(self._offsets), self._cursor + max_records)
        headers = self._headers[start:stop]
        return Records(
            *self._partition,
            self._offsets[start:stop],
            self._timestamps[start:stop],
            self._keys[start:stop],
            self._values[start:stop],
            headers if any(headers) else None,
            self.next_offset if stop == len(self._offsets) else self._offsets[stop],
        )

    def advance(self, records: Records) -> None:
        """Note that `records`, from `first`, were returned."""
        self._cursor += len(records)
        self.position = records.next_offset

    def seek(self, offset: int) -> None:
        """Let `first` continue at `offset`.

        Records that the backlog no longer has are read from the log: Faust does not deliver them again.
        """
        if self._first <= offset <= self.next_offset:
            self._cursor, self.position = bisect_left(self._offsets, offset), offset
        else:
            self._restart(offset, max([self.next_offset, *(records.next_offset for records in self._later)]))

    def forget(self, offset: int) -> None:
        """Drop the records before a committed offset."""
        done = min(bisect_left(self._offsets, offset), self._cursor)
        for column in (self._offsets, self._timestamps, self._keys, self._values, self._headers):
            del column[:done]
        self._cursor -= done
        self._first = max(self._first, min(offset, self.position))
