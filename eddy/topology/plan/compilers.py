"""The interfaces of the compilers that a step is written for: a circuit, the inside of a loop, Spark.

A step calls these methods to add its operators (`Node.build`, `Node.build_nested`, `Node.on_spark`). The compilers
visit the steps of the plan and remember the slots.
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
from eddy.state.spec import Refusals, StateSpec
from eddy.state.store import Store
from eddy.state.table_state import Table

__all__ = ["CircuitBuilder", "LoopBody", "Spark", "States"]

Node = Any
"""The class `Node` of `topology/plan/node.py`, which cannot be imported here because it imports this module."""


class States(Protocol):
    """Creates the states of a step's operator, in the partitions of a node's rows, and gates to the rows' owners."""

    @property
    def application(self) -> str:
        """The name of the plan, which is the application id."""

    @property
    def store(self) -> Store | None:
        """The store in which states keep their entries; None if they are in memory only."""

    @property
    def ownership(self) -> Ownership:
        """The partitions that this worker owns."""

    @property
    def refusals(self) -> Refusals:
        """Tells which records the internal topics do not accept."""

    def spec(self, node: Node, name: str, kind: str, value: Serde[Any] | None) -> StateSpec:
        """Return the spec of a state."""

    def table(self, node: Node, name: str, source: str | None = None) -> Table[Any, Any]:
        """Create the table of a node's own rows. It may be restored from the topic `source`, which has its records."""

    def arrangement(self, node: Node, name: str) -> Arrangement[Any, Any]:
        """Create an arrangement for a node's rows."""

    def table_of(self, node: Node, name: str) -> Table[Any, Any]:
        """Return the table with the rows of an input: its own table, or a new table with this name."""

    def state_store(self, node: Node, store: Any) -> PartitionedMap[Any, Any]:
        """Return a declared state store, in the partitions of a node's rows. Steps that name it share one store."""

    def global_table(self, node: Node) -> Table[Any, Any]:
        """Return the state of a global table. No operator writes its rows."""

    def global_rows(self, node: Node) -> GlobalRows[Any, Any]:
        """Return the rows of a global table, for processors."""

    def lookup(self, node: Node, name: str) -> Any:
        """Return the state with the rows of a join's input. If it has to be created, it is called `name`."""

    def gate(self, node: Node) -> Gate:
        """Return the gate that sends the rows of a node to their owners."""

    def aside(self, sink: Node) -> Aside | None:
        """Return the memory in which a sink keeps rows that cannot be written; None if it rejects records instead."""


class _Place(Protocol):
    """Slots with numbers, and the operators that a step adds to connect them."""

    @property
    def peeks(self) -> bool:
        """Whether the functions of `peek` steps are called."""

    @property
    def inside(self) -> Container[Node]:
        """All steps that are inside loops."""

    def slot_of(self, node: Node) -> int:
        """Return the slot of a node's rows."""

    def emit(self, operator: Operator, *slots: int) -> int:
        """Add an operator that reads `slots`; return the slot of its output."""

    def loop(self, loop: Node) -> int:
        """Add a loop by nested time; return the slot of its results."""


class CircuitBuilder(States, _Place, Protocol):
    """The circuit of a plan, or the inside of a recursion by waves, while it is built."""

    def source(self, topic: str) -> int:
        """Add and return a slot for the records of a topic."""

    def received(self, node: Node) -> int:
        """Return the slot of the rows of a node that other workers have sent."""

    def partition_count(self, node: Node) -> int:
        """Return the number of partitions of a node's rows."""

    def stays(self, exchange: Node) -> bool:
        """Return whether an exchange has nothing to send, because all rows are already in its single partition."""

    def share_table(self, node: Node, source: Node) -> None:
        """Note that a table of `source`, if there is one, also has the rows of `node`."""

    def needs_keys(self, exchange: Node) -> bool:
        """Return whether an exchange drops records without a key."""

    def carries_times(self, exchange: Node) -> Literal["", "plain", "placed"]:
        """Return what an exchange's rows carry: nothing (""), event times ("plain"), or also places ("placed")."""

    def waves_around(self, node: Node) -> Bound | None:
        """Return the bounds of the recursion by waves around a step; None if there is no such recursion."""

    def waves(self, recursion: Node) -> int:
        """Add a recursion by waves; return the slot of its rows."""

    def placed(self, recursion: Node) -> tuple[Operator, Sequence[int]]:
        """Return the operator of a recursion, and the slots that it reads."""


class LoopBody(_Place, Protocol):
    """The inside of a loop by nested time, while it is built."""

    @property
    def outside(self) -> States:
        """The states outside all loops."""

    @property
    def guard(self) -> Budget:
        """The limit of an epoch's work in nested time."""

    def trace(self, node: Node, name: str) -> Trace[Any, Any]:
        """Create a trace for a node's rows."""

    def limit_errors(self, binding: Node, changes: int) -> int:
        """Add the rows of errors of a block inside this loop; `changes` is the slot of the last iteration's changes.

        Returns the slot of the rows of errors.
        """


class Spark(Protocol):
    """The forms that a step can have on Spark. Each method computes the rows and states of one step from its inputs."""

    def records(self, source: Node) -> None:
        """Read the records of a topic."""

    def constant(self, node: Node) -> None:
        """Add fixed rows."""

    def transformed(self, node: Node) -> None:
        """Apply a step without a state to each row."""

    def union(self, node: Node) -> None:
        """Add the rows of all inputs."""

    def facts(self, node: Node) -> None:
        """Turn the rows of a table into facts."""

    def last_values(self, node: Node) -> None:
        """Keep the last value of each key among facts."""

    def expiring(self, table: Node) -> None:
        """Keep the last value of each key among facts, unless it has expired."""

    def valid(self, node: Node) -> None:
        """Keep the rows that are true by the clocks of their partitions."""

    def windows_assigned(self, node: Node) -> None:
        """Put each fact under its key and each of its windows for which it is not late."""

    def ordered(self, node: Node) -> None:
        """Give each fact its place in the order of the records of all source partitions."""

    def versions_ordered(self, node: Node) -> None:
        """Put each fact under its key and timestamp, and add its place in the order of the records to its value."""

    def deduplicated(self, node: Node) -> None:
        """Keep the first fact of each `by` value within a span of time."""

    def slid(self, node: Node) -> None:
        """Put each fact under all sliding windows that exist for its key and contain its timestamp."""

    def values_of_windows(self, node: Node) -> None:
        """Aggregate the values of each window, and keep the values; then remove windows as `closed` does."""

    def closed(self, node: Node) -> None:
        """Remove windows from the step's table that are over; with `emit="close"`, emit the rows of these windows."""

    def exchanged(self, exchange: Node) -> None:
        """Pass on the rows of the input, because Spark distributes them itself."""

    def looked_up(self, join: Node) -> None:
        """Join facts with a table."""

    def globally_joined(self, join: Node) -> None:
        """Join facts with a global table as of the offsets that a worker has noted; without offsets make no rows."""

    def streams_joined(self, join: Node) -> None:
        """Join facts of two streams in time."""

    def joined_as_of(self, join: Node) -> None:
        """Join facts with the values that another stream had at their times."""

    def tables_joined(self, join: Node) -> None:
        """Join two tables."""

    def joined(self, join: Node) -> None:
        """Join two relations."""

    def reduced(self, node: Node) -> None:
        """Call the author's function with all values of each key."""

    def first_values(self, node: Node) -> None:
        """Keep the first values of each key in an order."""

    def only_values(self, node: Node) -> None:
        """Keep the value of each key that has one row."""

    def counted(self, node: Node) -> None:
        """Add up the weights of each key."""

    def summed(self, node: Node) -> None:
        """Compute the sum or the mean of the numbers of each key."""

    def totals(self, node: Node) -> None:
        """Keep the exact totals of the keys of a table of sums."""

    def folded(self, node: Node) -> None:
        """Fold the rows of each key."""

    def weighed(self, node: Node) -> None:
        """Apply a function of weights."""

    def reached(self, node: Node) -> None:
        """Compute reachability from roots."""

    def totalled(self, node: Node) -> None:
        """Compute totals over trees."""

    def by_a_worker(self, node: Node) -> None:
        """Make no rows, because only a worker can make them; steps downstream are not compared."""

    def waves(self, recursion: Node) -> None:
        """Compute a recursion by waves, unless it is inside another loop."""

    def looped(self, loop: Node) -> None:
        """Compute a recursion by nested time, or a block with its bindings."""

    def errors(self, node: Node) -> None:
        """Compute the errors of a recursion."""

    def written(self, sink: Node) -> None:
        """Make the records of a user's topic."""
