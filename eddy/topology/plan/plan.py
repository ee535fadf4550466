"""The plan: the author's program as data. Engines compile it; nothing here runs.

The nodes of a plan are in the order in which they were written, so inputs are before the nodes that read them. A node
knows its inputs, so a collection is identified by its last node. A recursion's `op` consists of ordinary nodes. The
nodes that depend on its variable are inside the recursion.

Rows remain in their partition while keys do not change, so a node that is not `rekeyed` has its rows in the partitions
of its inputs. If a step needs rows by key and an input is rekeyed, an `Exchange` is added before the step.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from eddy.errors import TopologyError
from eddy.topology.plan.async_steps import AsyncMapped
from eddy.topology.plan.deduplicate_steps import Deduplicate, OrderRecords
from eddy.topology.plan.expiring_tables import ExpiringTable
from eddy.topology.plan.global_steps import GlobalJoin, GlobalTable
from eddy.topology.plan.graph import Reachable, TreeTotals
from eddy.topology.plan.joins import Join, StreamTableJoin, TableJoin
from eddy.topology.plan.joins_as_of import AsOfJoin, OrderVersions
from eddy.topology.plan.joins_in_time import StreamStreamJoin
from eddy.topology.plan.node import Kind, Node
from eddy.topology.plan.processors import ChildStream, DeclaredStore, Process
from eddy.topology.plan.rate_limits import RateLimited
from eddy.topology.plan.recursions import Binding, Block, HeldErrors, Loop, Recursion, Variable
from eddy.topology.plan.reductions import TOTALS, Aggregate, Count, OneRow, Reduce, Sum, TopK, WeightFunction
from eddy.topology.plan.topic_patterns import TopicPattern
from eddy.topology.plan.topic_steps import Constant, Exchange, Sink, Source
from eddy.topology.plan.transforms import REKEYING, Latest, Merge, Transform, Upsert
from eddy.topology.plan.valid_relations import ValidRows
from eddy.topology.plan.window_assignment import AssignWindows
from eddy.topology.plan.window_value_steps import VALUES, SessionValues, WindowedValues
from eddy.topology.plan.windowed_steps import (
    SessionAggregate,
    SessionCount,
    SessionSum,
    Slide,
    Suppressed,
    WindowedAggregate,
    WindowedCount,
    WindowedSum,
)

__all__ = [
    "REKEYING",
    "TOTALS",
    "VALUES",
    "Aggregate",
    "AsOfJoin",
    "AssignWindows",
    "AsyncMapped",
    "Binding",
    "Block",
    "ChildStream",
    "Constant",
    "Count",
    "DeclaredStore",
    "Deduplicate",
    "Exchange",
    "ExpiringTable",
    "GlobalJoin",
    "GlobalTable",
    "HeldErrors",
    "Join",
    "Kind",
    "Latest",
    "Loop",
    "Merge",
    "NameTakenError",
    "Node",
    "OneRow",
    "OrderRecords",
    "OrderVersions",
    "Plan",
    "Process",
    "RateLimited",
    "Reachable",
    "Recursion",
    "Reduce",
    "SessionAggregate",
    "SessionCount",
    "SessionSum",
    "SessionValues",
    "Sink",
    "Slide",
    "Source",
    "StreamStreamJoin",
    "StreamTableJoin",
    "Sum",
    "Suppressed",
    "TableJoin",
    "TopK",
    "TopicPattern",
    "Transform",
    "TreeTotals",
    "Upsert",
    "ValidRows",
    "Variable",
    "WeightFunction",
    "WindowedAggregate",
    "WindowedCount",
    "WindowedSum",
    "WindowedValues",
]


class NameTakenError(TopologyError):
    """The name of a step, or of one of its states, is already taken. `step` is the name of the step."""

    def __init__(self, message: str, step: str) -> None:
        super().__init__(message)
        self.step = step


@dataclass
class Plan:
    """The nodes of one topology, in topological order, with its state stores and its name."""

    name: str
    nodes: list[Node] = field(default_factory=list)
    stores: dict[str, DeclaredStore] = field(default_factory=dict)
    _names: dict[str, Node | DeclaredStore] = field(default_factory=dict)

    def add(self, node: Node) -> Any:
        """Add a node. Raises: NameTakenError."""
        self._claim(node.name, node)
        for suffix in node.derived:
            self._claim(f"{node.name}-{suffix}", node)
        self.nodes.append(node)
        return node

    def declare(self, store: DeclaredStore) -> DeclaredStore:
        """Add a state store. Raises: NameTakenError."""
        for state in store.states:
            self._claim(state.name, store)
        self.stores[store.name] = store
        return store

    def _claim(self, name: str, node: Node | DeclaredStore) -> None:
        """Reserve a name for a step, one of its states, or a state store. Raises: NameTakenError if another has it."""
        other = self._names.setdefault(name, node)
        if other is node:
            return
        one, two = node.written, other.written
        if one == two:
            raise NameTakenError(
                f"step '{one}': the name is taken by step '{two}'; names of steps are unique in a topology. "
                "Name one of them: name='…'",
                node.name,
            )
        what = [
            f"step '{step.written}' {'has it' if step.written == name else 'gives it to one of its states or topics'}"
            for step in (other, node)
        ]
        raise NameTakenError(
            f"step '{one}': the name '{name}' is taken twice: {what[0]}, and {what[1]}; names of steps and of their "
            f"states are unique in a topology. Give '{one}' or '{two}' another name: name='…'",
            node.name,
        )

    def sources(self) -> Iterator[Source]:
        """Yield the sources."""
        return (cast("Source", node) for node in self.nodes if node.role == "source")

    def patterns(self) -> Iterator[TopicPattern]:
        """Yield the patterns of topics."""
        return (cast("TopicPattern", node) for node in self.nodes if node.role == "pattern")

    def find(self, topics: Mapping[TopicPattern, Iterable[str]]) -> None:
        """Set the topics that match each pattern."""
        nodes: list[Node] = []
        for node in self.nodes:
            if node.role == "pattern":
                pattern = cast("TopicPattern", node)
                nodes += pattern.find(topics[pattern])
            if not (node.role == "source" and cast("Source", node).pattern):
                nodes.append(node)
        self.nodes = nodes  # replaced as a whole, because other threads may be reading the list

    def global_tables(self) -> Iterator[GlobalTable]:
        """Yield the global tables."""
        return (cast("GlobalTable", node) for node in self.nodes if node.role == "global table")

    def global_joins(self) -> Iterator[GlobalJoin]:
        """Yield the joins with global tables."""
        found = (node for node in self.nodes if any(source.role == "global table" for source in node.inputs))
        return (cast("GlobalJoin", node) for node in found)

    def sinks(self) -> Iterator[Sink]:
        """Yield the sinks."""
        return (cast("Sink", node) for node in self.nodes if node.role == "sink")

    def loops(self) -> Iterator[Loop]:
        """Yield the recursions and the blocks, inner loops first."""
        return (node.as_loop for node in self.nodes if node.as_loop is not None)

    def made_by(self, node: Node) -> list[Node]:
        """Return the collections that a step makes: the step itself, or the bindings of a block."""
        return [node] if node.role != "block" else [step for step in self.nodes if node in step.inputs]

    def needs_keys(self, node: Exchange) -> bool:
        """Return whether an exchange drops records without a key.

        An exchange of a stream does, unless it is followed by a left join, which accepts them (KIP-962).
        """
        if node.kind != "stream" or node.any_key:
            return False
        after: set[Node] = {node}
        for step in self.nodes:
            if not after.isdisjoint(step.record_inputs):
                if step.takes_keyless:
                    return False
                after.add(step)
        return True

    def carries_times(self, node: Exchange) -> Literal["", "plain", "placed"]:
        """Return which data of their records an exchange's rows carry for later steps.

        "": none; "plain": event times of source partitions, which windows need; "placed": also the records' places,
        which give their order.
        """
        if any(node in step.placed_through for step in self.nodes):
            return "placed"
        return "plain" if any(node in step.timed_through for step in self.nodes) else ""

    def holds(self, state: str) -> Node:
        """Return the step whose rows, or whose aggregates, a state has. Raises: KeyError."""
        for node in self.nodes:
            sides = dict(zip(("left", "right"), node.inputs, strict=False))
            for suffix in node.derived:
                if state == f"{node.name}-{suffix}":
                    return sides.get(suffix, node)
            if state == node.name or state in node.store_names:
                return node
        raise KeyError(state)

    def rewind(self, length: int) -> None:
        """Remove all nodes except the first `length`."""
        del self.nodes[length:]
        kept = {id(node) for node in (*self.nodes, *self.stores.values())}
        self._names = {name: owner for name, owner in self._names.items() if id(owner) in kept}
