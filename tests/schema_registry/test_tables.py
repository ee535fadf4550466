"""Tables whose topics have schemas are read by other programs, which register nothing."""

from collections.abc import Iterator
from contextlib import closing

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from tests.schema_registry.conftest import NewRegistry
from tests.schema_registry.people import ANN, BOB, Person, PersonId
from tests.schema_registry.server import Server
from tests.waiting import PATIENCE_S

COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture
def log() -> Iterator[LocalLog]:
    with closing(LocalLog(None)) as made:
        made.create_topics([TopicSpec(name, 2, COMPACTED) for name in ("people", "ids", "by-id")])
        yield made


def census(registry: eddy.SchemaRegistry) -> eddy.Topology:
    """A table served from its own topic, one from a changelog, and one from an output."""
    topology = eddy.Topology("census")
    topology.table("people", key=eddy.String, value=registry.avro(Person))
    ids = topology.table("ids", key=registry.avro(PersonId), value=registry.json(Person))
    ids.filter(lambda key, person: person.age >= 18).to("by-id")
    return topology


def test_each_kind_of_table_is_read(server: Server, new_registry: NewRegistry, log: LocalLog) -> None:
    ours = new_registry()
    rows = {PersonId(1): ANN, PersonId(2): BOB, PersonId(3): ANN}
    written = log.write("people", {"ann": ANN, "bob": BOB}, key=eddy.String, value=ours.avro(Person))
    written |= log.write("ids", rows, key=ours.avro(PersonId), value=ours.json(Person))
    with eddy.run(census(ours), log), eddy.open_tables(census(new_registry()), log) as tables:
        tables.wait(written, exact=True, timeout_s=PATIENCE_S)
        subjects = dict(server.registry.subjects)
        assert dict(tables["people"].all()) == {"ann": ANN, "bob": BOB}
        assert dict(tables["ids"].all()) == rows
        assert dict(tables["by-id"].all()) == {PersonId(1): ANN, PersonId(3): ANN}
        assert tables["by-id"].get(PersonId(3)) == ANN
        assert tables["by-id"].get(PersonId(2)) is None
        assert [key for key, _ in tables["ids"].range(PersonId(2))] == [PersonId(2), PersonId(3)]
    assert server.registry.subjects == subjects


def test_reading_registers_nothing(server: Server, new_registry: NewRegistry, log: LocalLog) -> None:
    """Neither does a look-up of a key in a table whose topic is empty."""
    with eddy.run(census(new_registry()), log), eddy.open_tables(census(new_registry()), log) as tables:
        tables.wait(exact=True, timeout_s=PATIENCE_S)
        assert [tables[name].get(PersonId(1)) for name in ("ids", "by-id")] == [None, None]
    assert server.registry.subjects == {}
    assert server.registry.asked == []
