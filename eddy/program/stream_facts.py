"""Reads the records of a stream's topic again for a trace, as facts, up to the inputs of a version.

Records that do not decode or have no event time are left out, as a worker leaves them out. So are records that a worker
has noted as rejected, for instance because their timestamp is too far ahead.
"""

from collections.abc import Collection, Iterator, Sequence

from eddy.connectors.log import Log, Records, TopicPartition
from eddy.errors import QueryError
from eddy.operators.batch import Place
from eddy.runtime.decoded_columns import decoded, note_unhashable
from eddy.runtime.timestamp_extractors import TimestampExtractors
from eddy.topology.plan.facts import Fact, FactRecord
from eddy.topology.plan.plan import Source

__all__ = ["deleted_records", "facts_of_source"]

_EACH = 10_000


def facts_of_source(
    log: Log, source: Source, ends: Sequence[int], max_rows: int, rejected: Collection[Place] = ()
) -> Iterator[Fact]:
    """Return a source's facts before the offsets `ends`, by partition and offset, without records in `rejected`.

    Raises: QueryError if there are more than `max_rows` offsets; ConnectorError.
    """
    places = [TopicPartition(source.topic, partition) for partition in range(len(ends))]
    begins = log.begin_offsets(places)
    count = sum(max(0, end - begins[place]) for place, end in zip(places, ends, strict=True))
    if count > max_rows:
        raise QueryError(
            f"trace: topic '{source.topic}' has {count:,} offsets up to this version, more than {max_rows:,} rows; a "
            "larger limit is needed"
        )
    for place, end in zip(places, ends, strict=True):
        latest = -1
        for records in _read(log, place, begins[place], end):
            for fact in _facts(source, records, latest, rejected):
                latest = fact.record.event_time_ms
                yield fact


def deleted_records(log: Log, source: Source, partitions: int) -> str:
    """Return a message about the records of a source that its topic has deleted; empty if it has all records."""
    begins = log.begin_offsets([TopicPartition(source.topic, partition) for partition in range(partitions)])
    gone = [f"partition {place.partition} begins at offset {begin:,}" for place, begin in begins.items() if begin > 0]
    return f"topic '{source.topic}' has its earlier records no more: {', '.join(gone)}" if gone else ""


def _read(log: Log, place: TopicPartition, start: int, end: int) -> Iterator[Records]:
    while start < end:
        found = log.read(place, start, end, min(_EACH, end - start))
        if len(found):
            yield found
        if found.next_offset == start:  # a transaction is open: no later record can be read
            return
        start = found.next_offset


def _facts(source: Source, records: Records, latest: int, rejected: Collection[Place]) -> Iterator[Fact]:
    """Return the facts of some records of a partition. `latest` is the partition's event time before them."""
    extractors = TimestampExtractors({source.topic: source})
    (timed,) = extractors.polled([records])
    problems: dict[int, str] = {}
    keys = decoded(records.keys, source.topic_key, "key", problems, headers=records.headers)
    values = decoded(records.values, source.topic_value, "value", problems, headers=records.headers)
    if not source.topic_key.hashable:
        note_unhashable(keys, problems)
    for index, offset in enumerate(records.offsets):
        place = (*_place(records), offset)
        if index not in problems and place not in extractors.problems and place not in rejected:
            time = timed.timestamps[index]
            latest = max(latest, time)
            yield Fact((keys[index], values[index]), FactRecord(*place, time, latest))


def _place(records: Records) -> tuple[str, int]:
    return records.topic, records.partition
