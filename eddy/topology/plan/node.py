"""The node: one step of a plan, with all its properties.

A step declares its properties here, once. Other modules read these properties, and do not test the class of a node.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from eddy.operators.nested.operators import NestedReduce, NestedWeights
from eddy.operators.operator import Operator
from eddy.operators.reduce import Function
from eddy.serde import Serde
from eddy.topology.plan.bags import Bag, Row
from eddy.topology.plan.compilers import CircuitBuilder, LoopBody, Spark, States
from eddy.topology.plan.evaluated_steps import EvaluatedStep
from eddy.topology.plan.states_kept import StatefulStep, StateKept
from eddy.topology.plan.step_names import NamedStep
from eddy.topology.plan.window_times import TimedStep

__all__ = [
    "MIXED",
    "NO_PLACE",
    "Arrival",
    "DropReason",
    "Grouping",
    "Kind",
    "Missing",
    "Node",
    "Role",
]

MIXED = "the records of a key come from more than one partition, so that their order is not known"
NO_PLACE = (
    "which has no place inside a recursion by nested time; relations are needed. Write table.to_relation(), and join "
    "relations"
)
Kind = Literal["stream", "table", "relation"]
Role = Literal[
    "source",
    "pattern",
    "global table",
    "constant",
    "sink",
    "exchange",
    "variable",
    "block",
    "sum",
    "changes",
    "errors",
    "call",
    "step",
]
"""The part that a step plays for an engine, if it differs from other steps:

- *source* reads a topic of the user, *pattern* is the union of the sources of all matching topics, *global table* is
  whole at every worker and is read without a group, *constant* has fixed rows, *sink* writes to a topic;
- *exchange* sends rows to the owners of their keys;
- *variable* is X inside its recursion. It has no serde that co-partitioned collections would have to share;
- *block* has no rows itself, because its bindings have them;
- *sum* adds up its inputs, so rows from outside a loop are added once and not in each wave;
- *changes* turns the changes of a table into facts, *errors* has the messages of its input, which is a recursion;
- *call* has a function that the worker calls for records before they are in an epoch;
- *step* is every other step.
"""

_MADE = StateKept("made", "trace", "results")
"""The state with the results of a step with a `grouping`, by iteration, in a loop by nested time."""


class Arrival(NamedTuple):
    """A part of a result that depends on the order of arrival.

    `mixed`: the part depends on the order only if several partitions have records of the same key.
    `folds`: the step is a fold by an author's function, and the author may declare that the order does not matter.
    """

    reason: str
    mixed: bool = False
    folds: bool = False


class Grouping(NamedTuple):
    """A step as a function of all values of a key, for nested time and, unless the step has another form, for Spark.

    If `of_weight` is given, each value's new weight depends on its old weight alone: it is `of_weight(weight)`. Then a
    weight below 0 is no error.
    """

    function: Function
    of_weight: Callable[[int], int] | None = None


class DropReason(NamedTuple):
    """A step that has dropped a row, and the reason.

    `lacks`: the input that has no row with the key of `row`, if that is the reason.
    `held`: whether the reason is that a recursion holds the row until the data is corrected.
    `then`: the filters that would drop the rows made from this row.
    """

    step: "Node"
    reason: str
    row: Row
    lacks: "Node | None" = None
    held: bool = False
    then: "tuple[DropReason, ...]" = ()


class Missing(NamedTuple):
    """A missing row with its weight, and the drop that is the reason."""

    key: Any
    value: Any
    drop: DropReason
    weight: int = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Node(NamedStep, StatefulStep, TimedStep, EvaluatedStep):
    """One step of a plan: its inputs, its placement, its part in recursions, and its operators.

    `key` and `value` are the serdes of the step's rows; None if they are not given. The base classes declare a step's
    names, states and times, and its rows from scratch.
    """

    kind: Kind
    inputs: tuple["Node", ...] = ()
    key: Serde[Any] | None = None
    value: Serde[Any] | None = None
    rekeyed: bool = False
    single_partition: bool = False
    """Whether all rows are in a single partition, so that no step has to send them to other workers."""

    # Placement

    @property
    def co_partitioned(self) -> Iterable[tuple["Node", "Node"]]:
        """The pairs of collections whose rows with equal keys need the same owner."""
        return [(self, source) for source in self.inputs]

    @property
    def same_partitions(self) -> Iterable[tuple["Node", "Node"]]:
        """The pairs of collections with the same partitions but other keys, such as windowed keys and their keys."""
        return ()

    def partition_count(self, topic_partitions: Mapping[str, int]) -> int | None:
        """Return the number of partitions that the step needs; None if it accepts any."""
        return 1 if self.single_partition else None

    # Rows

    role: ClassVar[Role] = "step"
    rekeys: ClassVar[bool] = False
    """Whether the step may change the keys of rows."""
    keeps_records: ClassVar[bool] = False
    """Whether each row of the step is made from one input row, and has its timestamp."""
    crosses: ClassVar[bool] = False
    """Whether the step's rows may be made from no record of the epoch, or from another worker's records."""
    keeps_last: ClassVar[bool] = False
    """Whether the step turns facts into a table of the last value of each key."""
    takes_keyless = False
    """Whether records without a key are in the step's results."""

    @property
    def begins(self) -> bool:
        """Whether the step has rows without an upstream step."""
        return self.role in ("source", "global table", "constant")

    @property
    def record_inputs(self) -> tuple["Node", ...]:
        """The inputs whose records the step passes on, unchanged or changed."""
        return self.inputs

    timed_through: ClassVar[tuple["Node", ...]] = ()
    """The exchanges before the step through which records carry the event times of their source partitions to it."""
    only_by_worker: ClassVar[str] = ""
    """Why only a worker can compute the step's rows; empty if other engines can, too."""
    folds = False
    """Whether the step folds rows in an undefined order, by an author's function.

    The function has to give the same result in any order.
    """

    @property
    def arrival(self) -> Arrival | None:
        """The part of the step's result that depends on the order of arrival; None if no part does."""
        return None

    # Recursion

    @property
    def as_loop(self) -> Any:
        """The step as a `Loop`; None if it is not a loop."""
        return None

    @property
    def variables(self) -> tuple[Any, ...]:
        """The variables of a loop, which stand for its rows inside it; empty for other steps."""
        return ()

    @property
    def results(self) -> tuple["Node", ...]:
        """The steps with the results of a loop's iteration, one for each variable; empty for other steps."""
        return ()

    @property
    def error_limit(self) -> int | None:
        """The number of iterations after which a block makes rows of errors; None if it never does."""
        return None

    @property
    def stops(self) -> bool:
        """Whether a worker ends if this step holds rows and no unread input could change this."""
        return False

    drops = False
    """Whether the step can drop a row, so that a recursion over it can end."""
    bilinear: ClassVar[bool] = False
    """Whether the step is linear in each single input, but not if several inputs are made from the same recursion."""
    linear = True
    """Whether op(A + B) = op(A) + op(B), so that a recursion over it can be computed by waves."""

    @property
    def refused_in_nested_time(self) -> str:
        """The reason why nested time cannot compute the step, with the remedy; empty if it can."""
        if self.kind != "stream":
            return ""
        return f"step '{self.name}' is of a stream or of tables, {NO_PLACE}"

    # States

    @property
    def derived(self) -> tuple[str, ...]:
        """The suffixes, appended to the step's name, of the names of further states that the step may have.

        The step has these states outside loops, or inside loops by nested time.
        """
        made = () if self.grouping is None else (_MADE,)
        return tuple(kept.suffix for kept in (*self.keeps, *made) if kept.suffix)

    @property
    def looks_up(self) -> tuple[tuple["Node", str], ...]:
        """The inputs that the step reads from states, each with the name of the state to create if it has no state."""
        return ()

    def traces(self, inside: Container["Node"]) -> list[tuple["Node", str]]:
        """Return the step's states in a loop by nested time, each with the node whose rows it has by iteration.

        `inside` has all steps that are inside loops.
        """
        return [] if self.grouping is None else [(self.inputs[0], self.name), (self, _MADE.name_of(self.name))]

    # Compilation

    @property
    def grouping(self) -> Grouping | None:
        """The step as a function of all values of a key; None if it is not such a function."""
        return None

    def operator(self, states: States) -> Operator:
        """Return the step's operator, for use outside loops by nested time."""
        raise NotImplementedError(f"no operator for {type(self).__name__}")

    def build(self, circuit: CircuitBuilder) -> int:
        """Add the step to a circuit, outside loops by nested time; return the slot of its rows."""
        operator = self.operator(circuit)  # this may change the slots of the inputs
        return circuit.emit(operator, *map(circuit.slot_of, self.inputs))

    def build_nested(self, loop: LoopBody) -> int:
        """Add the step to a loop by nested time; return the slot of its rows."""
        grouping, slots = self.grouping, map(loop.slot_of, self.inputs)
        if grouping is None:
            return loop.emit(self.operator(loop.outside), *slots)
        taken, made = (loop.trace(*kept) for kept in self.traces(loop.inside))
        if grouping.of_weight is not None:
            return loop.emit(NestedWeights(self.name, taken, made, grouping.of_weight), *slots)
        return loop.emit(NestedReduce(self.name, taken, made, grouping.function, loop.guard), *slots)

    def on_spark(self, spark: Spark) -> None:
        """Compute the step on Spark, without the worker's operator."""
        raise NotImplementedError(f"nothing in Spark for {type(self).__name__}")

    # Rows of other steps, for traces

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterable[Missing]:
        """Return the rows that the step would also have if neither it nor a step upstream dropped rows.

        `missing` has the missing rows of each input, `inputs` has the inputs' rows.
        """
        return ()

    @property
    def same_rows_as(self) -> "Node | None":
        """The step that has the same rows as this step, if that step is not an input; else None."""
        return None
