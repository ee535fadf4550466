"""The facts of streams at a version: the records of their topics up to the version's inputs, read again for a trace.

Records that do not decode, those that have no event time, and those that a worker has noted as rejected, for instance
for a timestamp too far ahead, are left out, as a worker leaves them out.
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
    """The facts of a source's records before these offsets, without those that are `rejected`, by partition and offset.

    Raises: QueryError if there are more than `max_rows`; ConnectorError.
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
    """Which of a source's records are in its topic no more; empty if all are."""
    begins = log.begin_offsets([TopicPartition(source.topic, partition) for partition in range(partitions)])
    gone = [f"partition {place.partition} begins at offset {begin:,}" for place, begin in begins.items() if begin > 0]
    return f"topic '{source.topic}' has its earlier records no more: {', '.join(gone)}" if gone else ""


def _read(log: Log, place: TopicPartition, start: int, end: int) -> Iterator[Records]:
    while start < end:
        found = log.read(place, start, end, min(_EACH, end - start))
        if len(found):
            yield found
        if found.next_offset == start:  # an open transaction: no later record can be read
            return
        start = found.next_offset


def _facts(source: Source, records: Records, latest: int, rejected: Collection[Place]) -> Iterator[Fact]:
    """The facts of some records of a partition whose event time before them was `latest`."""
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
