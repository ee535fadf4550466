"""The worker's consumer, fed by hand, on a real broker."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from eddy.connectors.log import Position, TopicPartition
from eddy.faust import consumer as module
from eddy.faust.consumer import FaustConsumer
from eddy.faust.feed import Assignment, Feed
from tests.faust.rig import Topics, unique
from tests.faust.test_feed import batch
from tests.waiting import PATIENCE_S, wait_for

RECORDS, KEPT = 50, 20


class Fed:
    """A consumer of one partition with `RECORDS` records, and its feed. `most` is the size of the largest poll."""

    def __init__(self, topics: Topics, value: bytes = b"v") -> None:
        name = unique("faust-consumer")
        self.where = TopicPartition(name, 0)
        topics.make(1, name)
        topics.write(name, {b"%d" % number: value for number in range(RECORDS)})
        self.feed, self.offsets = Feed(frozenset([name]), 10, 1_000), list[int]()
        self.consumer = FaustConsumer(topics.log, self.feed, (name, f"{name}-app"), {name: 1}, {})
        self.assignment = Assignment(1, "m", None, frozenset([self.where]))
        self.most = 0

    def poll(self) -> None:
        """Poll, and commit the records."""
        for records in self.consumer.poll(1_000, 0.1).records:
            self.most = max(self.most, len(records))
            self.offsets += records.offsets
            self.consumer.committed({self.where: Position(records.next_offset)})


@pytest.fixture
def fed(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fed]:
    monkeypatch.setattr(module, "MAX_KEPT", KEPT)
    made = Fed(topics)
    with closing(made.consumer):
        yield made


def test_a_backlog_that_faust_does_not_bring_is_read_in_slices(fed: Fed) -> None:
    fed.feed.assign(fed.assignment)
    wait_for(lambda: fed.poll() or len(fed.offsets) >= RECORDS, PATIENCE_S, "the records")
    assert (fed.offsets, fed.most) == (list(range(RECORDS)), KEPT)


def test_records_that_faust_could_not_bring_since_too_many_were_under_way_are_left_to_it(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    fed.feed.assign(fed.assignment)
    assert fed.consumer.poll(1_000, 0.0).assigned == {fed.where}
    for _ in range(3):
        fed.feed.put(fed.where, batch(*range(len(fed.offsets), len(fed.offsets) + 10)), generation=1)
        assert fed.feed.full
        fed.poll()
    assert fed.offsets == list(range(30))


def test_an_epoch_after_control_records_that_is_undone_while_the_feed_is_full_is_polled_again(
    fed: Fed, topics: Topics
) -> None:
    topics.write(fed.where.topic, {b"after a control record": b"v"})
    topics.log.set_positions(fed.where.topic, {fed.where: Position(RECORDS)})
    fed.feed.assign(fed.assignment)
    assert fed.consumer.poll(1_000, 0.0).assigned == {fed.where}
    fed.feed.put(fed.where, batch(*range(RECORDS + 1, RECORDS + 11)), generation=1)
    for _ in range(2):
        (records,) = fed.consumer.poll(1_000, 0.0).records
        assert (list(records.offsets), fed.feed.full) == ([*range(RECORDS + 1, RECORDS + 11)], True)
        fed.consumer.seek({fed.where: RECORDS})


def test_large_records_are_read_from_the_log_a_few_at_a_time(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_BYTES", 4 * module.ASSUMED_BYTES)
    fed = Fed(topics, bytes(module.ASSUMED_BYTES))
    with closing(fed.consumer):
        fed.feed.assign(fed.assignment)
        wait_for(lambda: fed.poll() or len(fed.offsets) >= RECORDS, PATIENCE_S, "the records")
    assert (fed.offsets, fed.most) == ([*range(RECORDS)], 4)


def test_records_that_are_committed_already_are_skipped_and_faust_s_position_follows(fed: Fed, topics: Topics) -> None:
    topics.log.set_positions(fed.where.topic, {fed.where: Position(RECORDS)})
    fed.feed.assign(fed.assignment)
    assert fed.consumer.poll(1_000, 0.0).assigned == {fed.where}
    fed.feed.put(fed.where, batch(*range(RECORDS)), generation=1)
    fed.poll()
    assert (fed.offsets, fed.feed.full, fed.feed.position(fed.where)) == ([], False, RECORDS)


def test_positions_are_read_anew_where_another_worker_has_gone_on_and_deleted_records(topics: Topics) -> None:
    name = unique("faust-outdated")
    where, loop = TopicPartition(name, 0), TopicPartition(f"{name}-loop", 0)
    topics.make(1, where.topic, loop.topic)
    topics.write(loop.topic, {b"%d" % number: b"v" for number in range(10)})
    feed = Feed(frozenset([name]), 10, 1_000)
    feed.assign(Assignment(1, "m", None, frozenset([where])))
    consumer = FaustConsumer(topics.log, feed, (name, f"{name}-app"), {name: 1}, {loop.topic: 1})
    with closing(consumer):
        assert consumer.poll(1_000, 0.0).assigned == {where, loop}
        topics.log.set_positions(name, {loop: Position(10)})
        topics.log.delete_records({loop: 10})
        polls = []
        wait_for(lambda: polls.append(consumer.poll(1_000, 0.1)) or polls[-1].assigned, PATIENCE_S, "new positions")
        assert (polls[-1].revoked, polls[-1].assigned) == ({where, loop}, {where, loop})
        topics.write(loop.topic, {b"later": b"v"})

        def keys() -> list[bytes | None]:  # a poll may bring the end of a transaction alone
            polls.append(consumer.poll(1_000, 0.1))
            return [key for poll in polls for records in poll.records for key in records.keys]

        wait_for(keys, PATIENCE_S, "the record")
        assert keys() == [b"later"]
