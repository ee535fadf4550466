"""On Kafka, between a producer and a consumer that use confluent-kafka's serializers and know nothing of eddy."""

import json
import uuid
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import eddy
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.log import TopicSpec
from eddy.connectors.schema_registry.client import client_of
from tests.schema_registry.conftest import NewRegistry
from tests.schema_registry.people import PERSON, PersonId
from tests.schema_registry.server import Server
from tests.waiting import wait_for

ID = {"type": "record", "name": "PersonId", "fields": [{"name": "number", "type": "long"}]}
PEOPLE = [{"name": f"p{n}", "age": n, "score": 0.5, "since": None} for n in range(30)]


@pytest.fixture
def names() -> tuple[str, str]:
    suffix = uuid.uuid4().hex[:8]
    return f"people-{suffix}", f"adults-{suffix}"


def test_records_of_other_programs_are_read_and_records_for_them_written(
    broker: str, server: Server, new_registry: NewRegistry, names: tuple[str, str]
) -> None:
    people, adults = names
    registry = new_registry()
    client = client_of(new_registry().client_settings)
    with closing(KafkaLog(KafkaSettings.of(broker))) as log:
        log.create_topics([TopicSpec(people, 3), TopicSpec(adults, 3)])
        _produce(broker, people, client)
        topology = eddy.Topology(f"app-{people}")
        table = topology.table(people, key=registry.avro(PersonId), value=registry.avro(PERSON), name="kept")
        table.filter(lambda key, person: person["age"] >= 18).to(adults)
        with closing(eddy.Worker(topology, log)) as worker:
            wait_for(lambda: worker.step(0.1) >= 0 and worker.quiescent() and worker.store("kept").get(PersonId(29)))
            wait_for(lambda: worker.step(0.1) >= 0 and worker.idle())
    assert _consumed(broker, adults, client, 12) == {n: PEOPLE[n] for n in range(18, 30)}
    assert set(server.registry.subjects) == {f"{topic}-{part}" for topic in names for part in ("key", "value")}


def _produce(broker: str, topic: str, client: Any) -> None:

    key, value = AvroSerializer(client, json.dumps(ID)), AvroSerializer(client, json.dumps(PERSON))
    producer = Producer({"bootstrap.servers": broker, "partitioner": "murmur2_random"})
    for number, person in enumerate(PEOPLE):
        producer.produce(
            topic,
            key=key({"number": number}, SerializationContext(topic, MessageField.KEY)),
            value=value(person, SerializationContext(topic, MessageField.VALUE)),
        )
    assert producer.flush(30) == 0


def _consumed(broker: str, topic: str, client: Any, count: int) -> dict[int, Any]:
    key, value = AvroDeserializer(client), AvroDeserializer(client)
    settings = {"bootstrap.servers": broker, "group.id": f"reads-{topic}", "auto.offset.reset": "earliest"}
    found: dict[int, Any] = {}
    consumer = Consumer(settings)
    consumer.subscribe([topic])

    def poll() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            read: Any = key(message.key(), SerializationContext(topic, MessageField.KEY))
            found[read["number"]] = value(message.value(), SerializationContext(topic, MessageField.VALUE))
        return len(found) >= count

    wait_for(poll)
    consumer.close()
    return found
