"""Topologies whose topics have the schemas of a registry: the same by the client's own `mock://` registry, by one over
HTTP, and, in the long form, by Apicurio.
"""

import itertools
import json
from contextlib import closing
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.rpc import error_details_pb2

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.schema_registry.avro_types import schema_of
from eddy.connectors.schema_registry.client import client_of
from eddy.errors import ConfigurationError
from tests.schema_registry.conftest import unseen
from tests.schema_registry.people import ANN, BOB, NOW, PERSON, Person, PersonId
from tests.schema_registry.server import Server
from tests.waiting import wait_for

_numbers = itertools.count()
REAL = pytest.param("apicurio", marks=pytest.mark.long)


@pytest.fixture(params=["mock", "http", REAL])
def registry(request: pytest.FixtureRequest, server: Server) -> eddy.SchemaRegistry:
    """A registry; `mock` has no other scope than its name."""
    if request.param == "mock":
        return eddy.SchemaRegistry(f"mock://{next(_numbers)}")
    return unseen(server.url if request.param == "http" else request.getfixturevalue("real_url"))


@pytest.fixture
def topic() -> str:
    """A name that no other test has, since a real registry keeps its subjects."""
    return f"people-{next(_numbers)}"


def subjects(registry: eddy.SchemaRegistry, part: str) -> set[str]:
    found = client_of(registry.client_settings).get_subjects()
    return {name for name in found if name.startswith(part)}


def adults(topic: str, value: eddy.Serde[Any], age: Any = lambda person: person.age) -> eddy.Topology:
    """The adults of a topic, as a stream and as a table."""
    topology = eddy.Topology(f"{topic}-app")
    people = topology.stream(topic, key=eddy.String, value=value).filter(lambda name, person: age(person) >= 18)
    people.to(f"{topic}-adults")
    people.to_table("latest").to(f"{topic}-latest")
    return topology


@pytest.mark.parametrize("form", ["avro", "json"])
def test_values_of_a_type_pass_and_only_users_topics_have_subjects(
    registry: eddy.SchemaRegistry, topic: str, form: str
) -> None:
    topology = adults(topic, getattr(registry, form)(Person))
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input(topic).pipe("ann", ANN)
        driver.input(topic).pipe("bob", BOB)
        driver.restart(lose_state=True)
        assert driver.output(f"{topic}-adults").read_key_values() == [("ann", ANN)]
        assert driver.output(f"{topic}-latest").read_map() == {"ann": ANN}
        assert driver.store("latest").get("ann") == ANN
    assert subjects(registry, topic) == {f"{topic}-value", f"{topic}-adults-value", f"{topic}-latest-value"}


def test_values_without_a_type_are_dicts(registry: eddy.SchemaRegistry, topic: str) -> None:
    topology = adults(topic, registry.avro(PERSON), lambda person: person["age"])
    ann = {"name": "ann", "age": 31, "score": 1.0, "since": NOW}
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input(topic).pipe("ann", ann)
        driver.restart(lose_state=True)
        assert driver.store("latest").get("ann") == ann
        assert driver.output(f"{topic}-adults").read_key_values() == [("ann", ann)]


def test_protobuf_messages_pass(registry: eddy.SchemaRegistry, topic: str) -> None:
    topology = eddy.Topology("errors")
    infos = topology.table(topic, key=eddy.String, value=registry.protobuf(error_details_pb2.ErrorInfo), name="kept")
    infos.filter(lambda name, info: info.domain == "eddy").to(f"{topic}-own")
    sent = error_details_pb2.ErrorInfo(reason="FULL", domain="eddy", metadata={"b": "2", "a": "1"})
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input(topic).pipe("x", sent)
        driver.restart(lose_state=True)
        assert driver.store("kept").get("x") == sent
        assert driver.output(f"{topic}-own").read_key_values() == [("x", sent)]


def _message_of_two_files(scope: str) -> Any:
    """A class whose file imports another one."""
    pool = descriptor_pool.DescriptorPool()
    town, house = descriptor_pb2.FileDescriptorProto(), descriptor_pb2.FileDescriptorProto()
    town.name, town.package, town.syntax = f"{scope}/town.proto", "example", "proto3"
    town.message_type.add(name="Town").field.add(name="name", number=1, type=9, label=1)
    house.name, house.package, house.syntax = f"{scope}/house.proto", "example", "proto3"
    house.dependency.append(town.name)
    fields = house.message_type.add(name="House").field
    fields.add(name="town", number=1, type=11, label=1, type_name=".example.Town")
    pool.Add(town)
    pool.Add(house)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("example.House"))


def test_protobuf_files_that_a_message_imports_are_registered(registry: eddy.SchemaRegistry, topic: str) -> None:
    of = _message_of_two_files(topic)
    topology = eddy.Topology("houses")
    topology.stream(topic, key=eddy.String, value=registry.protobuf(of)).to(f"{topic}-out")
    house = of()
    house.town.name = "Ulm"
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input(topic).pipe("x", house)
        assert driver.output(f"{topic}-out").read_key_values() == [("x", house)]
    assert f"{topic}/town.proto" in subjects(registry, topic)


def test_keys_reach_the_owners_of_their_values_and_their_tombstones_find_them(
    registry: eddy.SchemaRegistry, topic: str
) -> None:
    """A topic is partitioned by bytes with the schema's id, so that a table of it is repartitioned."""
    topology = eddy.Topology("by-key")
    key = registry.avro(PersonId)
    people = topology.table(topic, key=key, value=eddy.String)
    calls = topology.stream(f"{topic}-calls", key=key, value=eddy.String)
    calls.join(people, lambda call, name: f"{name}: {call}", name="called").to(f"{topic}-called")
    people.to(f"{topic}-copy")
    with eddy.TopologyTestDriver(topology, partitions=3) as driver:
        for number in range(12):
            driver.input(topic).pipe(PersonId(number), f"name-{number}")
            driver.input(f"{topic}-calls").pipe(PersonId(number), "hello")
        driver.input(topic).pipe(PersonId(3), None)
        called = driver.output(f"{topic}-called").read_map()
        assert called == {PersonId(number): f"name-{number}: hello" for number in range(12)}
        copy = driver.output(f"{topic}-copy").read_key_values()
        assert driver.store(topic).get(PersonId(4)) == "name-4"
        assert (PersonId(3), None) in copy
        log = driver.log
        raw = [log.read(tp, 0, end, 100) for tp, end in log.end_offsets(_partitions(f"{topic}-copy")).items()]
        (deleted,) = [records for records in raw if None in records.values]
        assert deleted.keys.count(deleted.keys[deleted.values.index(None)]) == 2, "the row and its tombstone"
    assert subjects(registry, topic) >= {f"{topic}-key", f"{topic}-copy-key", f"{topic}-called-key"}
    assert not subjects(registry, "by-key"), "subjects of internal topics"


def test_keys_meet_at_their_owners_among_several_workers(registry: eddy.SchemaRegistry, topic: str) -> None:
    """Also keys that another program has written by a later schema, whose bytes are in other partitions."""
    later = {**schema_of(PersonId), "doc": "later"}

    def called() -> eddy.Topology:
        topology = eddy.Topology(f"{topic}-app")
        key = registry.avro(PersonId)
        people = topology.table(topic, key=key, value=eddy.String)
        calls = topology.stream(f"{topic}-calls", key=key, value=eddy.String)
        calls.join(people, lambda call, name: f"{name}: {call}", name="called").to(f"{topic}-called")
        return topology

    ids = [PersonId(number) for number in range(40)]
    with closing(LocalLog(None)) as log:
        log.create_topics(TopicSpec(f"{topic}{part}", 3) for part in ("", "-calls", "-called"))
        with (
            closing(eddy.Worker(called(), log, member="0")) as one,
            closing(eddy.Worker(called(), log, member="1")) as two,
        ):

            def settle() -> None:
                wait_for(lambda: (one.step() + two.step() == 0) and one.idle() and two.idle())

            settle()
            log.write(topic, {one: f"name-{one.number}" for one in ids}, key=registry.avro(PersonId), value=eddy.String)
            settle()
            by_later = registry.avro(later, PersonId)
            log.write(f"{topic}-calls", dict.fromkeys(ids, "hello"), key=by_later, value=eddy.String)
            settle()
            assert one.positions.entry.positions, "both have partitions"
            assert two.positions.entry.positions, "both have partitions"
        sent = [log.read(tp, 0, end, 100) for tp, end in log.end_offsets(_partitions(f"{topic}-called")).items()]
    assert sorted(value for records in sent for value in records.values if value is not None) == sorted(
        f"name-{one.number}: hello".encode() for one in ids
    )


def _partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(3)]


def test_a_later_program_reads_what_an_earlier_one_wrote(registry: eddy.SchemaRegistry, topic: str) -> None:
    """A field is new and one is gone, in the topic and in the state."""

    class Older(msgspec.Struct, frozen=True):
        name: str
        age: int
        nick: str = ""

    class Newer(msgspec.Struct, frozen=True):
        name: str
        age: int
        town: str = "Ulm"

    older, newer = (registry.avro(_named(type), type) for type in (Older, Newer))
    with eddy.TopologyTestDriver(adults(topic, older)) as driver:
        driver.input(topic).pipe("ann", Older("ann", 31, "annie"))
        written = driver.log.read(_partitions(topic)[0], 0, 1, 10).values[0]
    with eddy.TopologyTestDriver(adults(topic, newer)) as driver:
        driver.input(topic).pipe_raw(b"ann", written)
        assert driver.output(f"{topic}-adults").read_key_values() == [("ann", Newer("ann", 31, "Ulm"))]
    assert newer.decode(older.encode(Older("ann", 31, "annie"))) == Newer("ann", 31, "Ulm")
    assert older.name == newer.name, "a state is refused if the name of its serde changes"


def _named(of: Any) -> dict[str, Any]:
    """The schema of a type, under one name for all."""
    return {**schema_of(of), "name": "Person"}


def test_a_schema_uses_types_that_another_subject_defines(registry: eddy.SchemaRegistry, topic: str) -> None:
    town = {
        "type": "record",
        "name": "Town",
        "namespace": "com.example",
        "fields": [{"name": "name", "type": "string"}],
    }
    client_of(registry.client_settings).register_schema(f"{topic}-town", Schema(json.dumps(town), "AVRO"))
    house = {"type": "record", "name": "House", "fields": [{"name": "town", "type": "com.example.Town"}]}
    serde = registry.avro(house, references={"com.example.Town": (f"{topic}-town", 1)})
    topology = eddy.Topology("houses")
    topology.stream(topic, key=eddy.String, value=serde).to_table("kept").to(f"{topic}-out")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input(topic).pipe("x", {"town": {"name": "Ulm"}})
        assert driver.output(f"{topic}-out").read_map() == {"x": {"town": {"name": "Ulm"}}}
    found = client_of(registry.client_settings).get_latest_version(f"{topic}-out-value")
    assert found.schema is not None
    assert found.schema.references == [SchemaReference("com.example.Town", f"{topic}-town", 1)]


def test_a_subject_can_be_named(registry: eddy.SchemaRegistry, topic: str) -> None:
    serde = registry.avro(Person, subject=f"{topic}.Person")
    topology = eddy.Topology("named")
    topology.stream(topic, key=eddy.String, value=serde).to(f"{topic}-out")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input(topic).pipe("ann", ANN)
        assert driver.output(f"{topic}-out").read_key_values() == [("ann", ANN)]
    assert subjects(registry, topic) == {f"{topic}.Person"}


def test_a_schema_that_nobody_has_registered_is_refused_if_it_is_only_looked_up(
    registry: eddy.SchemaRegistry, topic: str
) -> None:
    there = registry.avro(Person)
    topology = eddy.Topology("careful")
    topology.stream(topic, key=eddy.String, value=there).to(f"{topic}-out", value=registry.avro(Person, register=False))
    with eddy.TopologyTestDriver(topology) as driver:
        with pytest.raises(ConfigurationError, match=r"subject 'people-\d+-out-value': .*; it has to be registered\."):
            driver.input(topic).pipe("ann", ANN)
        there.in_topic(f"{topic}-out", "value").encode(ANN)
        driver.restart()
        assert driver.output(f"{topic}-out").read_key_values() == [("ann", ANN)]


def test_records_that_the_registry_does_not_know_are_dead_letters(registry: eddy.SchemaRegistry, topic: str) -> None:
    topology = eddy.Topology("odd")
    topology.table(topic, key=eddy.String, value=registry.avro(Person), name="kept").to(f"{topic}-out")
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="dead-letter")) as driver:
        driver.input(topic).pipe("ann", ANN)
        driver.input(topic).pipe_raw(b"bob", bytes([0]) + (9_999_999).to_bytes(4, "big") + b"rest")
        driver.input(topic).pipe_raw(b"cid", b"no schema at all")
        letters = driver.output("odd-dead-letter", eddy.String, eddy.Bytes).read_records()
        assert [letter.key for letter in letters] == ["bob", "cid"]
        reasons = [dict(letter.headers)["eddy.error"] for letter in letters]
        assert b"answered 404" in reasons[0]
        assert b"registry in which its writer has registered the schema" in reasons[0]
        assert b"is not a valid avro(Person)" in reasons[1]
        assert driver.output(f"{topic}-out").read_map() == {"ann": ANN}


def test_a_value_that_would_be_changed_is_refused(registry: eddy.SchemaRegistry, topic: str) -> None:
    """fastavro writes 1.5 as the integer 1."""
    serde = registry.avro(PERSON)
    topology = eddy.Topology("exact")
    topology.stream(topic, key=eddy.String, value=serde).map_values(lambda person: {**person, "age": 1.5}).to(
        f"{topic}-out", value=serde
    )
    with (
        eddy.TopologyTestDriver(topology) as driver,
        pytest.raises(eddy.DataError, match=r"age: 1\.5 is not a valid int"),
    ):
        driver.input(topic).pipe("ann", {"name": "ann", "age": 1, "score": 1.0, "since": None})


@pytest.mark.parametrize("registry", ["http", REAL], indirect=True)
def test_an_incompatible_schema_ends_the_worker_at_its_first_row(registry: eddy.SchemaRegistry, topic: str) -> None:
    class Other(msgspec.Struct, frozen=True):
        name: str
        town: str

    registry.avro(Other, name="Person").in_topic(f"{topic}-adults", "value").encode(Other("ann", "Ulm"))
    if "/apis/ccompat" in registry.url:  # Apicurio compares nothing unless it is told to
        client_of(registry.client_settings).set_compatibility(f"{topic}-adults-value", "BACKWARD")
    with (
        eddy.TopologyTestDriver(adults(topic, registry.avro(Person)), eddy.Config(on_error="dead-letter")) as driver,
        pytest.raises(ConfigurationError, match=r"-adults-value': the schema registry answered 409.*defaults"),
    ):
        driver.input(topic).pipe("ann", ANN)


def test_nothing_is_asked_before_the_first_record(server: Server) -> None:
    topology = adults("people", unseen(server.url).avro(Person))
    topology.describe()
    with eddy.TopologyTestDriver(topology):
        pass
    assert server.registry.asked == []


@pytest.mark.parametrize(
    ("windows", "tail"),
    [
        (eddy.TimeWindows(timedelta(hours=1), grace=timedelta(0)), bytes(8)),
        (eddy.SessionWindows(timedelta(hours=1), grace=timedelta(0)), (1_000).to_bytes(8, "big") * 2),
    ],
    ids=["time", "session"],
)
def test_windowed_keys_are_those_of_the_topic(
    registry: eddy.SchemaRegistry, topic: str, windows: Any, tail: bytes
) -> None:
    """As Java's serializers of windowed keys have them: the key by its schema, then the window."""
    key = registry.avro(PersonId)
    topology = eddy.Topology("windowed")
    calls = topology.stream(topic, key=key, value=eddy.String)
    calls.group_by_key().windowed_by(windows).count("counts").to(f"{topic}-counts")
    with eddy.TopologyTestDriver(topology, partitions=2) as driver:
        for number in (1, 2, 1):
            driver.input(topic).pipe(PersonId(number), "hello", timestamp_ms=1_000)
        counts = driver.output(f"{topic}-counts", value=eddy.Int64).read_map()
        assert {windowed.key: count for windowed, count in counts.items()} == {PersonId(1): 2, PersonId(2): 1}
        log, inner = driver.log, key.in_topic(f"{topic}-counts", "key")
        ends = log.end_offsets(_partitions(f"{topic}-counts")[:2])
        keys = {data for tp, end in ends.items() for data in log.read(tp, 0, end, 100).keys}
        assert keys == {inner.encode(PersonId(number)) + tail for number in (1, 2)}
    assert subjects(registry, topic) == {f"{topic}-key", f"{topic}-counts-key"}
