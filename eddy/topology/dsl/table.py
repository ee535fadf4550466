"""KTable: the latest value of each key. A change of a table is a retracted row and an inserted row."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, TypeVar, overload

from eddy.errors import TopologyError
from eddy.operators.rate_limit import MostWaiting
from eddy.serde import Serde
from eddy.topology.arguments import (
    check_choice,
    check_fits,
    check_name,
    check_serdes,
    check_whole,
    name_or,
    takes_key,
)
from eddy.topology.dsl.builder import Builder, pair, same_topology, serdes
from eddy.topology.dsl.foreign_keys import foreign_key_join
from eddy.topology.dsl.processed import Processed
from eddy.topology.dsl.windowed_groups import check_ends
from eddy.topology.plan import plan
from eddy.topology.plan.windowed_steps import aggregate_of_windows
from eddy.windows import check_span

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from eddy.topology.dsl.grouped import KGroupedTable
    from eddy.topology.dsl.reach import SubtreeTotals
    from eddy.topology.dsl.relation import Relation
    from eddy.topology.dsl.stream import KStream

__all__ = ["KTable", "add_sink"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
W = TypeVar("W")


class KTable(Processed[K, V]):
    """A table K -> V that changes. To retract an old value, the author's functions are called with it again."""

    @overload
    def filter(self, predicate: Callable[[K, V], Any], name: str | None = None) -> "KTable[K, V]": ...

    @overload
    def filter(self, predicate: Callable[[V], TypeGuard[V2]], name: str | None = None) -> "KTable[K, V2]": ...

    @overload
    def filter(self, predicate: "Callable[[V], TypeIs[V2]]", name: str | None = None) -> "KTable[K, V2]": ...

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Any:
        """Keep the keys whose value satisfies `predicate(key, value)`; other keys are not in the result.

        If it takes the value alone and is annotated to return a `TypeGuard` or `TypeIs`, the values' type is narrowed.
        """
        return self._transform("filter", predicate, name)

    def filter_not(self, predicate: Callable[[K, V], Any], name: str | None = None) -> "KTable[K, V]":
        """Drop the keys whose value satisfies `predicate(key, value)`."""
        return self._transform("filter-not", predicate, name)

    @overload
    def map_values(
        self, function: Callable[[V], V2], name: str | None = None, value: Serde[V2] | None = None
    ) -> "KTable[K, V2]": ...

    @overload
    def map_values(
        self, function: Callable[[K, V], V2], name: str | None = None, value: Serde[V2] | None = None
    ) -> "KTable[K, V2]": ...

    def map_values(self, function: Callable[..., Any], name: str | None = None, value: Serde[Any] | None = None) -> Any:
        """Replace each value by `function(value)`; by `function(key, value)` if its first parameter is named `key`."""
        return self._transform("map-values", function, name, value)

    def to_stream(self, name: str | None = None) -> "KStream[K, V]":
        """Return the table's changes as records: the new value of a key, or None for a deleted key."""
        from eddy.topology.dsl.stream import KStream

        node = self._builder.anonymous(
            plan.Latest,
            "to-stream",
            "stream",
            name,
            label=name or self._node.label,
            inputs=(self._node,),
            **serdes(self._node),
        )
        return KStream(self._builder, node)

    def suppress(
        self,
        name: str | None = None,
        until_time_limit: timedelta | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        full: Literal["emit", "fail"] = "emit",
    ) -> "KTable[K, V]":
        """Emit the row of each window once, when the window closes. The table has windows as keys.

        Until then the rows are in the table `name`. Without a use for them, `windowed_by(…, emit="close")` does the
        same and needs no second table. Only filters and maps of values are allowed between the aggregate and this step.

        With `until_time_limit` the table may be any table. A change of a row waits for so long by the wall clock, and
        is passed on as one change together with the later changes of the row until then.

        Args:
            max_rows: the most changes that may wait in a partition, from 1.
            max_bytes: the most bytes of their rows in the state `NAME-waiting`, from 1.
            full: if more changes wait after an epoch, `emit` passes on the changes that have waited longest, and `fail`
                ends the worker with a StateError.

        Raises: TopologyError for a table without windows, or whose rows are already emitted once; for an invalid
            `until_time_limit`; for `max_rows` or `max_bytes` without `until_time_limit`.
        """
        name = name_or(name, f"{self._node.label}-suppressed")
        where = f"suppress '{name}'"
        bound = _most_waiting(where, max_rows, max_bytes, full)
        if until_time_limit is not None:
            return KTable(self._builder, self._limited(where, name, until_time_limit, bound))
        if bound is not None:
            raise TopologyError(
                f"{where}: max_rows and max_bytes bound changes that wait for a time, and until_time_limit= is not "
                "given; rows of open windows wait on disk, without a bound. Add until_time_limit=timedelta(…)"
            )
        of = aggregate_of_windows(where, self._node)
        if of.final:
            raise TopologyError(f"{where}: '{of.name}' passes on each window once already; remove suppress()")
        check_ends(where, of.assigned.windows, "close", timedelta(0))
        facts = self.to_stream()._node
        fields = {"assigned": of.assigned, "of": of, **serdes(self._node)}
        node = self._builder.add(plan.Suppressed, name, kind="table", inputs=(facts,), **fields)
        return KTable(self._builder, node)

    def _limited(self, where: str, name: str, limit: timedelta, bound: MostWaiting | None) -> plan.Node:
        check_span(f"{where}: until_time_limit", limit, timedelta(milliseconds=1), "timedelta(seconds=10)")
        if self._builder.open_loops:
            raise TopologyError(
                f"{where}: it is inside {self._builder.open_loops[-1]}, where no time passes; call it on a table "
                "outside of the recursion"
            )
        fields = {"limit": limit, "bound": bound, **serdes(self._node)}
        return self._builder.add(plan.RateLimited, name, kind="table", inputs=(self._node,), **fields)

    def to_relation(self) -> "Relation[K, V]":
        """Return the table's rows (key, value) as a relation, with insertions and retractions."""
        from eddy.topology.dsl.relation import Relation

        return Relation(self._builder, self._node)

    def to(self, topic: str, key: Serde[K] | None = None, value: Serde[V] | None = None) -> None:
        """Write each change to `topic`, a topic of the user's: the new value, or a tombstone for a deleted key."""
        add_sink(self._builder, self._node, topic, key, value)

    def group_by(
        self,
        function: Callable[[K, V], tuple[K2, V2]],
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
    ) -> "KGroupedTable[K2, V2]":
        """Group the table's rows by the key in `function(key, value)`, a pair (key, value)."""
        return self.to_relation().group_by(function, key, value)

    @overload
    def join(
        self,
        other: "KTable[K, W]",
        joiner: Callable[[V, W], V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
    ) -> "KTable[K, V2]": ...

    @overload
    def join(
        self,
        other: "KTable[K, W]",
        joiner: Callable[[K, V, W], V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
    ) -> "KTable[K, V2]": ...

    def join(
        self,
        other: "KTable[K, W]",
        joiner: Callable[..., Any],
        name: str | None = None,
        value: Serde[Any] | None = None,
    ) -> Any:
        """Make a table of the keys that are in both tables, with `joiner(value, other's value)`.

        A joiner whose first parameter is named `key` is called with the key before the values.
        """
        return self._join(other, joiner, "inner", name, value)

    @overload
    def left_join(
        self,
        other: "KTable[K, W]",
        joiner: Callable[[V, W | None], V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
    ) -> "KTable[K, V2]": ...

    @overload
    def left_join(
        self,
        other: "KTable[K, W]",
        joiner: Callable[[K, V, W | None], V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
    ) -> "KTable[K, V2]": ...

    def left_join(
        self,
        other: "KTable[K, W]",
        joiner: Callable[..., Any],
        name: str | None = None,
        value: Serde[Any] | None = None,
    ) -> Any:
        """Make a table of this table's keys, with `joiner(value, other's value or None)`. See `join`."""
        return self._join(other, joiner, "left", name, value)

    @overload
    def outer_join(
        self,
        other: "KTable[K, W]",
        joiner: Callable[[V | None, W | None], V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
    ) -> "KTable[K, V2]": ...

    @overload
    def outer_join(
        self,
        other: "KTable[K, W]",
        joiner: Callable[[K, V | None, W | None], V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
    ) -> "KTable[K, V2]": ...

    def outer_join(
        self,
        other: "KTable[K, W]",
        joiner: Callable[..., Any],
        name: str | None = None,
        value: Serde[Any] | None = None,
    ) -> Any:
        """Make a table of the keys in either table, with `joiner(value or None, other's value or None)`. See `join`."""
        return self._join(other, joiner, "outer", name, value)

    def foreign_key_join(
        self,
        other: "KTable[K2, W]",
        foreign_key: Callable[..., K2 | None],
        joiner: Callable[..., V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
    ) -> "KTable[K, V2]":
        """Join each row with the row of `other` that has its foreign key; other rows are left out.

        `foreign_key(value)` returns the key in `other`, or None. The new value is `joiner(value, other's value)`. Both
        functions are called with the key before the values if their first parameter is named `key`. Values may be of
        any type that their serdes write.
        Cost: a change of a row of this table makes one change; a change in `other` one for each row with its key.
        """
        return foreign_key_join(self, other, foreign_key, joiner, name, value, left=False)

    def foreign_key_left_join(
        self,
        other: "KTable[K2, W]",
        foreign_key: Callable[..., K2 | None],
        joiner: Callable[..., V2],
        name: str | None = None,
        value: Serde[V2] | None = None,
    ) -> "KTable[K, V2]":
        """Join as `foreign_key_join` does, but keep all keys: the joiner gets None where `other` lacks the key."""
        return foreign_key_join(self, other, foreign_key, joiner, name, value, left=True)

    def tree_totals(
        self,
        name: str,
        own: Callable[[K, V], Any] | None = None,
        parent: Callable[[K, V], K | None] | None = None,
        include_self: bool = True,
        value: Serde[Any] | None = None,
    ) -> "SubtreeTotals":
        """Make a table of each node's total over its subtree. This table has the nodes as keys, with their parents.

        The totals are correct in any order of arrival, and after moves. A move changes the totals on the paths from the
        old and the new place up to their common ancestor. Nodes on a cycle have no total until the data is corrected;
        `.errors` names the cycle.

        Args:
            name: the name of the table of totals.
            own: the number that a node adds, `own(node, value)`; 1 by default, which counts.
            parent: `parent(node, value)` returns the parent, or None for a root; by default the value is the parent.
            include_self: False sums only the descendants, for nodes that have children.
            value: the serde of the totals.
        """
        from eddy.topology.dsl.reach import tree_totals

        return tree_totals(self._builder, self._node, name, own, parent, include_self, value)

    def _processed_rows(self, weights: bool) -> plan.Node:
        """Return the step of the table's rows with weights, or else of its changes as facts."""
        return self._node if weights else self.to_stream()._node

    def _join(
        self,
        other: Any,
        joiner: Any,
        kind: Literal["inner", "left", "outer"],
        name: str | None,
        value: Serde[Any] | None,
    ) -> Any:
        if not isinstance(other, KTable):
            raise TopologyError(
                f"join of table '{self._node.label}': {type(other).__name__} is not a KTable; a KTable is needed. "
                "Join rows with rows: table.to_relation().join(...)"
            )
        same_topology("join", self._builder, [other._builder])
        name = name_or(name, f"{self._node.label}-{other._node.label}-{'join' if kind == 'inner' else kind + '-join'}")
        with_key = takes_key(f"join '{name}'", joiner, "value", "other")
        node = self._builder.add(
            plan.TableJoin,
            name,
            kind="table",
            inputs=self._builder.met((self._node, other._node), [f"{name}-left", f"{name}-right"]),
            key=self._node.key,
            value=None if with_key else value,
            joiner=pair if with_key else joiner,
            join=kind,
        )
        return KTable(self._builder, self._builder.joined(node, joiner, value) if with_key else node)

    def _transform(self, verb: str, function: Any, name: str | None, value: Serde[Any] | None = None) -> Any:
        return KTable(self._builder, self._builder.transform(self._node, verb, function, name, None, value))


def _most_waiting(where: str, rows: int | None, size: int | None, full: str) -> MostWaiting | None:
    """Return the bound on the changes that may wait; None if there is no bound. Raises: TopologyError."""
    check_whole(where, 1, max_rows=rows, max_bytes=size)
    check_choice(where, ("emit", "fail"), full=full)
    if rows is not None or size is not None:
        return MostWaiting(rows, size, full == "fail")
    if full == "fail":
        raise TopologyError(f"{where}: full='fail' without a bound; one is needed. Add max_rows=100_000, or max_bytes=")
    return None


def add_sink(
    builder: Builder,
    source: plan.Node,
    topic: str,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    partitioner: Callable[[Any, Any, int], int] | None = None,
) -> None:
    """End a branch in a topic."""
    where = f"to after '{source.label}'"
    check_name(topic, f"{where}: topic")
    check_serdes(where, key=key, value=value)
    check_fits(where, "key", source.key, key)
    check_fits(where, "value", source.value, value)
    name = f"{'KSTREAM' if source.kind == 'stream' else 'KTABLE'}-SINK-{len(builder.plan.nodes):010d}"
    builder.add(
        plan.Sink,
        name,
        label=topic,
        kind=source.kind,
        inputs=(source,),
        topic=topic,
        key=key or source.key,
        value=value or source.value,
        partitioner=partitioner,
    )
