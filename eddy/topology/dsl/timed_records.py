"""Steps that joins in time share: records under keys with a timestamp, and records without a key."""

from typing import Any

from eddy.errors import TopologyError
from eddy.join_windows import JoinSide
from eddy.serde import Native, Serde
from eddy.topology.dsl.builder import Builder
from eddy.topology.plan import plan

__all__ = ["alone", "check_outside", "key_of_both", "timed", "with_keys"]


def check_outside(where: str, builder: Builder) -> None:
    """Refuse a join in time while a recursion is being built. Raises: TopologyError."""
    if builder.open_loops:
        raise TopologyError(
            f"{where}: two streams cannot be joined in time inside {builder.open_loops[-1]}, whose rows are no "
            "records of a source; join them before it, or join a table inside: other.to_table()"
        )


def key_of_both(where: str, left: plan.Node, right: plan.Node) -> Serde[Any]:
    """Return the one serde of both streams' keys. Raises: TopologyError if they have different serdes."""
    one, other = left.key, right.key
    if one is not None and other is not None and one.name != other.name:
        raise TopologyError(
            f"{where}: '{left.label}' writes its keys as {one.name}, '{right.label}' as {other.name}; streams that are "
            "joined need the same encoding. Name one serde on both: key=eddy.String"
        )
    return one or other or Native


def timed(
    builder: Builder, name: str, node: plan.Node, windows: JoinSide, key: Serde[Any], origins: tuple[plan.Node, ...]
) -> plan.AssignWindows:
    """Add the step that puts each record of one side of a join under its key and timestamp. It drops late records."""
    return builder.anonymous(
        plan.AssignWindows,
        "windows",
        "stream",
        None,
        label=name,
        inputs=(node,),
        key=windows.serde(key),
        value=node.value,
        rekeyed=node.rekeyed,
        windows=windows,
        inner_key=key,
        origins=origins,
    )


def with_keys(builder: Builder, node: plan.Node) -> plan.Node:
    """Add the step of the records that have a key."""
    return builder.transform(node, "filter", _has_key, None)


def alone(stream: Any, side: int) -> Any:
    """Return the stream of the records without a key. Their values become pairs with None for the other side."""
    return stream.filter(_lacks_key).map_values(_paired_right if side else _paired_left)


def _has_key(key: Any, value: Any) -> bool:
    return key is not None


def _lacks_key(key: Any, value: Any) -> bool:
    return key is None and value is not None


def _paired_left(value: Any) -> tuple[Any, None]:
    return value, None


def _paired_right(value: Any) -> tuple[None, Any]:
    return None, value
