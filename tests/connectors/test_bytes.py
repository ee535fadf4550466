"""The bound of a poll's bytes: kept for any sizes, and no partition has to wait for another."""

from hypothesis import example, given
from hypothesis import strategies as st

from eddy.connectors.kafka.record_columns import within
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Records, TopicPartition, TopicSpec

sizes = st.lists(st.lists(st.integers(0, 40), max_size=9), min_size=1, max_size=4).filter(any)


def records_of(partition: int, sizes: list[int]) -> Records:
    values = [b"v" * size for size in sizes]
    count = len(sizes)
    return Records("t", partition, list(range(count)), [0] * count, [None] * count, values, None, count + 1)


@given(sizes, st.integers(1, 120))
def test_what_is_over_the_bytes_is_cut_off_in_equal_shares(sizes: list[list[int]], limit: int) -> None:
    polled = [records_of(partition, own) for partition, own in enumerate(sizes)]
    kept = within(polled, limit)
    assert [records.partition for records in kept] == list(range(len(sizes)))
    assert sum(map(Records.bytes, kept)) <= limit or sum(map(len, kept)) == 1
    assert any(map(len, kept))
    for records, own in zip(kept, sizes, strict=True):
        assert [len(value or b"") for value in records.values] == own[: len(records)]
        assert records.next_offset == (len(records) if len(records) < len(own) else len(own) + 1)
        first = own[len(records) :][:1]
        assert not first or len(sizes) * (records.bytes() + first[0]) > limit  # it has its share, or all


@given(sizes, st.integers(1, 120))
@example([[300_000] * 3, [1] * 2], 100)
def test_embedded_log_brings_all_within_the_bytes(sizes: list[list[int]], limit: int) -> None:
    log = LocalLog(None)
    log.create_topics([TopicSpec("t", len(sizes))])
    producer = log.producer(None)
    producer.begin()
    for partition, own in enumerate(sizes):
        producer.send("t", partition, [b"k"] * len(own), [b"v" * size for size in own], [0] * len(own))
    producer.commit({}, None)
    consumer = log.consumer("g", ["t"], "m")
    came: dict[int, list[int]] = {partition: [] for partition in range(len(sizes))}
    consumer.poll(100, 0.0)
    ends = log.end_offsets([TopicPartition("t", partition) for partition in came])
    for _ in range(100):
        polled = consumer.poll(100, 0.0, limit).records
        assert sum(map(Records.bytes, polled)) <= limit or sum(map(len, polled)) == 1
        for records in polled:
            came[records.partition] += [len(value or b"") for value in records.values]
    assert came == dict(enumerate(sizes))
    assert consumer._positions == ends  # private: a log tells committed ones only
    log.close()
