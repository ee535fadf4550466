"""Joins of a stream with the values that another stream had at the time of each record."""

from typing import Any

from eddy.as_of import AsOf
from eddy.serde import Bytes, Native, Serde, Tuple
from eddy.topology.arguments import name_or, takes_key
from eddy.topology.dsl.builder import Builder, same_topology
from eddy.topology.dsl.timed_records import alone, check_outside, key_of_both, timed, with_keys
from eddy.topology.plan import plan
from eddy.topology.plan.frontiers import exchanges_before, sources_of_records

__all__ = ["as_of_join"]


def as_of_join(
    stream: Any, other: Any, joiner: Any, as_of: AsOf, left: bool, name: str | None, value: Serde[Any] | None
) -> plan.Node:
    """Add the steps of the join, and return the step of the joined records. Raises: TopologyError."""
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
        sources_of_records(where, other._node, method),
    ]
    serde = other._node.value or Native
    right = builder.transform(other._node, "map-values", _wrapped, None, value=Tuple(serde))
    node = with_keys(builder, stream._node) if left else stream._node
    assigned = (
        timed(builder, name, node, as_of.waiting, key, origins[0]),
        _versions(builder, name, right, as_of, (key, serde), origins[1]),
    )
    joined: plan.Node = builder.add(
        plan.AsOfJoin,
        name,
        kind="stream",
        inputs=(builder.by_key(assigned[0], f"{name}-waiting"), builder.by_key(assigned[1], f"{name}-versions")),
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


def _versions(
    builder: Builder,
    name: str,
    right: plan.Node,
    as_of: AsOf,
    record: tuple[Serde[Any], Serde[Any]],
    origins: tuple[plan.Node, ...],
) -> plan.AssignWindows:
    """Add the step that puts each record of the other stream under its key and timestamp.

    Where the order of the records is not the order in one partition of a topic, the step adds it to their values.
    """
    key, serde = record
    in_place = len(origins) == 1 and origins[0].role != "pattern" and not any(exchanges_before(right))
    if in_place and not right.rekeyed:
        return timed(builder, name, right, as_of.versions, key, origins)
    return builder.anonymous(
        plan.OrderVersions,
        "windows",
        "stream",
        None,
        label=name,
        inputs=(right,),
        key=as_of.versions.serde(key),
        value=Tuple(serde, Bytes),
        rekeyed=right.rekeyed,
        windows=as_of.versions,
        inner_key=key,
        origins=origins,
        record=record,
    )


def _wrapped(value: Any) -> tuple[Any]:
    return (value,)
