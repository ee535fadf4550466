"""TopologyTestDriver: runs a topology in a test, without a broker, by the worker's own code.

Each piped record is a separate epoch; `pipe_all` puts many records into one epoch. Event time is read from the records.
Nothing waits: the wall clock moves only by `advance_wall_clock_time`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from eddy.config import Config, config_or_default
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Headers, TopicPartition, TopicSpec, check_headers
from eddy.errors import ConnectorError, DataError, TopologyError
from eddy.partitioner import partition_of, partitions_of
from eddy.runtime.key_value_store import KeyValueStore
from eddy.runtime.worker import Worker
from eddy.serde import Native, Plain, Serde, refusal
from eddy.state.memory import MemoryStore
from eddy.topology.arguments import check_flag, check_name, check_names, check_number, check_serdes, check_whole
from eddy.topology.compiler.circuit_compiler import sink_serdes
from eddy.topology.plan.topic_steps import TopicRead
from eddy.topology.topology import Topology, check_topology

__all__ = ["InputTopic", "KeyValueStore", "OutputRecord", "OutputTopic", "TopologyTestDriver"]

_LONGEST_S = 1e11

K = TypeVar("K")
V = TypeVar("V")


class OutputRecord(NamedTuple):
    """A record of an output topic, decoded. `timestamp_ms` is its event time."""

    key: Any
    value: Any
    timestamp_ms: int
    headers: Headers = ()


class TopologyTestDriver:
    """Runs `topology` on an embedded log in memory. Each topic has `partitions` partitions.

    `topics` are further topics to create, for sources that are patterns.

    The wall clock is at `initial_wall_clock_ms` since 1970 until it is advanced.

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

    def __init__(
        self,
        topology: Topology,
        config: Config | None = None,
        *,
        partitions: int = 1,
        topics: Iterable[str] = (),
        initial_wall_clock_ms: int = 0,
    ) -> None:
        check_topology("driver", topology)
        check_whole("driver", 1, optional=False, partitions=partitions)
        check_whole("driver", 0, optional=False, initial_wall_clock_ms=initial_wall_clock_ms)
        own = config_or_default("driver", config)
        # The driver's clock does not advance by itself, so neither a retry nor a check for topics may wait for it.
        self._config = replace(own, retry_s=0.0, topics_interval_s=0.0)
        self._initial_wall_clock_ms = initial_wall_clock_ms
        self.topology = topology
        plan = topology.plan
        sources = (node for node in plan.sources() if not node.pattern)
        names = {node.topic for node in (*sources, *plan.global_tables(), *plan.sinks())}
        names.update(check_names("driver: topics", topics) if topics not in ((), []) else ())
        self._now = 0.0
        self._closed = False
        self._store = _KeptStore()
        self._inputs: dict[str, InputTopic[Any, Any]] = {}
        self._outputs: dict[str, OutputTopic[Any, Any]] = {}
        self.log = LocalLog(None)
        try:
            self.log.create_topics(TopicSpec(name, partitions) for name in sorted(names))
            self._start()
        except BaseException:
            self.log.close()
            raise

    def __enter__(self) -> "TopologyTestDriver":
        self._check_open("with")
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def input(self, topic: str) -> "InputTopic[Any, Any]":
        """Return a source topic, to pipe records into. Raises: TopologyError for any other topic."""
        self._check_open("input")
        check_name(topic, "driver: input, topic")
        if topic not in self._inputs:
            self._inputs[topic] = InputTopic(self, topic)
        return self._inputs[topic]

    def output(
        self, topic: str, key: Serde[Any] | None = None, value: Serde[Any] | None = None
    ) -> "OutputTopic[Any, Any]":
        """Return a topic to read: a sink's topic with its serdes, or any topic with the given serdes."""
        self._check_open("output")
        check_name(topic, "driver: output, topic")
        if topic not in self._outputs:
            self._outputs[topic] = OutputTopic(self, topic)
        return self._outputs[topic].with_serdes(key, value)

    def store(self, name: str) -> "KeyValueStore[Any, Any]":
        """Return the store of a table, by name. Raises: TopologyError if there is no such table."""
        self._check_open("store")
        check_name(name, "driver: store")
        return self.worker.store(name)

    def held(self) -> dict[tuple[str, int], str]:
        """Return the messages about held rows, which have no finite answer yet, by (recursion, partition)."""
        self._check_open("held")
        return self.worker.held()

    def run(self) -> None:
        """Step the worker until nothing is left to do."""
        self._check_open("run")
        self.worker.run_until_idle()

    def restart(self, *, lose_state: bool = False) -> None:
        """Stop the worker and start another in its place.

        With `lose_state` its stores are deleted, and changelogs restore them.
        """
        self._check_open("restart")
        check_flag("driver: restart", lose_state=lose_state)
        self.worker.close()
        if lose_state:
            self._store = _KeptStore()
        self._start()

    def advance_wall_clock_time(self, by: float | timedelta) -> None:
        """Advance the worker's clock, by seconds or a timedelta, and run the work that becomes due.

        Raises: TopologyError unless `by` is a number from 0 to 3,000 years.
        """
        self._check_open("advance_wall_clock_time")
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        where = "driver: advance_wall_clock_time"
        check_number(where, 0, optional=False, by=seconds)
        if seconds > _LONGEST_S:
            raise TopologyError(f"{where}: by={by!r}; at most {_LONGEST_S:.0f} seconds are possible")
        self._now += seconds
        self.run()

    def advance_event_time(self, to_ms: int) -> None:
        """Advance the event time of all source partitions to at least `to_ms`, and run the work that becomes due.

        Windows close, rows expire and schedules are called, as if records of that time had arrived that no step takes.

        Raises: TopologyError unless it is a whole number of milliseconds since 1970, and a step reads event times.
        """
        self._check_open("advance_event_time")
        check_whole("driver: advance_event_time", 0, optional=False, to_ms=to_ms)
        if not self.worker.circuit.reads.sources:
            raise TopologyError(
                f"driver: advance_event_time: no step of '{self.topology.name}' reads event times; windows, rows that "
                "expire by event time, or a schedule by event time are needed. For the clock of the wall: "
                "advance_wall_clock_time"
            )
        self.worker.clocks.advance(to_ms)
        self.run()

    def close(self) -> None:
        """Stop the worker and drop the log. A second call does nothing."""
        self._closed = True
        self.worker.close()
        self.log.close()

    def _check_open(self, what: str) -> None:
        if self._closed:
            raise TopologyError(
                f"driver of '{self.topology.name}': it is closed, and {what} needs one that is open. Read inside of "
                "its `with` block, or make another: TopologyTestDriver(topology)"
            )

    def _start(self) -> None:
        """Make the worker. It exists even if its first steps raise."""
        self.worker = Worker(
            self.topology,
            self.log,
            self._config,
            store=self._store,
            clock=lambda: self._now,
            wall=lambda: self._initial_wall_clock_ms / 1000 + self._now,
        )
        self.run()


class _KeptStore(MemoryStore):
    """A store whose rows survive a restart."""

    def close(self) -> None:
        """Do nothing, because the driver closes a worker in order to start another one with this store."""


class InputTopic(Generic[K, V]):
    """A source topic of a driver. A record without a given time is one millisecond after the record before it."""

    def __init__(self, driver: TopologyTestDriver, topic: str) -> None:
        plan = driver.topology.plan
        sources: dict[str, TopicRead] = {node.topic: node for node in (*plan.sources(), *plan.global_tables())}
        if topic not in sources:
            raise TopologyError(f"driver: '{topic}' is not a source; one of {sorted(sources)} is needed")
        self._driver, self._topic, self._source = driver, topic, sources[topic]
        self._partitions = driver.log.topics([topic])[topic].partitions
        self._time_ms = 0

    def pipe(self, key: K | None, value: V | None, timestamp_ms: int | None = None, headers: Headers = ()) -> None:
        """Write one record and process it in a separate epoch."""
        self.pipe_all([(key, value)], timestamp_ms, headers)

    pipe_input = pipe

    def pipe_all(
        self,
        records: Iterable[tuple[K | None, V | None]],
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Write records and process them together, in one epoch if the settings' limits allow it.

        Raises: DataError for records that are not pairs (key, value), or do not fit the topic's serdes.
        """
        where = f"driver: topic '{self._topic}'"
        self._check(where, timestamp_ms, headers)
        if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
            fix = "Write pipe_all(records.items())" if isinstance(records, Mapping) else "Write [(key, value), …]"
            raise DataError(f"{where}: records={records!r}; a list of pairs (key, value) is needed. {fix}")
        key_serde, value_serde = self._source.topic_key, self._source.topic_value
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for record in records:
            if not isinstance(record, tuple | list) or len(record) != 2:
                raise DataError(f"{where}: of records, {record!r} is not a pair; a pair (key, value) is needed")
            keys.append(_encode(key_serde, record[0], where, "key"))
            values.append(_encode(value_serde, record[1], where, "value"))
        count = len(keys)
        if timestamp_ms is None:
            times = list(range(self._time_ms + 1, self._time_ms + 1 + count))
        else:
            times = [timestamp_ms] * count
        self._time_ms = times[-1] if times else self._time_ms
        apart: Sequence[Headers] | None = [headers] * count if headers else None
        data, apart = key_serde.ids_apart(keys, apart)
        bodies, apart = value_serde.ids_apart(values, apart)
        self._write(data, bodies, times, apart)

    def pipe_raw(self, key: bytes | None, value: bytes | None, timestamp_ms: int = 0) -> None:
        """Write one record of bytes, ignoring the serdes, and process it."""
        where = f"driver: topic '{self._topic}'"
        self._check(where, timestamp_ms, ())
        for what, part in (("key", key), ("value", value)):
            if part is not None and not isinstance(part, bytes):
                raise DataError(f"{where}: {what}={part!r}; bytes or None are needed. For values, use pipe(key, value)")
        self._write([key], [value], [timestamp_ms])

    def _check(self, where: str, timestamp_ms: Any, headers: Any) -> None:
        self._driver._check_open("an input topic")
        check_whole(where, 0, timestamp_ms=timestamp_ms)
        check_headers(where, headers)

    def _write(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        times: list[int],
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """Write encoded records in one transaction, and process them."""
        tail = self._source.key.tail if self._source.key else 0
        known = iter(partitions_of([key for key in keys if key is not None], self._partitions, partition_of, tail))
        homes = [0 if key is None else next(known) for key in keys]
        producer = self._driver.log.producer(None)
        producer.begin()
        producer.send(self._topic, homes, keys, values, times, headers)
        producer.commit({}, None)
        producer.close()
        self._driver.run()


class OutputTopic(Generic[K, V]):
    """A topic of a driver. A read begins where the last read ended."""

    def __init__(self, driver: TopologyTestDriver, topic: str) -> None:
        self._driver, self._topic, self._where = driver, topic, f"driver: topic '{topic}'"
        counts = {name: spec.partitions for name, spec in driver.log.topics().items()}
        if topic not in counts:
            raise TopologyError(f"driver: no topic '{topic}'; one of {sorted(counts)} is needed")
        self._positions = {TopicPartition(topic, p): 0 for p in range(counts[topic])}
        serdes = {sink.topic: found for sink, found in sink_serdes(driver.topology.plan, counts).items()}
        self._key, self._value = serdes.get(topic, (Native, Native))

    def with_serdes(self, key: Serde[Any] | None, value: Serde[Any] | None) -> "OutputTopic[Any, Any]":
        """Return the same topic, which is read by these serdes from now on. None keeps the current serde."""
        check_serdes(self._where, key=key, value=value)
        self._key = self._key if key is None else key.in_topic(self._topic, "key")
        self._value = self._value if value is None else value.in_topic(self._topic, "value")
        return self

    def read_records(self) -> list[OutputRecord]:
        """Return the records since the last read, by partition and offset."""
        self._driver._check_open("an output topic")
        found = []
        for partition, position in self._positions.items():
            end = self._driver.log.end_offsets([partition])[partition]
            while position < end:
                records = self._driver.log.read(partition, position, end, 10_000)
                position = records.next_offset
                headers = records.headers or [()] * len(records)
                keys, values = self._key.with_ids(records.keys, headers), self._value.with_ids(records.values, headers)
                columns = zip(keys, values, records.timestamps, headers, strict=True)
                found += [
                    OutputRecord(
                        self._decode(self._key, key, "key"), self._decode(self._value, value, "value"), time, head
                    )
                    for key, value, time, head in columns
                ]
            self._positions[partition] = position
        return found

    def read_key_values(self) -> list[tuple[K, V]]:
        """Return the (key, value) pairs since the last read."""
        return [(record.key, record.value) for record in self.read_records()]

    def read_map(self) -> dict[K, V]:
        """Return the latest value of each key since the last read; keys whose last value is None are omitted."""
        latest: dict[K, V] = {}
        for key, value in self.read_key_values():
            try:
                latest[key] = value
            except TypeError as error:
                raise DataError(
                    f"{self._where}: the key {key!r} cannot be hashed: {error}; a key of a dict has to be. Take pairs: "
                    "read_key_values(), or a serde of hashable keys: output(topic, key=eddy.Bytes)"
                ) from error
        return {key: value for key, value in latest.items() if value is not None}

    def _decode(self, serde: Serde[Any], data: bytes | None, what: str) -> Any:
        """Decode bytes by a serde.

        If the serde is `Plain`, the bytes have no type: they become text if they are printable.
        """
        if data is None or serde is not Plain:
            try:
                return None if data is None else serde.decode(data)
            except ConnectorError:
                raise
            except Exception as error:
                raise DataError(
                    f"{self._where}: the {what} {data!r} is not a valid {serde.name}: {error}; the serde it was "
                    "written with is "
                    f"needed. Name it: output('{self._topic}', {what}=…)"
                ) from error
        text = data.decode(errors="replace")
        return text if text.isprintable() and "\ufffd" not in text else data


def _encode(serde: Serde[Any], value: Any, where: str, what: str) -> bytes | None:
    """Encode a value by a serde; None stays None. Raises: DataError naming a value that does not fit the serde."""
    if value is None:
        return None
    try:
        return serde.encode(value)
    except ConnectorError:
        raise
    except Exception as error:
        raise DataError(
            f"{where}: {what} {value!r} is not a valid {serde.name}: {refusal(serde, value)}; a value of that serde is "
            "needed. For bytes, use pipe_raw(key, value)"
        ) from error
