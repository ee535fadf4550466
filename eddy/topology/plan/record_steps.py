"""The way of records from their sources to a step, for steps that need the clocks of the sources."""

from collections.abc import Iterator
from typing import TypeGuard

from eddy.topology.plan.node import Node
from eddy.topology.plan.topic_steps import Source

__all__ = ["is_source_of_records", "record_steps"]


def is_source_of_records(node: Node) -> TypeGuard[Source]:
    """Whether a step reads a topic as a stream."""
    return node.reads and node.kind == "stream"


def record_steps(facts: Node) -> Iterator[Node]:
    """The steps through which the records of some facts pass, each once, from the last one back to the sources."""
    left, seen = [facts], set[Node]()
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        if not is_source_of_records(node) and not node.matches:
            left += reversed(node.record_inputs)
