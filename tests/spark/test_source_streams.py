"""`readStream` and `writeStream` of the format `eddy`: each record is read once and each batch written once."""

import functools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark import register
from eddy.connectors.spark.source.source_reading import TopicReader
from eddy.connectors.spark.source.source_streams import StreamReader, shared_out
from eddy.errors import ConnectorError
from tests.spark.rig import rows_of
from tests.spark.source_frames import streamed

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with closing(LocalLog(tmp_path / "log")) as log:
        log.create_topics([TopicSpec("notes", 2), TopicSpec("loud", 2)])
        yield log


class Query:
    """A stream from `notes` to `loud`, in capitals, which ends when it has read all that is there."""

    def __init__(self, spark: Any, folder: Path, **options: str) -> None:
        register(spark)
        self.spark, self.folder, self.options = spark, folder, options

    def run(self, checkpoint: str = "checkpoint", job: str = "capitals") -> list[int]:
        """Run it to its end. Returns the numbers of the rows of its batches that had any."""
        named = {"data": str(self.folder / "log")}
        notes = self.spark.readStream.format("eddy").options(topic="notes", **named, **self.options).load()
        loud = notes.selectExpr("key", "upper(value) AS value", "timestamp", "headers")
        writer = loud.writeStream.format("eddy").options(topic="loud", job=job, **named)
        writer = writer.option("checkpointLocation", str(self.folder / checkpoint)).trigger(availableNow=True)
        progress: list[Any] = []

        def ended() -> None:
            query = writer.start()
            try:
                query.awaitTermination()
            finally:
                progress.extend(query.recentProgress)

        streamed(ended)
        return [one["numInputRows"] for one in progress if one["numInputRows"]]


def written(log: LocalLog) -> list[tuple[bytes | None, bytes | None]]:
    return sorted((key, value) for _, key, value in rows_of(log, "loud"))


def test_each_record_is_written_once_over_restarts_and_repeated_batches(
    log: LocalLog, spark: Any, tmp_path: Path
) -> None:
    notes = {f"key {n}": f"note {n}" for n in range(20)}
    expected = [(key.encode(), value.upper().encode()) for key, value in notes.items()]
    query = Query(spark, tmp_path, max_offsets_per_trigger="12")
    log.write("notes", notes)
    batches = query.run()
    assert sum(batches) == 20
    assert max(batches) <= 12
    assert written(log) == sorted(expected)
    log.write("notes", {"more": "later"})
    assert query.run() == [1]
    assert written(log) == sorted([*expected, (b"more", b"LATER")])
    last = max(
        (tmp_path / "checkpoint" / "commits").iterdir(), key=lambda path: int(path.name) if path.name.isdigit() else -1
    )
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    assert query.run() == [1], "Spark repeats a batch that it has not noted as done"
    assert written(log) == sorted([*expected, (b"more", b"LATER")])
    with pytest.raises(Exception, match=r"job 'capitals' has written batch . to 'loud', and batch 0 is before it"):
        query.run("another")
    assert written(log) == sorted([*expected, (b"more", b"LATER")])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"until": "[1, 1]"}, "option 'until' has no meaning for a stream"),
        ({"max_offsets_per_trigger": "0"}, "option 'max_offsets_per_trigger' is '0'; one or more are needed"),
    ],
)
def test_options_of_frames_are_refused(
    options: dict[str, str], text: str, log: LocalLog, spark: Any, tmp_path: Path
) -> None:
    log.write("notes", [("a", "x"), ("b", "y"), ("c", "z"), ("d", "u")])
    with pytest.raises(Exception, match=text):
        Query(spark, tmp_path, **options).run()


def test_records_that_were_deleted_and_topics_made_anew_are_no_silent_gap(log: LocalLog, tmp_path: Path) -> None:
    for number in range(6):
        log.write("notes", {str(number): "x"})
    parts = TopicReader.__new__(TopicReader)
    reader = StreamReader("notes", functools.partial(LocalLog, tmp_path / "log"), parts, None)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    part = next(TopicPartition("notes", int(p)) for p, offset in end.items() if offset)
    log.delete_records({part: end[str(part.partition)]})
    with pytest.raises(ConnectorError, match="records from 0 on were deleted before they were read"):
        reader.partitions(start, end)
    with pytest.raises(ConnectorError, match="the checkpoint is at offset 99 of partition 0, beyond its end"):
        reader.latestOffset({"0": 99, "1": 0}, reader.getDefaultReadLimit())
    log.delete_topics(["notes"])
    with pytest.raises(ConnectorError, match="topic 'notes': it does not exist any more"):
        reader.latestOffset(end, reader.getDefaultReadLimit())
    reader.stop()


@given(st.dictionaries(st.integers(0, 9).map(str), st.integers(0, 50)), st.integers(1, 100))
def test_a_batch_is_as_large_as_it_may_be_and_no_partition_starves(lags: dict[str, int], most: int) -> None:
    shares = shared_out(lags, most)
    assert sum(shares.values()) == min(most, sum(lags.values()))
    assert all(0 <= shares[part] <= lag for part, lag in lags.items())
    least = most // max(len(lags), 1)
    assert all(shares[part] >= min(lag, least) for part, lag in lags.items())
