"""The node: one step of a plan, and all that other parts ask of it.

A step declares its properties here, once. No other module asks for the type of a node where a property can tell.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from eddy.operators.nested_operators import Function
from eddy.operators.operator import Operator
from eddy.serde import Serde
from eddy.state.arrangement import Arrangement
from eddy.state.spec import StateSpec
from eddy.state.store import Store
from eddy.state.table import Table

__all__ = ["Grouping", "Kept", "Kind", "Node", "Rows", "States"]

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


class Grouping(NamedTuple):
    """A step as a function of all values of a key, the form in nested time and, unless it has its own, on Spark.

    `signed`: a value with a weight below 0 counts as absent; otherwise it is an error.
    """

    function: Function
    signed: bool = False


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

    @property
    def written(self) -> str:
        """The author's name from which the step's name is derived; else the step's own name."""
        return self.label if self.name.startswith(f"{self.label}-") else self.name

    @property
    def stops(self) -> bool:
        """Whether a worker ends, where nothing unread could mend it, because this step holds something."""
        return False

    drops = False
    """Whether the step can drop a row, so that a recursion over it can end."""
    linear = True
    """Whether op(A + B) = op(A) + op(B), so that a recursion over it can be computed by waves."""
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
