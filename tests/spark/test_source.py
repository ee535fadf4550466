"""`spark.read.format("eddy")`: records of a topic are the records that the log's own port reads."""

import datetime
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.cli.fields import FIELD_TYPES
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark import register
from eddy.connectors.spark.inputs import RECORDS_A_RANGE, OffsetRange
from eddy.connectors.spark.source.source_options import SERDES
from eddy.connectors.spark.source.source_reading import RangePart, parts_of
from eddy.errors import ConfigurationError
from tests.spark.rig import rows_of, write
from tests.spark.source_frames import load, program_in, rows, told, topics

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]


def test_records_are_those_of_the_port(log: LocalLog, data: dict[str, str], spark: Any) -> None:
    log.create_topics([TopicSpec("notes", 3)])
    write(log, "notes", [(f"key {n}".encode(), f"note {n}".encode()) for n in range(50)] + [(b"key 1", None)])
    write(log, "notes", [(b"aborted", b"never read")], commit=False)
    log.write("notes", [("a", "last"), (None, "no key")], headers=(("h", b"\0x"), ("h", b"")), timestamp_ms=1_500)
    frame = load(spark, topic="notes", **data)
    expected = rows_of(log, "notes")
    assert rows(frame, "partition", "key", "value") == [(p, k and k.decode(), v and v.decode()) for p, k, v in expected]
    last = frame.where("value = 'last'").first()
    assert (last.topic, last.timestamp.timestamp()) == ("notes", 1.5)
    assert [(h.key, bytes(h.value)) for h in last.headers] == [("h", b"\0x"), ("h", b"")]
    assert frame.where("value = 'note 1'").first().headers == []
    by_bytes = load(spark, topic="notes", key="bytes", value="bytes", **data)
    assert [(p, k and bytes(k), v and bytes(v)) for p, k, v in rows(by_bytes, "partition", "key", "value")] == expected


def test_a_frame_has_the_records_as_of_its_load(log: LocalLog, data: dict[str, str], spark: Any) -> None:
    log.create_topics([TopicSpec("numbers", 1)])
    log.write("numbers", {"a": 1})
    frame = load(spark, topic="numbers", value="int64", **data)
    log.write("numbers", {"a": 2})
    assert [frame.count(), frame.count(), load(spark, topic="numbers", value="int64", **data).count()] == [1, 1, 2]


def test_until_ends_a_frame_at_offsets_or_before_a_time(log: LocalLog, data: dict[str, str], spark: Any) -> None:
    log.create_topics([TopicSpec("numbers", 2)])
    for number in range(6):
        log.write("numbers", [(str(number), number)], timestamp_ms=number * 1_000)
    whole = load(spark, topic="numbers", value="int64", **data)
    assert whole.schema["value"].dataType.simpleString() == "bigint"
    offsets = rows(whole, "partition", "offset", "value")
    for until in ("[4, 3]", '{"0": 4, "1": 3}'):
        found = rows(load(spark, topic="numbers", value="int64", until=until, **data), "partition", "offset", "value")
        assert found == [row for row in offsets if row[1] < [4, 3][row[0]]]
    moment = datetime.datetime.fromtimestamp(3, datetime.UTC).isoformat()
    before = load(spark, topic="numbers", value="int64", until=moment, **data)
    assert sorted(row[0] for row in rows(before, "value")) == [0, 1, 2]
    log.write("numbers", [("0", 7)], timestamp_ms=2_999)
    log.write("numbers", [("0", 8)], timestamp_ms=3_000)
    with_late = load(spark, topic="numbers", value="int64", until=moment, **data)
    assert sorted(row[0] for row in rows(with_late, "value")) == [0, 1, 2, 7], "older, though after newer ones"


def test_an_application_knows_the_serdes_of_its_topics(
    log: LocalLog, data: dict[str, str], spark: Any, tmp_path: Path
) -> None:
    app, family = program_in(tmp_path)
    log.create_topics(topics())
    nodes = {"a": family.Node(None, 1), "b": family.Node("a", 2, ("x", "y"), {"ann": 0.5})}
    log.write("nodes", nodes, value=eddy.Struct(family.Node))
    log.write("sizes", {"a": 7})
    frame = load(spark, topic="nodes", app=app, **data)
    shape = "struct<parent:string,size:bigint,tags:array<string>,shares:map<string,double>>"
    assert frame.schema["value"].dataType.simpleString() == shape
    read = {row.key: row.value.asDict() for row in frame.collect()}
    assert read == {
        "a": {"parent": None, "size": 1, "tags": [], "shares": {}},
        "b": {"parent": "a", "size": 2, "tags": ["x", "y"], "shares": {"ann": 0.5}},
    }
    assert [row.value for row in load(spark, topic="sizes", app=app, **data).collect()] == [7]


def test_a_long_partition_is_read_in_parts() -> None:
    whole = [OffsetRange(0, 7, 7 + 2 * RECORDS_A_RANGE + 1), OffsetRange(1, 3, 3), OffsetRange(2, 0, 1)]
    parts = [part.wanted for part in parts_of(whole) if isinstance(part, RangePart)]
    assert [(part.partition, part.end - part.start) for part in parts] == [
        *[(0, RECORDS_A_RANGE), (0, RECORDS_A_RANGE), (0, 1)],
        (2, 1),
    ]
    assert [part.end for part in parts[:2]] == [part.start for part in parts[1:3]]


WRONG = [
    ({"colour": "red"}, "option 'colour' is unknown; known ones are needed: data, .*Omit it"),
    ({"bootstrap": "127.0.0.1:9"}, "the options name two logs; one is needed"),
    ({"data": "nowhere"}, "there is no folder '.*nowhere'; an existing log is needed"),
    ({"topic": "numbre"}, "topic 'numbre' does not exist on .*/log; an existing topic is needed. List topics"),
    ({"topic": ""}, "option 'topic' is missing"),
    ({"value": "float32"}, "option 'value' is 'float32'; a serde is needed: string, int64"),
    (
        {"key": "int64"},
        "topic 'numbers' partition 0 offset 0: the key b'a' is not a valid int64: .* Write .option\\('key'",
    ),
    ({"value": "string"}, "offset 0: the values are not text: they contain zero bytes; a serde that fits"),
    ({"until": "[1, 2]"}, "option 'until' is '\\[1, 2\\]'; the topic has 1 partitions: an offset is needed for each"),
    ({"until": "[99]"}, "partition 0 ends at offset 2, before 99; an offset up to the end is needed"),
    ({"until": "2026-01-01"}, "option 'until' is '2026-01-01': it has no zone; offsets or a time with its zone"),
    ({"as_of": "end"}, "option 'as_of' is for tables"),
    ({"app": "nowhere.py"}, "option 'app': there is no file '.*nowhere.py'"),
    ({"app": "APP"}, "topic 'numbers' is neither read nor written by application 'family'"),
    ({"app": "APP:other", "topic": "nodes"}, "it names 0 topologies, the file defines topology; a single one"),
    ({"table": "sums"}, "options 'table' and 'topic' are given; a table has its own"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_bad_input_is_refused_by_load(
    options: dict[str, str], text: str, log: LocalLog, data: dict[str, str], spark: Any, tmp_path: Path
) -> None:
    app, _ = program_in(tmp_path)
    log.create_topics([*topics(), TopicSpec("numbers", 1)])
    log.write("numbers", {"a": 1})
    given = {"topic": "numbers", "value": "int64", **data, **options}
    if "app" in given:
        given["app"] = given["app"].replace("APP", app.removesuffix(":topology"))
    with pytest.raises(Exception, match=text) as caught:
        load(spark, **given)
    assert type(caught.value).__name__ == "AnalysisException"
    assert told(caught.value).startswith("spark read of format 'eddy': ")


def test_a_schema_is_refused_and_a_record_that_does_not_decode_is_named(
    log: LocalLog, data: dict[str, str], spark: Any
) -> None:
    log.create_topics([TopicSpec("numbers", 1)])
    log.write("numbers", {str(n): n for n in range(20)})
    log.write("numbers", {"x": "no number"})
    with pytest.raises(Exception, match="partition 0 offset 21: the value b'no number' is not a valid int64"):
        load(spark, topic="numbers", value="int64", **data).collect()
    with pytest.raises(Exception, match="a schema was given; the serdes give the schema"):
        spark.read.format("eddy").options(topic="numbers", **data).schema("a int").load().collect()


def test_sessions_of_one_process_are_registered_one_by_one(log: LocalLog, data: dict[str, str], spark: Any) -> None:
    log.create_topics([TopicSpec("numbers", 1)])
    log.write("numbers", {"a": 1})
    other = spark.newSession()
    try:
        for session in (other, spark, other):
            register(session)
            assert load(session, topic="numbers", value="int64", **data).count() == 1
    finally:
        register(spark)


def test_only_a_session_is_registered() -> None:
    with pytest.raises(ConfigurationError, match="register: 'spark' is not a session of Spark; one is needed"):
        register("spark")  # type: ignore[arg-type]


def test_serdes_have_the_names_that_the_command_line_has() -> None:
    assert {name: serde.name for name, serde in SERDES.items()} == {
        name: field.serde.name for name, field in FIELD_TYPES.items()
    }
