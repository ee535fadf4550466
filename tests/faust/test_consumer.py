"""The worker's consumer, fed by hand, on a real broker."""

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest

from eddy.connectors.faust import consumer as module
from eddy.connectors.faust.consumer import FaustConsumer
from eddy.connectors.faust.feed import Assignment, Feed
from eddy.connectors.log import Position, TopicPartition
from tests.faust.rig import PATIENCE_S, Topics, unique
from tests.faust.test_feed import events
from tests.waiting import wait_for

RECORDS, KEPT = 50, 20


class Fed:
    """A consumer of one partition with `RECORDS` records, and its feed."""

    def __init__(self, topics: Topics) -> None:
        name = unique("faust-consumer")
        self.where = TopicPartition(name, 0)
        topics.make(1, name)
        topics.write(name, {b"%d" % number: b"v" for number in range(RECORDS)})
        self.feed, self.offsets = Feed(1_000), list[int]()
        self.consumer = FaustConsumer(topics.log, self.feed, (name, f"{name}-app"), {name: 1}, {})
        self.assignment = Assignment(1, "m", None, frozenset([self.where]))

    def poll(self) -> None:
        """Poll, and commit the records."""
        for records in self.consumer.poll(1_000, 0.1).records:
            assert len(records) <= KEPT
            self.offsets += records.offsets
            self.consumer.committed({self.where: Position(records.next_offset)})


@pytest.fixture
def fed(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fed]:
    monkeypatch.setattr(module, "_KEPT", KEPT)
    made = Fed(topics)
    with closing(made.consumer):
        yield made


def test_a_backlog_that_faust_does_not_bring_is_read_in_slices(fed: Fed) -> None:
    async def assign() -> None:
        fed.feed.assign(fed.assignment)

    asyncio.run(assign())
    wait_for(lambda: fed.poll() or len(fed.offsets) >= RECORDS, PATIENCE_S, "the records")
    assert fed.offsets == list(range(RECORDS))


def test_records_that_are_committed_already_are_skipped_and_acknowledged(fed: Fed, topics: Topics) -> None:
    topics.log.set_positions(fed.where.topic, {fed.where: RECORDS})
    given = events(*range(RECORDS), topic=fed.where.topic)
    for event in given:
        event.message.incref(2)  # another agent reads them, too; so ours is not the last acknowledgement

    async def feeding() -> None:
        fed.feed.assign(fed.assignment)
        assert fed.consumer.poll(1_000, 0.0).assigned == {fed.where}
        await fed.feed.put(given)
        fed.poll()
        await asyncio.sleep(0)

    asyncio.run(feeding())
    assert fed.offsets == []
    assert {event.message.refcount for event in given} == {1}
