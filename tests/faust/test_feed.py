"""Records between Faust's loop and the worker's thread: which ones Faust still waits for."""

import asyncio
from types import SimpleNamespace
from typing import Any

import faust
from faust.types.tuples import ConsumerMessage

from eddy.connectors.faust.feed import Assignment, Feed
from eddy.connectors.log import TopicPartition

WHERE = TopicPartition("in", 0)


def events(*offsets: int, generation: int = 1, topic: str = "in") -> list[Any]:
    """Faust's events, of an app without a consumer."""
    app: Any = SimpleNamespace(consumer=None)
    messages = [ConsumerMessage(topic, 0, o, 0.0, 0, [], b"k", b"v", None, generation_id=generation) for o in offsets]
    return [faust.Event(app, b"k", b"v", {}, message) for message in messages]


def waits_for(given: list[Any]) -> list[int]:
    return [event.message.offset for event in given if not event.message.acked]


def assignment(generation: int = 1) -> Assignment:
    return Assignment(generation, "m", None, frozenset([WHERE]))


def test_faust_waits_for_records_that_the_worker_has_until_it_gives_them_up() -> None:
    async def feeding() -> None:
        feed = Feed(2)
        feed.assign(assignment())
        given, waiting = events(0, 1), events(2)
        await feed.put(given)
        blocked = asyncio.create_task(feed.put(waiting))
        await asyncio.sleep(0)
        assert (waits_for(given), blocked.done()) == ([0, 1], False)
        feed.give_up()
        await blocked
        assert waits_for(given + waiting) == []
        feed.assign(again := assignment(generation=2))
        given = events(0, generation=2)
        await feed.put(given)
        assert (waits_for(given), [fed.offset for fed in feed.take(again, 0.0)]) == ([0], [0])

    asyncio.run(feeding())


def test_faust_waits_for_no_record_of_an_earlier_generation_or_of_a_worker_that_has_ended() -> None:
    async def feeding() -> None:
        feed = Feed(10)
        feed.assign(assignment())
        given, late = events(0), events(1)
        await feed.put(given)
        feed.assign(assignment(generation=2))
        await feed.put(late)
        assert waits_for(given + late) == []
        feed.end()
        feed.assign(assignment(generation=3))
        given = events(2, generation=3)
        await feed.put(given)
        assert waits_for(given) == []

    asyncio.run(feeding())
