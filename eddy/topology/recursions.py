"""Steps of recursions: loops by waves and by nested time, reachability, totals over trees."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from eddy.operators.body import Bound
from eddy.serde import Serde
from eddy.topology.node import Node

__all__ = ["Binding", "Block", "HeldErrors", "Reachable", "Recursion", "TreeTotals", "Variable"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Variable(Node):
    """X inside its own recursion: the rows of a binding at the start of an iteration."""

    crosses = True
    tells_key = False

    @property
    def shape(self) -> str:
        """A rounded box."""
        return f'(["{self.label}"])'


@dataclass(frozen=True, eq=False, kw_only=True)
class _Loop(Node):
    drops = True
    linear = False

    @property
    def shape(self) -> str:
        """A hexagon."""
        return f'{{{{"recursively {self.name}"}}}}'


@dataclass(frozen=True, eq=False, kw_only=True)
class Recursion(_Loop):
    """X = seed + op(X): `inputs` is the seed, `result` is op(`variable`); by waves, or by `nested` time."""

    variable: Variable
    result: Node
    bound: Bound
    include_seeds: bool = True
    nested: str = ""
    """Why it is computed by nested time; empty if by waves."""
    crosses = True

    def internal_topic(self, application: str) -> str | None:
        """The loop topic, if it is computed by waves."""
        return None if self.nested else f"{application}-{self.name}-loop"

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """With X; by nested time with the seed and the result of op, too."""
        placed: list[tuple[Node, Node]] = [(self, self.variable)]
        return [*placed, (self, self.inputs[0]), (self, self.result)] if self.nested else placed

    @property
    def strategy(self) -> str:
        """By waves where op is linear."""
        if self.nested:
            return f"nested time, since {self.nested}; {_owners_of(self)}"
        if self.kind == "stream":
            return "waves of facts, since a KStream's records are never taken back"
        if self.bound.by_depth:
            return f"waves by depth up to {self.bound.depth}, since the answer depends on the depth of rows"
        return "waves, since op is linear"

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
class Block(_Loop):
    """Bindings that are defined by one another: `results` are the definitions of `variables`, in turn."""

    derived = ("errors", "held", "queued", "given")

    variables: tuple[Variable, ...] = ()
    results: tuple[Node, ...] = ()
    bound: Bound
    iterations: int

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """Each variable with its definition."""
        return list(zip(self.variables, self.results, strict=True))

    @property
    def strategy(self) -> str:
        """By nested time."""
        return f"nested time, since its bindings are evaluated in turn; {_owners_of(self)}"

    @property
    def limit_makes_rows(self) -> bool:
        """As its bound says."""
        return self.bound.on_limit == "rows"

    @property
    def stops(self) -> bool:
        """As its bound says."""
        return self.bound.stops


@dataclass(frozen=True, eq=False, kw_only=True)
class Binding(Node):
    """One of the collections of a block: `inputs` is the block. The last one is that of its errors."""

    index: int

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """With its variable; errors have no place."""
        (block,) = self.inputs
        return [(self, block.variables[self.index])] if self.index < len(block.variables) else []


@dataclass(frozen=True, eq=False, kw_only=True)
class HeldErrors(Node):
    """The name of a recursion, which is the input, and a message for each partition where it holds something."""

    linear = False

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """Its rows have another key."""
        return ()

    @property
    def refused_in_nested_time(self) -> str:
        """An inner recursion holds nothing by itself."""
        return (
            f"the errors of recursively '{self.inputs[0].name}' are read inside; what it holds here, the outermost "
            "recursion holds as a whole: read the .errors of that one"
        )


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

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """Its inputs are at one owner already."""
        return ()

    @property
    def strategy(self) -> str:
        """By ranked supports."""
        how = "their number kept" if self.counted else "found again where the parent goes"
        why = "shortest paths over weights above 0" if self.weight else "least depths"
        return f"ranked supports (F1), {how}, at one owner, since {why} fall along supports, through cycles too"


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeTotals(Node):
    """Totals over subtrees from a table of parents, by deltas, in a single partition.

    Rows are tagged totals and cycles.
    """

    parent: Callable[[Any, Any], Any]
    own: Callable[[Any, Any], Any]
    include_self: bool = True
    folds = True
    linear = False

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """Its input is at one owner already."""
        return ()

    @property
    def strategy(self) -> str:
        """By deltas."""
        return "tree totals by deltas (F2), at one owner, since a node has one parent and sums can be taken back"


def _owners_of(loop: Recursion | Block) -> str:
    if loop.variables[0].single_partition:
        return "at one owner"
    return "each owner its keys, which no step inside changes"
