"""TopologyTestDriver: a topology under test, without a broker. It runs the worker's own code.

Each record piped in is an epoch of its own, as if it had come alone; `pipe_all` makes one epoch of
many. Time is the records': nothing waits, and the clock moves only by `advance_wall_clock_time`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from eddy.config import Config
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Headers, TopicPartition, TopicSpec
from eddy.errors import TopologyError
from eddy.partitioner import partition_of
from eddy.serde import Native, Plain, Serde
from eddy.state.memory import MemoryStore
from eddy.state.table import Table
from eddy.topology.compile import sink_serdes
from eddy.topology.topology import Topology
from eddy.worker import Worker

__all__ = ["InputTopic", "KeyValueStore", "OutputRecord", "OutputTopic", "TopologyTestDriver"]

K = TypeVar("K")
V = TypeVar("V")


class OutputRecord(NamedTuple):
    """A record of an output topic, decoded. `timestamp_ms` is its event time."""

    key: Any
    value: Any
    timestamp_ms: int
    headers: Headers = ()


class TopologyTestDriver:
    """Runs `topology` on an embedded log in memory, whose topics have `partitions` partitions each.

    >>> import eddy
    >>> topology = eddy.Topology("count-words")
    >>> words = topology.stream("words", key=eddy.String, value=eddy.String)
    >>> words.group_by(lambda key, word: word, key=eddy.String).count("counts").to("word-counts")
    >>> with TopologyTestDriver(topology) as driver:
    ...     for word in ["eddy", "pool", "eddy"]:
    ...         driver.input("words").pipe("", word)
    ...     driver.store("counts").get("eddy"), driver.output("word-counts").read_map()
    (2, {'eddy': 2, 'pool': 1})
    """

    __test__ = False

    def __init__(self, topology: Topology, config: Config | None = None, *, partitions: int = 1) -> None:
        self.topology = topology
        self.log = LocalLog(None)
        plan = topology.plan
        names = {node.topic for node in plan.sources()} | {node.topic for node in plan.sinks()}
        self.log.create_topics(TopicSpec(name, partitions) for name in sorted(names))
        self._now = 0.0
        self._config = config or Config()
        self._store = _KeptStore()
        self._inputs: dict[str, InputTopic[Any, Any]] = {}
        self._outputs: dict[str, OutputTopic[Any, Any]] = {}
        self.worker = self._start()

    def __enter__(self) -> "TopologyTestDriver":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def input(self, topic: str) -> "InputTopic[Any, Any]":
        """A source topic, to pipe records into. Raises: TopologyError where it is none."""
        if topic not in self._inputs:
            self._inputs[topic] = InputTopic(self, topic)
        return self._inputs[topic]

    def output(
        self, topic: str, key: Serde[Any] | None = None, value: Serde[Any] | None = None
    ) -> "OutputTopic[Any, Any]":
        """A topic to read from: a sink's, by its serdes, or any other by those given."""
        if topic not in self._outputs:
            self._outputs[topic] = OutputTopic(self, topic)
        return self._outputs[topic].with_serdes(key, value)

    def store(self, name: str) -> "KeyValueStore[Any, Any]":
        """The store of a table, by name. Raises: TopologyError where there is none."""
        state = self.worker.circuit.states.get(name)
        if not isinstance(state, Table):
            tables = sorted(n for n, s in self.worker.circuit.states.items() if isinstance(s, Table))
            raise TopologyError(f"driver: no table has a store '{name}'; one of {tables} is needed")
        return KeyValueStore(state)

    def run(self) -> None:
        """Step the worker until nothing is left to do."""
        self.worker.run_until_idle()

    def restart(self, *, lose_state: bool = False) -> None:
        """Stop the worker and start another in its place, with its stores or restored from changelogs."""
        self.worker.close()
        if lose_state:
            self._store = _KeptStore()
        self.worker = self._start()

    def advance_wall_clock_time(self, seconds: float) -> None:
        """Move the worker's clock on, and let it do what was due."""
        self._now += seconds
        self.run()

    def close(self) -> None:
        """Stop the worker and drop the log."""
        self.worker.close()
        self.log.close()

    def _start(self) -> Worker:
        worker = Worker(self.topology, self.log, self._config, store=self._store, clock=lambda: self._now)
        worker.run_until_idle()
        return worker


class _KeptStore(MemoryStore):
    """A store that a restart finds as it was left."""

    def close(self) -> None:
        """Keep the rows: a driver's worker is closed to be started again."""


class InputTopic(Generic[K, V]):
    """A source topic of a driver. Times that are not given go on by a millisecond a record."""

    def __init__(self, driver: TopologyTestDriver, topic: str) -> None:
        sources = {node.topic: node for node in driver.topology.plan.sources()}
        if topic not in sources:
            raise TopologyError(f"driver: '{topic}' is no source; one of {sorted(sources)} is needed")
        self._driver, self._topic, self._source = driver, topic, sources[topic]
        self._partitions = driver.log.topics([topic])[topic].partitions
        self._time_ms = 0

    def pipe(self, key: K | None, value: V | None, timestamp_ms: int | None = None, headers: Headers = ()) -> None:
        """Write one record and process it: an epoch of its own."""
        self.pipe_all([(key, value)], timestamp_ms, headers)

    pipe_input = pipe

    def pipe_all(
        self,
        records: Iterable[tuple[K | None, V | None]],
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Write records and process them together: one epoch, as far as its settings allow."""
        encoded: list[tuple[bytes | None, bytes | None, int]] = []
        for key, value in records:
            self._time_ms = self._time_ms + 1 if timestamp_ms is None else timestamp_ms
            encoded.append((_encode(self._source.key, key), _encode(self._source.value, value), self._time_ms))
        self._write(encoded, headers)

    def pipe_raw(self, key: bytes | None, value: bytes | None, timestamp_ms: int = 0) -> None:
        """Write one record of bytes, whatever the serdes say, and process it."""
        self._write([(key, value, timestamp_ms)])

    def _write(self, records: Iterable[tuple[bytes | None, bytes | None, int]], headers: Headers = ()) -> None:
        """Write (key, value, time) of bytes in one transaction, and process them."""
        producer = self._driver.log.producer(None)
        producer.begin()
        for key, value, time in records:
            home = 0 if key is None else partition_of(key, self._partitions)
            producer.send(self._topic, home, [key], [value], [time], [headers] if headers else None)
        producer.commit({}, None)
        producer.close()
        self._driver.run()


class OutputTopic(Generic[K, V]):
    """A topic of a driver, read from where the last read ended."""

    def __init__(self, driver: TopologyTestDriver, topic: str) -> None:
        self._driver, self._topic = driver, topic
        counts = {name: spec.partitions for name, spec in driver.log.topics().items()}
        if topic not in counts:
            raise TopologyError(f"driver: no topic '{topic}'; one of {sorted(counts)} is needed")
        self._positions = {TopicPartition(topic, p): 0 for p in range(counts[topic])}
        serdes = {
            sink.topic: found  # type: ignore[attr-defined]
            for sink, found in sink_serdes(driver.topology.plan, counts).items()
        }
        self._key, self._value = serdes.get(topic, (Native, Native))

    def with_serdes(self, key: Serde[Any] | None, value: Serde[Any] | None) -> "OutputTopic[Any, Any]":
        """The same topic, read by these serdes from now on; None leaves one as it is."""
        self._key, self._value = key or self._key, value or self._value
        return self

    def read_records(self) -> list[OutputRecord]:
        """The records since the last read, by partition and offset."""
        found = []
        for partition, position in self._positions.items():
            end = self._driver.log.end_offsets([partition])[partition]
            while position < end:
                records = self._driver.log.read(partition, position, end, 10_000)
                position = records.next_offset
                headers = records.headers or [()] * len(records)
                columns = zip(records.keys, records.values, records.timestamps, headers, strict=True)
                found += [
                    OutputRecord(_decode(self._key, key), _decode(self._value, value), time, head)
                    for key, value, time, head in columns
                ]
            self._positions[partition] = position
        return found

    def read_key_values(self) -> list[tuple[K, V]]:
        """The (key, value) pairs since the last read."""
        return [(record.key, record.value) for record in self.read_records()]

    def read_map(self) -> dict[K, V]:
        """The latest value of each key since the last read; a key whose last value is None is left out."""
        latest = dict(self.read_key_values())
        return {key: value for key, value in latest.items() if value is not None}


class KeyValueStore(Generic[K, V]):
    """A table's store, to read."""

    def __init__(self, table: Table[K, V]) -> None:
        self._table = table

    def get(self, key: K) -> V | None:
        """The value of `key`, or None."""
        return self._table.get(key)

    def all(self) -> Mapping[K, V]:
        """Every key with its value, in the order of the keys' bytes."""
        encode = self._table.spec.key.encode
        return dict(sorted(self._table.items(), key=lambda item: encode(item[0])))

    def range(self, first: K, last: K) -> Mapping[K, V]:
        """The keys from `first` to `last`, both included, by the order of their bytes, with their values."""
        encode = self._table.spec.key.encode
        low, high = encode(first), encode(last)
        return {key: value for key, value in self.all().items() if low <= encode(key) <= high}

    def __iter__(self) -> Iterator[K]:
        return iter(self.all())

    def __len__(self) -> int:
        return len(self.all())


def _encode(serde: Serde[Any] | None, value: Any) -> bytes | None:
    assert serde is not None
    return None if value is None else serde.encode(value)


def _decode(serde: Serde[Any], data: bytes | None) -> Any:
    """Decode; what was written plain does not tell its type: it is shown as text where it is text, else as bytes."""
    if data is None or serde is not Plain:
        return None if data is None else serde.decode(data)
    text = data.decode(errors="replace")
    return text if text.isprintable() and "\ufffd" not in text else data
