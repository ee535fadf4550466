"""The source records of received rows, where their log or their headers no longer have them."""

from collections.abc import Sequence

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Headers, Records, TopicPartition, TopicSpec
from eddy.runtime.origins import Origins, Senders
from eddy.runtime.timestamp_extractors import TimestampExtractors

SOURCE, EXCHANGE = TopicPartition("source", 0), TopicPartition("exchange", 0)


class CountedLog(LocalLog):
    """Counts its reads."""

    reads = 0

    def read(self, partition: TopicPartition, start: int, end: int, max_records: int) -> Records:
        self.reads += 1
        return super().read(partition, start, end, max_records)


@pytest.fixture
def log() -> CountedLog:
    log = CountedLog(None)
    log.create_topics([TopicSpec("source", 1), TopicSpec("exchange", 1)])
    return log


def put(
    log: LocalLog,
    topic: str,
    count: int,
    headers: Sequence[Headers] | None = None,
    values: Sequence[bytes] | None = None,
) -> None:
    producer = log.producer(None)
    producer.begin()
    producer.send(topic, 0, [b"k"] * count, values or [b"v"] * count, list(range(count)), headers)
    producer.commit({}, None)
    producer.close()


def received(log: LocalLog) -> Records:
    return log.read(EXCHANGE, 0, log.end_offsets([EXCHANGE])[EXCHANGE], 1_000)


def test_deleted_source_records_are_told_by_their_range(log: CountedLog) -> None:
    put(log, "source", 10)
    put(log, "exchange", 3, [(Origins([(*SOURCE, 0, 9)]).header(3),), (), ()])
    senders = Senders(log, {"exchange"}, {"exchange"})
    records = received(log)
    senders.see(records)
    assert "offset 1" in str(senders.of_record(records, 1))
    log.delete_records({SOURCE: 5})
    later = Senders(log, {"exchange"}, {"exchange"})
    later.see(records)
    assert "offsets 0 to 9" in str(later.of_record(records, 1))


def test_a_record_is_found_by_its_own_event_time(log: CountedLog) -> None:
    topology = eddy.Topology("app")
    topology.stream("source", eddy.String, eddy.String, timestamp=lambda value: int(value))
    (source,) = topology.plan.sources()
    put(log, "source", 3, values=[b"1", b"2", b"0"])
    put(log, "exchange", 3, [(Origins([(*SOURCE, 0, 2)]).header(3),), (), ()])
    records = received(log)
    for extractors, offset in ((TimestampExtractors({"source": source}), 2), (None, 0)):
        senders = Senders(log, {"exchange"}, {"exchange"}, extractors)
        senders.see(records)
        assert str(senders.of_record(records, 0)) == f"'source' partition 0 offset {offset}"


@pytest.mark.parametrize("noted", [False, True])
def test_a_log_without_sources_in_its_headers_is_looked_at_once(log: CountedLog, noted: bool) -> None:
    put(log, "exchange", 5, [(Origins().header(5),), (), (), (), ()] if noted else None)
    senders = Senders(log, {"exchange"}, set())
    records = received(log)
    senders.see(records)
    before = log.reads
    told = {str(senders.of_record(records, index)) for index in range(5)}
    assert (told, log.reads - before) == ({str(Origins())}, 0 if noted else 1)
