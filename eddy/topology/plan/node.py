"""The node: one step of a plan, with all its properties.

A step declares its properties here, once. Other modules read these properties and do not test the type of a node.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from eddy.operators.nested.operators import NestedReduce, NestedWeights
from eddy.operators.operator import Operator
from eddy.operators.reduce import Function
from eddy.serde import Serde
from eddy.topology.plan.bags import Addend, Bag, Row, Way, Weighted
from eddy.topology.plan.compilers import CircuitBuilder, LoopBody, Spark, States
from eddy.topology.plan.row_closing import Closing

__all__ = [
    "MIXED",
    "NO_PLACE",
    "NUMBERED",
    "TABLE",
    "Arrival",
    "DropReason",
    "Form",
    "Grouping",
    "Kind",
    "Missing",
    "Node",
    "Rows",
    "StateKept",
]

MIXED = "the records of a key come from more than one partition, so that their order is not known"
NO_PLACE = (
    "which has no place inside a recursion by nested time; relations are needed. Write table.to_relation(), and join "
    "relations"
)
Kind = Literal["stream", "table", "relation"]
Form = Literal["topic", "recursion", "exchange", "variable", "step"]
"""The shape of a step in a picture."""
Rows = Literal["inputs", "results", "others"]
"""The rows of a state: the step's input, its results, or its input rows of keys without a result."""
NUMBERED = re.compile(r"[A-Z-]+-\d{10}")
"""A pattern of the names of steps to which the author gave no name."""
_BETWEEN_WORDS = re.compile(r"(?<=.)(?=[A-Z])")


class StateKept(NamedTuple):
    """A state of a step: the suffix of its name after the step's name, its kind, and its rows."""

    suffix: str
    kind: str
    rows: Rows

    def name_of(self, step: str) -> str:
        """Its name, where the step has this one."""
        return f"{step}-{self.suffix}" if self.suffix else step


TABLE = StateKept("", "table", "results")
"""The table of a step's rows, under its name."""


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
    below 0 is no error.
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
    """A row that would be there, as often as its weight, and the drop because of which it is not."""

    key: Any
    value: Any
    drop: DropReason
    weight: int = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """One step. `label` is the nearest name given by the author; `key` and `value` are serdes, None if not given."""

    name: str
    label: str
    kind: Kind
    inputs: tuple["Node", ...] = ()
    key: Serde[Any] | None = None
    value: Serde[Any] | None = None
    rekeyed: bool = False
    single_partition: bool = False
    """Whether all rows are in a single partition, so that no step has to send them to other workers."""

    # Names and topics

    @property
    def written(self) -> str:
        """The author's name from which the step's name is derived; else the step's own name."""
        return self.label if self.name.startswith(f"{self.label}-") else self.name

    def internal_topic(self, application: str) -> str | None:
        """The topic through which the step's rows reach the owners of their keys; empty if it needs none."""
        return None

    def gate_topic(self, application: str) -> str | None:
        """The topic through which the step's rows pass, also if pictures do not show it."""
        return self.internal_topic(application)

    @property
    def user_topic(self) -> str | None:
        """The user's topic that the step reads or writes."""
        return None

    drawn_as: ClassVar[Form] = "step"

    @property
    def does(self) -> str:
        """The step in a word or two."""
        return type(self).__name__.lower()

    @property
    def title(self) -> str:
        """The first line of the step in a picture: its name, if the author gave it one."""
        return self.kind_of_step if NUMBERED.fullmatch(self.name) else self.name

    @property
    def kind_of_step(self) -> str:
        """The text of the step in a picture if the author gave it no name."""
        return _BETWEEN_WORDS.sub(" ", type(self).__name__).lower()

    def headline(self, application: str, stores: Sequence[str]) -> str:
        """The step in `describe()`, with the stores of its own."""
        topic = self.internal_topic(application)
        return f"Processor: {self.name} (stores: [{', '.join(stores)}]{f', topic: {topic}' if topic else ''})"

    @property
    def shape(self) -> str:
        """The step in a Mermaid flowchart, without its number."""
        return f'["{self.name}"]'

    # Placement

    tells_key: ClassVar[bool] = True
    """Whether the step has a key serde that the collections co-partitioned with it have to share."""

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

    rekeys: ClassVar[bool] = False
    """Whether the step may change the keys of rows."""
    keeps_records: ClassVar[bool] = False
    """Whether each row of the step is made from one input row, and has its timestamp."""
    crosses: ClassVar[bool] = False
    """Whether the step's rows may derive from no record of the epoch, or from another worker's records."""
    sends: ClassVar[bool] = False
    """Whether the step sends rows to the owners of their keys."""
    reads: ClassVar[bool] = False
    """Whether the step reads a topic of the user."""
    writes: ClassVar[bool] = False
    """Whether the step writes to a topic of the user."""
    matches: ClassVar[bool] = False
    """Whether the step's inputs are the sources of all topics that match a pattern."""
    calls_out: ClassVar[bool] = False
    """Whether the worker calls the step's function for the records of its sources, before they are in an epoch."""
    is_global: ClassVar[bool] = False
    """Whether every worker has the step's rows whole, from a topic that it reads without a group."""
    begins: ClassVar[bool] = False
    """Whether the step's rows derive from no other step."""
    is_collection: ClassVar[bool] = True
    """Whether the step itself has rows. A block has none: its bindings have them."""
    tells_changes: ClassVar[bool] = False
    """Whether the step turns the changes of a table into facts."""
    keeps_last: ClassVar[bool] = False
    """Whether the step turns facts into a table of the last value of each key."""
    adds_up: ClassVar[bool] = False
    """Whether the step is the sum of its inputs, so that rows from outside of a loop are added once and not in each
    wave.
    """
    takes_keyless = False
    """Whether the step has results for records without a key."""

    @property
    def record_inputs(self) -> tuple["Node", ...]:
        """The inputs whose records the step passes on, changed or not."""
        return self.inputs

    @property
    def record_topics(self) -> frozenset[str] | None:
        """The topics of the records of which its rows are made in the records' own epoch; None if others are among
        them.
        """
        if self.reads:
            return frozenset({self.user_topic or ""}) if self.kind == "stream" else None
        found = [source.record_topics for source in self.record_inputs]
        if self.sends or not self.keeps_records or not found:
            return None
        topics = [topic for topic in found if topic is not None]
        return frozenset().union(*topics) if len(topics) == len(found) else None

    timed_through: ClassVar[tuple["Node", ...]] = ()
    """The exchanges before the step through which records carry the event times of their source partitions to it."""
    topics_of_windows: ClassVar[tuple[str, ...]] = ()
    """The topics whose event times tell which windows are over for its records, if the step assigns windows."""
    waits_for: ClassVar[tuple[Any, ...]] = ()
    """The assignments of windows for whose source partitions its rows wait."""
    closes: ClassVar[bool] = False
    """Whether rows are removed from its table, without a retraction, when their windows are over."""
    final: ClassVar[bool] = False
    """Whether each row is passed on once, and never changed or retracted."""
    only_by_worker: ClassVar[str] = ""
    """Why no engine but a worker can compute it; empty if others can."""
    folds = False
    """Whether the step folds rows in no certain order by an author's function, which has to give the same result in any
    order.
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
    def strategy(self) -> str | None:
        """The strategy of a recursion, with the reason; empty for other steps."""
        return None

    tells_errors: ClassVar[bool] = False
    """Whether the step's rows are the errors of the recursion that is its input."""

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

    store_names: ClassVar[tuple[str, ...]] = ()
    """The state stores of the topology that it names."""
    keeps: ClassVar[tuple[StateKept, ...]] = ()
    """The states of the step's operator outside of loops by nested time."""

    @property
    def retired(self) -> tuple[str, ...]:
        """The states that the step kept in earlier releases, and needs no more."""
        return ()

    @property
    def has_table(self) -> bool:
        """Whether one of these is a table of its rows."""
        return TABLE in self.keeps

    @property
    def derived(self) -> tuple[str, ...]:
        """Suffixes of the step's name that name additional states, outside of loops by nested time or inside."""
        made = () if self.grouping is None else ("made",)
        return (*(kept.suffix for kept in self.keeps if kept.suffix), *made)

    @property
    def looks_up(self) -> tuple[tuple["Node", str], ...]:
        """The inputs that the step reads from states, each with the name of the state that is made if there is none
        yet.
        """
        return ()

    @property
    def looked_up_as(self) -> str | None:
        """The name of the state of its rows, if all joins inside its loop share one."""
        return None

    def traces(self, inside: Container["Node"]) -> list[tuple["Node", str]]:
        """The states of the step in a loop by nested time, with the nodes whose rows they have by iteration.

        `inside` has all steps that lie in loops.
        """
        return [] if self.grouping is None else [(self.inputs[0], self.name), (self, f"{self.name}-made")]

    @property
    def errors_kept(self) -> tuple[str, ...]:
        """The step's states of errors in a loop by nested time."""
        return ()

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

    # Evaluation from scratch, for traces

    untraced: ClassVar[str] = "has an algorithm of its own"
    """Why `rows_from` has no rows, if it has none."""
    passes: ClassVar[bool] = False
    """Whether each row of the step is a row of an input, so that derivations skip the step."""
    explained_by_key: ClassVar[bool] = False
    """Whether `ways` has the keys of the step's rows instead of rows."""

    def closing(self, row: Row) -> Closing | None:
        """The event times for which a row waits, or after which the step's table has it no more, if there are any."""
        return None

    def outside(self, keys: Sequence[Any], inputs: Sequence[Bag]) -> str:
        """Why the step has no row with one of these keys, as a verb with its object; empty if its inputs tell it."""
        return ""

    def missing(self, inputs: Sequence[Bag], missing: Sequence[Iterable[Missing]]) -> Iterable[Missing]:
        """The rows that the step would have, too, if it, or a step upstream, had dropped none.

        `missing` has the missing rows of each input.
        """
        return ()

    @property
    def in_words(self) -> str:
        """The step in the author's terms, for traces."""
        return f"{self.does} '{self.written}'"

    @property
    def factor(self) -> int | None:
        """The factor with which the weight of each row is the sum, over `ways`, of the product of the weights of their
        rows; None if it is no such sum.
        """
        return None

    @property
    def addends(self) -> tuple[Addend, ...]:
        """The numbers in the values of rows that are sums over the input rows of their keys."""
        return ()

    def forest(self, rows: Bag) -> Any:
        """The step's rows as a `Forest`, each below the row from which it was made; None if they are none."""
        return None

    def subtree_sums(self, *inputs: Bag) -> Any:
        """A `Forest` with numbers, and whether a row's value counts its own node, if each value is the sum of a
        subtree; None if it is not.
        """
        return None

    @property
    def same_rows_as(self) -> "Node | None":
        """The step whose rows this step has, if that is not an input."""
        return None

    def rows_from(self, *inputs: Bag) -> Weighted | None:
        """The step's rows, computed from its inputs' rows; None if only its operator can compute them.

        They are computed from all rows, without deltas or states, independently of the operator.
        """
        return None

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Each row of the step, or each key of its rows, with the rows from which it is made."""
        return ()
