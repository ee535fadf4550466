"""A member of a consumer group: what `Consumer` promises, over librdkafka's consumer.

Ownership changes reach us in callbacks that run inside `poll` only. A partition that is assigned
starts at the group's stable position, or its first offset, given explicitly: nothing is left to
`auto.offset.reset`, which would skip records silently.

Control records are invisible to a client; what tells that they were stepped over is the event at
the end of a partition, which carries the position there.

Membership is static (`group.instance.id`): a restart takes its predecessor's partitions at once,
and two workers with one name are told apart from one that comes back. Leaving is silent: others
take over when the session has run out.

A client whose session runs out while the coordinator is away and nobody polls it goes on without its
member id when the coordinator is back, and is fenced for that. So a client that was fenced asks who
has its name: it joins again, unless that is somebody else.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from eddy.connectors.kafka.columns import Columns, records_of
from eddy.connectors.kafka.errors import kafka_error, the_error
from eddy.connectors.kafka.trouble import Trouble
from eddy.connectors.log import Poll, TopicPartition
from eddy.errors import ConnectorError, FencedError, SlotTakenError

__all__ = ["KafkaConsumer"]

_log = logging.getLogger("eddy.kafka")
_REQUEST_S = 10.0
_CHUNK = 500  # more at a time costs more each: the client fills a queue of its own first
_IGNORED = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE}

T = TypeVar("T")

Starts = Callable[[Iterable[TopicPartition]], dict[TopicPartition, int]]
Holder = Callable[[], str | None]


def _is_one_run(batch: list[Message]) -> bool:
    """Whether all are records of one partition, as most are. Told without bytecode for each."""
    topics, partitions = set(map(Message.topic, batch)), set(map(Message.partition, batch))
    return len(topics) == len(partitions) == 1 and not any(map(Message.error, batch))


def _whereabouts(message: Message) -> tuple[str, int] | None:
    """The topic and partition of a record; None for what is no record."""
    return (message.topic(), message.partition()) if message.error() is None else None  # type: ignore[return-value]


class KafkaConsumer:
    """A `Consumer`.

    `starts` tells where partitions begin: the committed position, or the first offset. `holder` tells the id of
    the group's member that has this one's name, None where none has.
    """

    def __init__(
        self, settings: Mapping[str, object], topics: Sequence[str], starts: Starts, holder: Holder, trouble: Trouble
    ) -> None:
        self._settings, self._topics = dict(settings), list(topics)
        self._where = f"group '{settings['group.id']}'"
        self._incremental = settings.get("group.protocol") == "consumer"
        self._starts, self._holder, self._trouble = starts, holder, trouble
        self._member: str | None = None
        self._fenced: SlotTakenError | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._revoked: set[TopicPartition] = set()
        self._assigned: set[TopicPartition] = set()
        self._unplaced: set[TopicPartition] = set()
        self._closed = False
        self._join()

    def _join(self) -> None:
        self._client = confluent_kafka.Consumer(self._settings)
        self._client.subscribe(
            self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self, max_records: int, timeout_s: float) -> Poll:
        """As `Consumer.poll`. Raises: ConnectorError; SlotTakenError where another took this one's name."""
        if self._closed:
            raise ConnectorError(f"{self._where}: this consumer was closed; an open one is needed")
        columns: dict[tuple[str, int], Columns] = {}
        ends: dict[TopicPartition, int] = {}
        try:
            if self._fenced is not None:
                raise self._fenced
            self._place()
            self._gather(columns, ends, max_records, timeout_s)
        except SlotTakenError as error:
            self._fenced = error
            self._join_again(error)
        except KafkaException as exception:
            self._give_back(columns)
            raise kafka_error(f"{self._where}: poll", the_error(exception)) from exception
        except BaseException:
            self._give_back(columns)
            raise
        if not columns:
            self._trouble.check(self._where)
        if self._revoked or self._assigned:
            self._give_back(columns)  # told alone: what came with the news comes again
            return self._news()
        return Poll(records_of(columns, ends, self._positions))

    def _join_again(self, fenced: SlotTakenError) -> None:
        """By a new client, since the fenced one is done. Raises: SlotTakenError where somebody else has the name."""
        if self._holder() not in (None, self._member):
            raise fenced
        _log.warning("%s: %s; nobody else has the name: joining again", self._where, fenced)
        self._client.close()
        self._revoked |= self._positions.keys()
        for state in (self._assigned, self._unplaced, self._paused, self._positions):
            state.clear()
        self._fenced = None
        self._join()

    def _news(self) -> Poll:
        news = Poll(revoked=frozenset(self._revoked), assigned=frozenset(self._assigned))
        self._revoked.clear()
        self._assigned.clear()
        return news

    def _gather(
        self, columns: dict[tuple[str, int], Columns], ends: dict[TopicPartition, int], room: int, timeout_s: float
    ) -> None:
        """Take what there is. An event alone is not what a caller waits for."""
        deadline = time.monotonic() + timeout_s
        while not columns and not self._revoked and not self._assigned:
            first = self._client.poll(max(deadline - time.monotonic(), 0.0))
            batch = [] if first is None else [first]
            while batch:
                room -= self._take(batch, columns, ends)
                batch = self._client.consume(min(room, _CHUNK), 0.0) if room else []
            if any(end > self._positions.get(tp, end) for tp, end in ends.items()) or time.monotonic() >= deadline:
                return

    def _take(
        self, batch: list[Message], columns: dict[tuple[str, int], Columns], ends: dict[TopicPartition, int]
    ) -> int:
        """Sort messages into columns. Returns how many of them are records."""
        taken = 0
        if _is_one_run(batch) and (where := _whereabouts(batch[0])) is not None:
            columns.setdefault(where, Columns()).add(batch)
            return len(batch)
        for where, run in groupby(batch, _whereabouts):
            messages = list(run)
            if where is None:
                for message in messages:
                    self._event(message, message.error(), ends)  # type: ignore[arg-type]
            else:
                columns.setdefault(where, Columns()).add(messages)
                taken += len(messages)
        return taken

    def _event(self, message: Message, error: KafkaError, ends: dict[TopicPartition, int]) -> None:
        """What is no record: the end of a partition, or trouble."""
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            ends[TopicPartition(message.topic(), message.partition())] = message.offset()  # type: ignore
        elif code == KafkaError._MAX_POLL_EXCEEDED:
            _log.warning("%s: %s; rejoining. Smaller epochs help: max_epoch_records", self._where, error.str())
        elif code == KafkaError._AUTO_OFFSET_RESET:
            raise self._out_of_range(message)
        elif code not in _IGNORED:
            where = f"{self._where}: topic '{message.topic()}'" if message.topic() else self._where
            raise kafka_error(where, error)

    def _out_of_range(self, message: Message) -> ConnectorError:
        where = TopicPartition(message.topic(), message.partition())  # type: ignore[arg-type]
        position = self._positions.get(where, message.offset() or 0)
        if where in self._positions:
            self._positions[where] = -1  # the client has stopped fetching: a seek to the same offset is a seek
        named = confluent_kafka.TopicPartition(*where)
        if (committed := self._client.committed([named], timeout=_REQUEST_S)[0].offset) > position:
            return FencedError(
                f"{self._where}: position {position} of '{where.topic}' partition {where.partition}, the group's is "
                f"{committed}; another worker has taken over, and what it took in was purged"
            )
        first, end = self._client.get_watermark_offsets(named, timeout=_REQUEST_S)
        return ConnectorError(
            f"{self._where}: position {position} of '{where.topic}' partition {where.partition} lies outside what is "
            f"kept, offsets {first} to {end}; records that were not taken in are gone. Start anew from what is left: "
            "eddy reset …"
        )

    def _give_back(self, columns: Mapping[tuple[str, int], Columns]) -> None:
        """What was taken out of the client's queue and is not returned has to come again."""
        for where in columns:
            partition = TopicPartition(*where)
            if self._positions.get(partition, -1) >= 0:
                self._seek(partition)

    def _seek(self, partition: TopicPartition) -> None:
        """Move the client to where we are. Where it has stopped fetching a partition, it is assigned anew."""
        wanted = [confluent_kafka.TopicPartition(*partition, self._positions[partition])]
        try:
            self._client.seek(wanted[0])
        except KafkaException as exception:
            if the_error(exception).code() != KafkaError._STATE:
                raise
            self._assign_anew(wanted)

    def _assign_anew(self, wanted: list[confluent_kafka.TopicPartition]) -> None:
        if self._incremental:
            self._client.incremental_unassign(wanted)
            self._client.incremental_assign(wanted)
        else:
            self._client.assign([confluent_kafka.TopicPartition(*tp, max(at, 0)) for tp, at in self._positions.items()])
        if self._paused:
            self._client.pause([confluent_kafka.TopicPartition(*tp) for tp in self._paused])

    def _on_assign(self, client: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        named = {TopicPartition(p.topic, p.partition) for p in partitions}
        self._assigned |= named
        if not self._incremental:
            self._positions.clear()
        self._unplaced, self._member = named, client.memberid()
        self._place()

    def _place(self) -> None:
        """Start what was assigned. Where its position cannot be told yet, the next poll tries again."""
        if not self._unplaced:
            return
        starts = self._starts(self._unplaced)
        placed = [confluent_kafka.TopicPartition(*tp, offset) for tp, offset in starts.items()]
        if self._incremental:
            self._client.incremental_assign(placed)
        else:
            self._client.assign(placed)
        self._positions |= starts
        self._paused -= self._unplaced
        self._unplaced = set()

    def _on_revoke(self, client: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        named = {TopicPartition(p.topic, p.partition) for p in partitions}
        self._revoked |= named - self._assigned
        self._assigned -= named
        self._unplaced -= named
        for partition in named:
            self._positions.pop(partition, None)
        self._paused -= named
        if self._incremental:
            client.incremental_unassign(partitions)
        else:
            client.unassign()

    def _on_lost(self, client: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        _log.warning("%s: partitions lost: the group went on without this worker", self._where)
        self._on_revoke(client, partitions)

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions owned as of the last poll."""
        return frozenset(self._positions)

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """As `Consumer.seek`. Raises: ConnectorError for a partition that is not owned."""
        for partition, offset in positions.items():
            if partition not in self._positions:
                raise ConnectorError(
                    f"{self._where}: seek in '{partition.topic}' partition {partition.partition}, which this member "
                    "does not own; only owned partitions have a position. Seek after the poll that assigns it"
                )
            if self._positions[partition] != offset:
                self._positions[partition] = offset
                self._seek(partition)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.pause`."""
        wanted = set(partitions) - self._paused
        if wanted:
            self._do(self._client.pause, [confluent_kafka.TopicPartition(*p) for p in wanted])
            self._paused |= wanted

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.resume`."""
        wanted = self._paused.intersection(partitions)
        if wanted:
            self._do(self._client.resume, [confluent_kafka.TopicPartition(*p) for p in wanted])
            self._paused -= wanted

    def _do(self, call: Callable[[T], None], argument: T) -> None:
        try:
            call(argument)
        except KafkaException as exception:
            error = the_error(exception)
            raise kafka_error(f"{self._where}: {getattr(call, '__name__', 'call')}", error) from exception

    def group_metadata(self) -> object:
        """The group, member and generation as of now."""
        return self._client.consumer_group_metadata()

    def close(self) -> None:
        """Stop; the second time, do nothing."""
        if not self._closed:
            self._closed = True
            self._client.close()
