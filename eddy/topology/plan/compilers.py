"""The interfaces of the compilers for which a step is written: a circuit, the body of a loop, Spark.

A step calls them to place its operators (`Node.build`, `Node.build_nested`, `Node.on_spark`); the compilers walk the
plan and keep the slots.
"""

from collections.abc import Container, Sequence
from typing import Any, Literal, Protocol

from eddy.operators.bound import Bound
from eddy.operators.errors.set_aside import Aside
from eddy.operators.exchange import Budget, Gate, Ownership
from eddy.operators.operator import Operator
from eddy.serde import Serde
from eddy.state.arrangement import Arrangement
from eddy.state.global_rows import GlobalRows
from eddy.state.iteration_trace import Trace
from eddy.state.partitioned_map import PartitionedMap
from eddy.state.spec import StateSpec
from eddy.state.store import Store
from eddy.state.table_state import Table

__all__ = ["CircuitBuilder", "LoopBody", "Spark", "States"]

Node = Any
"""A node of the plan, `topology/plan/node.py`, which imports this module."""


class States(Protocol):
    """Creates the states of a step's operator, co-partitioned with a node's rows, and the gates to their owners."""

    @property
    def application(self) -> str:
        """The name of the plan."""

    @property
    def store(self) -> Store | None:
        """The store below the states; None if they are in memory only."""

    @property
    def ownership(self) -> Ownership:
        """The partitions of this worker."""

    def spec(self, node: Node, name: str, kind: str, value: Serde[Any] | None) -> StateSpec:
        """The identity of a state."""

    def table(self, node: Node, name: str, source: str | None = None) -> Table[Any, Any]:
        """The table of a node's own rows; `source` is a topic with the same records, from which it may be restored."""

    def arrangement(self, node: Node, name: str) -> Arrangement[Any, Any]:
        """An arrangement of a node's rows."""

    def table_of(self, node: Node, name: str) -> Table[Any, Any]:
        """The table with the rows of an input: its own table, or a new one with this name."""

    def state_store(self, node: Node, store: Any) -> PartitionedMap[Any, Any]:
        """A declared state store, partitioned like a node's rows; one state store for all steps that name it."""

    def global_table(self, node: Node) -> Table[Any, Any]:
        """The table of a global table, whose rows no operator writes."""

    def global_rows(self, node: Node) -> GlobalRows[Any, Any]:
        """The rows of a global table, for processors."""

    def lookup(self, node: Node, name: str) -> Any:
        """The state with the rows of an input of a join; a state that is made for it is called `name`."""

    def gate(self, node: Node) -> Gate:
        """The gate that sends the rows of a node to their owners."""

    def aside(self, sink: Node) -> Aside | None:
        """The memory of a sink for rows that cannot be written; None if their records are rejected instead."""


class _Place(Protocol):
    """Numbered slots, into which a step places operators."""

    @property
    def peeks(self) -> bool:
        """Whether the functions of `peek` steps are called."""

    @property
    def inside(self) -> Container[Node]:
        """All steps that lie in loops."""

    def slot_of(self, node: Node) -> int:
        """The slot of a node's rows."""

    def emit(self, operator: Operator, *slots: int) -> int:
        """Place an operator that reads these slots; return the slot of its output."""

    def loop(self, loop: Node) -> int:
        """Place a loop by nested time; return the slot of its results."""


class CircuitBuilder(States, _Place, Protocol):
    """The circuit of a plan, or the body of a recursion by waves, under construction."""

    def source(self, topic: str) -> int:
        """A new slot, for the records of a topic."""

    def received(self, node: Node) -> int:
        """The slot for the rows of a node that other workers sent."""

    def partition_count(self, node: Node) -> int:
        """The number of partitions of a node's rows."""

    def stays(self, exchange: Node) -> bool:
        """Whether the rows that an exchange would send are at their only owner already."""

    def share_table(self, node: Node, source: Node) -> None:
        """Note that a table of `source`, if there is one, has the rows of `node`, too."""

    def needs_keys(self, exchange: Node) -> bool:
        """Whether an exchange drops records without a key."""

    def carries_times(self, exchange: Node) -> Literal["", "plain", "placed"]:
        """Whether the rows of an exchange carry the event times of their source partitions, or also their places."""

    def waves_around(self, node: Node) -> Bound | None:
        """The bound of the recursion by waves around a step; None if there is no such recursion."""

    def waves(self, recursion: Node) -> int:
        """Place a recursion by waves; return the slot of its rows."""

    def placed(self, recursion: Node) -> tuple[Operator, Sequence[int]]:
        """The operator of a recursion, and the slots that it reads."""


class LoopBody(_Place, Protocol):
    """The body of a loop by nested time, under construction."""

    @property
    def outside(self) -> States:
        """The states outside of all loops."""

    @property
    def guard(self) -> Budget:
        """The bound of an epoch's work in nested time."""

    def trace(self, node: Node, name: str) -> Trace[Any, Any]:
        """A trace of a node's rows."""

    def limit_errors(self, binding: Node, changes: int) -> int:
        """Place the errors of a block inside this loop, given the slot of the changes of its last iteration.

        Returns the slot of their rows.
        """


class Spark(Protocol):
    """The forms that a step can have on Spark. Each computes a step's rows from its inputs' rows, and its states."""

    def records(self, source: Node) -> None:
        """The records of a topic."""

    def constant(self, node: Node) -> None:
        """Fixed rows."""

    def transformed(self, node: Node) -> None:
        """A step without a state, on each row."""

    def union(self, node: Node) -> None:
        """All rows of all inputs."""

    def facts(self, node: Node) -> None:
        """The rows of a table as facts."""

    def last_values(self, node: Node) -> None:
        """The last value of each key, of facts."""

    def expiring(self, table: Node) -> None:
        """The last value of each key among facts, unless it has expired."""

    def valid(self, node: Node) -> None:
        """The rows that are there by the clocks of their partitions."""

    def windows_assigned(self, node: Node) -> None:
        """Facts, each under its key and each of its windows that are not over."""

    def ordered(self, node: Node) -> None:
        """Facts, each in its order among the records of all source partitions."""

    def versions_ordered(self, node: Node) -> None:
        """Facts, each under its key with its moment, with its order beside its value."""

    def deduplicated(self, node: Node) -> None:
        """The first fact of each `by` value within a span of time."""

    def slid(self, node: Node) -> None:
        """Facts, each under all sliding windows that exist for its key and contain its moment."""

    def values_of_windows(self, node: Node) -> None:
        """The aggregate of the values of each window, with the values; and as `closed`."""

    def closed(self, node: Node) -> None:
        """Leave out the windows that are over from the step's table. With `emit="close"`, its rows are only these
        windows.
        """

    def exchanged(self, exchange: Node) -> None:
        """The rows of the input: Spark distributes them itself."""

    def looked_up(self, join: Node) -> None:
        """Facts, joined with a table."""

    def globally_joined(self, join: Node) -> None:
        """Facts, joined with a global table as of the offsets that a worker has noted; none if they are not known."""

    def streams_joined(self, join: Node) -> None:
        """Facts of two streams, joined in time."""

    def joined_as_of(self, join: Node) -> None:
        """Facts, joined with the values of another stream at their times."""

    def tables_joined(self, join: Node) -> None:
        """Two tables, joined."""

    def joined(self, join: Node) -> None:
        """Two relations, joined."""

    def reduced(self, node: Node) -> None:
        """The rows that the author's function returns for all values of a key."""

    def first_values(self, node: Node) -> None:
        """The first values of a key in an order."""

    def only_values(self, node: Node) -> None:
        """The value of each key that has one row."""

    def counted(self, node: Node) -> None:
        """The sum of the weights of each key."""

    def summed(self, node: Node) -> None:
        """The sum or the mean of the numbers of each key."""

    def totals(self, node: Node) -> None:
        """The exact totals of the keys of a table of sums."""

    def folded(self, node: Node) -> None:
        """A fold of the rows of each key."""

    def weighed(self, node: Node) -> None:
        """A function of weights."""

    def reached(self, node: Node) -> None:
        """Reachability from roots."""

    def totalled(self, node: Node) -> None:
        """Totals over trees."""

    def by_a_worker(self, node: Node) -> None:
        """Rows that only a worker makes: none here, and nothing downstream is compared."""

    def waves(self, recursion: Node) -> None:
        """A recursion by waves, unless it is inside another loop."""

    def looped(self, loop: Node) -> None:
        """A recursion by nested time, or a block with its bindings."""

    def errors(self, node: Node) -> None:
        """The errors of a recursion."""

    def written(self, sink: Node) -> None:
        """The records of a topic of the user's."""
