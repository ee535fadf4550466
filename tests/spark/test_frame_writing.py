"""`df.write.format("eddy")`: the rows of a frame are in the topic once, and bad input is refused before any job."""

import datetime
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark.frames import Frames
from tests.spark.rig import rows_of
from tests.spark.source_frames import load, program_in, told, topics

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]


def save(frame: Any, mode: str = "append", **options: Any) -> None:
    frame.write.format("eddy").options(**options).mode(mode).save()


def test_a_repeated_job_writes_nothing_twice_however_the_frame_is_partitioned(
    log: LocalLog, data: dict[str, str], spark: Any
) -> None:
    log.create_topics([TopicSpec("found", 3)])
    numbers = spark.range(1_000).selectExpr("concat('key ', id % 400) AS key", "id AS value")
    for tasks in (1, 3):
        save(numbers.repartition(tasks), topic="found", job="nightly", value="int64", **data)
        assert sorted(eddy.Int64.decode(v or b"") for _, _, v in rows_of(log, "found")) == [*range(1_000)]
    with pytest.raises(
        Exception, match="job 'nightly', batch 0, has written 1000 of 1000 rows to 'found', and the 999"
    ):
        save(numbers.where("value > 0"), topic="found", job="nightly", value="int64", **data)
    save(numbers.where("value = 7"), topic="found", job="nightly", batch="1", value="int64", **data)
    read = load(spark, topic="found", value="int64", **data)
    assert read.groupBy("value").count().where("count > 1").collect() == [(7, 2)]
    assert {p for p, key, _ in rows_of(log, "found") if p != log.partitioner(key or b"", 3)} == set()


def test_the_session_writes_after_a_verification_had_one_of_its_own(
    log: LocalLog, data: dict[str, str], spark: Any
) -> None:
    log.create_topics([TopicSpec("found", 1)])
    frames = Frames(spark)
    assert frames.rows([("a",)], "k string").count() == 1
    frames.release()
    save(spark.sql("SELECT 'a' AS key, 'b' AS value"), topic="found", job="after", **data)
    assert rows_of(log, "found") == [(0, b"a", b"b")]


def test_columns_are_the_parts_of_records(log: LocalLog, data: dict[str, str], spark: Any, tmp_path: Path) -> None:
    app, family = program_in(tmp_path)
    log.create_topics(topics())
    frame = spark.sql(
        "SELECT 'b' AS key, named_struct('parent', 'a', 'size', 2L, 'tags', array('x'), 'shares', map('ann', 0.5D)) AS "
        "value, TIMESTAMP '1970-01-01 00:00:01.5+00:00' AS timestamp, array(named_struct('key', 'h', 'value', X'00')) "
        "AS headers UNION ALL SELECT 'c', NULL, TIMESTAMP '1970-01-01 00:00:02+00:00', NULL"
    )
    save(frame, topic="nodes", job="one", app=app, **data)
    read = load(spark, topic="nodes", app=app, **data)
    (home,) = {log.partitioner(b"b", 2)}
    records = log.read(TopicPartition("nodes", home), 0, 10, 10)
    found = dict(zip(records.keys, zip(records.values, records.timestamps, strict=True), strict=True))
    assert eddy.Struct(family.Node).decode(found[b"b"][0] or b"") == family.Node("a", 2, ("x",), {"ann": 0.5})
    assert found[b"b"][1] == 1_500
    assert records.headers is not None
    assert (("h", b"\0"),) in map(tuple, records.headers)
    by_key = {row.key: row for row in read.collect()}
    assert (by_key["c"].value, by_key["c"].headers) == (None, [])
    assert by_key["c"].timestamp.replace(tzinfo=None) - by_key["b"].timestamp.replace(tzinfo=None) == (
        datetime.timedelta(seconds=0.5)
    )


WRONG: list[tuple[str, dict[str, str], str, str]] = [
    ("SELECT 'a' AS key, 1L AS value", {"job": ""}, "append", "option 'job' is missing; it is needed"),
    ("SELECT 'a' AS key, 1L AS value", {"batch": "x"}, "append", "option 'batch' is 'x'; a number from 0 on is needed"),
    ("SELECT 'a' AS key, 1L AS value", {"until": "[1]"}, "append", "option 'until' is unknown; known ones are needed"),
    ("SELECT 'a' AS key, 1L AS value", {"topic": "nope"}, "append", "topic 'nope' does not exist on"),
    ("SELECT 'a' AS key, 1L AS value", {}, "overwrite", "a topic is only appended to. Write .mode\\('append'\\)"),
    ("SELECT 'a' AS key, 'x' AS value", {}, "append", "column 'value' is string; bigint is needed for the serde"),
    ("SELECT 'a' AS key", {}, "append", "the frame has the columns key; 'value' is needed"),
    ("SELECT 'a' AS key, 1L AS value, 0L AS offset", {}, "append", "column 'offset' has no place in a record"),
]


@pytest.mark.parametrize(("sql", "options", "mode", "text"), WRONG)
def test_bad_input_is_refused_before_any_job(
    sql: str, options: dict[str, str], mode: str, text: str, log: LocalLog, data: dict[str, str], spark: Any
) -> None:
    log.create_topics([TopicSpec("found", 1)])
    given = {"topic": "found", "job": "one", "value": "int64", **data, **options}
    with pytest.raises(Exception, match=text) as caught:
        save(spark.sql(sql), mode, **given)
    assert told(caught.value).startswith("spark write of format 'eddy': ")
    assert rows_of(log, "found") == []


def test_a_value_that_its_serde_does_not_take_writes_nothing(log: LocalLog, data: dict[str, str], spark: Any) -> None:
    log.create_topics([TopicSpec("found", 1)])
    frame = spark.sql("SELECT 'a' AS key, '{}' AS value UNION ALL SELECT 'b', 'no JSON'")
    with pytest.raises(
        Exception, match=r"topic 'found': the value 'no JSON' is not a valid json: .*a value that fits is needed"
    ):
        save(frame, topic="found", job="one", value="json", **data)
    early = spark.sql("SELECT 'a' AS value, TIMESTAMP '1969-12-31 23:59:59+00:00' AS timestamp")
    with pytest.raises(Exception, match="a timestamp is 1000000 µs before 1970"):
        save(early, topic="found", job="one", **data)
    assert rows_of(log, "found") == []
