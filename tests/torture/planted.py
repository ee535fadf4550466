"""Bugs to plant into a worker: a torture that finds none of them proves nothing."""

import time
from collections.abc import Callable, Mapping

import confluent_kafka

from eddy.connectors.kafka.consumer import KafkaConsumer
from eddy.connectors.kafka.producer import KafkaProducer
from eddy.connectors.log import Position, TopicPartition
from eddy.operators.circuit import Circuit
from eddy.state.spec import Changes

__all__ = ["PLANTS", "changes_written_early"]


_changes = Circuit.changes


def changes_written_early(circuit: Circuit) -> dict[str, Changes]:  # private: planted
    """In place of `Circuit.changes`: the rows of an epoch are in the store already when its transaction begins."""
    rows = _changes(circuit)
    for name, changed in rows.items():
        state = circuit.states[name]
        state._store.write([(state.spec.prefix(p) + key, value) for p, key, value in changed])  # type: ignore[attr-defined]
    return rows


def write_the_store_before_the_commit() -> None:
    """See `changes_written_early`."""
    Circuit.changes = changes_written_early  # type: ignore[method-assign]


def commit_for_nobody() -> None:
    """The group's generation is not asked at the commit: the metadata are those of a client that never joined."""

    def anonymous(consumer: KafkaConsumer) -> object:  # private: planted
        group = consumer._where.split("'")[1]
        stranger = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        return stranger.consumer_group_metadata()

    made = KafkaConsumer.__init__
    bootstrap = ""

    def init(consumer: KafkaConsumer, settings: Mapping[str, object], *others: object) -> None:
        nonlocal bootstrap
        bootstrap = str(settings["bootstrap.servers"])
        made(consumer, settings, *others)  # type: ignore[arg-type]

    KafkaConsumer.__init__ = init  # type: ignore[method-assign]
    KafkaConsumer.group_metadata = anonymous  # type: ignore[method-assign]


def commit_positions_apart() -> None:
    """Positions are committed in a transaction of their own, a moment after the one with the outputs."""
    commit = KafkaProducer.commit

    def apart(producer: KafkaProducer, positions: Mapping[TopicPartition, Position], group: object) -> None:
        commit(producer, {}, None)
        time.sleep(0.05)  # pause: the moment between the two
        producer.begin()
        commit(producer, positions, group)

    KafkaProducer.commit = apart  # type: ignore[method-assign]


PLANTS: dict[str, Callable[[], None]] = {
    plant.__name__: plant for plant in (write_the_store_before_the_commit, commit_for_nobody, commit_positions_apart)
}
