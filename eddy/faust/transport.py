"""A transport that reads committed records only and feeds hosted topologies: Faust's own, with four changes.

Faust reads records of open and aborted transactions, unless the app is `exactly_once`. An app that hosts a topology
reads topics that are written in transactions, such as eddy's outputs; with Faust's default its agents would see rows of
epochs that were undone. This transport becomes the app's `transport` once the app is configured.

In mode="agents" the `Feed`s get whole batches as aiokafka has fetched them. Faust itself makes two tasks, a message and
an event for each record, and so delivers only a few thousand records a second. Agents of the app that read the same
topic get the records as usual.

The app's member of the group has the worker's name (KIP-345), unless the app has a `consumer_group_instance_id`. So an
app that was killed and is started again resumes its membership at once; otherwise it would wait for the end of its old
session, a minute by Faust's default. An app that stops leaves the group, as a member without a name does.

If a group rebalances while one of its members stops, Faust closes the connections of that member's consumer, from a
thread that is not the consumer's. The stop then commits positions, and retries for ever. Here the connections are kept
open until the consumer stops.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from eddy.connectors.log import TopicPartition
from eddy.errors import ConfigurationError
from eddy.faust.app_settings import SCHEMES
from eddy.faust.feed import Feed

__all__ = ["CommittedConsumer", "SourceTopic", "read_committed"]

_PAUSE_S = 0.005
_WAIT_S = 0.1
"""The most seconds that a fetch waits for records; partitions that become active meanwhile are in the next fetch."""
_FETCHED = 5_000
"""The most records that one fetch returns; a broker's compressed response may have many more."""

Batches = Mapping[TP, list[Any]]


class SourceTopic(faust.Topic):
    """The Faust topic object to which the agent of a hosted topology subscribes: all sources of the topology."""


class _Thread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: driver.Transport) -> Any:
        made = super()._create_worker_consumer(transport)
        # The consumer reads this attribute when it starts; Faust has no setting for it.
        made._isolation_level = "read_committed"
        if self._is_named_by_eddy:
            assert isinstance(self.transport, ReadCommittedTransport)
            made._group_instance_id = self.transport.member()
        return made

    @property
    def _is_named_by_eddy(self) -> bool:
        return self.app.conf.consumer_group_instance_id is None

    def close(self) -> None:
        """Do nothing: Faust calls this in a rebalance while the app stops, and the app stops the consumer later."""

    async def on_thread_stop(self) -> None:
        """Leave the group, as a member without a name, because aiokafka keeps static members in it."""
        coordinator = getattr(self._consumer, "_coordinator", None)
        if self._is_named_by_eddy and coordinator is not None:
            coordinator._group_instance_id = None
        await super().on_thread_stop()

    async def _fetch_records(
        self, consumer: Any, active_partitions: set[TP], timeout: float | None = None, max_records: int | None = None
    ) -> Batches:
        most = min(max_records or _FETCHED, _FETCHED)
        found: Batches = await super()._fetch_records(consumer, active_partitions, timeout, most)
        return found

    def member(self) -> tuple[str, str | None]:
        """Return the id of this member of the group, and its static name or None."""
        coordinator = self._ensure_consumer()._coordinator
        return coordinator.member_id, coordinator._group_instance_id


class CommittedConsumer(driver.Consumer):
    """Faust's consumer, restricted to committed records, with the id of its member of the group.

    Invariant: the position that it commits for a topic that only feeds read is one that eddy has committed.
    """

    def _new_consumer_thread(self) -> driver.AIOKafkaConsumerThread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    def member(self) -> tuple[str, str | None]:
        """Return the id of this member of the group, and its static name or None."""
        assert isinstance(self._thread, _Thread)
        return self._thread.member()

    def _feeds(self, topic: str) -> list[Feed]:
        assert isinstance(self.transport, ReadCommittedTransport)
        return [feed for feed in self.transport.feeds() if topic in feed.topics]

    def _is_shared(self, topic: str) -> bool:
        """Whether agents of the app read a topic, too."""
        others = (channel for channel in self.app.topics if not isinstance(channel, SourceTopic))
        return any(topic in channel.topics or (channel.pattern and channel.pattern.search(topic)) for channel in others)

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Batches:
        """Fetch records. Partitions with a full feed are omitted: their records wait in aiokafka's bounded buffers."""
        active = active_partitions or set()
        full = self._full(active)
        if full and full == active:
            await asyncio.sleep(_PAUSE_S)
            return {}
        # Copy the set: if Faust pauses all partitions meanwhile, an empty set would mean all partitions.
        records: Batches = await super()._getmany(active - full, _PAUSE_S if full else min(timeout, _WAIT_S))
        if not self.flow_active:
            # Faust drops these records. It seeks back if it has committed positions; otherwise the worker reads them
            # from the log.
            return records
        return {tp: batch for tp, batch in records.items() if not self._feed(tp, batch)}

    def _full(self, active: set[TP]) -> set[TP]:
        """Return the partitions whose feeds are full."""
        assert isinstance(self.transport, ReadCommittedTransport)
        topics = set[str]().union(*(feed.topics for feed in self.transport.feeds() if feed.full))
        return {tp for tp in active if tp.topic in topics}

    def _feed(self, tp: TP, batch: list[Any]) -> bool:
        """Put a batch into the feeds of its topic. Returns whether only feeds read the topic."""
        feeds = self._feeds(tp.topic)
        for feed in feeds:
            feed.put(TopicPartition(tp.topic, tp.partition), batch, self.app.consumer_generation_id)
        if not feeds or self._is_shared(tp.topic):
            return False
        monitor = self.app.monitor
        monitor.track_tp_end_offset(tp, self.highwater(tp))
        monitor.stream_inbound_time[tp] = time.monotonic()  # otherwise Faust would log that the stream is idle
        return True

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> Iterator[TP]:
        fed = [tp for tp in self.assignment() if self._feeds(tp.topic) and not self._is_shared(tp.topic)]
        yield from fed
        yield from (tp for tp in super()._filter_tps_with_pending_acks(topics) if tp not in fed)

    def _new_offset(self, tp: TP) -> int | None:
        feeds = self._feeds(tp.topic)
        if not feeds or self._is_shared(tp.topic):
            return super()._new_offset(tp)
        positions = [feed.position(TopicPartition(tp.topic, tp.partition)) for feed in feeds]
        return None if None in positions else min(position for position in positions if position is not None)

    async def wait_empty(self) -> None:
        """Before a rebalance or a stop: wait for the end of the workers' epochs, and commit their positions."""
        assert isinstance(self.transport, ReadCommittedTransport)
        await asyncio.gather(*(feed.revoke() for feed in self.transport.feeds()))
        await super().wait_empty()


class ReadCommittedTransport(driver.Transport):
    """Faust's transport for Kafka, restricted to committed records.

    `feeds` returns the app's feeds, `member` the static name of the app's member of the group.
    """

    Consumer = CommittedConsumer
    feeds: Callable[[], Iterable[Feed]] = staticmethod(tuple)
    member: Callable[[], str | None] = staticmethod(lambda: None)


def read_committed(app: faust.App, feeds: Callable[[], Iterable[Feed]], member: Callable[[], str]) -> None:
    """Let an app read committed records only, in all agents and tables, and deliver records to `feeds()`.

    `member()` returns the static name of the app's member of the group, unless the app's settings have one.
    """

    def configured(*_: Any, **__: Any) -> None:
        urls = app.conf.broker_consumer
        if strange := [url for url in urls if url.scheme not in SCHEMES]:
            raise ConfigurationError(
                f"faust app '{app.conf.id}': the driver of {strange[0]} drops headers and timestamps, and has a "
                "partitioner that differs with every process; Faust's aiokafka driver is needed. Write: "
                f"broker='kafka://{strange[0].host}:{strange[0].port}'"
            )
        transport = ReadCommittedTransport(urls, app)
        transport.feeds, transport.member = feeds, member
        app.transport = transport

    if app.configured:
        configured()
    else:
        app.on_after_configured.connect(configured, weak=False)
