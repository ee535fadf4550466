"""The topics between the steps of a task of Kafka Streams, and the order in which it takes their records; punctuations.

Of several topics that with the least time of its first record is next; of equals, as Java's priority queue has them.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from tests.streams_oracle.functions import Key

__all__ = ["Schedules", "Sent", "Topics"]

T = TypeVar("T")


class Sent(NamedTuple):
    """A record in a topic between steps: `data` is a value, a change, or a message of a foreign-key join.

    `number` is that of the input record whose headers it has.
    """

    key: Key
    data: Any
    time: int
    number: int


class Topic:
    """A topic, and the step that reads it."""

    def __init__(self, take: Callable[[Sent], None]) -> None:
        self.take, self.records = take, deque[Sent]()


class Topics:
    """The topics of a task, by name."""

    def __init__(self) -> None:
        self._topics: dict[object, Topic] = {}
        self._sent: list[tuple[Topic, Sent]] = []

    def send(self, name: object, take: Callable[[Sent], None], sent: Sent) -> None:
        """Write a record; it is read when the record that caused it is done."""
        self._sent.append((self._topics.setdefault(name, Topic(take)), sent))

    def drain(self, after_each: Callable[[int], None]) -> None:
        """Read all records, also those that they cause; `after_each` is called with the time of each that was read."""
        waiting: Heap[Topic] = Heap(lambda topic: topic.records[0].time)
        while self._sent or waiting:
            for topic, sent in self._sent:
                topic.records.append(sent)
                if len(topic.records) == 1:
                    waiting.offer(topic)
            self._sent = []
            topic = waiting.poll()
            sent = topic.records.popleft()
            if topic.records:
                waiting.offer(topic)
            topic.take(sent)
            after_each(sent.time)


class Schedule:
    """A punctuation, next due at `at`."""

    def __init__(self, at: int, every: int, call: Callable[[int], None]) -> None:
        self.at, self.every, self.call = at, every, call


class Schedules:
    """The punctuations of a task by one clock."""

    def __init__(self) -> None:
        self._queue: Heap[Schedule] = Heap(lambda schedule: schedule.at)
        self.now = 0

    def add(self, every: int, call: Callable[[int], None], *, at: int) -> None:
        """Call `call` at a time, and then every so often."""
        self._queue.offer(Schedule(at, every, call))

    def advance(self, now: int) -> None:
        """Call what is due; of several moments that have passed once."""
        self.now = max(now, self.now)
        while self._queue and self._queue.first.at <= self.now:
            schedule = self._queue.poll()
            schedule.call(self.now)
            schedule.at += (max(self.now - schedule.at, 0) // schedule.every + 1) * schedule.every
            self._queue.offer(schedule)


class Heap(Generic[T]):
    """A priority queue by time, with Java's order of equals."""

    def __init__(self, time_of: Callable[[T], int]) -> None:
        self._time_of, self._queue = time_of, list[T]()

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def first(self) -> T:
        """The one with the least time."""
        return self._queue[0]

    def offer(self, item: T) -> None:
        """Add an item: it rises above those with a greater time."""
        queue, at = self._queue, len(self._queue)
        queue.append(item)
        while at and self._time_of(queue[(at - 1) // 2]) > self._time_of(item):
            queue[at] = queue[(at - 1) // 2]
            at = (at - 1) // 2
        queue[at] = item

    def poll(self) -> T:
        """Take the first: the last one sinks below those with a lesser time."""
        queue, time_of = self._queue, self._time_of
        first, last = queue[0], queue.pop()
        at = 0
        while (child := 2 * at + 1) < len(queue):
            if child + 1 < len(queue) and time_of(queue[child]) > time_of(queue[child + 1]):
                child += 1
            if time_of(last) <= time_of(queue[child]):
                break
            queue[at] = queue[child]
            at = child
        if queue:
            queue[at] = last
        return first
