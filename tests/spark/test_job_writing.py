"""A job that is interrupted and repeated, in whichever way its rows are partitioned, writes each row once."""

import functools
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eddy
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log, Position, TopicPartition, TopicSpec
from eddy.connectors.spark.arrow_functions import pack_headers
from eddy.connectors.spark.source.job_writing import ENCODED, JOBS, JobWriting
from eddy.errors import ConfigurationError, FencedError
from tests.seeds import share

pytestmark = pytest.mark.xdist_group("spark-jobs")

Row = tuple[int | None, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]
SMALL = st.sampled_from([b"", b"a", b"b", b"\0", b"cc"])
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 3), st.none() | SMALL, st.none() | SMALL, st.sampled_from([(), (("h", b"x"),)])
    ),
    max_size=12,
)


class InterruptedJobError(Exception):
    """The process ends here."""


class EndingLog(LocalLog):
    """Ends the process at a commit: before it, or after it and before its answer."""

    ends: Iterator[str] = iter(())

    def producer(self, transactional_id: str | None) -> Any:
        made = super().producer(transactional_id)
        commit = made.commit

        def ending(positions: Mapping[TopicPartition, Position], group: object) -> None:
            end = next(self.ends, "never")
            if end == "before":
                raise InterruptedJobError
            commit(positions, group)
            if end == "after":
                raise InterruptedJobError

        made.commit = ending  # type: ignore[method-assign]
        return made


def tables(rows: list[Row], sizes: list[int]) -> list[Any]:
    """Rows as the tables of several tasks."""
    found, rest = [], list(rows)
    for size in [*sizes, len(rows)]:
        part, rest = rest[:size], rest[size:]
        columns = list(zip(*((t, k, v, pack_headers(h)) for t, k, v, h in part), strict=True)) or [()] * 4
        arrays = [pa.array(column, field.type) for column, field in zip(columns, ENCODED, strict=True)]
        found.append(pa.Table.from_arrays(arrays, schema=ENCODED))
    return found


def written(log: Log, topic: str) -> list[tuple[int, Row]]:
    """The committed records of a topic, with their partitions. The time of rows without one is None."""
    found: list[tuple[int, Row]] = []
    for part in [TopicPartition(topic, p) for p in range(log.topics([topic])[topic].partitions)]:
        records = log.read(part, 0, log.end_offsets([part])[part], 1_000)
        headers = records.headers or [()] * len(records)
        columns = zip(records.timestamps, records.keys, records.values, headers, strict=True)
        found += [(part.partition, (t if t < 10 else None, k, v, tuple(h))) for t, k, v, h in columns]
    return found


@settings(max_examples=share(1))
@given(
    ROWS,
    st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=3), st.sampled_from(["before", "after"])), max_size=4),
    st.randoms(),
)
def test_each_row_is_written_once_however_often_it_is_interrupted(
    rows: list[Row], attempts: list[tuple[list[int], str]], rng: Any
) -> None:
    with closing(EndingLog(None)) as log:
        log.create_topics([TopicSpec("found", 3)])
        log.write("found", {"other": "before"}, timestamp_ms=9)
        writing = JobWriting("nightly", "found", 0, records_a_transaction=3)
        for sizes, end in attempts:
            log.ends = iter(["never"] * rng.randrange(3) + [end])
            try:
                writing.write(log, tables(rng.sample(rows, len(rows)), sizes))
            except InterruptedJobError:
                log.write("found", {"other": "between"}, timestamp_ms=9)
        log.ends = iter(())
        writing.write(log, tables(rng.sample(rows, len(rows)), [2]))
        ours = [(p, row) for p, row in written(log, "found") if row[1] != b"other"]
        assert sorted(map(repr, (row for _, row in ours))) == sorted(map(repr, rows))
        assert all(row[1] is None or p == log.partitioner(row[1], 3) for p, row in ours)
        for partition in range(3):
            times = [row[0] for p, row in ours if p == partition and row[0] is not None]
            assert times == sorted(times)
        assert writing.write(log, tables(rows, [])) == 0


def test_other_rows_under_the_name_of_a_job_are_refused() -> None:
    with closing(LocalLog(None)) as log:
        log.create_topics([TopicSpec("found", 1), TopicSpec("more", 1)])
        one, two = [(1, b"a", b"1", ())], [(1, b"a", b"2", ())]
        assert JobWriting("nightly", "found", 0).write(log, tables(one, [])) == 1
        with pytest.raises(
            ConfigurationError, match=r"'nightly', batch 0, has written 1 of 1 rows to 'found'.*not the"
        ):
            JobWriting("nightly", "found", 0).write(log, tables(two, []))
        assert JobWriting("nightly", "more", 0).write(log, tables(two, [])) == 1
        assert JobWriting("nightly", "found", 7).write(log, tables(two, [])) == 1
        with pytest.raises(ConfigurationError, match="has written batch 7 to 'found', and batch 0 is before it"):
            JobWriting("nightly", "found", 0).write(log, tables(one, []))
        assert len(written(log, "found")) == 2


def test_a_batch_that_was_interrupted_has_to_be_finished_before_the_next() -> None:
    with closing(EndingLog(None)) as log:
        log.create_topics([TopicSpec("found", 1)])
        rows: list[Row] = [(1, b"a", b"%d" % n, ()) for n in range(6)]
        writing = functools.partial(JobWriting, "stream", "found", records_a_transaction=4)
        log.ends = iter(["after"])
        with pytest.raises(InterruptedJobError):
            writing(1).write(log, tables(rows, []))
        with pytest.raises(
            ConfigurationError, match="batch 1 was interrupted after 4 of 6 rows to 'found'; it has to be"
        ):
            writing(2).write(log, tables(rows, []))
        assert writing(1).write(log, tables(rows, [])) == 2
        assert writing(2).write(log, tables([], [])) == 0


@pytest.fixture(params=["embedded", "kafka"])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Log]:
    if request.param == "kafka":
        return functools.partial(KafkaLog, KafkaSettings.of(request.getfixturevalue("broker")))
    return functools.partial(LocalLog, tmp_path / "log")


def continue_with(producer: Any, topic: str) -> None:
    """One more transaction of an attempt."""
    producer.begin()
    for each in (topic, JOBS):
        producer.send(each, 0, [b"zombie"], [b""], [1])
    producer.commit({}, None)


def test_an_earlier_attempt_that_goes_on_writes_nothing(open_log: Callable[[], Log]) -> None:
    topic, job = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("found", "job"))
    rows: list[Row] = [(1, b"%d" % n, b"x", ()) for n in range(5)]
    with closing(open_log()) as log, closing(open_log()) as later:
        log.create_topics([TopicSpec(topic, 2)])
        writing = JobWriting(job, topic, 0, records_a_transaction=2)
        assert writing.write(log, []) == 0
        with closing(log.producer(f"eddy-spark-{topic}-{job}")) as earlier:
            assert JobWriting(job, topic, 1, records_a_transaction=2).write(later, tables(rows, [2])) == 5
            with pytest.raises(FencedError):
                continue_with(earlier, topic)
        assert JobWriting(job, topic, 1).write(later, tables(rows, [1, 3])) == 0
        assert sorted(row[1] or b"" for _, row in written(later, topic)) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_topic_that_a_serde_cannot_fill_is_an_error_of_the_port() -> None:
    with closing(LocalLog(None)) as log:
        log.create_topics([TopicSpec("found", 1, {"max.message.bytes": "100"})])
        with pytest.raises(eddy.RecordRefusedError):
            JobWriting("nightly", "found", 0).write(log, tables([(1, b"a", b"x" * 200, ())], []))
        assert JobWriting("nightly", "found", 0).write(log, tables([(1, b"a", b"x", ())], [])) == 1
