"""Global tables, which are topics that every worker reads whole, and joins of records with them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eddy.operators import global_join
from eddy.operators.operator import Operator
from eddy.topology.plan.compilers import CircuitBuilder, Spark, States
from eddy.topology.plan.node import Arrival, Node
from eddy.topology.plan.topic_steps import TopicRead

__all__ = ["GlobalJoin", "GlobalTable"]


@dataclass(frozen=True, eq=False, kw_only=True)
class GlobalTable(TopicRead):
    """Reads the latest value of each key of a topic, whole at every worker. Workers commit no positions of it."""

    role = "global table"
    only_by_worker = "each worker reads a global table at its own pace"

    def headline(self, application: str, stores: Sequence[str]) -> str:
        """Return the name of the topic, for `describe()`."""
        return f"Global table: {self.name} (topics: [{self.topic}], whole at every worker)"

    def partition_count(self, topic_partitions: Mapping[str, int]) -> int:
        """Return 1, whatever the partition count of the topic."""
        return 1

    def build(self, circuit: CircuitBuilder) -> int:
        """Return a slot without rows, because the table changes only between epochs."""
        circuit.global_table(self)
        return circuit.source(self.topic)

    def on_spark(self, spark: Spark) -> None:
        """Do nothing: each join reads the table's rows as of its records."""
        spark.by_a_worker(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class GlobalJoin(Node):
    """Joins each fact with a global table's value for a key that is made from the fact."""

    keeps_records = True
    does = "join"
    only_by_worker = GlobalTable.only_by_worker

    select: Callable[[Any, Any], Any]
    joiner: Callable[[Any, Any], Any]
    left: bool = False

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """The pair of the step and its facts. The table needs no pair, because it is at every worker."""
        return [(self, self.inputs[0])]

    @property
    def record_inputs(self) -> tuple[Node, ...]:
        """The facts, which the step passes on."""
        return self.inputs[:1]

    @property
    def takes_keyless(self) -> bool:  # type: ignore[override]
        """Whether records without a key are joined; a left join accepts them (KIP-962)."""
        return self.left

    @property
    def arrival(self) -> Arrival:
        """The part that depends on the order of arrival: the table's value, unless offsets were noted for it."""
        return Arrival("a join with a global table: each record is joined with the table as it was at its worker")

    @property
    def drops(self) -> bool:  # type: ignore[override]
        """Whether the step drops rows: an inner join drops rows without a match."""
        return not self.left

    def operator(self, states: States) -> Operator:
        """Return the operator that looks up the table's values."""
        return global_join.GlobalJoin(
            self.name, states.global_table(self.inputs[1]), self.select, self.joiner, self.left
        )

    @property
    def table(self) -> GlobalTable:
        """The global table."""
        table = self.inputs[1]
        assert isinstance(table, GlobalTable)
        return table

    def on_spark(self, spark: Spark) -> None:
        """Join the facts with the table as of the offsets that the worker has noted."""
        spark.globally_joined(self)
