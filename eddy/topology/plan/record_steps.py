"""Finds the steps and sources from which records reach a step, for steps that need the clocks of the sources."""

from collections.abc import Iterator
from typing import TypeGuard

from eddy.operators.windows.frontier import pattern_label
from eddy.topology.plan.node import Node
from eddy.topology.plan.topic_steps import Source

__all__ = ["is_source_of_records", "label_of", "record_steps", "record_topics", "topics_of"]


def is_source_of_records(node: Node) -> TypeGuard[Source]:
    """Return whether a step reads a topic as a stream."""
    return node.role == "source" and node.kind == "stream"


def record_steps(facts: Node) -> Iterator[Node]:
    """Return the steps through which the records of some facts pass, each once, from the last step to the sources."""
    left, seen = [facts], set[Node]()
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        if not is_source_of_records(node) and node.role != "pattern":
            left += reversed(node.record_inputs)


def topics_of(node: Node) -> tuple[str, ...]:
    """Return the topics that a step reads as a stream: a source's own topic, a pattern's topics that match now."""
    if node.role == "pattern":
        return tuple(topic for source in node.inputs for topic in topics_of(source))
    return (node.topic,) if is_source_of_records(node) else ()


def label_of(origin: Node) -> str:
    """Return the label of a source or a pattern, by which frontiers name the partitions that they wait for."""
    return pattern_label(origin.title) if origin.role == "pattern" else topics_of(origin)[0]


def record_topics(node: Node) -> frozenset[str] | None:
    """Return the topics whose records make a step's rows, in the same epoch as the records are read.

    None if other rows are among the step's rows.
    """
    if node.role == "source":
        return frozenset({node.user_topic or ""}) if node.kind == "stream" else None
    found = [record_topics(source) for source in node.record_inputs]
    if node.role == "exchange" or not node.keeps_records or not found:
        return None
    topics = [topic for topic in found if topic is not None]
    return frozenset().union(*topics) if len(topics) == len(found) else None
