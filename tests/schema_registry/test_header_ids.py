"""Records of other writers that have their schemas' ids in headers: all readers read both forms alike."""

import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer, prefix_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.rpc import error_details_pb2

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.schema_registry.avro_types import schema_of
from eddy.connectors.schema_registry.client import client_of
from eddy.partitioner import partition_of
from eddy.program.latest_records import record_of_row
from tests.schema_registry.conftest import NewRegistry
from tests.seeds import of_today
from tests.waiting import PATIENCE_S

PART = {"key": MessageField.KEY, "value": MessageField.VALUE}
Headers = list[tuple[str, Any]]


class Id(msgspec.Struct, frozen=True):
    number: int


class Reading(msgspec.Struct, frozen=True):
    """Zeros are zero bytes in Avro: they look like the beginning of an id."""

    a: int
    b: int
    c: int
    d: int
    e: int


@pytest.fixture
def log() -> Iterator[LocalLog]:
    with closing(LocalLog(None)) as made:
        made.create_topics(
            [TopicSpec(name, 2, {"cleanup.policy": "compact"}) for name in ("in", "out", "seen", "known")]
        )
        yield made


class Writer:
    """Somebody else's program, by confluent-kafka's serializers."""

    def __init__(self, log: LocalLog, registry: eddy.SchemaRegistry, topic: str) -> None:
        self.log, self.topic, self.client = log, topic, client_of(registry.client_settings)

    def encoded(self, value: Any, part: str, form: str, in_header: bool, headers: Headers) -> bytes:
        if isinstance(value, str):
            return value.encode()
        options = {"schema.id.serializer": header_schema_id_serializer if in_header else prefix_schema_id_serializer}
        context = SerializationContext(self.topic, PART[part], headers)
        if form == "protobuf":
            return bytes(ProtobufSerializer(type(value), self.client, options)(value, context))
        text = msgspec.json.encode(
            schema_of(type(value)) if form == "avro" else msgspec.json.schema(type(value))
        ).decode()
        plain = msgspec.to_builtins(value)
        if form == "avro":
            return bytes(AvroSerializer(self.client, text, conf=options)(plain, context))
        return bytes(JSONSerializer(text, self.client, conf=options)(plain, context))

    def write(self, rows: list[tuple[Any, Any, bool, bool]], form: str = "avro") -> dict[str, dict[int, int]]:
        producer = self.log.producer(None)
        producer.begin()
        for key, value, key_in_header, value_in_header in rows:
            headers: Headers = [("other", b"1")]
            data = self.encoded(key, "key", "avro", key_in_header, headers)
            body = None if value is None else self.encoded(value, "value", form, value_in_header, headers)
            home = partition_of(key.encode() if isinstance(key, str) else msgspec.json.encode(key), 2)
            producer.send(self.topic, home, [data], [body], [1], [tuple(headers)])
        ends = producer.flush()
        producer.commit({}, None)
        return {self.topic: {at.partition: end for at, end in ends.items()}}


def program(registry: eddy.SchemaRegistry, keyed: bool = True) -> eddy.Topology:
    topology = eddy.Topology("app")
    key, value = registry.avro(Id) if keyed else eddy.String, registry.avro(Reading)
    readings = topology.table("in", key=key, value=value)
    readings.filter(lambda key, reading: reading.a == 0).to("out", key=key, value=value)
    readings.group_by(lambda key, reading: (reading.e, str(key)), key=eddy.Int64).count("counts")
    return topology


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("seed", of_today(2))
def test_both_forms_are_read_alike_and_written_with_one_id(
    seed: int, keyed: bool, new_registry: NewRegistry, log: LocalLog
) -> None:
    drawn = random.Random(seed)
    rows: list[tuple[Any, Any, bool, bool]] = []
    for _ in range(40):
        reading = None if drawn.random() < 0.1 else Reading(*(drawn.choice((0, 0, -1, 1, 5)) for _ in range(5)))
        number = drawn.randrange(8)
        rows.append((Id(number) if keyed else f"k{number}", reading, drawn.random() < 0.5, drawn.random() < 0.5))
    table = {key: reading for key, reading, *_ in rows}
    latest = {key: reading for key, reading in table.items() if reading is not None}
    writer = Writer(log, new_registry(), "in")
    writer.write(rows[:20])
    topology = program(new_registry(), keyed)
    with eddy.run(topology, log), eddy.open_tables(program(new_registry(), keyed), log) as tables:
        tables.wait(writer.write(rows[20:]), exact=True, timeout_s=PATIENCE_S)
        assert dict(tables["in"].all()) == latest
        assert dict(tables["out"].all()) == {key: reading for key, reading in latest.items() if reading.a == 0}
        for key, reading in latest.items():
            assert tables["in"].get(key) == reading
            if isinstance(key, str):  # a table with other keys than its topic has no records of its rows
                assert record_of_row(tables, topology.plan, "in", key, {}).agrees
    worker = eddy.Worker(program(new_registry(), keyed), log, eddy.Config())  # without the states of the first one
    worker.run_until_idle()
    assert dict(worker.store("in").all()) == latest
    worker.close()
    read = AvroDeserializer(writer.client)
    for place in (TopicPartition("out", 0), TopicPartition("out", 1)):
        sent = log.read(place, 0, log.end_offsets([place])[place], 1_000)
        assert sent.headers is not None or not len(sent)
        for value, headers in zip(sent.values, sent.headers or (), strict=True):
            assert headers == (("other", b"1"),)
            if value is not None:
                context = SerializationContext("out", MessageField.VALUE, list(headers))
                assert read(value, context)["a"] == 0


def seen(registry: eddy.SchemaRegistry, form: str) -> eddy.Topology:
    topology = eddy.Topology("app")
    kind = error_details_pb2.ErrorInfo if form == "protobuf" else Reading
    value = getattr(registry, form)(kind)
    text = str if form != "protobuf" else lambda message: message.reason
    known = topology.global_table("known", key=registry.avro(Id), value=value)
    stream = topology.stream("in", key=registry.avro(Id), value=value, timestamp=lambda value: len(text(value)))
    joined = stream.join(known, lambda value, other: f"{text(value)} {text(other)}", select=lambda key, value: key)
    joined.to("seen", key=eddy.Json(), value=eddy.String)
    return topology


@pytest.mark.parametrize("form", ["avro", "json", "protobuf"])
def test_each_format_is_read_by_streams_and_global_tables(form: str, new_registry: NewRegistry, log: LocalLog) -> None:
    made: list[Any] = [Reading(0, 0, 0, 0, n) for n in range(2)]
    if form == "protobuf":
        made = [error_details_pb2.ErrorInfo(reason=f"no. {n}", domain="eddy") for n in range(2)]
    rows = [(Id(n), value, n == 0, n == 1) for n, value in enumerate(made)]
    registry = new_registry()
    Writer(log, registry, "known").write(rows, form)
    Writer(log, registry, "in").write(rows, form)
    worker = eddy.Worker(seen(new_registry(), form), log, eddy.Config(on_error="dead-letter"))
    worker.run_until_idle()
    worker.close()
    found = [log.read(TopicPartition("seen", n), 0, 9, 9) for n in range(2)]
    texts = sorted(value or b"" for records in found for value in records.values)
    shown = [str(value) if form != "protobuf" else value.reason for value in made]
    assert texts == sorted(f"{text} {text}".encode() for text in shown)
    assert sorted(time for records in found for time in records.timestamps) == sorted(map(len, shown))


def test_a_record_with_a_wrong_id_in_its_header_is_rejected_alone(new_registry: NewRegistry, log: LocalLog) -> None:
    registry = new_registry()
    writer = Writer(log, registry, "in")
    writer.write([(Id(1), Reading(0, 0, 0, 0, 1), True, True)])
    topology = program(new_registry())
    body = writer.encoded(Reading(0, 0, 0, 0, -1), "value", "avro", True, [])
    producer = log.producer(None)
    producer.begin()
    for wrong in (b"", b"\x01short", b"\x07" + bytes(16), b"\x01" + b"\xee" * 16):
        key = writer.encoded(Id(2), "key", "avro", False, [])
        producer.send("in", 0, [key], [body], [1], [(("__value_schema_id", wrong),)])
    producer.commit({}, None)
    worker = eddy.Worker(topology, log, eddy.Config(on_error="dead-letter"))
    worker.run_until_idle()
    assert dict(worker.store("counts").all()) == {1: 1}
    worker.close()
    letters = log.read(TopicPartition("app-dead-letter", 0), 0, 99, 99)
    assert list(letters.values) == [body] * 4


def test_a_program_that_copies_headers_writes_one_id(new_registry: NewRegistry, log: LocalLog) -> None:
    registry = new_registry()
    headers: Headers = [("other", b"1")]
    Writer(log, registry, "in").encoded(Reading(0, 0, 0, 0, 0), "value", "avro", True, headers)
    serde = registry.avro(Reading)
    log.write("out", {"a": Reading(0, 0, 0, 0, 0)}, key=eddy.String, value=serde, headers=tuple(headers))
    found = [log.read(TopicPartition("out", n), 0, 9, 9) for n in range(2)]
    assert [records.headers for records in found if len(records)] == [[(("other", b"1"),)]]
