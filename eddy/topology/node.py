"""The node: one step of a plan, and all that other parts ask of it.

A step declares its properties here, once. No other module asks for the type of a node where a property can tell.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from eddy.operators.nested_operators import Function
from eddy.operators.operator import Operator
from eddy.serde import Serde
from eddy.state.arrangement import Arrangement
from eddy.state.spec import StateSpec
from eddy.state.store import Store
from eddy.state.table import Table

__all__ = ["MIXED", "NO_PLACE", "Arrival", "Grouping", "Kept", "Kind", "Node", "Rows", "States"]

MIXED = "the records of a key come from more than one partition, so that nothing tells which came first"
NO_PLACE = (
    "which has no place inside a recursion by nested time; relations are needed. Write table.to_relation(), and join "
    "relations"
)
Kind = Literal["stream", "table", "relation"]
Rows = Literal["inputs", "results", "others"]
"""The rows of a state: those that the step reads, its results, or the rows that it reads of keys without a result."""


class States(Protocol):
    """Creates the states of a step's operator, co-partitioned with the rows of a node."""

    @property
    def store(self) -> Store | None:
        """The store below the states; None if they are in memory only."""

    def spec(self, node: "Node", name: str, kind: str, value: Serde[Any] | None) -> StateSpec:
        """The identity of a state."""

    def table(self, node: "Node", name: str) -> Table[Any, Any]:
        """The table of a node's own rows."""

    def arrangement(self, node: "Node", name: str) -> Arrangement[Any, Any]:
        """An arrangement of a node's rows."""


class Kept(NamedTuple):
    """A state: the suffix of the step's name in its name, its kind, and the rows in it."""

    suffix: str
    kind: str
    rows: Rows

    def name_of(self, step: str) -> str:
        """Its name, where the step has this one."""
        return f"{step}-{self.suffix}" if self.suffix else step


class Arrival(NamedTuple):
    """A result that the order of arrival decides. With `mixed` only if records of a key come from several partitions.

    `folds`: it is a fold by a function of the author's, who may say that the order does not matter.
    """

    reason: str
    mixed: bool = False
    folds: bool = False


class Grouping(NamedTuple):
    """A step as a function of all values of a key, the form in nested time and, unless it has its own, on Spark.

    `of_weight`: the function makes of each value alone its new weight, as this one does; a weight below 0 is no error
    then.
    """

    function: Function
    of_weight: Callable[[int], int] | None = None


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
        """The topic through which its rows reach the owners of their keys, where they are not here already."""
        return None

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
    """Whether its key serde is one that the collections co-partitioned with it have to share."""

    @property
    def co_partitioned(self) -> Iterable[tuple["Node", "Node"]]:
        """The pairs of collections whose rows of equal keys need the same owner."""
        return [(self, source) for source in self.inputs]

    def partition_count(self, topic_partitions: Mapping[str, int]) -> int | None:
        """The number of partitions that it prescribes, None if it takes any."""
        return 1 if self.single_partition else None

    # Rows

    rekeys: ClassVar[bool] = False
    """Whether rows may have other keys afterwards than in the input."""
    keeps_records: ClassVar[bool] = False
    """Whether each of its rows comes of one row of its inputs, and has that row's timestamp."""
    crosses: ClassVar[bool] = False
    """Whether its rows may come of no record of the epoch, or of another worker's."""
    sends: ClassVar[bool] = False
    """Whether it sends rows to the owners of their keys."""
    reads: ClassVar[bool] = False
    """Whether it reads a topic of the user's."""
    writes: ClassVar[bool] = False
    """Whether it writes to a topic of the user's."""
    keeps_last: ClassVar[bool] = False
    """Whether it makes facts a table of the last value of each key."""
    folds = False
    """Whether it combines rows in no certain order by a function of the author's, which is to give equal results."""

    @property
    def arrival(self) -> Arrival | None:
        """The part of its result that the order of arrival decides."""
        return None

    # Recursion

    @property
    def variables(self) -> tuple[Any, ...]:
        """Of a loop the variables that its body depends on; no other step has any."""
        return ()

    @property
    def results(self) -> tuple["Node", ...]:
        """Of a loop the results of an iteration, one for each variable."""
        return ()

    @property
    def strategy(self) -> str | None:
        """Of a recursion how it is computed, and why."""
        return None

    @property
    def limit_makes_rows(self) -> bool:
        """Whether a limit that is met makes rows of errors."""
        return False

    @property
    def stops(self) -> bool:
        """Whether a worker ends, where nothing unread could mend it, because this step holds something."""
        return False

    drops = False
    """Whether the step can drop a row, so that a recursion over it can end."""
    bilinear: ClassVar[bool] = False
    """Whether it is linear in each of its inputs alone, and not if several are of the same recursion."""
    linear = True
    """Whether op(A + B) = op(A) + op(B), so that a recursion over it can be computed by waves."""

    @property
    def refused_in_nested_time(self) -> str:
        """The reason why nested time cannot compute the step, with the remedy; empty if it can."""
        if self.kind != "stream":
            return ""
        return f"step '{self.name}' is of a stream or of tables, {NO_PLACE}"

    # States

    derived: ClassVar[tuple[str, ...]] = ()
    """Suffixes of the step's name that name its additional states."""
    keeps: ClassVar[tuple[Kept, ...]] = ()
    """The states of its operator outside of loops."""

    @property
    def grouping(self) -> Grouping | None:
        """The step as a function of all values of a key, None if it is none."""
        return None

    def operator(self, states: States) -> Operator:
        """The operator of the step outside of loops."""
        raise NotImplementedError(f"no operator for {type(self).__name__}")
