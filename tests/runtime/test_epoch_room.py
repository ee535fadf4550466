"""A backlog is read in epochs that grow, within their limits."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.runtime.epoch_room import EpochRoom

FIRST = 50_000


@given(
    most=st.integers(1, 1_000_000),
    epochs=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1e-3)), max_size=20),
)
def test_an_epoch_is_as_long_as_the_last_full_one_foretold(most: int, epochs: list[tuple[float, float]]) -> None:
    """Each has a part of the room, and a time for each record."""
    room = EpochRoom(eddy.Config(max_epoch_records=most, max_epoch_s=10.0))
    assert room.records == min(FIRST, most)
    for part, record_s in epochs:
        before = room.records
        taken = before if part > 0.5 else int(before * part)
        room.learn(taken, taken * record_s)
        room.widen()
        assert min(FIRST, most) <= room.records <= min(most, 2 * before)
        if taken < before:
            assert room.records == before
        elif room.records > min(FIRST, most):
            assert room.records * record_s <= 8.0 + 1e-6
            assert room.records in (most, 2 * before) or room.records == pytest.approx(8.0 / record_s, abs=1)


def test_parts_of_a_failed_epoch_are_no_measure() -> None:
    room = EpochRoom(eddy.Config())
    room.learn(FIRST, 0.1)
    room.narrow(10)
    assert room.records == 10
    room.learn(10, 60.0)
    room.widen()
    assert room.records == 2 * FIRST
    room.begin_anew()
    assert room.records == FIRST


@pytest.fixture
def log() -> Iterator[LocalLog]:
    log = LocalLog(None)
    log.create_topics([TopicSpec("words", 1)])
    yield log
    log.close()


@pytest.mark.slow
def test_a_worker_takes_a_backlog_in_growing_epochs(log: LocalLog) -> None:
    topology = eddy.Topology("counts")
    topology.stream("words", key=eddy.Int64, value=eddy.Int64).group_by_key().count("counts")
    producer = log.producer(None)
    producer.begin()
    keys = [eddy.Int64.encode(number % 100) for number in range(FIRST)]
    for _ in range(8):
        producer.send("words", 0, keys, keys, [0] * FIRST)
    producer.commit({}, None)
    worker = eddy.Worker(topology, log, eddy.Config(max_epoch_records=180_000), clock=lambda: 0.0)
    taken = []
    while not taken or worker.lag():
        taken.append(worker.step())
    assert [number for number in taken if number] == [FIRST, 2 * FIRST, 180_000, 8 * FIRST - 3 * FIRST - 180_000]
    assert dict(worker.store("counts").all()) == dict.fromkeys(range(100), 8 * FIRST // 100)
    worker.close()
