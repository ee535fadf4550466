"""Records between Faust's loop and the worker's thread: which come, how many at once, and the positions that follow."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from eddy.connectors.log import Records, TopicPartition
from eddy.faust.feed import Assignment, Feed

WHERE = TopicPartition("in", 0)


def batch(*offsets: int, headers: tuple[tuple[str, bytes], ...] = ()) -> list[Any]:
    """Records as aiokafka fetches them."""
    return [SimpleNamespace(offset=o, timestamp=o, key=b"k", value=b"%d" % o, headers=headers) for o in offsets]


def assignment(generation: int = 1) -> Assignment:
    return Assignment(generation, "m", None, frozenset([WHERE]))


def feed(capacity: int = 10, max_bytes: int = 1_000) -> tuple[Feed, Assignment]:
    made, given = Feed(frozenset(["in"]), capacity, max_bytes), assignment()
    made.assign(given)
    return made, given


def offsets(taken: list[Records]) -> Iterator[int]:
    return (offset for records in taken for offset in records.offsets)


def test_a_batch_arrives_in_columns() -> None:
    made, given = feed()
    made.put(WHERE, batch(3, 5, headers=(("h", b"1"),)), generation=1)
    (records,) = made.take(given, 0.0)
    assert (list(records.offsets), list(records.values), records.next_offset) == ([3, 5], [b"3", b"5"], 6)
    assert records.headers == [(("h", b"1"),)] * 2
    assert made.take(given, 0.0) == []


def test_it_is_full_until_records_are_committed_and_says_that_it_was() -> None:
    made, _ = feed(capacity=2)
    made.put(WHERE, batch(100), generation=1)
    assert (made.full, made.was_full()) == (False, False)
    made.put(WHERE, batch(101), generation=1)
    assert made.full
    made.release({WHERE: 101})
    assert (made.full, made.was_full(), made.was_full()) == (False, True, False)


def test_few_large_records_fill_it_too() -> None:
    made, _ = feed(max_bytes=12)
    made.put(WHERE, batch(100, 101, headers=(("h", b""),)), generation=1)
    assert not made.full
    made.put(WHERE, batch(102), generation=1)
    assert made.full
    made.release({WHERE: 101})
    assert made.full  # until the whole batch is committed
    made.release({WHERE: 102})
    assert not made.full
    made.put(WHERE, batch(*range(90, 101)), generation=1)
    assert not made.full  # these are committed already
    made.release({WHERE: 103})
    made.put(WHERE, batch(103, 104, 105), generation=1)
    assert made.full
    made.assign(assignment(generation=2))
    assert not made.full


def test_position_is_the_last_one_that_was_committed_in_this_assignment() -> None:
    made, _ = feed()
    assert made.position(WHERE) is None
    made.release({WHERE: 7})
    assert made.position(WHERE) == 7
    made.assign(assignment(generation=2))
    assert made.position(WHERE) is None


def test_records_of_an_earlier_generation_or_for_a_worker_that_has_ended_are_dropped() -> None:
    made, given = feed(capacity=1)
    made.put(WHERE, batch(0), generation=1)
    made.assign(again := assignment(generation=2))
    made.put(WHERE, batch(1), generation=1)
    assert made.take(given, 0.0) == made.take(again, 0.0) == []
    made.put(WHERE, batch(2), generation=2)
    assert [*offsets(made.take(again, 0.0))] == [2]
    made.end()
    made.put(WHERE, batch(3), generation=2)
    assert (made.take(again, 0.0), made.full) == ([], False)


def test_revoking_waits_until_the_worker_has_let_go() -> None:
    async def revoking() -> None:
        made, given = feed()
        made.adopted = given
        waits = asyncio.create_task(made.revoke())
        await asyncio.sleep(0)
        assert (made.assignment, waits.done()) == (None, False)
        made.adopted = None
        await waits

    asyncio.run(revoking())
