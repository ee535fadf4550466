"""Reads partitions without a consumer group, for restores, plans, cuts and the command line.

One client does all reads, each in slices. Between the slices of a read it continues to fetch, so that the next slice
needs no seek. After the read it is unassigned, because an assigned client asks the broker a hundred times a second.
A client that gets no answers is replaced, because it may have lost its brokers for ever (`cluster_trouble.py`).
"""

import time
from collections.abc import Mapping
from itertools import groupby

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from eddy.connectors.closing import close_within
from eddy.connectors.kafka.error_codes import kafka_error, the_error
from eddy.connectors.kafka.record_columns import Columns
from eddy.connectors.kafka.slices import in_slices
from eddy.connectors.log import Records, TopicPartition
from eddy.errors import ConnectorError

__all__ = ["KafkaReader"]

_CHUNK = 500
_SLICE_S = 0.5
_PATIENCE_S = 30.0
_RENEWAL_S = 8.0
_METADATA_S = 10.0
_PASSED_OVER = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    # The client needs the name of a group; its search for the group's coordinator may fail.
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}


class KafkaReader:
    """Reads committed records between two offsets."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = dict(settings)
        self._client: confluent_kafka.Consumer | None = None
        self._at: tuple[TopicPartition, int] | None = None
        self._known: set[str] = set()

    def read(self, partition: TopicPartition, start: int, end: int, max_records: int) -> Records:
        """Read records as `Log.read`. `next_offset` is lower than `end` if an open transaction blocks later records."""
        columns, position = Columns(), start
        if start < end and max_records:
            try:
                position = self._read(columns, partition, start, end, max_records)
            except KafkaException as exception:
                self.close()
                error = the_error(exception)
                raise kafka_error(f"reading '{partition.topic}' partition {partition.partition}", error) from exception
            finally:
                if self._at is None and self._client is not None:
                    self._client.unassign()
        return columns.records(*partition, position)

    def _read(self, columns: Columns, partition: TopicPartition, start: int, end: int, room: int) -> int:
        client = self._placed(partition, start)
        self._at = None  # not known until all messages taken from the queue are processed
        position = start
        deadline, renewal = time.monotonic() + _PATIENCE_S, time.monotonic() + _RENEWAL_S
        while True:
            first = client.poll(_SLICE_S)
            batch = [] if first is None else [first, *client.consume(min(room, _CHUNK) - 1, 0.0)]
            for is_record, run in groupby(batch, _is_record):
                messages = list(run)
                if is_record:
                    wanted = [message for message in messages if message.offset() < end]  # type: ignore[operator]
                    columns.add(wanted)
                    if len(wanted) < len(messages):
                        return end
                    position, room = columns.offsets[-1] + 1, room - len(wanted)
                    continue
                for message in messages:
                    error: KafkaError = message.error()  # type: ignore[assignment]
                    if error.code() == KafkaError._PARTITION_EOF:
                        return min(message.offset(), end)  # type: ignore[type-var, return-value]
                    self._event(partition, position, message, error)
            if position >= end:
                return position
            if not room:
                self._at = (partition, position)
                return position
            now = time.monotonic()
            if batch:
                deadline, renewal = now + _PATIENCE_S, now + _RENEWAL_S
            elif now > deadline:
                raise ConnectorError(
                    f"reading '{partition.topic}' partition {partition.partition} from offset {position}: no answer "
                    f"for {_PATIENCE_S:.0f} s; the broker has to be reachable",
                    retriable=True,
                )
            elif now > renewal:
                self.close()
                client, renewal = self._placed(partition, position), now + _RENEWAL_S

    def _placed(self, partition: TopicPartition, start: int) -> confluent_kafka.Consumer:
        if self._client is None:
            self._client = confluent_kafka.Consumer(self._settings)
        if self._at != (partition, start):
            # Otherwise the client would search for the leader of an unknown topic once a second.
            if partition.topic not in self._known:
                client = self._client
                in_slices(lambda wait_s: client.list_topics(partition.topic, wait_s), _METADATA_S)
                self._known.add(partition.topic)
            self._client.assign([confluent_kafka.TopicPartition(*partition, start)])
        return self._client

    def _event(self, partition: TopicPartition, position: int, message: Message, error: KafkaError) -> None:
        where = f"reading '{partition.topic}' partition {partition.partition}"
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            if (message.topic(), message.partition()) == partition:
                self._continue_if_retained(partition, position)
        elif error.code() not in _PASSED_OVER:
            raise kafka_error(where, error)

    def _continue_if_retained(self, partition: TopicPartition, position: int) -> None:
        """Continue from `position` if it is retained, since then the client has reported the offset of an earlier read.

        Raises: ConnectorError if it is not retained.
        """
        client = self._client
        assert client is not None
        named = confluent_kafka.TopicPartition(*partition)
        first, end = in_slices(lambda wait_s: client.get_watermark_offsets(named, timeout=wait_s), _METADATA_S)
        if not first <= position <= end:
            raise ConnectorError(
                f"position {position} of '{partition.topic}' partition {partition.partition} lies outside the "
                f"retained offsets {first} to {end}; earlier records were deleted"
            )
        client.assign([confluent_kafka.TopicPartition(*partition, position)])

    def close(self) -> None:
        """Close the client, if there is one; the next read makes another client."""
        client, self._client, self._at = self._client, None, None
        self._known.clear()
        if client is not None:
            close_within(client.close, "reader")


def _is_record(message: Message) -> bool:
    """Whether a message is a record. Its error is tested by `is None`: error objects cannot be compared with None."""
    return message.error() is None
