"""Serdes of a registry reach Spark's workers, which have clients of their own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import eddy
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.schema_registry.avro_types import schema_of
from eddy.connectors.spark.source.source_reading import decoded_or_error
from eddy.errors import ConfigurationError
from tests.schema_registry.server import Server, served
from tests.schema_registry.test_header_ids import Writer
from tests.spark.rig import Rig, plant

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]


class Town(msgspec.Struct, frozen=True):
    name: str


class Person(msgspec.Struct, frozen=True):
    name: str
    age: int
    town: Town


PEOPLE = [Person(f"p{n}", n * 7 % 60, Town(f"t{n % 3}")) for n in range(40)]


def towns(url: str, doc: str | None = None) -> eddy.Topology:
    """The people and the adults of each town."""
    registry = eddy.SchemaRegistry(url)
    topology = eddy.Topology("towns")
    key, value = registry.avro(Town), registry.avro(Person)
    people = topology.table("people", key=eddy.String, value=value)
    older = value if doc is None else registry.avro({**schema_of(Person), "doc": doc}, Person)
    people.filter(lambda name, person: person.age >= 18).to("adults", value=older)
    by_town = people.group_by(lambda name, person: (person.town, person), key=key, value=value)
    by_town.count("counts").to("counts", value=eddy.Int64)
    return topology


def in_topic(registry: eddy.SchemaRegistry) -> eddy.Serde[Any]:
    return registry.avro(Person).in_topic("people", "value")


@pytest.fixture
def server() -> Iterator[Server]:
    with served() as running:
        yield running


@pytest.fixture
def rig(tmp_path: Path, spark: Any, server: Server) -> Iterator[Rig]:
    topics = [TopicSpec("people", 2), TopicSpec("adults", 2), TopicSpec("counts", 2)]
    made = Rig(tmp_path, lambda: towns(server.url), topics, spark)
    value = eddy.SchemaRegistry(server.url).avro(Person)
    made.log.write("people", {person.name: person for person in PEOPLE}, key=eddy.String, value=value)
    made.log.write("people", {"p3": None, "p4": PEOPLE[5]}, key=eddy.String, value=value)
    yield made
    made.close()


@pytest.mark.parametrize("one_task", [0, None])
def test_a_backfill_writes_what_a_worker_writes_and_registers(rig: Rig, server: Server, one_task: int | None) -> None:
    rig.one_task = one_task
    rig.backfill()
    made = rig.held()
    assert set(server.registry.subjects) == {"people-value", "adults-value", "counts-key"}
    rig.work()
    assert rig.held() == made
    assert rig.verify().status == 0


def test_verify_accepts_an_equal_row_of_an_older_schema(rig: Rig, server: Server) -> None:
    """The worker has written by a schema that differs from the program's of today in its text."""
    today = rig.topology
    rig.topology = lambda: towns(server.url, doc="older")
    rig.work()
    rig.topology = today
    verdict = rig.verify()
    assert (verdict.status, verdict.word) == (0, "equal")
    assert len(server.registry.subjects["adults-value"]) == 2, "verify has registered the schema of today"


def test_ids_in_headers_are_refused_by_name(rig: Rig, server: Server) -> None:
    registry = eddy.SchemaRegistry(server.url)
    Writer(rig.log, registry, "people").write([("p1", PEOPLE[1], False, True)])
    read = [rig.log.read(TopicPartition("people", n), 0, 99, 99) for n in range(2)]
    people = [person for records in read for person in decoded_or_error(records, in_topic(registry), "value")]
    assert [person for person in people if person is not None][-1] in PEOPLE, "the data source reads them"
    with pytest.raises(eddy.DataError, match=r"topic 'people' partition . offset .*the header '__value_schema_id'"):
        rig.backfill()


def test_outputs_with_ids_in_headers_are_left_out_by_name(rig: Rig, server: Server) -> None:
    def with_headers() -> eddy.Topology:
        made = eddy.Topology("towns")
        writes = eddy.SchemaRegistry(server.url, ids_in_headers=True).avro(Person)
        people = made.table("people", key=eddy.String, value=eddy.SchemaRegistry(server.url).avro(Person))
        people.filter(lambda name, person: person.age >= 18).to("adults", value=writes)
        people.group_by(lambda name, person: (person.town.name, 1), key=eddy.String).count("counts").to("counts")
        return made

    rig.topology = with_headers
    with pytest.raises(ConfigurationError, match="topic 'adults' is written with the ids of schemas in headers"):
        rig.backfill()
    rig.work()
    verdict = rig.verify()
    assert {part.name for part in verdict.compared} >= {"counts"}
    assert not any(part.differing for part in verdict.compared)
    assert verdict.undetermined == {"sink 'adults'": "the ids of its schemas are in headers, which are not compared"}


def test_a_repair_writes_corrections_by_the_schema_of_the_topic(rig: Rig, server: Server) -> None:
    rig.work()
    serde = eddy.SchemaRegistry(server.url).avro(Person).in_topic("people", "value")
    wrong = serde.encode(msgspec.structs.replace(PEOPLE[7], age=1))
    plant(rig, "UPDATE records SET value = ?", "people", b"p7", wrong)
    verdict = rig.verify(repair=True)
    assert list(verdict.lines())[-1].startswith("corrections written: 1 to people"), list(verdict.lines())
    assert serde.decode(rig.latest("people")[b"p7"][1]).age == 1
    rig.work()
    assert rig.verify().status == 0
