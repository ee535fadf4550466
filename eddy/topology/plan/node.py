"""The node: one step of a plan, with all its properties.

A step declares its properties here, once. Other modules read these properties and do not test the type of a node.
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
"""The part of a step that no other kind of step has, for the engine:

- *source* reads a topic of the user, *pattern* is the union of the sources of all matching topics, *global table* is
whole
  at every worker, from a topic that is read without a group; *constant* has fixed rows, *sink* writes to a topic;
- *exchange* sends rows to the owners of their keys;
- *variable* is X inside its recursion. It has no serde of its own that co-partitioned collections would have to share;
- *block* has no rows itself: its bindings have them;
- *sum* adds up its inputs, so that rows from outside of a loop are added once and not in each wave;
- *changes* turns the changes of a table into facts, *errors* has the messages of its input, a recursion;
- *call* has a function that the worker calls for the records of sources, before they are in an epoch;
- *step*: all others.
"""

_MADE = StateKept("made", "trace", "results")
"""The results of a step with a `grouping`, by iteration, in a loop by nested time."""


class Arrival(NamedTuple):
    """A result that depends on the order of arrival. `mixed`: only if several partitions have records of the same key.

    `folds`: the step is a fold by an author's function, and the author may declare that the order does not matter.
    """

    reason: str
    mixed: bool = False
    folds: bool = False


class Grouping(NamedTuple):
    """A step as a function of all values of a key: its form in nested time and, unless it has another one, on Spark.

    `of_weight`: the function computes the new weight of each value from its weight alone, by `of_weight`. Then a weight
    below 0 is not an error.
    """

    function: Function
    of_weight: Callable[[int], int] | None = None


class DropReason(NamedTuple):
    """A step that has dropped a row, and the reason.

    `lacks`: the input that has no row with the key of `row`, if that is the reason.
    `held`: whether a recursion holds it until the data is mended.
    `then`: the filters that would drop what is made of it.
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
    """One step: its inputs, its place, its part in recursions, and its operators. `key` and `value` are serdes, None if
    not given.

    Its names, its states, its times and its rows from scratch are declared by the base classes.
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
        """The pairs of collections whose rows of equal keys need the same owner."""
        return [(self, source) for source in self.inputs]

    @property
    def same_partitions(self) -> Iterable[tuple["Node", "Node"]]:
        """The pairs of collections with equal partitions, but with other keys: a windowed key is where its key is."""
        return ()

    def partition_count(self, topic_partitions: Mapping[str, int]) -> int | None:
        """The number of partitions that the step prescribes; None if it accepts any."""
        return 1 if self.single_partition else None

    # Rows

    role: ClassVar[Role] = "step"
    rekeys: ClassVar[bool] = False
    """Whether the step may change the keys of rows."""
    keeps_records: ClassVar[bool] = False
    """Whether each row of the step is made from one input row, and has its timestamp."""
    crosses: ClassVar[bool] = False
    """Whether the step's rows may derive from no record of the epoch, or from another worker's records."""
    keeps_last: ClassVar[bool] = False
    """Whether the step turns facts into a table of the last value of each key."""
    takes_keyless = False
    """Whether the step has results for records without a key."""

    @property
    def begins(self) -> bool:
        """Whether the step's rows derive from no other step."""
        return self.role in ("source", "global table", "constant")

    @property
    def record_inputs(self) -> tuple["Node", ...]:
        """The inputs whose records the step passes on, changed or not."""
        return self.inputs

    timed_through: ClassVar[tuple["Node", ...]] = ()
    """The exchanges before the step through which records carry the event times of their source partitions to it."""
    only_by_worker: ClassVar[str] = ""
    """Why no engine but a worker can compute it; empty if others can."""
    folds = False
    """Whether the step folds rows in an undefined order, by an author's function that has to give the same result in
    any order.
    """

    @property
    def arrival(self) -> Arrival | None:
        """The part of the step's result that depends on the order of arrival."""
        return None

    # Recursion

    @property
    def as_loop(self) -> Any:
        """The step as a `Loop`; None if it is not a loop."""
        return None

    @property
    def variables(self) -> tuple[Any, ...]:
        """The variables of a loop, on which its body depends; empty for other steps."""
        return ()

    @property
    def results(self) -> tuple["Node", ...]:
        """The results of an iteration of a loop, one for each variable; empty for other steps."""
        return ()

    @property
    def error_limit(self) -> int | None:
        """The number of iterations after which there are rows of errors; None if there never are."""
        return None

    @property
    def stops(self) -> bool:
        """Whether a worker ends because this step holds rows, if no unread input could mend them."""
        return False

    drops = False
    """Whether the step can drop a row, so that a recursion over it can end."""
    bilinear: ClassVar[bool] = False
    """Whether the step is linear in each input alone, but not if several inputs are of the same recursion."""
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
        """The suffixes, appended to the step's name, of all additional states that the step may have: outside of loops,
        or inside loops by nested time.
        """
        made = () if self.grouping is None else (_MADE,)
        return tuple(kept.suffix for kept in (*self.keeps, *made) if kept.suffix)

    @property
    def looks_up(self) -> tuple[tuple["Node", str], ...]:
        """The inputs that the step reads from states, each with the name of the state to create if none exists."""
        return ()

    def traces(self, inside: Container["Node"]) -> list[tuple["Node", str]]:
        """The states of the step in a loop by nested time, with the nodes whose rows they have by iteration.

        `inside` has all steps that lie in loops.
        """
        return [] if self.grouping is None else [(self.inputs[0], self.name), (self, _MADE.name_of(self.name))]

    # Compilation

    @property
    def grouping(self) -> Grouping | None:
        """The step as a function of all values of a key; None if it is not such a function."""
        return None

    def operator(self, states: States) -> Operator:
        """The operator of the step outside of loops by nested time."""
        raise NotImplementedError(f"no operator for {type(self).__name__}")

    def build(self, circuit: CircuitBuilder) -> int:
        """Place the step outside of loops by nested time; return the slot of its rows."""
        operator = self.operator(circuit)  # it may change the slots of inputs
        return circuit.emit(operator, *map(circuit.slot_of, self.inputs))

    def build_nested(self, loop: LoopBody) -> int:
        """Place the step in the body of a loop by nested time; return the slot of its rows."""
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
        """The missing rows: rows that the step would also have if neither it nor a step upstream dropped rows.

        `missing` has the missing rows of each input.
        """
        return ()

    @property
    def same_rows_as(self) -> "Node | None":
        """The step whose rows this step has, if that is not an input."""
        return None
