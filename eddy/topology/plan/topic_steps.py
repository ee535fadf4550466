"""Steps with a topic: sources, sinks, constants, and exchanges, which send rows to their owners."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eddy.operators import constant, exchange, upsert
from eddy.operators.circuit import Output
from eddy.operators.keyed import WithKeys
from eddy.operators.operator import Operator
from eddy.serde import Serde
from eddy.topology.plan.bags import Bag, Weighted
from eddy.topology.plan.compilers import CircuitBuilder, LoopBody, Spark, States
from eddy.topology.plan.node import Missing, Node
from eddy.topology.plan.states_kept import TABLE, StateKept

__all__ = ["Constant", "Exchange", "Sink", "Source", "TopicRead"]


@dataclass(frozen=True, eq=False, kw_only=True)
class _OfTopic(Node):
    """A step that reads or writes a topic of the user's."""

    drawn_as = "topic"

    topic: str

    @property
    def title(self) -> str:
        """Its topic."""
        return self.topic

    @property
    def user_topic(self) -> str:
        """Its topic."""
        return self.topic

    @property
    def shape(self) -> str:
        """A cylinder."""
        return f"[({self.topic})]"


@dataclass(frozen=True, eq=False, kw_only=True)
class TopicRead(_OfTopic):
    """A step that reads a topic."""

    @property
    def topic_key(self) -> Serde[Any]:
        """The serde of the keys in its topic."""
        assert self.key is not None
        return self.key.in_topic(self.topic, "key")

    @property
    def topic_value(self) -> Serde[Any]:
        """The serde of the values in its topic."""
        assert self.value is not None
        return self.value.in_topic(self.topic, "value")

    @property
    def does(self) -> str:
        """The rows of its topic."""
        return f"row of topic {self.topic}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Source(TopicRead):
    """Reads the records of a topic, as facts or as the table of their latest values."""

    role = "source"

    timestamp: Callable[[Any, Any], Any] | None = None
    """A function from key and value to the event time of a record; None for the timestamp of the log."""
    idle_after_ms: int = 0
    """The milliseconds after which a partition without records is idle; 0 for never."""
    pattern: str = ""
    """The pattern by which its topic was found; empty if the author has named the topic."""

    def headline(self, application: str, stores: Sequence[str]) -> str:
        """Return the name of the topic, for `describe()`."""
        store = f", store: {', '.join(stores)}" if stores else ""
        return f"Source: {self.name} (topics: [{self.topic}]{store})"

    def partition_count(self, topic_partitions: Mapping[str, int]) -> int | None:
        """Return the partition count of the topic."""
        return topic_partitions[self.topic]

    @property
    def keeps(self) -> tuple[StateKept, ...]:  # type: ignore[override]
        """The state of the table, if the source is read as a table."""
        return (TABLE,) if self.kind == "table" else ()

    def build(self, circuit: CircuitBuilder) -> int:
        """Add the source; return the slot of its records, or of the changes of the table of their latest values."""
        slot = circuit.source(self.topic)
        if not self.has_table:
            return slot
        return circuit.emit(upsert.Upsert(self.name, circuit.table(self, self.name, self.topic)), slot)

    def on_spark(self, spark: Spark) -> None:
        """Read the records or, for a table, their last values."""
        spark.records(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class Constant(Node):
    """Adds fixed rows, in a single partition."""

    crosses = True
    role = "constant"
    keeps = (StateKept("", "arrangement", "results"),)

    rows: tuple[tuple[Any, Any], ...]

    def partition_count(self, topic_partitions: Mapping[str, int]) -> int | None:
        """Return 1, because the rows are in a single partition."""
        return 1

    def gate_topic(self, application: str) -> str:
        """Return the topic name under which the rows are counted as sent."""
        return f"{application}-{self.name}"

    def operator(self, states: States) -> Operator:
        """Return the operator that sends the rows that were not sent before."""
        return constant.Constant(self.name, self.rows, states.gate(self), states.arrangement(self, self.name))

    def on_spark(self, spark: Spark) -> None:
        """Add the rows."""
        spark.constant(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Return the rows."""
        return ((row, 1) for row in self.rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class Exchange(Node):
    """Sends rows to the owners of their keys, through a topic.

    `partitions` is the author's number of partitions; None takes the number of the collections it is joined with.
    `any_key` sends all rows to one owner, so that records of a stream need no key.
    """

    keeps_records = True
    crosses = True
    role = "exchange"
    passes = True
    drawn_as = "exchange"

    partitions: int | None = None
    any_key: bool = False

    def internal_topic(self, application: str) -> str:
        """Return the repartition topic."""
        return f"{application}-{self.name}"

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """No collections have to be co-partitioned, because the rows are sent to other partitions."""
        return ()

    def partition_count(self, topic_partitions: Mapping[str, int]) -> int | None:
        """Return the author's number of partitions; None if the author gave none."""
        return 1 if self.single_partition else self.partitions

    @property
    def refused_in_nested_time(self) -> str:
        """The reason why nested time refuses an exchange: rows of one iteration would arrive in another iteration."""
        if self.inputs[0].single_partition:
            return super().refused_in_nested_time
        return (
            f"step '{self.name}' sends rows to other owners in the middle of an iteration, which would give a wrong "
            "answer; bring what it reads to one owner before the recursion: relation.at_one_owner('…')"
        )

    def build(self, circuit: CircuitBuilder) -> int:
        """Add the exchange, but no operator if all rows are already in its single partition."""
        (source,) = self.inputs
        keyed = circuit.needs_keys(self)
        if circuit.stays(self):
            circuit.share_table(self, source)
            slot = circuit.slot_of(source)
            return circuit.emit(WithKeys(self.name), slot) if keyed else slot
        times = circuit.carries_times(self)
        operator = exchange.Exchange(self.name, circuit.gate(self), self.kind == "stream", keyed, times)
        return circuit.emit(operator, circuit.slot_of(source), circuit.received(self))

    def build_nested(self, loop: LoopBody) -> int:
        """Add no operator, because the loop has one owner."""
        return loop.slot_of(self.inputs[0])

    def on_spark(self, spark: Spark) -> None:
        """Pass on the rows of the input."""
        spark.exchanged(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Return the rows of the input."""
        return inputs[0]

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterable[Missing]:
        """Return the missing rows of the input."""
        return missing[0]


@dataclass(frozen=True, eq=False, kw_only=True)
class Sink(_OfTopic):
    """Writes rows to a topic of the user's, at the end of a branch.

    `partitioner(key, value, partitions)` chooses the partition of a record; if it is None, the record's key does.
    """

    role = "sink"
    passes = True

    partitioner: Callable[[Any, Any, int], int] | None = None

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """No collections have to be co-partitioned, because the user's topic has its own partitions."""
        return ()

    def headline(self, application: str, stores: Sequence[str]) -> str:
        """Return the name of the topic, for `describe()`."""
        return f"Sink: {self.name} (topic: {self.topic})"

    def operator(self, states: States) -> Operator:
        """Return the operator with the rows to send."""
        return Output(self.name, states.aside(self))

    def on_spark(self, spark: Spark) -> None:
        """Make the records."""
        spark.written(self)

    def rows_from(self, *inputs: Bag) -> Weighted:
        """Return the rows of the input."""
        return inputs[0]

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterable[Missing]:
        """Return the missing rows of the input."""
        return missing[0]
