"""Facts with their records, for the evaluation of a plan from scratch.

A `Fact` is a row (key, value) of a stream that knows the record from which it is made. So equal rows of two records are
two facts. Steps that keep records pass the record on; a table or a relation made from facts has plain rows.
"""

from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from eddy.operators.valid_rows import LATEST_MS
from eddy.unlimited_windows import FOREVER_MS

__all__ = ["Fact", "FactRecord", "like", "moment_text", "span_text"]

_Row = tuple[Any, Any]


class FactRecord(NamedTuple):
    """A record's place and timestamp, and the event time of its partition: the greatest timestamp up to this record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    event_time_ms: int

    @property
    def place(self) -> str:
        """The place as text, such as `clicks-0@17`: topic, partition and offset."""
        return f"{self.topic}-{self.partition}@{self.offset}"

    def __str__(self) -> str:
        return f"{self.place}, {moment_text(self.timestamp_ms)}"


class Fact(tuple[Any, Any]):
    """A row of a stream, with the record from which it is made."""

    record: FactRecord

    def __new__(cls, row: _Row, record: FactRecord) -> Self:
        """Make the row (key, value) of this record."""
        made = super().__new__(cls, row)
        made.record = record
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fact) and self.record == other.record and super().__eq__(other)

    def __hash__(self) -> int:
        return hash((*self, self.record))

    def __repr__(self) -> str:
        return f"Fact({super().__repr__()}, {self.record!r})"


def like(row: _Row, made: _Row) -> _Row:
    """Return `made` with the record of `row`, if `row` has a record."""
    return Fact(made, row.record) if isinstance(row, Fact) else made


def moment_text(time_ms: int) -> str:
    """Return a moment in UTC as text, without milliseconds if they are 0.

    >>> moment_text(90_000), moment_text(1)
    ('1970-01-01 00:01:30', '1970-01-01 00:00:00.001')
    """
    if not 0 <= time_ms <= LATEST_MS:
        return f"{time_ms:,} ms"
    seconds, ms = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}{f'.{ms:03}' if ms else ''}"


def span_text(start_ms: int, end_ms: int) -> str:
    """Return the two moments of a window as text.

    >>> span_text(60_000, 120_000)
    '1970-01-01 00:01:00 to 00:02:00'
    """
    start, end = moment_text(start_ms), moment_text(end_ms)
    if end_ms >= FOREVER_MS:
        return f"{start} on"
    return f"{start} to {end[11:] if start[:10] == end[:10] and end[10:11] == ' ' else end}"
