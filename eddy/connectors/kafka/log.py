"""Kafka as a log: the port of `eddy/connectors/log.py` over confluent-kafka.

    KafkaLog → consumer, producer, reader → librdkafka
             → the admin client: topics, offsets, groups

Guarantees of the port beyond Kafka's own, and how they are provided:

    stable positions   a read waits for an open transaction's position until it ends or times out
    co-partitioning    the assignor is `range`; it gives partition i of every topic to one member
    nothing skipped    positions are explicit; `auto.offset.reset` is `error`
    one owner          generation at commit, transactional id, static membership

Rule 6 of the port is not provided: Kafka compacts records that a group has not read, so a table's source topic cannot
replace its changelog (ADR 9).
"""

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from eddy.connectors.kafka.admin import Admin
from eddy.connectors.kafka.client_log import client_logger
from eddy.connectors.kafka.cluster_trouble import ClusterTrouble
from eddy.connectors.kafka.consumer import KafkaConsumer
from eddy.connectors.kafka.error_codes import error_of
from eddy.connectors.kafka.follower import KafkaFollower
from eddy.connectors.kafka.producer import OVERHEAD_BYTES, KafkaProducer
from eddy.connectors.kafka.reader import KafkaReader
from eddy.connectors.kafka.settings import KafkaSettings
from eddy.connectors.log import (
    Headers,
    Position,
    Records,
    TopicPartition,
    TopicSpec,
    check_partitions,
    check_topic_names,
    never,
)
from eddy.connectors.record_limits import refusals
from eddy.connectors.writing import WritableLog
from eddy.errors import ConfigurationError, RecordRefusedError
from eddy.partitioner import Partitioner

__all__ = ["RECENT_S", "SWEEP_S", "KafkaLog"]

T = TypeVar("T")

_TRANSACTION_TIMEOUT_MS = 20_000
_SILENT = 0  # no log of the admin client, which would be written to stderr; its errors are raised anyway
SWEEP_S = 20.0
"""Seconds after a transaction's time limit within which a broker ends the transaction."""
RECENT_S = 1.0
"""Seconds between two reads of the spec of a topic that refuses records."""
_COMMON: dict[str, object] = {"retry.backoff.ms": 10, "topic.metadata.propagation.max.ms": 30_000}
_CONSUMER: dict[str, object] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 50,
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 32_768,
}
_FOLLOWER: dict[str, object] = {"fetch.wait.max.ms": 10}
_OF_GROUPS = ("group.", "session.", "heartbeat.", "partition.assignment", "max.poll")
_READER: dict[str, object] = {"fetch.wait.max.ms": 10, "queued.max.messages.kbytes": 16_384}
_MEMBER: dict[str, object] = {
    "partition.assignment.strategy": "range",
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 3_000,
}
_PRODUCER: dict[str, object] = {
    "linger.ms": 5,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 100_000,  # each takes 0.2 kB in addition to its bytes
    "queue.buffering.max.kbytes": 262_144,
    "message.max.bytes": 100_000_000,
    "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
}


class KafkaLog(WritableLog):
    """A `Log` on a Kafka cluster. Not for several threads."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.where = f"kafka {settings.bootstrap}"
        timeout_ms = int(settings.for_producer().get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS))
        self._trouble = ClusterTrouble(self.where, lambda: self._admin.answers())
        quiet = {"log_level": _SILENT, "error_cb": self._trouble.report}
        as_admin = _COMMON | settings.for_admin() | quiet
        asked = {key: value for key, value in settings.for_consumer().items() if not key.startswith(_OF_GROUPS)}
        self._alone = alone = _COMMON | _CONSUMER | asked | self._reports()
        self._admin = Admin(
            lambda: self._make_client(lambda given: AdminClient(dict(given)), as_admin),  # type: ignore[arg-type]
            self.where,
            timeout_ms / 1000 + SWEEP_S,
            lambda group: confluent_kafka.Consumer(alone | {"group.id": group}),
            self._trouble,
            settings.bootstrap,
        )
        self._reader = KafkaReader(alone | _READER | {"group.id": f"eddy-reader-{uuid.uuid4().hex}"})
        self._specs: dict[str, TopicSpec] = {}
        self._read_s: dict[str, float] = {}
        self._consumers: list[KafkaConsumer] = []

    @property
    def partitioner(self) -> Partitioner:
        """As `Log.partitioner`, in C."""
        return confluent_kafka.murmur2

    @property
    def session_s(self) -> float | None:
        """The session timeout: static members send no request to leave, so their sessions have to end."""
        asked = self.settings.for_consumer()
        if asked.get("group.protocol") == "consumer":
            return None
        return int(str(asked.get("session.timeout.ms", _MEMBER["session.timeout.ms"]))) / 1000

    @property
    def compaction_waits(self) -> bool:
        """False: Kafka compacts records that a group has not read."""
        return False

    def _reports(self) -> dict[str, object]:
        """Return the callbacks for the log lines and errors of a polled client, as settings."""
        return {"error_cb": self._trouble.report, "logger": client_logger()}

    def _make_client(self, client: Callable[[Mapping[str, object]], T], settings: Mapping[str, object]) -> T:
        try:
            return client(settings)
        except (KafkaException, ValueError, TypeError) as exception:
            error = error_of(exception)
            reason = error.str() if error else str(exception)
            raise ConfigurationError(
                f"{self.where}: the client refuses a setting: {reason}. Check --config and --set"
            ) from exception

    def reach(self, timeout_s: float) -> None:
        """Check that a broker answers, as `Log.reach`. Raises: ConfigurationError if a client was refused."""
        self._admin.reach(timeout_s)

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicSpec]:
        """Return topics as `Log.topics`. Configs that this user may not read are missing."""
        wanted = None if names is None else check_topic_names(self.where, names)
        known = self._admin.partitions()
        found = known if wanted is None else {name: known[name] for name in wanted if name in known}
        configs = self._admin.configs(found)
        specs = {name: TopicSpec(name, count, configs[name]) for name, count in found.items()}
        self._specs |= specs
        self._read_s |= dict.fromkeys(specs, time.monotonic())
        return specs

    def refusals(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Headers] | None,
    ) -> dict[int, RecordRefusedError]:
        """Return refusals as `Log.refusals`. If a record is refused, the spec is read anew, once in `RECENT_S`."""
        where, spec = f"send to '{topic}'", self._spec_of(topic)
        found = refusals(where, spec, keys, values, headers, OVERHEAD_BYTES)
        if found and time.monotonic() - self._read_s.get(topic, 0.0) > RECENT_S:
            self._forget([topic])
            found = refusals(where, self._spec_of(topic), keys, values, headers, OVERHEAD_BYTES)
        return found

    def partition_counts(self) -> dict[str, int]:
        """As `Log.partition_counts`."""
        return dict(self._admin.partitions())

    def topic_ids(self, names: Iterable[str]) -> Callable[[], dict[str, int]]:
        """Request ids as `Log.topic_ids`; brokers before Kafka 2.8 know no ids."""
        return self._admin.topic_ids(check_topic_names(self.where, names))

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        """Make topics as `Log.create_topics`, with the settings' `replication.factor` and `topic.…` configs."""
        self._admin.create(specs, self.settings.replication_factor, self.settings.topic_configs)

    def delete_topics(self, names: Iterable[str]) -> None:
        """As `Log.delete_topics`."""
        wanted = set(check_topic_names(self.where, names))
        self._admin.delete(wanted)
        self._forget(wanted)

    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Log.begin_offsets`."""
        return self._admin.begins(self._checked(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermarks, which are Kafka's end offsets."""
        return self._admin.ends(self._checked(partitions))

    def stable_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return Kafka's last stable offsets."""
        return self._admin.stable_ends(self._checked(partitions))

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """Return positions as `Log.committed`, after a wait for open transactions to end or to time out."""
        return self._admin.committed(group, self._checked(partitions))

    def read(self, partition: TopicPartition, start: int, end: int, max_records: int) -> Records:
        """As `Log.read`."""
        self._checked([partition])
        return self._reader.read(partition, start, end, max_records)

    def _checked(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return check_partitions(self.where, partitions)

    def follower(self, positions: Mapping[TopicPartition, int]) -> KafkaFollower:
        """As `Log.follower`."""
        self._checked(positions)
        settings = self._alone | _FOLLOWER | {"group.id": f"eddy-follower-{uuid.uuid4().hex}"}
        return self._make_client(lambda s: KafkaFollower(s, positions, self._trouble), settings)

    def reopened(self) -> "KafkaLog":
        """As `Log.reopened`."""
        return KafkaLog(self.settings)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """As `Log.delete_records`."""
        self._checked(before)
        self._admin.delete_before(before)

    def delete_group(self, group: str) -> None:
        """As `Log.delete_group`."""
        self._admin.delete_group(group)

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        """As `Log.set_positions`."""
        self._checked(positions)
        self._admin.set_positions(group, positions)

    def groups(self) -> dict[str, int]:
        """As `Log.groups`."""
        return self._admin.groups()

    def strangers(self, group: str) -> list[str]:
        """As `Log.strangers`."""
        return self._admin.strangers(group)

    def consumer(
        self, group: str, topics: Sequence[str], member: str, is_last: Callable[[], bool] = never
    ) -> KafkaConsumer:
        """Join a group as `Log.consumer`. Raises: ConfigurationError if a topic does not exist; SlotTakenError.

        After a change of topics the call waits until the earlier session of this member is over.
        """
        topics = check_topic_names(self.where, topics)
        known = self._admin.partitions()
        if missing := sorted(set(topics) - known.keys()):
            raise ConfigurationError(
                f"{self.where}: group '{group}' subscribes to topic '{missing[0]}', which does not exist; topics are "
                "made before they are read. Create it: eddy topics --create …"
            )
        asked = self.settings.for_consumer()
        defaults = _CONSUMER | ({} if asked.get("group.protocol") == "consumer" else _MEMBER)
        names = {"group.id": group, "group.instance.id": f"{group}-{member}", "client.id": f"{group}-{member}"}
        settings = _COMMON | defaults | asked | names | self._reports()
        # Only in the classic protocol, because in the newer one the broker assigns by each member's subscription.
        if "session.timeout.ms" in settings:
            session_s = int(str(settings["session.timeout.ms"])) / 1000
            self._admin.outlast(group, f"{group}-{member}", {topic: known[topic] for topic in topics}, session_s)

        def starts(wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
            return self.starts(group, wanted)

        def holder() -> str | None:
            return self._admin.holder(group, f"{group}-{member}")

        made = self._make_client(lambda s: KafkaConsumer(s, topics, starts, (holder, is_last), self._trouble), settings)
        self._consumers.append(made)
        return made

    def starts(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the start of each partition: the group's position, or the first offset if there is no position."""
        wanted = list(partitions)
        committed, begins = self._admin.committed(group, wanted), self._admin.begins(wanted)
        return {tp: committed[tp].offset if tp in committed else begins[tp] for tp in wanted}

    def producer(self, transactional_id: str | None) -> KafkaProducer:
        """As `Log.producer`."""
        name = transactional_id or f"eddy-{uuid.uuid4().hex}"
        names = {"transactional.id": name, "client.id": name}
        settings = _COMMON | _PRODUCER | self.settings.for_producer() | names | self._reports()
        return self._make_client(lambda s: KafkaProducer(s, self._spec_of, self._forget, self._trouble), settings)

    def _forget(self, topics: Collection[str]) -> None:
        """Forget the specs of topics that have changed, so that the next use requests them."""
        self._specs = {name: spec for name, spec in self._specs.items() if name not in topics}

    def _spec_of(self, topic: str) -> TopicSpec:
        """Return the spec of a topic, as of the last request for it."""
        if topic not in self._specs:
            self.topics([topic])
        return self._specs.get(topic, TopicSpec(topic, 0))

    def close(self) -> None:
        """As `Log.close`."""
        self._end_writes()
        for consumer in self._consumers:
            consumer.close()
        self._reader.close()
        self._admin.close()
