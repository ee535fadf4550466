"""The plan: what the author wrote, as data. Engines compile it; nothing here runs.

A plan is nodes in the order in which they were written, which is topological. A node knows its
inputs, so a collection is its last node. A recursion's `op` is nodes like any others; those that
depend on its variable are its body.

Keys keep their place: a node that is not `rekeyed` has its rows where its inputs have them. A step
that needs rows by key takes a rekeyed input through an `Exchange`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from eddy.errors import TopologyError
from eddy.operators.recursion import Bound
from eddy.serde import Serde

__all__ = [
    "REKEYING",
    "Aggregate",
    "Clamp",
    "Count",
    "Exchange",
    "Fixpoint",
    "Join",
    "Kind",
    "Latest",
    "Merge",
    "Node",
    "Plan",
    "Recursion",
    "Sink",
    "Source",
    "StreamTableJoin",
    "TableJoin",
    "Transform",
    "TreeTotals",
    "Upsert",
    "Variable",
    "body_of",
]

Kind = Literal["stream", "table", "relation"]
Verb = Literal[
    "filter", "filter-not", "map", "map-values", "flat-map", "flat-map-values", "select-key", "peek", "negate"
]

REKEYING = frozenset({"map", "flat-map", "select-key"})
"""The verbs after which rows may have other keys."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """One step. `label` is the nearest name that the author wrote; `key` and `value` are serdes, None unnamed."""

    name: str
    label: str
    kind: Kind
    inputs: tuple["Node", ...] = ()
    key: Serde[Any] | None = None
    value: Serde[Any] | None = None
    rekeyed: bool = False

    drops = False
    """Whether the step can drop a row, so that a recursion over it can end."""
    linear = True
    """Whether op(A + B) = op(A) + op(B), so that a recursion over it can go by waves."""
    derived: ClassVar[tuple[str, ...]] = ()
    """What is put behind the step's name to name states that it may need beside its own."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Source(Node):
    """The records of a topic, as facts or as the table of their latest values."""

    topic: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Transform(Node):
    """A step without memory: what `verb` does with `function`."""

    verb: Verb
    function: Callable[..., Any] | None = None

    @property
    def drops(self) -> bool:  # type: ignore[override]
        """Filters and flat maps can drop a row."""
        return self.verb in {"filter", "filter-not", "flat-map", "flat-map-values"}

    @property
    def rekeys(self) -> bool:
        """Whether rows come out under other keys."""
        return self.verb in REKEYING


@dataclass(frozen=True, eq=False, kw_only=True)
class Merge(Node):
    """All rows of all inputs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Latest(Node):
    """A table's changes as facts: the new value of each key, None where it has gone."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Upsert(Node):
    """Facts as the table of their latest values."""

    linear = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Exchange(Node):
    """Rows go to the owner of their key, through a topic. `partitions` None: as the others need it."""

    partitions: int | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamTableJoin(Node):
    """Facts, each with the table's value of its key."""

    derived = ("right",)

    joiner: Callable[[Any, Any], Any]
    left: bool = False

    @property
    def drops(self) -> bool:  # type: ignore[override]
        """An inner join drops what has no match."""
        return not self.left


@dataclass(frozen=True, eq=False, kw_only=True)
class TableJoin(Node):
    """Two tables, key by key."""

    derived = ("left", "right")

    joiner: Callable[[Any, Any], Any]
    join: Literal["inner", "left", "outer"]
    linear = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(Node):
    """Two relations (or tables, as relations), row by row of equal key."""

    derived = ("left", "right")

    merge: Callable[[Any, Any, Any], tuple[Any, Any]]
    drops = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Count(Node):
    """Rows by key."""

    linear = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(Node):
    """A fold by key; with a subtractor it can take rows back."""

    derived = ("rows",)

    initial: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any] | None = None
    linear = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Clamp(Node):
    """Each row once (distinct), or as often as it is more than not there (minus)."""

    form: Literal["distinct", "minus"]
    linear = False
    drops = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Variable(Node):
    """X inside its own recursion."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Recursion(Node):
    """X = seed + op(X): `inputs` is the seed, `result` what op makes of `variable`."""

    variable: Variable
    result: Node
    bound: Bound
    include_seeds: bool = True
    linear = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Fixpoint(Node):
    """What is reached from roots over edges, by ranked supports, at one owner: `inputs` are roots, edges."""

    derived = ("roots", "out", "in", "edges", "ties", "sizes", "cycles")

    node: Serde[Any]
    expand: Callable[[Any, Any], Any] | None = None
    weight: Callable[[Any, Any], Any] | None = None
    max_depth: Any = None
    max_nodes: int | None = None
    limit: int | None = None
    cycles: bool = False
    counted: bool = False
    linear = False


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeTotals(Node):
    """A table of parents as totals over subtrees, by deltas, at one owner. Rows are tagged totals and cycles."""

    parent: Callable[[Any, Any], Any]
    own: Callable[[Any, Any], Any]
    include_self: bool = True
    linear = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Sink(Node):
    """The end of a branch: a topic of the user's."""

    topic: str


@dataclass
class Plan:
    """The nodes of one topology, in topological order, and its name."""

    name: str
    nodes: list[Node] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)

    def add(self, node: Node) -> Any:
        """Take a node in. Raises: TopologyError where its name is taken."""
        self.claim(node.name, f"step '{node.name}'")
        for suffix in node.derived:
            self.claim(f"{node.name}-{suffix}", f"a state of step '{node.name}'")
        self.nodes.append(node)
        return node

    def claim(self, name: str, owner: str) -> None:
        """Reserve a name. Raises: TopologyError naming both owners."""
        if name in self._names:
            raise TopologyError(
                f"{owner}: the name is taken by {self._names[name]}; names of steps are unique in a topology. "
                "Name one of them: name='…'"
            )
        self._names[name] = owner

    def sources(self) -> Iterator[Source]:
        """The sources."""
        return (node for node in self.nodes if isinstance(node, Source))

    def sinks(self) -> Iterator[Sink]:
        """The sinks."""
        return (node for node in self.nodes if isinstance(node, Sink))

    def recursions(self) -> Iterator[Recursion]:
        """The recursions."""
        return (node for node in self.nodes if isinstance(node, Recursion))


def body_of(plan: Plan, variable: Variable) -> list[Node]:
    """The nodes that depend on `variable` before its recursion is closed, in topological order."""
    inside: set[Node] = {variable}
    for node in plan.nodes:
        if isinstance(node, Recursion) and node.variable is variable:
            break
        if not isinstance(node, Recursion) and any(source in inside for source in node.inputs):
            inside.add(node)
    return [node for node in plan.nodes if node in inside and node is not variable]
