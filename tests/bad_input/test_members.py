"""Workers among each other: one slot for two, a worker that is slow, one whose producers place keys their own way."""

import logging
import zlib

import pytest

import eddy
from eddy.errors import ConfigurationError, SlotTakenError
from eddy.runtime.tenure import Tenure
from tests.bad_input.conftest import MakeRig
from tests.bad_input.rig import Rig
from tests.bad_input.topologies import added_up, family, sums
from tests.descendants import counted
from tests.waiting import PATIENCE_S, Deadline


def test_of_two_workers_in_one_slot_the_later_goes_on(rig: Rig) -> None:
    rig.create("in", "sums", partitions=4)
    rows = [(f"k{n % 20}", n) for n in range(100)]
    rig.write("in", rows)
    first = rig.worker(sums(rig))
    rig.settle(first)
    second = rig.worker(sums(rig))
    rig.write("in", rows)

    def both() -> bool:
        second.step(0.01)
        first.step(0.01)
        return False

    with pytest.raises(SlotTakenError, match=rig.name):
        rig.wait(both)
    first.close()
    rig.write("in", rows)
    rig.settle(second)
    assert rig.table("sums", eddy.Int64) == added_up(rows * 3)


def test_a_name_that_an_earlier_worker_takes_back_is_taken_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """As the client of a worker does that was paused beyond its session, when it goes on."""
    rig.create("in", "sums", partitions=2)
    rows = [(f"k{n}", n) for n in range(10)]
    rig.write("in", rows)
    worker = rig.worker(sums(rig))
    rig.settle(worker)
    rig.write("in", rows)
    back = rig.log.consumer(rig.name, [rig.topic("in")], worker.member)
    rig.wait(lambda: worker.step(0.01) is None or "an earlier worker has taken the name back" in caplog.text)
    rig.settle(worker)
    assert rig.table("sums", eddy.Int64) == added_up(rows * 2)
    with pytest.raises(SlotTakenError):
        rig.wait(lambda: back.poll(1, 0.01).records is None)
    back.close()
    later = rig.worker(sums(rig))
    with pytest.raises(SlotTakenError):  # whether the group tells it first, or the note of the later start
        rig.wait(lambda: worker.step(0.01) is None)
    assert not worker._tenure.lasts()  # private: it has read the later start
    rig.settle(later)


def test_a_worker_that_gives_way_to_an_earlier_one_is_found(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug of the test above."""
    monkeypatch.setattr(Tenure, "lasts", lambda tenure: False)
    monkeypatch.setattr(Tenure, "check", lambda tenure: None)
    rig.create("in", "sums")
    worker = rig.worker(sums(rig))
    rig.settle(worker)
    back = rig.log.consumer(rig.name, [rig.topic("in")], worker.member)
    with pytest.raises(SlotTakenError):
        rig.wait(lambda: worker.step(0.01) is None)
    back.close()


def test_what_the_first_in_a_slot_has_begun_is_done_once_by_the_second(rig: Rig) -> None:
    """The second starts while the first is about to commit: the first commits nothing."""
    rig.create("in", "sums")
    rows = [(f"k{n}", n) for n in range(10)]
    rig.write("in", rows[:5])
    workers: list[eddy.Worker] = []
    begun: list[str] = []

    def take_the_slot(step: str) -> None:
        if step == "flushed" and begun and len(workers) == 1:
            workers.append(rig.worker(sums(rig)))

    workers.append(rig.worker(sums(rig), observe=take_the_slot))
    rig.settle(workers[0])
    begun.append("now")
    rig.write("in", rows[5:])

    def both() -> bool:
        for worker in reversed(workers):
            worker.step(0.01)
        return False

    with pytest.raises(SlotTakenError):
        rig.wait(both)
    rig.settle(workers[1])
    assert rig.table("sums", eddy.Int64) == added_up(rows)


def test_a_worker_that_was_too_slow_for_its_group_comes_back(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    """What it computed meanwhile was another's to commit; it is left with nothing, and begins again."""
    rig = make_rig("consumer.session.timeout.ms=1000", "consumer.max.poll.interval.ms=1500")
    rig.create("in", "sums", partitions=2)
    outsider = make_rig()
    waited: list[str] = []

    def slow(key: str, n: int) -> None:
        if key == "slow" and not waited:
            waited.append(key)
            outsider.wait(lambda: outsider.log.groups().get(rig.name, 0) == 0)

    worker = rig.worker(sums(rig, slow))
    rows = [("a", 1), ("b", 2)]
    rig.write("in", rows)
    rig.settle(worker)
    rig.write("in", [*rows, ("slow", 3)])
    rig.settle(worker)
    rig.write("in", rows)
    rig.settle(worker)
    assert waited
    assert "rejoining" in caplog.text
    assert rig.table("sums", eddy.Int64) == {**added_up(rows * 3), "slow": 3}


def test_another_takes_over_from_one_that_is_too_slow(make_rig: MakeRig) -> None:
    """The slow one holds a partition while the other runs on; both commit what is theirs, once."""
    rig = make_rig("consumer.session.timeout.ms=1000", "consumer.max.poll.interval.ms=1500")
    rig.create("in", "sums", partitions=2)
    rows = [(f"k{n}", n) for n in range(20)]
    other_rig = make_rig("consumer.session.timeout.ms=1000", "consumer.max.poll.interval.ms=1500")
    slow_now: list[str] = []

    def slow(key: str, n: int) -> None:
        if slow_now and slow_now.pop():
            deadline = Deadline(PATIENCE_S)
            while len(other.circuit.ownership.partitions[2]) < 2:
                other.step(0.05)
                deadline.check("the other worker's share")

    worker, other = rig.worker(sums(rig, slow)), other_rig.worker(sums(other_rig), member="1")
    rig.share(worker, other)
    slow_now.append("now")
    rig.write("in", rows)
    rig.settle(worker, other)
    rig.write("in", rows)
    rig.settle(worker, other)
    assert rig.table("sums", eddy.Int64) == added_up(rows * 2)


@pytest.mark.parametrize("kind", ["table", "stream"])
def test_keys_placed_by_crc32_are_told(rig: Rig, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """librdkafka's default: rows of a table would not meet those of others; those of a stream may not need to."""
    caplog.set_level(logging.WARNING)
    rig.create("nodes", "descendants", "in", "sums", partitions=3)
    stem, topology = ("nodes", family(rig)) if kind == "table" else ("in", sums(rig))
    producer = rig.log.producer(None)
    producer.begin()
    for n in range(20):
        key = b"k%d" % n
        value = eddy.Int64.encode(n) if kind == "stream" else b"root"
        producer.send(rig.topic(stem), zlib.crc32(key) % 3, [key], [value], [1_000])
    producer.commit({}, None)
    worker = rig.worker(topology)
    if kind == "table":
        with pytest.raises(ConfigurationError, match=rf"'{rig.topic(stem)}'.*CRC32.*partitioner=murmur2") as refused:
            rig.settle(worker)
        assert "None" not in str(refused.value)
        return
    rig.settle(worker)
    assert caplog.text.count("CRC32") == 1
    assert rig.topic(stem) in caplog.text
    assert rig.table("sums", eddy.Int64) == {f"k{n}": n for n in range(20)}


def test_keys_placed_as_kafka_does_are_no_matter(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.create("nodes", "descendants", partitions=3)
    nodes = {f"k{n}": f"k{n + 1}" for n in range(20)}
    rig.write("nodes", nodes.items())
    rig.run(family(rig))
    assert rig.table("descendants", eddy.Int64) == counted(nodes)
    assert "CRC32" not in caplog.text
