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
    "Binding",
    "Block",
    "Clamp",
    "Constant",
    "Count",
    "Exchange",
    "Join",
    "Kind",
    "Latest",
    "Merge",
    "Node",
    "Plan",
    "Reachable",
    "Recursion",
    "Reduce",
    "Sink",
    "Source",
    "StreamTableJoin",
    "TableJoin",
    "Transform",
    "TreeTotals",
    "Upsert",
    "Variable",
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
    sole: bool = False
    """Whether all rows are at one owner, so that no step has to send them to others."""

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
class Constant(Node):
    """Fixed rows, at one owner."""

    rows: tuple[tuple[Any, Any], ...]


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

    derived = ("made",)

    linear = False
    drops = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduce(Node):
    """What `function(key, {value: weight})` makes of each key's values."""

    derived = ("made",)

    function: Callable[[Any, Any], Any]
    linear = False
    drops = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(Node):
    """A fold by key; with a subtractor it can take rows back."""

    derived = ("rows", "made")

    initial: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any] | None = None
    linear = False
    drops = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Clamp(Node):
    """Each row once (distinct), or as often as it is more than not there (minus)."""

    derived = ("made",)

    form: Literal["distinct", "minus"]
    linear = False
    drops = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Variable(Node):
    """X inside its own recursion: what a binding brings to a round."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Recursion(Node):
    """X = seed + op(X): `inputs` is the seed, `result` what op makes of `variable`; by waves, or by `nested` time."""

    variable: Variable
    result: Node
    bound: Bound
    include_seeds: bool = True
    nested: str = ""
    """Why it goes by nested time; empty where it goes by waves."""
    linear = False

    @property
    def variables(self) -> tuple[Variable, ...]:
        """What its body depends on."""
        return (self.variable,)

    @property
    def results(self) -> tuple[Node, ...]:
        """What its rounds make."""
        return (self.result,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Block(Node):
    """Bindings that are defined by one another: `results` are the definitions of `variables`, in turn."""

    derived = ("errors", "held")

    variables: tuple[Variable, ...]
    results: tuple[Node, ...]
    bound: Bound
    rounds: int
    linear = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Binding(Node):
    """One of the collections that a block makes: `inputs` is the block. Behind the last comes that of its errors."""

    index: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Reachable(Node):
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
    _names: dict[str, tuple[str, int]] = field(default_factory=dict)

    def add(self, node: Node) -> Any:
        """Take a node in. Raises: TopologyError where its name is taken."""
        self._claim(node.name, f"step '{node.name}'", node)
        for suffix in node.derived:
            self._claim(f"{node.name}-{suffix}", f"a state of step '{node.name}'", node)
        self.nodes.append(node)
        return node

    def _claim(self, name: str, owner: str, node: Node) -> None:
        if name in self._names:
            raise TopologyError(
                f"{owner}: the name is taken by {self._names[name][0]}; names of steps are unique in a topology. "
                "Name one of them: name='…'"
            )
        self._names[name] = (owner, id(node))

    def sources(self) -> Iterator[Source]:
        """The sources."""
        return (node for node in self.nodes if isinstance(node, Source))

    def sinks(self) -> Iterator[Sink]:
        """The sinks."""
        return (node for node in self.nodes if isinstance(node, Sink))

    def loops(self) -> Iterator[Recursion | Block]:
        """The recursions and the blocks, inner ones first."""
        return (node for node in self.nodes if isinstance(node, Recursion | Block))

    def made_by(self, node: Node) -> list[Node]:
        """The collections that a step makes: itself, or the bindings of a block."""
        return [step for step in self.nodes if isinstance(step, Binding) and node in step.inputs] or [node]

    def holds(self, state: str) -> Node:
        """The step whose rows a state holds, or of whose function it is a part. Raises: KeyError."""
        for node in self.nodes:
            sides = dict(zip(("left", "right"), node.inputs, strict=False))
            for suffix in node.derived:
                if state == f"{node.name}-{suffix}":
                    return sides.get(suffix, node)
            if state == node.name:
                return node
        raise KeyError(state)

    def rewind(self, length: int) -> None:
        """Forget all nodes but the first `length`."""
        gone = {id(node) for node in self.nodes[length:]}
        del self.nodes[length:]
        self._names = {name: owner for name, owner in self._names.items() if owner[1] not in gone}
