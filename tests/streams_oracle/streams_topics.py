"""The topics between the steps of a task of Kafka Streams, and the order in which it takes their records.

Of several topics that with the least time of its first record is next; of equals, as Java's priority queue has them.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.streams_oracle.functions import Key

__all__ = ["Sent", "Topics"]


class Sent(NamedTuple):
    """A record in a topic between steps: `data` is a value, a change, or a message of a foreign-key join."""

    key: Key
    data: Any
    time: int


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

    def drain(self) -> None:
        """Read all records, also those that they cause."""
        waiting = Heap()
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


class Heap:
    """A priority queue of topics by the time of their first record, with Java's order of equals."""

    def __init__(self) -> None:
        self._queue: list[Topic] = []

    def __bool__(self) -> bool:
        return bool(self._queue)

    def offer(self, topic: Topic) -> None:
        """Add a topic: it rises above those with a greater time."""
        queue, at = self._queue, len(self._queue)
        queue.append(topic)
        while at and _time(queue[(at - 1) // 2]) > _time(topic):
            queue[at] = queue[(at - 1) // 2]
            at = (at - 1) // 2
        queue[at] = topic

    def poll(self) -> Topic:
        """Take the first: the last one sinks below those with a lesser time."""
        queue = self._queue
        first, last = queue[0], queue.pop()
        at = 0
        while queue and (child := 2 * at + 1) < len(queue):
            if child + 1 < len(queue) and _time(queue[child]) > _time(queue[child + 1]):
                child += 1
            if _time(last) <= _time(queue[child]):
                break
            queue[at] = queue[child]
            at = child
        if queue:
            queue[at] = last
        return first


def _time(topic: Topic) -> int:
    return topic.records[0].time
