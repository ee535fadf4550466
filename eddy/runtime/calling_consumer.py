"""A consumer that keeps records back until the calls for them have ended.

For each polled record it computes the rows that reach a `map_async`, and begins a call for each row. `poll` returns the
first records of each partition whose calls have ended. So an epoch never waits for a call, its transaction is not open
meanwhile, and the group's position never passes a record whose calls have not ended. A partition with too many waiting
records is paused; other partitions are not. A seek cancels the calls of a partition; they are made again when its
records are polled again.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from eddy.connectors.log import UNBOUNDED, Consumer, Poll, Records, TopicPartition
from eddy.operators.async_map import AsyncMap
from eddy.operators.batch import EMPTY, Batch, Place, Row
from eddy.operators.errors.guarded import unguarded
from eddy.operators.operator import Step
from eddy.operators.processors.record import RecordContext
from eddy.runtime.async_calls import AsyncCalls, OpenCall
from eddy.runtime.decoding import Decoder

__all__ = ["CallPath", "CallingConsumer"]

_PAUSE_S = 0.02
_WAITING = 4
"""A partition is paused while its waiting records are at least this many times `at_most`, the limit of calls."""


class CallPath(NamedTuple):
    """The steps by which rows of sources reach an `AsyncMap`. `inputs` has the slot of each source, by topic."""

    operator: AsyncMap
    source: int
    inputs: Mapping[str, int]
    steps: Sequence[Step]

    @classmethod
    def all_of(cls, steps: Sequence[Step], inputs: Mapping[str, int]) -> "list[CallPath]":
        """Return the path to each operator that makes asynchronous calls."""
        return [cls._to(step, steps, inputs) for step in steps if isinstance(unguarded(step.operator), AsyncMap)]

    @classmethod
    def _to(cls, last: Step, steps: Sequence[Step], inputs: Mapping[str, int]) -> "CallPath":
        operator, needed, path = unguarded(last.operator), set(last.inputs), list[Step]()
        assert isinstance(operator, AsyncMap)
        for step in reversed(steps[: steps.index(last)]):
            if step.output in needed:
                needed |= set(step.inputs)
                path.append(step)
        sources = {topic: slot for topic, slot in inputs.items() if slot in needed}
        return cls(operator, last.inputs[0], sources, path[::-1])

    def rows(self, topic: str, batch: Batch) -> Batch:
        """Return the rows that reach the `AsyncMap` from records of a source; each row gets a call."""
        if topic not in self.inputs:
            return EMPTY
        values = {self.inputs[topic]: batch}
        for step in self.steps:
            inputs = [values.get(slot, EMPTY) for slot in step.inputs]
            if any(each.rows for each in inputs):
                values[step.output] = step.operator.explore(*inputs)
        return values.get(self.source, EMPTY)


class _Unfinished(NamedTuple):
    """Consecutive records of a partition that wait for their calls. `calls` has a list of calls for each record."""

    records: Records
    calls: list[list[OpenCall]]

    def ended(self) -> int:
        """Return the number of records before the first record that has a call which has not ended."""
        return sum(1 for _ in takewhile(lambda calls: all(call.ended for call in calls), self.calls))

    def after(self, count: int) -> "_Unfinished":
        """Return the records from index `count` on, with their calls."""
        return _Unfinished(self.records.slice(count, len(self.records)), self.calls[count:])


class CallingConsumer:
    """Wraps `consumer`: returns a record once all asynchronous calls for it have ended.

    `paths`: for each step with asynchronous calls, the steps that lead from the sources to it; at least one path.
    """

    def __init__(self, consumer: Consumer, decoder: Decoder, paths: Sequence[CallPath]) -> None:
        self._consumer, self._decoder, self._paths = consumer, decoder, paths
        self._topics = {topic for path in paths for topic in path.inputs}
        self._most_waiting = _WAITING * max(path.operator.limits.at_most for path in paths)
        self._calls = AsyncCalls()
        self._waiting: dict[TopicPartition, deque[_Unfinished]] = {}
        self._returned: list[Place] = []
        self._held: set[TopicPartition] = set()

    def poll(self, max_records: int, timeout_s: float, max_bytes: int = UNBOUNDED) -> Poll:
        """Poll for records, begin their calls, and return the records that wait for no call any more."""
        self._forget_returned()
        polled = self._consumer.poll(max_records, 0.0 if self._waiting else timeout_s, max_bytes)
        if polled.revoked:
            self._drop(polled.revoked)
        found = []
        for records in polled.records:
            if records.topic in self._topics:
                self._begin(records)
            else:
                found.append(records)
        ready = self._ready(max_records, max_bytes)
        if self._waiting and not (found or ready or polled.assigned or polled.revoked):
            self._calls.wait(min(timeout_s or _PAUSE_S, _PAUSE_S))
            ready = self._ready(max_records, max_bytes)
        self._pause_full()
        return Poll(found + ready, polled.revoked, polled.assigned)

    def assignment(self) -> frozenset[TopicPartition]:
        """As `Consumer.assignment`."""
        return self._consumer.assignment()

    def subscribe(self, topics: Sequence[str]) -> None:
        """As `Consumer.subscribe`."""
        self._consumer.subscribe(topics)

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Move to positions, as `Consumer.seek` does; the calls of these partitions are cancelled and forgotten."""
        self._drop(positions)
        self._consumer.seek(positions)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.pause`."""
        self._consumer.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.resume`."""
        self._consumer.resume(partitions)

    def group_metadata(self) -> object:
        """As `Consumer.group_metadata`."""
        return self._consumer.group_metadata()

    def cancel(self) -> Consumer:
        """Cancel all calls, and return the wrapped consumer, so that another consumer can wrap it."""
        self._calls.close()
        return self._consumer

    def close(self) -> None:
        """Cancel all calls, and end the membership."""
        try:
            self._calls.close()
        finally:
            self._consumer.close()

    def _begin(self, records: Records) -> None:
        """Begin the calls of polled records."""
        found: list[list[OpenCall]] = [[] for _ in records.offsets]
        numbers = {offset: number for number, offset in enumerate(records.offsets)}
        untimed: dict[Place, str] = {}
        timed = self._decoder.extractors.timed(records, untimed)
        for batch in self._decoder.decode([timed]).values():
            for path in self._paths:
                for row, record in _rows_with_records(path.rows(records.topic, batch)):
                    if record[:3] not in untimed:
                        found[numbers[record.offset]].append(OpenCall(path.operator, row, record))
        self._calls.begin([call for calls in found for call in calls])
        queue = self._waiting.setdefault(TopicPartition(records.topic, records.partition), deque())
        queue.append(_Unfinished(records, found))

    def _ready(self, max_records: int, max_bytes: int) -> list[Records]:
        """Return the waiting records that wait for no call any more, up to the limits, and forget that they wait.

        In each partition these are the records before the first one with a call that has not ended. The last records
        may exceed `max_bytes`.
        """
        found: list[Records] = []
        for partition, queue in list(self._waiting.items()):
            while queue and max_records > 0 and max_bytes > 0:
                first = queue.popleft()
                count = min(first.ended(), max_records)
                whole = count == len(first.records)
                taken = first.records if whole else first.records.slice(0, count)
                if count or whole:
                    self._deliver_results(first.calls[:count])
                    found.append(taken)
                    max_records, max_bytes = max_records - count, max_bytes - taken.bytes()
                if not whole:
                    queue.appendleft(first.after(count) if count else first)
                    break
            if not queue:
                del self._waiting[partition]
        return found

    def _deliver_results(self, calls: Sequence[list[OpenCall]]) -> None:
        """Give each operator the results of its ended calls, by the topic, partition and offset of the record."""
        for call in (call for of_record in calls for call in of_record):
            place, ended = call.record[:3], call.ended
            assert ended is not None
            call.operator.ended.setdefault(place, []).append(ended)
            self._returned.append(place)

    def _forget_returned(self) -> None:
        """Forget the records of the last poll: they are committed, or will be polled again."""
        for place in self._returned:
            for path in self._paths:
                path.operator.ended.pop(place, None)
        self._returned = []

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Cancel the calls of partitions, and forget their waiting records."""
        for partition in partitions:
            queue = self._waiting.pop(partition, ())
            self._calls.cancel([call for waiting in queue for calls in waiting.calls for call in calls])
        self._pause_full()

    def _pause_full(self) -> None:
        """Pause the partitions with too many waiting records, and resume paused partitions that have fewer now."""
        full = {
            partition
            for partition, queue in self._waiting.items()
            if sum(len(waiting.records) for waiting in queue) >= self._most_waiting
        }
        owned = self._consumer.assignment()
        self._consumer.pause(full - self._held)
        self._consumer.resume((self._held - full) & owned)
        self._held = full


def _rows_with_records(batch: Batch) -> Iterator[tuple[Row, RecordContext]]:
    """Yield each row with its record."""
    parts = zip(batch.rows, batch.places_of_rows(), batch.times_of_rows(), batch.headers_of_rows(), strict=True)
    for row, place, time, headers in parts:
        assert place is not None, "a row before a call is a record of a source"
        yield row, RecordContext(*place, time, headers)
