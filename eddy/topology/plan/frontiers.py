"""Finds the frontier of a step that waits for event times, from the sources and exchanges before the step.

    records in the partitions of their sources    wait for the event times of these partitions
    records that exchanges have sent              wait for marks, which each exchange keeps in a state of its own

An exchange may be added because the step needs it, as after a `group_by`, or by the author, as `repartition`. Records
may pass several exchanges, one after another, and records from several paths may be merged.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from eddy.errors import TopologyError
from eddy.operators.windows.frontier import Marked, Marks, OwnPartition, Slowest, SourceFrontier
from eddy.serde import Int64, Native
from eddy.topology.plan.compilers import CircuitBuilder
from eddy.topology.plan.node import Node
from eddy.topology.plan.processors import DeclaredStore
from eddy.topology.plan.record_steps import is_source_of_records, label_of, record_steps, topics_of
from eddy.topology.plan.states_kept import StateKept
from eddy.windows import Windows

__all__ = ["Nearest", "exchanges_before", "frontier_of", "marks_kept", "nearest", "sources_of_records", "topics_sent"]


class Nearest(NamedTuple):
    """The sources and patterns that some facts reach without an exchange, and the last exchanges of the other facts."""

    origins: tuple[Node, ...]
    exchanges: tuple[Node, ...]

    @property
    def sources(self) -> dict[str, tuple[str, ...]]:
        """The topics of each source and each pattern, by its label."""
        return {label_of(origin): topics_of(origin) for origin in self.origins}

    @property
    def topics(self) -> list[str]:
        """All topics of the sources."""
        return [topic for topics in self.sources.values() for topic in topics]


def nearest(facts: Node) -> Nearest:
    """Find the sources that some facts reach without an exchange, and the last exchanges of the other facts."""
    origins, exchanges, left, seen = list[Node](), list[Node](), [facts], set[Node]()
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        if is_source_of_records(node) or node.role == "pattern":
            origins.append(node)
        elif node.role == "exchange":
            exchanges.append(node)
        else:
            left += reversed(node.record_inputs)
    return Nearest(tuple(origins), tuple(exchanges))


def exchanges_before(facts: Node) -> Iterator[Node]:
    """Return all exchanges through which the records of some facts are sent, each once, the last exchanges first."""
    return (node for node in record_steps(facts) if node.role == "exchange")


def topics_sent(facts: Node) -> frozenset[str]:
    """Return the topics whose records are sent through an exchange before `facts`: they wait for all partitions."""
    steps = (step for exchange in exchanges_before(facts) for step in record_steps(exchange))
    return frozenset(topic for step in steps for topic in topics_of(step))


def marks_kept(marks: str, facts: Node) -> dict[StateKept, Node]:
    """Return the states of marks, each with its exchange, of a step that waits for the event times of `facts`.

    The exchange that sends `facts` has the state `marks`. The name of an earlier exchange is added to its state's name.
    """
    return {
        StateKept(marks if node is facts else f"{marks}-{node.name}", "key-value", "others"): node
        for node in exchanges_before(facts)
    }


def frontier_of(
    circuit: CircuitBuilder, step: Node, facts: Node, marks: str, windows: Windows, first: bool = True
) -> SourceFrontier:
    """Return the frontier of `facts` in their partitions, for a step that keeps `marks_kept(marks, facts)`.

    `first` says that this is the first reader of these states; then the operators that write them are added.
    """
    return _Frontiers(circuit, step, facts, marks, windows, first, {}).of(facts)


class _Frontiers(NamedTuple):
    """Adds the operators of the marks of each exchange before some facts, the earliest exchanges first."""

    circuit: CircuitBuilder
    step: Node
    facts: Node
    marks: str
    windows: Windows
    first: bool
    placed: dict[Node, tuple[Marks, Marked]]

    def of(self, facts: Node) -> SourceFrontier:
        """Return the frontier of facts."""
        found = nearest(facts)
        frontiers: list[SourceFrontier] = [self._sent(exchange)[1] for exchange in found.exchanges]
        if found.origins:
            frontiers.append(OwnPartition(self.windows, found.sources))
        return frontiers[0] if len(frontiers) == 1 else Slowest(*frontiers)

    def _sent(self, exchange: Node) -> tuple[Marks, Marked]:
        """Return the operator of an exchange's marks, and the frontier that they give."""
        if exchange not in self.placed:
            self.placed[exchange] = self._placed(exchange)
        return self.placed[exchange]

    def _placed(self, exchange: Node) -> tuple[Marks, Marked]:
        circuit, (source,) = self.circuit, exchange.inputs
        found = nearest(source)
        before = {_label(node, circuit): self._sent(node)[0] for node in found.exchanges}
        (name,) = (
            kept.name_of(self.step.name)
            for kept, node in marks_kept(self.marks, self.facts).items()
            if node is exchange
        )
        state = circuit.state_store(exchange, DeclaredStore(name=name, key=Native, value=Int64))
        counted: list[tuple[str, Node]] = [
            *zip(found.sources, found.origins, strict=True),
            *zip(before, found.exchanges, strict=True),
        ]
        partitions = [(label, p) for label, node in counted for p in range(circuit.partition_count(node))]
        frontier = Marked(state, partitions, found.sources, before)
        patterns = {label_of(node): circuit.partition_count(node) for node in found.origins if node.role == "pattern"}
        operator = Marks(name, circuit.gate(exchange), self.windows, found.sources, before, state, frontier, patterns)
        if self.first:
            earlier = exchanges_before(source)  # all of them: in one epoch, in memory, a mark may pass several
            circuit.emit(operator, *(_received(circuit, node) for node in (exchange, *earlier)))
        return operator, frontier


def _label(exchange: Node, circuit: CircuitBuilder) -> str:
    """Return the topic of an exchange, by which its marks are named."""
    topic: Any = exchange.internal_topic(circuit.application)
    return str(topic)


def _received(circuit: CircuitBuilder, exchange: Node) -> int:
    """Return the slot of the rows and marks that an exchange receives, or of its rows if it sends nothing."""
    return circuit.slot_of(exchange) if circuit.stays(exchange) else circuit.received(exchange)


def sources_of_records(where: str, facts: Node, call: str = "windowed_by") -> tuple[Node, ...]:
    """Return the sources and patterns whose records the facts are. `call` is the method that needs these records.

    Raises: TopologyError if an earlier step makes rows that are not records of a source.
    """
    found: list[Node] = []
    for node in record_steps(facts):
        if is_source_of_records(node) or node.role == "pattern":
            found.append(node)
            continue
        if node.kind != "stream" or not node.keeps_records:
            raise TopologyError(
                f"{where}: windows need the timestamps of a source's records, and step '{node.name}' makes rows that "
                f"are not records of a source; a stream of records is needed. Call {call} before it, or write its rows "
                "to a topic and read that: topology.stream('…')"
            )
    return tuple(found)
