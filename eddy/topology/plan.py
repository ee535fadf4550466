"""The plan: the author's program as data. Engines compile it; nothing here runs.

A plan is nodes in the order in which they were written, which is topological. A node knows its
inputs, so a collection is its last node. A recursion's `op` is nodes like any others; those that
depend on its variable are its body.

Keys keep their place: a node that is not `rekeyed` has its rows where its inputs have them. A step
that needs rows by key takes a rekeyed input through an `Exchange`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from eddy.errors import TopologyError
from eddy.operators import stateless, tables
from eddy.operators.operator import Operator
from eddy.topology.node import MIXED, NO_PLACE, Arrival, Kept, Kind, Node, States
from eddy.topology.recursions import Binding, Block, HeldErrors, Reachable, Recursion, TreeTotals, Variable
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

    reads = True

    topic: str

    def headline(self, application: str, stores: Sequence[str]) -> str:
        """Its topic."""
        store = f", store: {', '.join(stores)}" if stores else ""
        return f"Source: {self.name} (topics: [{self.topic}]{store})"

    @property
    def shape(self) -> str:
        """A cylinder."""
        return f"[({self.topic})]"

    def partition_count(self, topic_partitions: Mapping[str, int]) -> int | None:
        """That of its topic."""
        return topic_partitions[self.topic]


@dataclass(frozen=True, eq=False, kw_only=True)
class Constant(Node):
    """Fixed rows, at one owner."""

    crosses = True

    rows: tuple[tuple[Any, Any], ...]

    def partition_count(self, topic_partitions: Mapping[str, int]) -> int | None:
        """One: they have one owner."""
        return 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Transform(Node):
    """A stateless step: `verb` with the author's `function`."""

    keeps_records = True

    verb: Verb
    function: Callable[..., Any] | None = None

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """With its input, unless it changes keys."""
        return [] if self.rekeys else super().co_partitioned

    @property
    def drops(self) -> bool:  # type: ignore[override]
        """Filters and flat maps can drop a row."""
        return self.verb in {"filter", "filter-not", "flat-map", "flat-map-values"}

    @property
    def rekeys(self) -> bool:  # type: ignore[override]
        """Whether rows may have other keys afterwards."""
        return self.verb in REKEYING


@dataclass(frozen=True, eq=False, kw_only=True)
class Merge(Node):
    """All rows of all inputs."""

    keeps_records = True

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """With its inputs, unless some of them have other keys than their place says."""
        return [] if self.rekeyed else super().co_partitioned

    def operator(self, states: States) -> Operator:
        """The sum of the inputs."""
        return stateless.Union(self.name)


@dataclass(frozen=True, eq=False, kw_only=True)
class Latest(Node):
    """A table's changes as facts: the new value of each key, None for a deleted one."""

    @property
    def arrival(self) -> Arrival:
        """The number of records."""
        return Arrival(
            "a table's changes as a stream: how many of its values become records depends on how its input was cut "
            "into epochs"
        )

    def operator(self, states: States) -> Operator:
        """Replacements become facts."""
        return stateless.Latest(self.name)


@dataclass(frozen=True, eq=False, kw_only=True)
class Upsert(Node):
    """Facts as the table of their latest values."""

    linear = False
    keeps_last = True
    keeps = (Kept("", "table", "results"),)

    @property
    def arrival(self) -> Arrival:
        """The last value of a key."""
        return Arrival(f"a table of the last records of a stream: {MIXED}", mixed=True)

    @property
    def refused_in_nested_time(self) -> str:
        """The last record is a matter of arrival."""
        return f"step '{self.name}' joins or makes tables, {NO_PLACE}"

    def operator(self, states: States) -> Operator:
        """The table."""
        return tables.Upsert(self.name, states.table(self, self.name))


@dataclass(frozen=True, eq=False, kw_only=True)
class Exchange(Node):
    """Rows go to the owner of their key, through a topic. `partitions` None: as the others need it.

    `any_key`: all go to one owner, so that a record of a stream needs no key to find it.
    """

    keeps_records = True
    crosses = True
    sends = True

    partitions: int | None = None
    any_key: bool = False

    def internal_topic(self, application: str) -> str:
        """The repartition topic."""
        return f"{application}-{self.name}"

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """With nothing before it."""
        return ()

    def partition_count(self, topic_partitions: Mapping[str, int]) -> int | None:
        """As the author asked."""
        return 1 if self.single_partition else self.partitions

    @property
    def refused_in_nested_time(self) -> str:
        """Rows of one iteration would arrive in another."""
        if self.inputs[0].single_partition:
            return super().refused_in_nested_time
        return (
            f"step '{self.name}' sends rows to other owners in the middle of an iteration, which would give a wrong "
            "answer; bring what it reads to one owner before the recursion: relation.at_one_owner('…')"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamTableJoin(Node):
    """Facts, each with the table's value for its key."""

    derived = ("right",)

    joiner: Callable[[Any, Any], Any]
    left: bool = False

    @property
    def arrival(self) -> Arrival:
        """The value of the table."""
        return Arrival("a stream-table join: each record meets the table as it was when the record came")

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

    @property
    def refused_in_nested_time(self) -> str:
        """Relations are joined there."""
        return f"step '{self.name}' joins or makes tables, {NO_PLACE}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(Node):
    """Two relations (or tables, as relations), joined on equal keys."""

    derived = ("left", "right")

    bilinear = True
    drops = True

    merge: Callable[[Any, Any, Any], tuple[Any, Any]]

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """Its inputs, with each other; the result has their place if it keeps their keys."""
        left, right = self.inputs
        return [(left, right)] if self.rekeyed else [(left, right), (self, left)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Sink(Node):
    """The end of a branch: a topic of the user's."""

    writes = True

    topic: str

    @property
    def co_partitioned(self) -> Iterable[tuple[Node, Node]]:
        """The user's topic has its own partitions."""
        return ()

    def headline(self, application: str, stores: Sequence[str]) -> str:
        """Its topic."""
        return f"Sink: {self.name} (topic: {self.topic})"

    @property
    def shape(self) -> str:
        """A cylinder."""
        return f"[({self.topic})]"


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
