"""Ids of schemas that eddy writes into headers: confluent-kafka's deserializers read them, and so do all of ours."""

import pickle
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.rpc import error_details_pb2

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.schema_registry.client import client_of
from eddy.connectors.spark.arrow_functions import unpack_headers
from eddy.connectors.spark.source.frame_writing import RowEncoding
from eddy.errors import ConfigurationError, TopologyError
from eddy.partitioner import partition_of
from tests.schema_registry.conftest import unseen
from tests.schema_registry.server import Server
from tests.schema_registry.test_header_ids import Id, Reading
from tests.waiting import PATIENCE_S

MUCH = 10**14
"""confluent-kafka's Avro deserializer takes no data of fewer than six bytes."""
KEY, VALUE = "__key_schema_id", "__value_schema_id"
LINK = error_details_pb2.Help.Link
"""A nested message: its place has two indexes."""
Record = tuple[int, bytes | None, bytes | None, dict[str, bytes]]


@pytest.fixture
def log() -> Iterator[LocalLog]:
    with closing(LocalLog(None)) as made:
        made.create_topics(
            [TopicSpec(name, 3, {"cleanup.policy": "compact"}) for name in ("in", "out", "counts", "again")]
        )
        yield made


def records(log: LocalLog, topic: str) -> list[Record]:
    """Partition, key, value and headers."""
    found: list[Record] = []
    for partition in range(3):
        read = log.read(TopicPartition(topic, partition), 0, 1_000, 1_000)
        headers = map(dict, read.headers or [()] * len(read))
        found += zip([partition] * len(read), read.keys, read.values, headers, strict=True)
    return found


def values(form: str) -> list[Any]:
    if form == "protobuf":
        return [LINK(description=f"no. {n}", url="http://eddy") for n in range(4)]
    return [Reading(0, 0, MUCH + n, 0, 1) for n in range(4)]


def confluent(form: str, server: Server, topic: str) -> tuple[Any, Any]:
    """Somebody else's readers of keys and values."""
    client = client_of(unseen(server.url).client_settings)
    made: dict[str, Any] = {
        "avro": lambda: AvroDeserializer(client),
        "json": lambda: JSONDeserializer(None, schema_registry_client=client),
        "protobuf": lambda: ProtobufDeserializer(LINK, {}, client),
    }
    keys, bodies = AvroDeserializer(client), made[form]()

    def of(read: Any, part: str) -> Any:
        return lambda data, headers: read(data, SerializationContext(topic, part, list(headers.items())))

    return of(keys, MessageField.KEY), of(bodies, MessageField.VALUE)


def plain(value: Any) -> Any:
    return value if isinstance(value, LINK) else {name: getattr(value, name) for name in value.__struct_fields__}


def program(registry: eddy.SchemaRegistry, form: str) -> eddy.Topology:
    """A stream that is passed on with its headers, and counts by key in windows."""
    topology, kind = eddy.Topology("app"), LINK if form == "protobuf" else Reading
    key, value = registry.avro(Id), getattr(registry, form)(kind)
    stream = topology.stream("in", key, value)
    stream.to("out")
    stream.group_by_key().windowed_by(eddy.TimeWindows(timedelta(hours=1))).count("counts").to("counts")
    return topology


@pytest.mark.parametrize("form", ["avro", "json", "protobuf"])
def test_a_worker_writes_them_and_others_read_them(form: str, server: Server, log: LocalLog) -> None:
    registry = unseen(server.url, ids_in_headers=True)
    key, value = registry.avro(Id), getattr(registry, form)(LINK if form == "protobuf" else Reading)
    rows = [(Id(MUCH + n), made) for n, made in enumerate(values(form))]
    end = log.write("in", [*rows, (Id(MUCH), None)], key=key, value=value, headers=(("other", b"1"),), timestamp_ms=1)
    with closing(eddy.Worker(program(unseen(server.url, ids_in_headers=True), form), log, eddy.Config())) as worker:
        worker.run_until_idle()
    for topic in ("in", "out"):
        read_key, read_value = confluent(form, server, topic)
        found = records(log, topic)
        assert len(found) == 5
        for partition, data, body, headers in found:
            assert partition == partition_of(data or b"", 3)
            assert headers.keys() == {"other", KEY, *([VALUE] if body is not None else [])}
            number = read_key(data, headers)["number"]
            assert body is None or read_value(body, headers) == plain(rows[number - MUCH][1])
        assert len({data for _, data, _, _ in found}) == 4  # the tombstone has the key of its row
    for _, data, _, headers in records(log, "counts"):  # windows of keys: the window's start is after the key
        read_key, _ = confluent(form, server, "counts")
        assert read_key((data or b"")[:-8], headers)["number"] - MUCH in range(4)
    plan = program(unseen(server.url), form)  # by serdes that write them before the data
    with eddy.open_tables(plan, log) as tables:
        tables.wait(end, exact=True, timeout_s=PATIENCE_S)
        assert {window.key.number: n for window, n in tables["counts"].all()} == dict.fromkeys(range(MUCH, MUCH + 4), 1)


def test_both_forms_of_one_topic_are_one_table(server: Server, log: LocalLog) -> None:
    topology = eddy.Topology("app")
    writes = unseen(server.url, ids_in_headers=True)
    readings = topology.table("in", key=eddy.String, value=writes.avro(Reading))
    readings.map_values(lambda reading: Reading(reading.b, 0, 0, 0, 0), value=writes.avro(Reading)).to("out")
    for registry, key in ((unseen(server.url), "a"), (writes, "b"), (unseen(server.url), "c"), (writes, "a")):
        log.write("in", {key: Reading(0, ord(key), 0, 0, 0)}, key=eddy.String, value=registry.avro(Reading))
    log.write("in", {"c": None}, key=eddy.String, value=writes.avro(Reading))
    with eddy.run(topology, log), eddy.open_tables(topology, log) as tables:
        end = log.write("in", {"d": Reading(0, 7, 0, 0, 0)}, key=eddy.String, value=writes.avro(Reading))
        tables.wait(end, exact=True, timeout_s=PATIENCE_S)
        assert {key: made.a for key, made in tables["out"].all()} == {"a": 97, "b": 98, "d": 7}
        assert tables["in"].get("b") == Reading(0, 98, 0, 0, 0)


def test_the_driver_writes_and_reads_them(server: Server) -> None:
    registry = unseen(server.url, ids_in_headers=True)
    with eddy.TopologyTestDriver(program(registry, "avro")) as driver:
        driver.input("in").pipe(Id(1), Reading(1, 2, 3, 4, 5), headers=(("other", b"1"),))
        (found,) = driver.output("out").read_records()
    assert (found.key, found.value) == (Id(1), Reading(1, 2, 3, 4, 5))
    assert [name for name, _ in found.headers] == ["other", KEY, VALUE]


def test_rows_of_a_frame_are_written_so(server: Server) -> None:
    registry = unseen(server.url, ids_in_headers=True)
    key, value = registry.avro(Id).in_topic("in", "key"), registry.avro(Id).in_topic("in", "value")
    rows = [{"key": {"number": 1}, "value": {"number": MUCH}}, {"key": {"number": 2}, "value": None}]
    (encoded,) = RowEncoding("in", key, value)([pa.RecordBatch.from_pylist(rows)])
    found, gone = encoded.to_pylist()
    headers = dict(unpack_headers(found["h"]))
    assert (found["k"], list(headers)) == (b"\x02", [KEY, VALUE])
    assert confluent("avro", server, "in")[1](found["v"], headers) == {"number": MUCH}
    assert (gone["k"], gone["v"], [name for name, _ in unpack_headers(gone["h"])]) == (b"\x04", None, [KEY])


def test_a_serde_keeps_its_form_in_another_process(server: Server) -> None:
    value = unseen(server.url, ids_in_headers=True).avro(Reading)
    for serde in (value.in_topic("in", "value"), pickle.loads(pickle.dumps(value)).in_topic("in", "value")):
        assert serde.id_end is not None
        (data,), headers = serde.ids_apart([serde.encode(Reading(0, 0, 0, 0, 0))], None)
        assert data == bytes(5)
        assert serde.with_ids([data], headers)[0] == serde.encode(Reading(0, 0, 0, 0, 0))


def test_a_registry_without_guids_is_named_and_no_record_blamed(server: Server, log: LocalLog) -> None:
    server.registry.guids = False
    registry = unseen(server.url, ids_in_headers=True)
    rows = {Id(1): Reading(0, 0, 0, 0, 0)}
    log.write("in", rows, key=unseen(server.url).avro(Id), value=unseen(server.url).avro(Reading))
    topology = program(registry, "avro")
    worker = eddy.Worker(topology, log, eddy.Config(on_error="skip"))
    with closing(worker), pytest.raises(ConfigurationError, match="it names no GUID of a schema"):
        worker.run_until_idle()


def test_what_is_no_choice_is_refused() -> None:
    wrong: Any = "headers"
    with pytest.raises(TopologyError, match="ids_in_headers='headers'; True or False is needed"):
        eddy.SchemaRegistry("mock://a", ids_in_headers=wrong)
