"""Closing clients of Kafka, while their group rebalances and while there is no broker: it ends, and soon."""

import gc
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import pytest

from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.log import TopicPartition, TopicSpec
from tests.children import ordered
from tests.connectors.joining import Order
from tests.connectors.steps import QUICK_SESSIONS, commit_one, wait_for
from tests.waiting import PATIENCE_S, quickest

ROUND_S = 10.0
"""How long one round may take, on a machine that is busy with other things."""


def close_while_rebalancing(
    broker: str, folder: Path, members: int, rounds: int, *settings: str, polls: bool = True
) -> None:
    pairs = [f"bootstrap.servers={broker}", *settings]
    name = f"closing-{uuid.uuid4().hex[:8]}"
    log = KafkaLog(KafkaSettings.of(pairs=pairs))
    log.create_topics([TopicSpec(name, 4)])
    groups = [name if polls else f"{name}-{member}" for member in range(members)]  # alone it is given them at once
    orders = [Order(pairs, group, name, str(n), rounds, polls) for n, group in enumerate(groups)]
    with ExitStack() as stack:
        stack.callback(log.close)
        for child in [stack.enter_context(ordered(folder, order)) for order in orders]:
            assert len(child.ends(patience_s=PATIENCE_S + ROUND_S * rounds).out.splitlines()) == rounds


def test_closing_ends_where_partitions_were_given_and_not_polled_for(broker: str, tmp_path: Path) -> None:
    close_while_rebalancing(broker, tmp_path, 3, 30, *QUICK_SESSIONS, polls=False)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_closing_ends_at_any_moment_of_two_hundred_rebalances(broker: str, tmp_path: Path) -> None:
    close_while_rebalancing(broker, tmp_path, 3, 200, *QUICK_SESSIONS)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_closing_ends_at_any_moment_under_the_newer_protocol(broker: str, tmp_path: Path) -> None:
    """One at a time: a name is free again only when its last session is over, unless it was closed."""
    close_while_rebalancing(broker, tmp_path, 1, 50, "group.protocol=consumer", "consumer.group.remote.assignor=range")


def test_closed_consumer_is_gone_from_its_group_when_its_session_is_over(broker: str) -> None:
    """Closing leaves nothing behind that would go on as a member: no thread, no heartbeat."""
    name = f"closing-{uuid.uuid4().hex[:8]}"
    log = KafkaLog(KafkaSettings.of(pairs=[f"bootstrap.servers={broker}", *QUICK_SESSIONS]))
    log.create_topics([TopicSpec(name, 1)])
    consumer = log.consumer(name, [name], "0")
    wait_for(lambda: bool(consumer.poll(1, 0.1).assigned))
    before = threads()
    consumer.close()
    assert threads() < before
    wait_for(lambda: log.groups().get(name, 0) == 0)
    log.close()


def threads() -> int:
    """All threads of this process, those of clients too."""
    return len(list(Path("/proc/self/task").iterdir()))


def test_log_closes_within_its_deadline_where_the_broker_has_gone() -> None:
    def attempt() -> float:
        log = KafkaLog(KafkaSettings.of(pairs=["bootstrap.servers=127.0.0.1:1"]))
        began = time.monotonic()
        log.close()
        return time.monotonic() - began

    quickest(attempt, 10.0)


def clients() -> int:
    return sum(isinstance(found, confluent_kafka.Producer | confluent_kafka.Consumer) for found in gc.get_objects())


def test_clients_are_freed_when_they_are_closed(broker: str) -> None:
    """A process may have some 1,000 clients; a worker looks for objects that refer to one another very seldom."""
    topic, group = (f"{stem}-{uuid.uuid4().hex[:8]}" for stem in ("freed", "group"))
    where = TopicPartition(topic, 0)
    gc.collect()
    gc.disable()
    try:
        before = clients()
        log = KafkaLog(KafkaSettings.of(broker, environ={}))
        log.create_topics([TopicSpec(topic, 1)])
        for _ in range(2):
            producer = log.producer(topic)
            commit_one(producer, topic)
            producer.close()
            consumer = log.consumer(group, [topic], "m")
            consumer.poll(1, 0.1)
            consumer.close()
            follower = log.follower({where: 0})
            follower.poll(1, 0.1)
            follower.close()
            log.write(topic, {"a": "b"})
            log.read(where, 0, 1, 1)
        log.close()
        del producer, consumer, follower, log
        assert clients() == before
    finally:
        gc.enable()
