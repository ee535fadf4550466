"""What programs write by `log.write` and `log.writer`, on each log."""

import asyncio
import pathlib
import threading
import uuid
from collections.abc import Iterator

import pytest

import eddy
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Headers, TopicPartition, TopicSpec
from eddy.errors import ConfigurationError, DataError, RecordRefusedError
from eddy.partitioner import partition_of
from tests.connectors.steps import KEPT, read_all, values_of

AnyLog = LocalLog | KafkaLog
Found = tuple[bytes | None, bytes | None, int, Headers]
PARTITIONS = 3


@pytest.fixture(params=["memory", "disk", "kafka"])
def log(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[AnyLog]:
    made: AnyLog
    if request.param == "kafka":
        made = KafkaLog(KafkaSettings.of(request.getfixturevalue("broker")))
    else:
        made = LocalLog(None if request.param == "memory" else tmp_path / "log")
    yield made
    made.close()


@pytest.fixture
def topic(log: AnyLog) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    log.create_topics([TopicSpec(name, PARTITIONS, KEPT)])
    return name


def found(log: AnyLog, topic: str) -> list[list[Found]]:
    """The records of each partition."""
    parts = [read_all(log, topic, partition) for partition in range(PARTITIONS)]
    return [
        list(zip(part.keys, part.values, part.timestamps, part.headers or [()] * len(part), strict=True))
        for part in parts
    ]


def values(log: AnyLog, topic: str) -> list[bytes | None]:
    return [value for partition in range(PARTITIONS) for value in values_of(log, topic, partition)]


class TestWrite:
    def test_rows_are_in_the_partitions_of_their_keys_up_to_the_ends_returned(self, log: AnyLog, topic: str) -> None:
        rows = {f"k{n}": None if n % 5 == 0 else n for n in range(20)}
        ends = log.write(topic, rows, value=eddy.Int64, timestamp_ms=7, headers=(("by", b"test"),))
        written = found(log, topic)
        for partition, records in enumerate(written):
            assert all(partition_of(key or b"", PARTITIONS) == partition for key, *_ in records)
            assert all(record[2:] == (7, (("by", b"test"),)) for record in records)
            last = read_all(log, topic, partition).offsets[-1]
            assert ends[topic][partition] == last + 1
        read = {key.decode(): value for part in written for key, value, *_ in part if key is not None}
        assert read == {key: None if n is None else eddy.Int64.encode(n) for key, n in rows.items()}

    def test_pairs_keep_their_order_and_those_without_a_key_take_turns(self, log: AnyLog, topic: str) -> None:
        log.write(topic, [("a", "1"), ("a", "2"), ("a", "3")])
        assert values(log, topic) == [b"1", b"2", b"3"]
        log.write(topic, ((None, "x") for _ in range(2 * PARTITIONS)))
        assert [[value for _, value, *_ in part].count(b"x") for part in found(log, topic)] == [2] * PARTITIONS

    def test_the_time_is_now_where_none_is_given(self, log: AnyLog, topic: str) -> None:
        log.write(topic, {"a": "1"})
        (time_ms,) = [record[2] for part in found(log, topic) for record in part]
        assert time_ms > 1_700_000_000_000

    def test_no_rows_are_no_transaction(self, log: AnyLog, topic: str) -> None:
        assert log.write(topic, {}) == {topic: {}}
        where = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        assert set(log.end_offsets(where).values()) == {0}

    @pytest.mark.parametrize(
        ("rows", "named"),
        [
            ({"a": 1, "b": "no number"}, "value 'no number' is not a valid int64.*Name it: value=eddy.String"),
            ({3.5j: 1}, "key 3.5j is not a valid plain"),
            ([("a", 1), ("b", 2, 3)], r"of rows, \('b', 2, 3\) is not a pair"),
            ("text", "rows='text'; a dict or pairs"),
            (None, "rows=None; a dict or pairs"),
        ],
    )
    def test_of_rows_that_do_not_fit_none_is_written(self, log: AnyLog, topic: str, rows: object, named: str) -> None:
        with pytest.raises(DataError, match=named):
            log.write(topic, rows, value=eddy.Int64)  # type: ignore[arg-type]
        assert values(log, topic) == []
        log.write(topic, {"a": 1}, value=eddy.Int64)
        assert values(log, topic) == [eddy.Int64.encode(1)]

    def test_after_rows_that_the_topic_does_not_take_others_are_written(self, log: AnyLog, topic: str) -> None:
        with pytest.raises(RecordRefusedError, match="has 2000"):
            log.write(topic, {"a": "small", "b": "x" * 2_000_000})
        log.write(topic, {"c": "taken"})
        assert values(log, topic) == [b"taken"]

    def test_a_topic_that_does_not_exist_is_named_with_the_remedy(self, log: AnyLog) -> None:
        with pytest.raises(ConfigurationError, match=r"write to 'nowhere': the topic does not exist.*create_topics"):
            log.write("nowhere", {"a": "1"})

    def test_many_threads_write_beside_one_that_reads(self, log: AnyLog, topic: str) -> None:
        threads = [
            threading.Thread(target=lambda n=n: [log.write(topic, {f"{n}": f"{n}-{i}"}) for i in range(5)])
            for n in range(6)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            values(log, topic)
        for thread in threads:
            thread.join()
        read = values(log, topic)
        assert sorted(map(str, read)) == sorted(str(b"%d-%d" % (n, i)) for n in range(6) for i in range(5))
        for n in range(6):
            assert [value for value in read if value and value.startswith(b"%d-" % n)] == [
                b"%d-%d" % (n, i) for i in range(5)
            ]

    def test_coroutines_write_side_by_side(self, log: AnyLog, topic: str) -> None:
        async def all_of_them() -> list[dict[str, dict[int, int]]]:
            return await asyncio.gather(*(log.write_async(topic, {"a": f"{n}"}) for n in range(5)))

        ends = asyncio.run(all_of_them())
        assert sorted(map(str, values(log, topic))) == sorted(str(b"%d" % n) for n in range(5))
        assert len({str(end) for end in ends}) == 5


class TestWriter:
    def test_rows_are_committed_in_transactions_and_the_rest_at_the_end(self, log: AnyLog, topic: str) -> None:
        with log.writer(topic, max_records=4) as writer:
            writer.add_all((f"{n}", f"{n}") for n in range(10))
            assert len(values(log, topic)) == writer.written == 8
        assert sorted(map(str, values(log, topic))) == sorted(str(b"%d" % n) for n in range(10))
        assert writer.written == 10
        where = {TopicPartition(topic, partition) for partition in writer.ends[topic]}
        assert {at.partition: read_all(log, topic, at.partition).offsets[-1] + 1 for at in where} == writer.ends[topic]

    def test_a_block_that_fails_writes_nothing_more(self, log: AnyLog, topic: str) -> None:
        def failing() -> Iterator[tuple[str, str]]:
            yield from {"a": "1", "b": "2", "c": "3"}.items()
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError), log.writer(topic, max_records=2) as writer:
            writer.add_all(failing())
        assert sorted(map(str, values(log, topic))) == [str(b"1"), str(b"2")]

    def test_a_row_that_does_not_fit_leaves_the_others(self, log: AnyLog, topic: str) -> None:
        with log.writer(topic, value=eddy.Int64) as writer:
            writer.add("a", 1)
            with pytest.raises(DataError, match="value 'x' is not a valid int64"):
                writer.add("b", "x")
        assert values(log, topic) == [eddy.Int64.encode(1)]

    def test_rows_of_a_commit_that_failed_are_tried_again(self, log: AnyLog, topic: str) -> None:
        late = topic + "-late"
        log.create_topics([TopicSpec(late, PARTITIONS, KEPT | {"max.message.bytes": "1000"})])
        writer = log.writer(late)
        writer.add("a", "x" * 2_000)
        for _ in range(2):
            with pytest.raises(RecordRefusedError):
                writer.commit()
        assert writer.written == 0
        writer.close()
        assert values(log, late) == []

    def test_less_than_one_record_a_transaction_is_refused(self, log: AnyLog, topic: str) -> None:
        with pytest.raises(ConfigurationError, match="max_records=0; one or more"):
            log.writer(topic, max_records=0)
