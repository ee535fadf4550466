"""A member of a consumer group: `Consumer` over librdkafka's consumer.

The client reports ownership changes by callbacks, which run inside `poll` only. An assigned partition starts at the
group's stable position, or its first offset, given explicitly: `auto.offset.reset` would skip records silently.

Control records are invisible to a client; the event at the end of a partition has the position after them. It arrives
`fetch.wait.max.ms` after the last record. Then a poll with a timeout waits for records up to `SETTLE_S` longer, because
a transaction that only moves a position would delay the epoch of a record that arrives meanwhile. Records and positions
are returned together, so the next epoch commits both.

Membership is static (`group.instance.id`): a restarted worker resumes its partitions at once, and a second worker with
the same name is detected. A member sends no request to leave: others take over when its session ends.

The session of a client may end while the coordinator is away and the client is not polled. When the coordinator is
back, the client continues without its member id, and is fenced. So a fenced client asks which member has its name: it
joins again, unless a later worker has the name. A client whose session has ended may also take its name back from a
worker that has started since; that worker joins again, too.

While no rebalance is under way, a broker ignores the topics that a static member without a member id asks for
(KIP-345). So a client of the classic protocol asks for other topics only once it has a member id. If it did so earlier,
it would not wait for the answer with the id, but join anew without an id, and no member would read the other topics.

A client of the classic protocol is not closed but freed, in a thread with a deadline. Closing would call the callbacks
of a pending rebalance. If the group's side has ended already, no answer arrives, and the call would wait for ever with
Python's global lock (librdkafka 2.16). Freeing loses nothing: a static member sends no request to leave, and positions
are committed with transactions. With `group.protocol=consumer` closing releases the member's name; callbacks then do
nothing.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from eddy.connectors.closing import close_within, free_within
from eddy.connectors.kafka.cluster_trouble import ClusterTrouble, ClusterWatch, is_answered
from eddy.connectors.kafka.error_codes import kafka_error, the_error
from eddy.connectors.kafka.record_columns import Columns, gather, records_of, within
from eddy.connectors.kafka.slices import in_slices
from eddy.connectors.log import UNBOUNDED, Poll, Records, TopicPartition
from eddy.errors import ConnectorError, FencedError, SlotTakenError

__all__ = ["SETTLE_S", "KafkaConsumer"]

_log = logging.getLogger("eddy.kafka")
SETTLE_S = 0.05
"""Seconds that a poll with a timeout waits for records before it returns positions alone."""
_CLIENT_TICK_S = 0.001
"""The client waits for whole milliseconds: for less it does not wait, and would be asked hundreds of times."""
_REQUEST_S = 10.0
_LOST = -1
"""The stored position of a partition that needs a new seek."""
_NOT_FETCHING = {KafkaError._STATE, KafkaError._PREV_IN_PROGRESS}
"""The client's errors for a seek in a partition that it has stopped fetching, or is about to."""
_IGNORED = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE}

T = TypeVar("T")

Starts = Callable[[Iterable[TopicPartition]], dict[TopicPartition, int]]
Name = tuple[Callable[[], str | None], Callable[[], bool]]


class KafkaConsumer:
    """A `Consumer` with one client of librdkafka at a time.

    `starts` returns the offsets at which partitions start: the committed position, or the first offset. `name` is a
    pair of functions. The first returns the id of the group's member with this consumer's name, None if there is none.
    The second is `is_last` of `Log.consumer`.
    """

    def __init__(
        self, settings: Mapping[str, object], topics: Sequence[str], starts: Starts, name: Name, trouble: ClusterTrouble
    ) -> None:
        self._settings, self._topics = dict(settings), list(topics)
        self._where = f"group '{settings['group.id']}'"
        self._incremental = settings.get("group.protocol") == "consumer"
        self._starts, (self._holder, self._is_last), self._trouble = starts, name, trouble
        self._watch = ClusterWatch(trouble)
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
        self._live: confluent_kafka.Consumer | None = self._client
        self._subscribe(self._topics)

    def _subscribe(self, topics: list[str]) -> None:
        on_assign, on_revoke, on_lost = self._on_assign, self._on_revoke, self._on_lost
        self._client.subscribe(topics, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
        self._asked = topics

    def _resubscribe(self) -> None:
        """Ask for the topics of the last `subscribe`, unless the client has asked for them, or has no member id yet."""
        if self._asked != self._topics and (self._incremental or self._client.memberid()):
            self._call_client(self._subscribe, self._topics)

    def poll(self, max_records: int, timeout_s: float, max_bytes: int = UNBOUNDED) -> Poll:
        """Poll as `Consumer.poll`. Raises: ConnectorError; SlotTakenError if another member has this member's name."""
        self._demand_open()
        columns: dict[tuple[str, int], Columns] = {}
        ends: dict[TopicPartition, int] = {}
        try:
            if self._fenced is not None:
                raise self._fenced
            self._resubscribe()
            self._place()
            self._gather(columns, ends, max_records, max_bytes, timeout_s)
        except SlotTakenError as error:
            self._fenced = error
            self._join_as_before(error)
        except KafkaException as exception:
            self._give_back(columns, ends)
            raise kafka_error(f"{self._where}: poll", the_error(exception)) from exception
        except BaseException:
            self._give_back(columns, ends)
            raise
        if not columns:
            self._trouble.check(self._where)
            if self._watch.is_lost(lambda: is_answered(self._client, self._topics[0])):
                self._join_again("brokers answer others, but not this client")
        if self._revoked or self._assigned:
            self._give_back(columns, ends)  # a change of ownership is returned without records, which are fetched again
            return self._take_rebalance()
        return Poll(self._within(records_of(columns, ends, self._positions), max_bytes))

    def _demand_open(self) -> None:
        if self._closed:
            raise ConnectorError(f"{self._where}: this consumer was closed; an open one is needed")

    def _join_as_before(self, fenced: SlotTakenError) -> None:
        """Join again, since a fenced client is unusable. Raises: SlotTakenError if a later member has the name."""
        taken = self._holder() not in (None, self._member)
        if taken and not self._is_last():
            raise fenced
        by = "an earlier worker has taken the name back" if taken else "no other member has the name"
        self._join_again(f"{fenced}; {by}")

    def _join_again(self, why: str) -> None:
        """Join with a new client."""
        _log.warning("%s: %s: joining again", self._where, why)
        self._close_client()
        self._revoked |= self._positions.keys()
        for state in (self._assigned, self._unplaced, self._paused, self._positions):
            state.clear()
        self._fenced, self._watch = None, ClusterWatch(self._trouble)
        self._join()

    def _take_rebalance(self) -> Poll:
        if self._assigned:
            self._member = self._client.memberid()  # not called in a callback, where it could block
        news = Poll(revoked=frozenset(self._revoked), assigned=frozenset(self._assigned))
        self._revoked.clear()
        self._assigned.clear()
        return news

    def _within(self, polled: list[Records], max_bytes: int) -> list[Records]:
        """Return the records up to `max_bytes`; later records are given back to the client, and fetched again."""
        kept = within(polled, max_bytes)
        self.seek({TopicPartition(r.topic, r.partition): r.next_offset for r in kept})
        return kept

    def _gather(
        self,
        columns: dict[tuple[str, int], Columns],
        ends: dict[TopicPartition, int],
        room: int,
        max_bytes: int,
        timeout_s: float,
    ) -> None:
        """Read the available messages into `columns` and `ends`; without a record, wait up to `timeout_s` for one.

        The wait is shorter once an end lies after a control record.
        """
        deadline, has_moved = time.monotonic() + timeout_s, False
        while not columns and not self._revoked and not self._assigned:
            gather(self._client, columns, ends, room, max_bytes, deadline - time.monotonic(), self._event)
            if not has_moved and self._with_later_end(ends):
                has_moved, deadline = True, min(deadline, time.monotonic() + SETTLE_S)
            if deadline - time.monotonic() < _CLIENT_TICK_S:
                return

    def _with_later_end(self, ends: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Return the partitions whose end, in `ends`, is after their position: control records were read."""
        return {tp for tp, end in ends.items() if end > self._positions.get(tp, end)}

    def _event(self, message: Message, error: KafkaError) -> None:
        """Handle a message that reports an error: warn, find the position again, ignore it, or raise."""
        code = error.code()
        if code == KafkaError._MAX_POLL_EXCEEDED:
            _log.warning("%s: %s; rejoining. Smaller epochs help: max_epoch_records", self._where, error.str())
        elif code == KafkaError._AUTO_OFFSET_RESET:
            self._out_of_range(message)
        elif code not in _IGNORED:
            where = f"{self._where}: topic '{message.topic()}'" if message.topic() else self._where
            raise kafka_error(where, error)

    def _out_of_range(self, message: Message) -> None:
        """Continue after the report of an offset that is not retained, if the position is retained; otherwise raise.

        After a pause beyond the session the client may report an earlier fetch, at an offset that was purged meanwhile.
        Such a report tells nothing about the current position. Raises: FencedError; ConnectorError.
        """
        where = TopicPartition(message.topic(), message.partition())  # type: ignore[arg-type]
        position = self._positions.get(where, _LOST)
        if position == _LOST:
            return  # the partition is no longer owned, or needs a seek
        # The client has stopped fetching, so that a seek to the same offset is needed, too.
        self._positions[where] = _LOST
        named = confluent_kafka.TopicPartition(*where)
        first, end = in_slices(lambda wait_s: self._client.get_watermark_offsets(named, timeout=wait_s), _REQUEST_S)
        # Positions are requested last: another worker commits before it purges, so they include purges before `first`.
        found = in_slices(lambda wait_s: self._client.committed([named], timeout=wait_s), _REQUEST_S)[0]
        committed = found.offset if found.metadata else _LOST  # a position without a note was not committed by a worker
        what = f"{self._where}: position {position} of '{where.topic}' partition {where.partition}"
        if committed > position:
            raise FencedError(
                f"{what}, the group's is {committed}; another worker has taken over, and the records it read were "
                "purged"
            )
        if position < first:
            raise ConnectorError(
                f"{what} lies before the first retained offset, {first}; the records between were deleted "
                f"before they were read. Start anew from the remaining records: eddy reset …"
            )
        if position > end:
            raise ConnectorError(
                f"{what} lies after its end, {end}; the topic was made anew, or has lost records that were "
                f"read. Start anew from its records: eddy reset …"
            )
        _log.info("%s is retained, the requested offset %s is not; continuing", what, message.offset())
        self._seek(where, position)

    def _give_back(self, columns: Mapping[tuple[str, int], Columns], ends: Mapping[TopicPartition, int]) -> None:
        """Seek back, so that records and ends taken from the client's queue but not returned are fetched again.

        A partition that was just assigned gets the event at its end again anyway.
        """
        taken = self._positions.keys() & {TopicPartition(*where) for where in columns}
        taken |= self._with_later_end(ends) - self._assigned
        back = {partition: self._positions[partition] for partition in taken if self._positions[partition] != _LOST}
        # All positions are marked first, so that later seeks are not skipped after a failed one.
        self._positions |= dict.fromkeys(back, _LOST)
        self.seek(back)

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        """Move the client and the position to `offset`. A partition that the client does not fetch is assigned anew.

        Raises: ConnectorError; the position is then unknown, so that the next seek is not skipped.
        """
        self._positions[partition] = _LOST
        wanted = confluent_kafka.TopicPartition(*partition, offset)
        try:
            self._client.seek(wanted)
        except KafkaException as exception:
            error = the_error(exception)
            if error.code() not in _NOT_FETCHING:
                raise kafka_error(f"{self._where}: seek", error) from exception
            self._call_client(self._assign_anew, wanted)
        self._positions[partition] = offset

    def _assign_anew(self, wanted: confluent_kafka.TopicPartition) -> None:
        """Assign a partition at an offset. The client keeps pauses across assignments."""
        if self._incremental:
            self._client.incremental_unassign([wanted])
            self._client.incremental_assign([wanted])
        else:
            at = self._positions | {TopicPartition(wanted.topic, wanted.partition): wanted.offset}
            self._client.assign([confluent_kafka.TopicPartition(*tp, max(offset, 0)) for tp, offset in at.items()])

    def _on_assign(self, client: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        if client is not self._live:
            return
        del client  # a traceback that holds this frame must not keep the client
        named = {TopicPartition(p.topic, p.partition) for p in partitions}
        self._assigned |= named
        if not self._incremental:
            self._positions.clear()
        self._unplaced = named
        self._place()

    def _place(self) -> None:
        """Start the assigned partitions at their positions. If these are not available yet, the next poll retries."""
        if not self._unplaced:
            return
        starts = self._starts(self._unplaced)
        placed = [confluent_kafka.TopicPartition(*tp, offset) for tp, offset in starts.items()]
        if self._incremental:
            self._client.incremental_assign(placed)
        else:
            self._client.assign(placed)
        self._positions |= starts
        self._unplaced = set()

    def _on_revoke(self, client: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        if client is not self._live:
            return
        del client  # a traceback that holds this frame must not keep the client
        named = {TopicPartition(p.topic, p.partition) for p in partitions}
        self._revoked |= named - self._assigned
        self._assigned -= named
        self._unplaced -= named
        for partition in named:
            self._positions.pop(partition, None)
        self._end_pauses(named)
        if self._incremental:
            self._client.incremental_unassign(partitions)
        else:
            self._client.unassign()

    def _end_pauses(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Resume partitions, since the client keeps pauses across assignments.

        Returns the partitions that were paused.
        """
        paused = self._paused.intersection(partitions)
        if paused:
            self._call_client(self._client.resume, [confluent_kafka.TopicPartition(*p) for p in paused])
            self._paused -= paused
        return paused

    def _on_lost(self, client: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        if client is not self._live:
            return
        _log.warning("%s: partitions lost: the group has continued without this worker", self._where)
        self._on_revoke(client, partitions)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this member owned at the last poll."""
        return frozenset(self._positions)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Ask for the partitions of `topics` from now on. A topic that does not exist has no partitions."""
        self._demand_open()
        self._topics = list(topics)
        self._resubscribe()

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Move to offsets as `Consumer.seek`. Raises: ConnectorError for a partition that is not owned."""
        for partition, offset in positions.items():
            if partition not in self._positions:
                raise ConnectorError(
                    f"{self._where}: seek in '{partition.topic}' partition {partition.partition}, which this member "
                    "does not own; only owned partitions have a position. Seek after the poll that assigns it"
                )
            if self._positions[partition] != offset:
                self._seek(partition, offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.pause`."""
        wanted = set(partitions) - self._paused
        if wanted:
            self._call_client(self._client.pause, [confluent_kafka.TopicPartition(*p) for p in wanted])
            self._paused |= wanted

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.resume`."""
        for partition in self._end_pauses(partitions):
            if (position := self._positions.get(partition, _LOST)) != _LOST:
                # A seek, since otherwise the client would fetch only at its next check, up to a second later.
                self._seek(partition, position)

    def _call_client(self, call: Callable[[T], None], argument: T) -> None:
        try:
            call(argument)
        except KafkaException as exception:
            error = the_error(exception)
            raise kafka_error(f"{self._where}: {getattr(call, '__name__', 'call')}", error) from exception

    def group_metadata(self) -> object:
        """Return the group, member and generation now. Raises: ConnectorError if this consumer was closed."""
        self._demand_open()
        return self._client.consumer_group_metadata()

    def close(self) -> None:
        """Stop; the second call does nothing."""
        if not self._closed:
            self._closed = True
            self._close_client()

    def _close_client(self) -> None:
        """Release the last reference to the client, so that a thread frees the client."""
        self._live, client, what = None, [self._client], f"{self._where}: consumer"
        del self._client
        if self._incremental:
            close_within(client[0].close, what)
        free_within(client, what)
