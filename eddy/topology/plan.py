"""The plan: the author's program as data. Engines compile it; nothing here runs.

A plan is nodes in the order in which they were written, which is topological. A node knows its
inputs, so a collection is its last node. A recursion's `op` is nodes like any others; those that
depend on its variable are its body.

Keys keep their place: a node that is not `rekeyed` has its rows where its inputs have them. A step
that needs rows by key takes a rekeyed input through an `Exchange`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from eddy.errors import TopologyError
from eddy.operators.body import Bound
from eddy.serde import Serde
from eddy.topology.node import Kind, Node
from eddy.topology.reductions import Aggregate, Count, OneRow, Reduce, TopK, WeightFunction

__all__ = [
    "REKEYING",
    "Aggregate",
    "Binding",
    "Block",
    "Constant",
    "Count",
    "Exchange",
    "HeldErrors",
    "Join",
    "Kind",
    "Latest",
    "Merge",
    "Node",
    "OneRow",
    "Plan",
    "Reachable",
    "Recursion",
    "Reduce",
    "Sink",
    "Source",
    "StreamTableJoin",
    "TableJoin",
    "TopK",
    "Transform",
    "TreeTotals",
    "Upsert",
    "Variable",
    "WeightFunction",
]

Verb = Literal[
    "filter", "filter-not", "map", "map-values", "flat-map", "flat-map-values", "select-key", "peek", "negate"
]

REKEYING = frozenset({"map", "flat-map", "select-key"})
"""The verbs that may change keys."""


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
    """A stateless step: `verb` with the author's `function`."""

    verb: Verb
    function: Callable[..., Any] | None = None

    @property
    def drops(self) -> bool:  # type: ignore[override]
        """Filters and flat maps can drop a row."""
        return self.verb in {"filter", "filter-not", "flat-map", "flat-map-values"}

    @property
    def rekeys(self) -> bool:
        """Whether rows may have other keys afterwards."""
        return self.verb in REKEYING


@dataclass(frozen=True, eq=False, kw_only=True)
class Merge(Node):
    """All rows of all inputs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Latest(Node):
    """A table's changes as facts: the new value of each key, None for a deleted one."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Upsert(Node):
    """Facts as the table of their latest values."""

    linear = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Exchange(Node):
    """Rows go to the owner of their key, through a topic. `partitions` None: as the others need it.

    `any_key`: all go to one owner, so that a record of a stream needs no key to find it.
    """

    partitions: int | None = None
    any_key: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamTableJoin(Node):
    """Facts, each with the table's value for its key."""

    derived = ("right",)

    joiner: Callable[[Any, Any], Any]
    left: bool = False

    @property
    def drops(self) -> bool:  # type: ignore[override]
        """An inner join drops rows without a match."""
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
    """Two relations (or tables, as relations), joined on equal keys."""

    derived = ("left", "right")

    merge: Callable[[Any, Any, Any], tuple[Any, Any]]
    drops = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Variable(Node):
    """X inside its own recursion: the rows of a binding at the start of an iteration."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Recursion(Node):
    """X = seed + op(X): `inputs` is the seed, `result` is op(`variable`); by waves, or by `nested` time."""

    variable: Variable
    result: Node
    bound: Bound
    include_seeds: bool = True
    nested: str = ""
    """Why it is computed by nested time; empty if by waves."""
    linear = False

    @property
    def derived(self) -> tuple[str, ...]:  # type: ignore[override]
        """States of its own: of what is held, and of what waits."""
        if self.nested:
            return ("queued", "given")
        return () if self.kind == "stream" or self.bound.by_depth else ("held", "reached")

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables that its body depends on."""
        return (self.variable,)

    @property
    def results(self) -> tuple[Node, ...]:
        """The results of an iteration."""
        return (self.result,)

    @property
    def stops(self) -> bool:
        """As its bound says."""
        return self.bound.stops


@dataclass(frozen=True, eq=False, kw_only=True)
class Block(Node):
    """Bindings that are defined by one another: `results` are the definitions of `variables`, in turn."""

    derived = ("errors", "held", "queued", "given")

    variables: tuple[Variable, ...]
    results: tuple[Node, ...]
    bound: Bound
    iterations: int
    linear = False

    @property
    def stops(self) -> bool:
        """As its bound says."""
        return self.bound.stops


@dataclass(frozen=True, eq=False, kw_only=True)
class Binding(Node):
    """One of the collections of a block: `inputs` is the block. The last one is that of its errors."""

    index: int


@dataclass(frozen=True, eq=False, kw_only=True)
class HeldErrors(Node):
    """The name of a recursion, which is the input, and a message for each partition where it holds something."""

    linear = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Reachable(Node):
    """The nodes reachable from roots over edges, by ranked supports, in a single partition.

    `inputs` are the roots and the edges.
    """

    derived = ("roots", "out", "in", "edges", "ties", "sizes", "cycles", "beyond")

    node: Serde[Any]
    expand: Callable[[Any, Any], Any] | None = None
    weight: Callable[[Any, Any], Any] | None = None
    max_depth: Any = None
    max_nodes: int | None = None
    limit: int | None = None
    cycles: bool = False
    counted: bool = False
    stops: bool = False
    linear = False


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeTotals(Node):
    """Totals over subtrees from a table of parents, by deltas, in a single partition.

    Rows are tagged totals and cycles.
    """

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
    _names: dict[str, Node] = field(default_factory=dict)

    def add(self, node: Node) -> Any:
        """Add a node. Raises: TopologyError if its name is taken."""
        self._claim(node.name, node)
        for suffix in node.derived:
            self._claim(f"{node.name}-{suffix}", node)
        self.nodes.append(node)
        return node

    def _claim(self, name: str, node: Node) -> None:
        """Reserve a name for a step or one of its states. Raises: TopologyError if another step has it."""
        other = self._names.setdefault(name, node)
        if other is node:
            return
        one, two = node.written, other.written
        if one == two:
            raise TopologyError(
                f"step '{one}': the name is taken by step '{two}'; names of steps are unique in a topology. "
                "Name one of them: name='…'"
            )
        what = [
            f"step '{step.written}' {'has it' if step.written == name else 'gives it to one of its states or topics'}"
            for step in (other, node)
        ]
        raise TopologyError(
            f"step '{one}': the name '{name}' is taken twice: {what[0]}, and {what[1]}; names of steps and of their "
            f"states are unique in a topology. Give '{one}' or '{two}' another name: name='…'"
        )

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
        """The results of a step: itself, or the bindings of a block."""
        return [step for step in self.nodes if isinstance(step, Binding) and node in step.inputs] or [node]

    def needs_keys(self, node: Exchange) -> bool:
        """Whether records without a key end at an exchange: at one of a stream, unless a left join comes after it,
        which takes them (KIP-962).
        """
        if node.kind != "stream" or node.any_key:
            return False
        after: set[Node] = {node}
        for step in self.nodes:
            if not isinstance(step, StreamTableJoin):
                if not after.isdisjoint(step.inputs):
                    after.add(step)
            elif step.inputs[0] in after:
                if step.left:
                    return False
                after.add(step)
        return True

    def holds(self, state: str) -> Node:
        """The step whose rows, or whose function's state, a state holds. Raises: KeyError."""
        for node in self.nodes:
            sides = dict(zip(("left", "right"), node.inputs, strict=False))
            for suffix in node.derived:
                if state == f"{node.name}-{suffix}":
                    return sides.get(suffix, node)
            if state == node.name:
                return node
        raise KeyError(state)

    def rewind(self, length: int) -> None:
        """Remove all nodes except the first `length`."""
        gone = {id(node) for node in self.nodes[length:]}
        del self.nodes[length:]
        self._names = {name: owner for name, owner in self._names.items() if id(owner) not in gone}
