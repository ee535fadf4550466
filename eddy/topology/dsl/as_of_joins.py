"""Joins of a stream with the values of another one as of each record's time."""

from collections.abc import Sequence
from typing import Any

from eddy.as_of import AsOf
from eddy.errors import TopologyError
from eddy.serde import Native, Serde, Tuple
from eddy.topology.arguments import name_or, takes_key
from eddy.topology.dsl.builder import Builder, same_topology
from eddy.topology.dsl.timed_records import alone, check_outside, key_of_both, timed, with_keys
from eddy.topology.plan import plan
from eddy.topology.plan.frontiers import sources_of_records

__all__ = ["as_of_join"]


def as_of_join(
    stream: Any, other: Any, joiner: Any, as_of: AsOf, left: bool, name: str | None, value: Serde[Any] | None
) -> plan.Node:
    """The node of the joined records. Raises: TopologyError."""
    builder: Builder = stream._builder
    method = "left_join" if left else "join"
    name = name_or(name, f"{stream._node.label}-{other._node.label}-{method.replace('_', '-')}")
    where = f"{method} '{name}'"
    same_topology(where, builder, [other._builder])
    check_outside(where, builder)
    with_key = takes_key(where, joiner, "value", "other")
    key = key_of_both(where, stream._node, other._node)
    origins = [
        sources_of_records(where, stream._node, method),
        sources_of_records(where, other._node, method, in_place=True),
    ]
    _check_versions(where, other._node, origins[1])
    right = builder.transform(other._node, "map-values", _wrapped, None, value=Tuple(other._node.value or Native))
    node = with_keys(builder, stream._node) if left else stream._node
    assigned = (
        timed(builder, name, node, as_of.waiting, key, origins[0]),
        timed(builder, name, right, as_of.versions, key, origins[1]),
    )
    joined: plan.Node = builder.add(
        plan.AsOfJoin,
        name,
        kind="stream",
        inputs=(builder.by_key(assigned[0], f"{name}-waiting"), assigned[1]),
        key=key,
        as_of=as_of,
        left=left,
        assigned=assigned,
    )
    if left:
        single = alone(stream, 0)._node
        joined = builder.anonymous(
            plan.Merge, "merge", "stream", None, label=name, inputs=(joined, single), key=key, value=None
        )
    return builder.joined(joined, joiner, value, with_key)


def _check_versions(where: str, other: plan.Node, origins: Sequence[plan.Node]) -> None:
    """Check that one topic orders all records of the right side. Raises: TopologyError."""
    if len(origins) > 1 or origins[0].role == "pattern":
        topics = f"{len(origins)} topics" if len(origins) > 1 else f"all topics that match '{origins[0].title}'"
        raise TopologyError(
            f"{where}: windows=AsOf(…) takes the last record of '{other.label}', which has records of {topics}, and "
            "nothing orders two topics; records of one topic are needed. Join the stream of each topic"
        )
    if other.rekeyed:
        raise TopologyError(
            f"{where}: windows=AsOf(…) takes the last record of '{other.label}', whose keys a step has changed, so "
            "that the records of a key may come from several partitions, which nothing orders; records with the keys "
            "of their topic are needed. Write them to a topic with these keys, and read that: topology.stream('…')"
        )


def _wrapped(value: Any) -> tuple[Any]:
    return (value,)
