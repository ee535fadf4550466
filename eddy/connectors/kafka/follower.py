"""Reading many partitions side by side without a group: one client that is assigned all of them.

A control record is invisible to a client; the event at the end of a partition has the position after it.
"""

import logging
import time
from collections.abc import Iterable, Mapping

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from eddy.connectors.closing import close_within
from eddy.connectors.kafka.cluster_trouble import ClusterTrouble, ClusterWatch, is_answered
from eddy.connectors.kafka.error_codes import kafka_error, the_error
from eddy.connectors.kafka.record_columns import Columns, gather, records_of
from eddy.connectors.kafka.slices import in_slices
from eddy.connectors.log import UNBOUNDED, Records, TopicPartition
from eddy.errors import ConnectorError

__all__ = ["KafkaFollower"]

_log = logging.getLogger("eddy.kafka")
_REQUEST_S = 10.0
_IGNORED = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    # The client needs the name of a group; its search for the group's coordinator may fail.
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}


class KafkaFollower:
    """A `Follower`."""

    def __init__(
        self, settings: Mapping[str, object], positions: Mapping[TopicPartition, int], trouble: ClusterTrouble
    ) -> None:
        self._settings, self._positions = dict(settings), dict(positions)
        self._paused: set[TopicPartition] = set()
        self._trouble = trouble
        self._client: confluent_kafka.Consumer | None = self._make_client()

    def _make_client(self) -> confluent_kafka.Consumer:
        """Make a client that continues from the positions."""
        self._watch = ClusterWatch(self._trouble)
        client = confluent_kafka.Consumer(self._settings)
        client.assign([confluent_kafka.TopicPartition(*tp, offset) for tp, offset in self._positions.items()])
        if self._paused:
            client.pause([confluent_kafka.TopicPartition(*tp) for tp in self._paused])
        return client

    def poll(self, max_records: int, timeout_s: float, max_bytes: int = UNBOUNDED) -> list[Records]:
        """Poll as `Follower.poll`. Raises: ConnectorError, retriable while no broker answers."""
        columns: dict[tuple[str, int], Columns] = {}
        ends: dict[TopicPartition, int] = {}
        try:
            self._gather(columns, ends, max_records, max_bytes, timeout_s)
        except KafkaException as exception:
            raise kafka_error("following", the_error(exception)) from exception
        if not columns:
            self._trouble.check("following")
            client, topic = self._open(), next(iter(self._positions)).topic
            if self._watch.is_lost(lambda: is_answered(client, topic)):
                _log.warning("following: brokers answer other clients, but not this one: continuing with a new one")
                self.close()
                self._client = self._make_client()
        return records_of(columns, ends, self._positions)

    def _open(self) -> confluent_kafka.Consumer:
        if self._client is None:
            raise ConnectorError("following: this follower was closed; an open one is needed")
        return self._client

    def _gather(
        self,
        columns: dict[tuple[str, int], Columns],
        ends: dict[TopicPartition, int],
        room: int,
        max_bytes: int,
        timeout_s: float,
    ) -> None:
        client, deadline = self._open(), time.monotonic() + timeout_s
        while not columns:
            gather(client, columns, ends, room, max_bytes, deadline - time.monotonic(), self._event)
            if any(end > self._positions.get(tp, end) for tp, end in ends.items()) or time.monotonic() >= deadline:
                return

    def _event(self, message: Message, error: KafkaError) -> None:
        code = error.code()
        if code == KafkaError._AUTO_OFFSET_RESET:
            self._out_of_range(TopicPartition(message.topic(), message.partition()))  # type: ignore[arg-type]
        elif code not in _IGNORED:
            raise kafka_error(f"following '{message.topic()}'", error)

    def _out_of_range(self, where: TopicPartition) -> None:
        position, named = self._positions[where], confluent_kafka.TopicPartition(*where)
        client = self._open()
        first, end = in_slices(lambda wait_s: client.get_watermark_offsets(named, timeout=wait_s), _REQUEST_S)
        raise ConnectorError(
            f"following '{where.topic}' partition {where.partition}: position {position} lies outside of the "
            f"retained offsets {first} to {end}; records in between were deleted, or the topic was made anew"
        )

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Follower.pause`."""
        if wanted := set(partitions) - self._paused:
            self._paused |= wanted
            self._open().pause([confluent_kafka.TopicPartition(*tp) for tp in wanted])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Follower.resume`."""
        if wanted := self._paused.intersection(partitions):
            self._paused -= wanted
            client = self._open()
            client.resume([confluent_kafka.TopicPartition(*tp) for tp in wanted])
            for tp in wanted:  # without a seek the client would resume only at its next check, up to a second later
                client.seek(confluent_kafka.TopicPartition(*tp, self._positions[tp]))

    def close(self) -> None:
        """As `Follower.close`."""
        client, self._client = self._client, None
        if client is not None:
            close_within(client.close, "follower")
