"""A broker starts, stops, comes back with its data, and says what is wrong where it cannot."""

import socket
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from eddy import ConnectorError
from eddy.connectors.broker import Broker, broker_node, free_port, kafka_version
from eddy.connectors.broker.ports import is_free
from tests.kafka import OwnBroker, Secured, StartCluster
from tests.waiting import PATIENCE_S, wait_for

RETRYING = {"message.timeout.ms": 120_000, "reconnect.backoff.max.ms": 500}


def make_topic(client: dict[str, str], topic: str, copies: int = 1) -> None:
    admin = AdminClient(client)
    admin.create_topics([NewTopic(topic, 1, copies)], operation_timeout=PATIENCE_S)[topic].result(PATIENCE_S)


def outcome(client: dict[str, str], topic: str, value: str) -> KafkaError | None:
    """Write one record, to all nodes that are to have it. Return what was wrong."""
    errors: list[KafkaError | None] = []
    producer = Producer({**client, **RETRYING, "acks": "all"})
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    wait_for(lambda: producer.flush(1.0) == 0, PATIENCE_S, f"the end of a write to {topic}")
    return errors[0]


def send(client: dict[str, str], topic: str, value: str) -> None:
    assert outcome(client, topic, value) is None


def records(client: dict[str, str], topic: str, count: int) -> list[bytes]:
    """Read the first `count` records."""
    consumer = Consumer({**client, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []

    def all_there() -> bool:
        found.extend(message.value() for message in consumer.consume(count - len(found), 1.0))
        return len(found) == count

    wait_for(all_there, PATIENCE_S, f"{count} records of {topic}")
    consumer.close()
    return found


def test_data_is_kept_through_stop_kill_and_pause(own_broker: OwnBroker) -> None:
    one = own_broker()
    assert not one.running
    assert one.start()
    client, pid = {"bootstrap.servers": one.bootstrap}, one.pid
    make_topic(client, "kept")
    send(client, "kept", "first")

    assert one.stop()
    assert not one.running
    assert one.pid is None
    one.start()
    assert one.pid != pid
    assert client == {"bootstrap.servers": one.bootstrap}
    send(client, "kept", "second")

    one.kill()
    assert not one.running
    one.restart()
    one.pause()
    one.resume()
    assert records(client, "kept", 2) == [b"first", b"second"]


def test_starting_what_runs_changes_nothing(broker: str, brokers_folder: Path) -> None:
    again = Broker(brokers_folder / "shared", port=free_port())
    pid = again.pid
    assert not again.start()
    assert (again.pid, again.bootstrap, again.version) == (pid, broker, kafka_version())


def test_two_that_start_it_at_once_have_one_between_them(own_broker: OwnBroker) -> None:
    one = own_broker()
    started: list[bool] = []
    both = [threading.Thread(target=lambda: started.append(one.start())) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert sorted(started) == [False, True]


def test_port_that_is_taken_is_named(own_broker: OwnBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConnectorError, match=rf"port {port} of 127\.0\.0\.1 is taken .* --port \d+"):
            own_broker(port=port).start()


def test_port_that_is_taken_just_after_it_was_chosen_costs_a_second_start(
    own_broker: OwnBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server_in_the_way:
        taken = server_in_the_way.getsockname()[1]
        chosen = [taken]
        monkeypatch.setattr(broker_node, "free_port", lambda: chosen.pop() if chosen else free_port())
        monkeypatch.setattr(broker_node, "is_free", lambda port: port == taken or is_free(port))
        one = own_broker()
        one.start()
        assert (one.running, one.port != taken) == (True, True)


def test_setting_that_kafka_refuses_is_told_in_kafkas_words(own_broker: OwnBroker) -> None:
    one = own_broker(settings={"num.io.threads": "many"})
    with pytest.raises(
        ConnectorError, match=r"Invalid value many for configuration num\.io\.threads.* See .*broker\.log"
    ):
        one.start()
    assert not one.running


def test_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(ConnectorError, match=r"holds 1 other files \('letters', …\); an empty folder is needed"):
        Broker(tmp_path).start()
    Broker(tmp_path).remove()
    assert [path.name for path in tmp_path.iterdir()] == ["letters"]


def test_port_is_asked_for_too_early(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="has no port yet"):
        _ = Broker(tmp_path).port


def test_secured_broker_asks_for_passwords_and_rights(secured_broker: Secured) -> None:
    topic = "rights"
    make_topic(secured_broker.client(), topic)
    send(secured_broker.client(), topic, "by admin")
    refused = outcome(secured_broker.client("eddy"), topic, "not yet")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    write = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:eddy",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient(secured_broker.client())
    admin.create_acls([write])[write].result(PATIENCE_S)
    # the controller has the right before the broker does
    wait_for(lambda: outcome(secured_broker.client("eddy"), topic, "by eddy") is None, PATIENCE_S, "the right to write")
    assert records(secured_broker.client(), topic, 2) == [b"by admin", b"by eddy"]


def test_three_nodes_go_on_when_one_is_killed(cluster: StartCluster) -> None:
    three = cluster()
    client = {"bootstrap.servers": three.bootstrap}
    make_topic(client, "copied", copies=3)
    send(client, "copied", "to three")
    admin = AdminClient(client)
    wait_for(lambda: len(admin.list_topics("copied", timeout=PATIENCE_S).brokers) == 3, PATIENCE_S, "three brokers")
    leader = admin.list_topics("copied", timeout=PATIENCE_S).topics["copied"].partitions[0].leader

    three.nodes[leader - 1].kill()
    send(client, "copied", "to two")
    assert records(client, "copied", 2) == [b"to three", b"to two"]

    three.nodes[leader - 1].start()
    send(client, "copied", "to three again")
    assert records({"bootstrap.servers": three.nodes[leader - 1].bootstrap}, "copied", 3)[-1] == b"to three again"
