"""A registry that is away, slow or out of order blames no record; what a worker has seen it does not ask for again."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.errors import ConfigurationError, ConnectorError
from eddy.runtime.metadata import read_metadata
from tests.schema_registry.conftest import NewRegistry, unseen
from tests.schema_registry.people import ANN, BOB, Person
from tests.schema_registry.server import Server
from tests.waiting import wait_for

LETTERS = "people-app-dead-letter"
COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with closing(LocalLog(tmp_path / "log")) as made:
        made.create_topics([TopicSpec("people", 1, COMPACTED), TopicSpec("adults", 1)])
        yield made


def people(registry: eddy.SchemaRegistry, writer: eddy.SchemaRegistry | None = None) -> eddy.Topology:
    topology = eddy.Topology("people-app")
    table = topology.table("people", key=eddy.String, value=registry.avro(Person))
    table.filter(lambda name, person: person.age >= 18).to("adults", value=(writer or registry).avro(Person))
    return topology


@pytest.fixture
def work(log: LocalLog) -> Iterator[Callable[..., eddy.Worker]]:
    """Start a worker that writes dead letters."""
    made: list[eddy.Worker] = []

    def begin(topology: eddy.Topology, **config: float) -> eddy.Worker:
        made.append(eddy.Worker(topology, log, eddy.Config(on_error="dead-letter", **config)))
        return made[-1]

    yield begin
    for worker in made:
        worker.close()


def count(log: LocalLog, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    return len(log.read(partition, 0, log.end_offsets([partition])[partition], 1_000))


def adults(log: LocalLog, registry: eddy.SchemaRegistry) -> list[Person]:
    serde = registry.avro(Person).in_topic("adults", "value")
    partition = TopicPartition("adults", 0)
    values = log.read(partition, 0, log.end_offsets([partition])[partition], 100).values
    return [serde.decode(value) for value in values if value is not None]


@pytest.mark.parametrize("tombstones", [{}, {"cid": None}], ids=["values", "with a tombstone"])
def test_records_wait_until_the_registry_is_back(
    server: Server,
    new_registry: NewRegistry,
    log: LocalLog,
    work: Callable[..., eddy.Worker],
    tombstones: dict[str, None],
) -> None:
    rows = {"ann": ANN, "bob": BOB, **tombstones}
    log.write("people", rows, key=eddy.String, value=new_registry().avro(Person))
    worker = work(people(new_registry()))
    server.go_away()
    wait_for(lambda: worker.step() == 0 and worker.trouble is not None)
    assert worker.trouble is not None
    assert "subject 'people-value': the schema registry does not answer" in worker.trouble.error
    server.come_back()
    wait_for(lambda: worker.step() == len(rows))
    assert count(log, LETTERS) == 0
    assert adults(log, new_registry()) == [ANN]


def test_a_worker_goes_on_with_the_schemas_that_it_has_seen(
    server: Server, new_registry: NewRegistry, log: LocalLog, work: Callable[..., eddy.Worker]
) -> None:
    elsewhere, ours = new_registry(), new_registry()
    log.write("people", {"ann": ANN}, key=eddy.String, value=elsewhere.avro(Person))
    worker = work(people(ours))
    worker.run_until_idle()
    server.go_away()
    asked = len(server.registry.asked)
    log.write(
        "people", {"cid": msgspec.structs.replace(ANN, name="cid")}, key=eddy.String, value=elsewhere.avro(Person)
    )
    worker.run_until_idle()
    assert worker.store("people").get("cid").name == "cid"
    assert [person.name for person in adults(log, ours)] == ["ann", "cid"]
    assert len(server.registry.asked) == asked


def test_rows_wait_for_the_registration_of_their_schema(
    server: Server, new_registry: NewRegistry, log: LocalLog, work: Callable[..., eddy.Worker]
) -> None:
    """The program reads by one registry, which is there, and writes by another one."""
    reads = eddy.SchemaRegistry("mock://outages")
    log.write("people", {"ann": ANN}, key=eddy.String, value=reads.avro(Person))
    worker = work(people(reads, writer=new_registry()))
    server.go_away()
    wait_for(lambda: worker.step() == 0 and worker.trouble is not None)
    assert count(log, "adults") == count(log, LETTERS) == 0
    server.come_back()
    wait_for(lambda: worker.step() == 1)
    assert count(log, "adults") == 1
    assert count(log, LETTERS) == 0


def test_a_table_that_is_restored_from_its_topic_waits_too(
    server: Server, new_registry: NewRegistry, log: LocalLog, work: Callable[..., eddy.Worker]
) -> None:
    log.write("people", {"ann": ANN}, key=eddy.String, value=new_registry().avro(Person))
    first = work(people(new_registry()))
    first.run_until_idle()
    first.close()
    second = work(people(new_registry()))
    server.go_away()
    wait_for(lambda: second.step() == 0 and second.trouble is not None)
    server.come_back()
    second.run_until_idle()
    assert second.store("people").get("ann") == ANN


def test_a_worker_gives_up_after_its_time(
    server: Server, new_registry: NewRegistry, log: LocalLog, work: Callable[..., eddy.Worker]
) -> None:
    log.write("people", {"ann": ANN}, key=eddy.String, value=new_registry().avro(Person))
    server.registry.status = 503
    worker = work(people(new_registry()), retry_s=0.0)

    def steps() -> None:
        while True:
            worker.step()

    with pytest.raises(ConnectorError, match=r"the schema registry answered 503 \(50001\): Error in the backend"):
        steps()
    assert count(log, LETTERS) == 0


def test_a_driver_says_so_at_once(server: Server, new_registry: NewRegistry) -> None:
    """Its clock does not move, so that it would try for ever."""
    data = new_registry().avro(Person).in_topic("people", "value").encode(ANN)
    server.go_away()
    with (
        eddy.TopologyTestDriver(people(new_registry())) as driver,
        pytest.raises(ConnectorError, match="does not answer") as caught,
    ):
        driver.input("people").pipe_raw(b"ann", data)
    server.come_back()
    assert caught.value.retriable


def test_a_registry_that_hangs_is_left_after_its_timeout(server: Server) -> None:
    server.registry.hangs = threading.Event()
    registry = eddy.SchemaRegistry(server.url, settings={"timeout": 0.1, "max.retries": 0})
    with pytest.raises(ConnectorError, match="the schema registry does not answer") as caught:
        registry.avro(Person).in_topic("people", "value").encode(ANN)
    assert caught.value.retriable


def test_a_schema_that_is_not_compatible_is_an_error_of_its_own(
    new_registry: NewRegistry, log: LocalLog, work: Callable[..., eddy.Worker]
) -> None:
    class Person2(msgspec.Struct, frozen=True):
        name: str
        town: str

    new_registry().avro(Person2).in_topic("adults", "value").encode(Person2("ann", "Ulm"))
    log.write("people", {"ann": ANN}, key=eddy.String, value=new_registry().avro(Person))
    worker = work(people(new_registry()))
    with pytest.raises(ConfigurationError, match=r"subject 'adults-value'.*answered 409.*Give new fields defaults"):
        worker.run_until_idle()
    assert count(log, LETTERS) == 0


def test_a_user_without_the_right_is_told_so_without_the_password(server: Server) -> None:
    server.registry.user = "Basic YW5uOnNlY3JldA=="  # ann:secret
    right = eddy.SchemaRegistry(server.url, user="ann:secret", settings={"cache.capacity": 77})
    assert right.avro(Person).in_topic("people", "value").encode(ANN)
    wrong = eddy.SchemaRegistry(server.url, user="ann:wrong-one")
    with pytest.raises(ConfigurationError, match="answered 401") as caught:
        wrong.avro(Person).in_topic("people", "value").encode(ANN)
    assert "wrong-one" not in f"{caught.value}{wrong!r}"


def test_an_address_without_a_registry_is_told_so(server: Server) -> None:
    registry = unseen(f"{server.url}/elsewhere")
    with pytest.raises(ConfigurationError, match=r"answered 404.*Check its address"):
        registry.avro(Person).in_topic("people", "value").encode(ANN)


def test_a_record_that_was_rejected_stays_rejected_when_the_registry_learns_its_schema(
    server: Server, new_registry: NewRegistry, log: LocalLog, work: Callable[..., eddy.Worker]
) -> None:
    """A restore from the topic decides nothing anew: outputs have gone out without the record."""
    log.write("people", {"ann": ANN}, key=eddy.String, value=new_registry().avro(Person))
    elsewhere = new_registry().avro(Person, subject="elsewhere").in_topic("people", "value").encode(BOB)
    unknown = elsewhere[:1] + (77).to_bytes(4, "big") + elsewhere[5:]
    log.write("people", {"bob": unknown}, key=eddy.String, value=eddy.Bytes)
    first = work(people(new_registry()))
    first.run_until_idle()
    assert (count(log, LETTERS), first.store("people").get("bob")) == (1, None)
    first.close()
    server.registry.schemas[77] = server.registry.schemas[1]
    second = work(people(new_registry()))
    second.run_until_idle()
    assert second.store("people").get("ann") == ANN
    assert second.store("people").get("bob") is None


@pytest.mark.parametrize("settings", [COMPACTED, {}], ids=["restored from the topic", "with a changelog"])
def test_a_rejection_for_an_unknown_schema_is_noted(
    new_registry: NewRegistry, log: LocalLog, work: Callable[..., eddy.Worker], settings: dict[str, str]
) -> None:
    """For Spark and table servers, which may ask a registry that knows the schema by then."""
    log.create_topics([TopicSpec("calls", 1, settings), TopicSpec("out", 1)])
    log.write("calls", {"bob": bytes([0, 0, 0, 0, 77, 1, 2]), "cid": b"no schema"}, key=eddy.String, value=eddy.Bytes)
    topology = eddy.Topology("noting")
    topology.table("calls", key=eddy.String, value=new_registry().avro(Person)).to("out")
    work(topology).run_until_idle()
    assert read_metadata(log, "noting-plan").left_out == {("calls", 0, 0)}, "the other one is bad for everybody"
