"""Global tables, and joins of streams with global tables."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from eddy.errors import TopologyError
from eddy.serde import Serde
from eddy.topology.arguments import check_function, check_serdes, name_or, takes_key
from eddy.topology.dsl.builder import Builder, of_value, pair, same_topology
from eddy.topology.plan import plan

__all__ = ["GlobalKTable", "global_join"]

K = TypeVar("K")
V = TypeVar("V")


class GlobalKTable(Generic[K, V]):
    """A table of the latest value of each key of a topic. Every worker has the whole table.

    `stream.join(table, joiner, select=…)` joins a stream with it: `select` makes the table's key from each record.
    Changes of the table take effect at the beginning of an epoch, and emit no joined record.
    """

    def __init__(self, builder: Builder, node: plan.GlobalTable) -> None:
        self._builder, self._node = builder, node

    @property
    def name(self) -> str:
        """The name of the table's store."""
        return self._node.name


def global_join(
    builder: Builder,
    node: plan.Node,
    table: GlobalKTable[Any, Any],
    joiner: Any,
    select: Callable[..., Any] | None,
    name: str | None,
    value: Serde[Any] | None,
    left: bool,
) -> plan.Node:
    """Add the join of the records of a step with a global table. Raises: TopologyError."""
    verb = "left_join" if left else "join"
    name = name_or(name, f"{node.label}-{table._node.label}-{'left-join' if left else 'join'}")
    where = f"{verb} '{name}'"
    if select is None:
        raise TopologyError(
            f"{where}: a global table is joined by a key that is made from each record, and select=None; a function "
            "is needed. Write select=lambda value: value.country, or select=lambda key, value: key"
        )
    if builder.open_loops:
        raise TopologyError(
            f"{where}: it lies inside {builder.open_loops[-1]}, where a global table would be another one in each "
            "wave; a table is needed there. Join before it, or read the topic by topology.table('…')"
        )
    same_topology(verb, builder, [table._builder])
    selects = select if takes_key(where, select, "value", what="select") else of_value(select)
    with_key = takes_key(where, joiner, "value", "other")
    check_function(where, joiner, *(["key"] if with_key else []), "value", "other", what="joiner")
    check_serdes(where, value=value)
    joined = builder.add(
        plan.GlobalJoin,
        name,
        kind="stream",
        inputs=(node, table._node),
        key=node.key,
        value=None if with_key else value,
        rekeyed=node.rekeyed,
        select=selects,
        joiner=pair if with_key else joiner,
        left=left,
    )
    return builder.joined(joined, joiner, value) if with_key else joined
