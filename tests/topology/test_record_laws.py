"""The records that functions get are a function of the input: an oracle in plain Python over the records of the log.

Whatever the cut into epochs, the number of partitions and workers, restarts, lost states, and records on which a
function raises, for which an epoch is run again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy import RecordContext
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Headers, TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.runtime.lifecycle import WorkerState
from eddy.state.memory import MemoryStore
from tests.waiting import PATIENCE_S, Deadline, step_to_rest

S, Native = eddy.String, eddy.Native
Record = tuple[str, str, int, Headers]
"""A key, a value of words, a timestamp, and headers."""
Row = tuple[str, str, RecordContext]
"""A key, a word, and the metadata that its function got."""


@dataclass(frozen=True)
class Program:
    """Words, each with the metadata of its record: of some records, in each step asked again."""

    least: int
    """Only records with offsets from here on are kept."""
    wrong: int
    """A function raises on the words of records with this timestamp modulo 5; -1 for on none."""
    merged: bool
    """Whether the stream is split by its records, and merged."""

    def topology(self, seen: list[RecordContext]) -> eddy.Topology:
        made = eddy.Topology("app")
        stream = made.stream("in", key=S, value=S).filter(lambda key, value, record: record.offset >= self.least)
        if self.merged:
            halves = stream.split(plain=lambda key, value, record: not record.headers, rest=lambda key, value: True)
            stream = halves["rest"].merge(halves["plain"])
        words = stream.peek(lambda key, value, record: seen.append(record)).flat_map_values(str.split)
        checked = words.map_values(self._checked, value=Native)
        checked.select_key(lambda key, value, record: str(record.offset % 2), key=S).to("out", S, Native)
        checked.group_by(lambda key, value, record: f"{record.partition} {record.timestamp_ms}", key=S).count("counts")
        return made

    def _checked(self, key: str, value: str, record: RecordContext) -> tuple[Any, ...]:
        if record.timestamp_ms % 5 == self.wrong:
            raise ValueError("this timestamp is wrong")
        return key, value, *record

    def of(self, records: Iterable[tuple[str, str, RecordContext]]) -> list[Row]:
        """The rows of records, by the rule alone."""
        return [
            (key, word, record)
            for key, value, record in records
            if record.offset >= self.least and record.timestamp_ms % 5 != self.wrong
            for word in value.split()
        ]


class Running:
    """Workers on a log, each with a store in memory."""

    def __init__(
        self, program: Program, partitions: int, count: int, most: int, policy: Literal["skip", "dead-letter"]
    ):
        self.log, self.partitions, self.seen = LocalLog(None), partitions, list[RecordContext]()
        self.topology = program.topology(self.seen)
        self.log.create_topics(TopicSpec(topic, partitions) for topic in ("in", "out"))
        self.config = eddy.Config(max_epoch_records=most, on_error=policy)
        self.stores = [MemoryStore() for _ in range(count)]
        self.workers = [self._worker(number) for number in range(count)]

    def _worker(self, number: int) -> eddy.Worker:
        return eddy.Worker(
            self.topology, self.log, self.config, member=str(number), store=self.stores[number], clock=lambda: 0.0
        )

    def write(self, records: Iterable[Record]) -> None:
        producer = self.log.producer(None)
        producer.begin()
        for key, value, stamp, headers in records:
            home = partition_of(key.encode(), self.partitions)
            producer.send("in", home, [key.encode()], [value.encode()], [stamp], [headers] if headers else None)
        producer.commit({}, None)
        producer.close()

    def replace(self, number: int) -> None:
        """A worker ends, and another one with nothing on its disk takes its place."""
        self.workers[number].close()
        self.stores[number] = MemoryStore()
        self.workers[number] = self._worker(number)

    def finish(self) -> None:
        step_to_rest(self.workers)

    def counts(self) -> dict[str, int]:
        deadline = Deadline(PATIENCE_S)
        busy = min(self.partitions, len(self.workers))  # the others own nothing
        while sum(worker.state is WorkerState.PROCESSING for worker in self.workers) < busy:  # some may still restore
            deadline.check("workers that process")
            for worker in self.workers:
                worker.step()
        return {key: n for worker in self.workers for key, n in worker.store("counts").all().items()}

    def read(self, topic: str) -> Iterator[tuple[str, bytes, RecordContext]]:
        """The records of a topic, each with its metadata."""
        for partition in range(self.partitions):
            at = TopicPartition(topic, partition)
            records = self.log.read(at, 0, self.log.end_offsets([at])[at], 100_000)
            for index, offset in enumerate(records.offsets):
                key, value = records.keys[index], records.values[index]
                assert key is not None
                assert value is not None
                headers = records.headers[index] if records.headers else ()
                metadata = RecordContext(topic, partition, offset, records.timestamps[index], headers)
                yield key.decode(), value, metadata


programs = st.builds(
    Program, least=st.sampled_from([0, 0, 2, 5]), wrong=st.sampled_from([-1, -1, 0, 3]), merged=st.booleans()
)
headers = st.lists(st.tuples(st.sampled_from(["h", "i"]), st.binary(max_size=2)), max_size=2).map(tuple)
record = st.tuples(
    st.sampled_from("abcd"), st.sampled_from(["", "x", "x y", "y y z"]), st.integers(0, 12), st.just(()) | headers
)
parts = st.lists(st.lists(record, max_size=8), max_size=5)


@given(
    programs,
    parts,
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([1, 3, 1000]),
    st.sampled_from(["skip", "dead-letter"]),
    st.data(),
)
def test_records_in_functions_are_a_function_of_the_input(
    program: Program,
    parts: list[list[Record]],
    partitions: int,
    count: int,
    most: int,
    policy: Literal["skip", "dead-letter"],
    data: st.DataObject,
) -> None:
    running = Running(program, partitions, count, most, policy)
    for part in parts:
        running.write(part)
        match data.draw(st.sampled_from(["finish", "step", "replace"])):
            case "finish":
                running.finish()
            case "step":
                running.workers[data.draw(st.integers(0, count - 1))].step()
            case _:
                running.replace(data.draw(st.integers(0, count - 1)))
    running.finish()
    came = [(key, value.decode(), metadata) for key, value, metadata in running.read("in")]
    rows = program.of(came)
    written = [(key, Native.decode(value), metadata) for key, value, metadata in running.read("out")]
    assert Counter((key, value) for key, value, _ in written) == Counter(
        (str(record.offset % 2), (key, word, *record)) for key, word, record in rows
    )
    # Headers and timestamps of what is written are those of the record.
    assert all(value[2 + 3 :] == (kept.timestamp_ms, kept.headers) for _, value, kept in written)
    assert running.counts() == Counter(f"{record.partition} {record.timestamp_ms}" for _, _, record in rows)
    # A peek is called again where an epoch is, and always with the same.
    assert set(running.seen) == {record for _, _, record in came if record.offset >= program.least}
