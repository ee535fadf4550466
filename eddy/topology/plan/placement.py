"""Placement: the number of partitions of each collection, and the encoding of its keys.

A step by key needs all rows of a key at one owner. So its inputs have to be *co-partitioned*: with equal partition
counts, and keys encoded to the same bytes. Sources define both. A step that keeps keys has both from its input, and an
exchange has both from the collections that it is joined with.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eddy.errors import TopologyError
from eddy.serde import Native, Serde
from eddy.topology.plan.plan import Node, Plan

__all__ = ["Placement", "place"]


@dataclass(frozen=True, slots=True)
class Placement:
    """The partition count of a collection and the serde of its keys."""

    partitions: int
    key: Serde[Any]


def place(plan: Plan, topic_partitions: Mapping[str, int]) -> dict[Node, Placement]:
    """Return the placement of every node.

    Raises: TopologyError if inputs of a step have different partition counts or key serdes.
    """
    default = max((topic_partitions[source.topic] for source in plan.sources()), default=1)
    counts: dict[Node, int] = {}
    for members in _merged(plan, lambda node: [*node.co_partitioned, *node.same_partitions]):
        counts |= dict.fromkeys(members, _partitions(members, topic_partitions) or default)
    placements = {}
    for members in _merged(plan, lambda node: node.co_partitioned):
        partitions = counts[members[0]]
        if any(node.single_partition for node in members):  # then no key has to be hashed
            placements.update({node: Placement(partitions, node.key or Native) for node in members})
        else:
            placements.update(dict.fromkeys(members, Placement(partitions, _key(members) or Native)))
            _check_partitioners(plan, members, partitions)
    return placements


def _merged(plan: Plan, pairs: Callable[[Node], Iterable[tuple[Node, Node]]]) -> list[list[Node]]:
    """Return the groups of nodes that the pairs of each node connect, by union-find."""
    leader: dict[Node, Node] = {node: node for node in plan.nodes}

    def find(node: Node) -> Node:
        while leader[node] is not node:
            node = leader[node]
        return node

    for node in plan.nodes:
        for one, other in pairs(node):
            leader[find(other)] = find(one)
    classes: dict[Node, list[Node]] = {}
    for node in plan.nodes:
        classes.setdefault(find(node), []).append(node)
    return list(classes.values())


def _partitions(members: list[Node], topic_partitions: Mapping[str, int]) -> int | None:
    asked = {node.name: node.partition_count(topic_partitions) for node in members}
    counts = {name: count for name, count in asked.items() if count}
    if len(set(counts.values())) > 1:
        (first, low), (second, high) = sorted(counts.items(), key=lambda item: item[1])[:: len(counts) - 1]
        raise TopologyError(
            f"topology: inputs are not co-partitioned: '{first}' has {low} partitions, '{second}' has {high}; "
            f"collections that are joined by key need the same number. Repartition one side: .repartition({high})"
        )
    return next(iter(counts.values()), None)


def _check_partitioners(plan: Plan, members: list[Node], partitions: int) -> None:
    """Refuse a step by key on a topic for which a function of this topology chooses the partitions."""
    chosen = {sink.topic for sink in plan.sinks() if sink.partitioner is not None}
    source = next((node for node in members if node.begins and node.user_topic in chosen), None)
    step = next((node for node in members if node.keeps), None)
    if partitions > 1 and source is not None and step is not None:
        raise TopologyError(
            f"topology: '{step.label}' works by key and is not co-partitioned with '{source.label}', to which a sink "
            "with partitioner= writes records, not by their keys; records of a key in one partition are needed. "
            f"Read it as a stream, and repartition that: .repartition({partitions})"
        )


def _key(members: list[Node]) -> Serde[Any] | None:
    named: dict[str, Node] = {}
    for node in members:
        if node.key is not None and node.role != "variable":
            named.setdefault(node.key.name, node)
    if len(named) > 1:
        (first, a), (second, b) = list(named.items())[:2]
        raise TopologyError(
            f"topology: '{a.label}' writes its keys as {first}, '{b.label}' as {second}; collections that are "
            f"joined by key need the same encoding. Name one serde on both: key=eddy.String"
        )
    return next((node.key for node in named.values()), None)
