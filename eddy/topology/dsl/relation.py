"""Relation: a bag of rows (key, value) that are true now. Rows have weights, and can be retracted."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeGuard, TypeVar, overload

from eddy.errors import DataError, TopologyError
from eddy.operators.bound import Bound
from eddy.operators.row_clocks import ExpiryClock
from eddy.serde import Serde, String
from eddy.topology.arguments import (
    check_flag,
    check_function,
    check_kind,
    check_name,
    check_rows,
    check_serdes,
    name_or,
    renamed_choice,
)
from eddy.topology.dsl.builder import Builder, same_topology, serdes
from eddy.topology.dsl.grouped import KGroupedTable
from eddy.topology.dsl.recursion_builder import close_recursion
from eddy.topology.dsl.table import KTable
from eddy.topology.plan import plan
from eddy.topology.plan.valid_relations import check_clock

if TYPE_CHECKING:
    from typing_extensions import TypeIs

__all__ = ["RecursiveRelation", "Relation", "RelationTable"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
W = TypeVar("W")
_BECOMES = "A table becomes one by .to_relation()"


class Relation(Generic[K, V]):
    """Rows of (K, V). The author's functions must depend on nothing but the row: equal rows may share one call."""

    def __init__(self, builder: Builder, node: plan.Node) -> None:
        self._builder, self._node = builder, node

    @overload
    def filter(self, predicate: Callable[[K, V], Any], name: str | None = None) -> "Relation[K, V]": ...

    @overload
    def filter(self, predicate: Callable[[V], TypeGuard[V2]], name: str | None = None) -> "Relation[K, V2]": ...

    @overload
    def filter(self, predicate: "Callable[[V], TypeIs[V2]]", name: str | None = None) -> "Relation[K, V2]": ...

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Any:
        """Keep the rows for which `predicate(key, value)` is true.

        If it takes the value alone and is annotated to return a `TypeGuard` or `TypeIs`, the values' type is narrowed.
        """
        return self._transform("filter", predicate, name)

    def filter_not(self, predicate: Callable[[K, V], Any], name: str | None = None) -> "Relation[K, V]":
        """Drop the rows for which `predicate(key, value)` is true."""
        return self._transform("filter-not", predicate, name)

    def map(
        self,
        function: Callable[[K, V], tuple[K2, V2]],
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
    ) -> "Relation[K2, V2]":
        """Replace each row by `function(key, value)`, a pair (key, value)."""
        return self._transform("map", function, name, key, value)

    @overload
    def map_values(
        self, function: Callable[[V], V2], name: str | None = None, value: Serde[V2] | None = None
    ) -> "Relation[K, V2]": ...

    @overload
    def map_values(
        self, function: Callable[[K, V], V2], name: str | None = None, value: Serde[V2] | None = None
    ) -> "Relation[K, V2]": ...

    def map_values(self, function: Callable[..., Any], name: str | None = None, value: Serde[Any] | None = None) -> Any:
        """Replace each value by `function(value)`; by `function(key, value)` if its first parameter is named `key`."""
        return self._transform("map-values", function, name, None, value)

    def flat_map(
        self,
        function: Callable[[K, V], Iterable[tuple[K2, V2]]],
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
    ) -> "Relation[K2, V2]":
        """Replace each row by the pairs of `function(key, value)`, any number of them."""
        return self._transform("flat-map", function, name, key, value)

    @overload
    def flat_map_values(
        self, function: Callable[[V], Iterable[V2]], name: str | None = None, value: Serde[V2] | None = None
    ) -> "Relation[K, V2]": ...

    @overload
    def flat_map_values(
        self, function: Callable[[K, V], Iterable[V2]], name: str | None = None, value: Serde[V2] | None = None
    ) -> "Relation[K, V2]": ...

    def flat_map_values(
        self, function: Callable[..., Any], name: str | None = None, value: Serde[Any] | None = None
    ) -> Any:
        """Replace each row by a row for each value of `function(value)`, with the same key. See `map_values`."""
        return self._transform("flat-map-values", function, name, None, value)

    def peek(self, function: Callable[[K, V], object], name: str | None = None) -> "Relation[K, V]":
        """Call `function(key, value)` for its effect with each inserted or retracted row, and again after an abort."""
        return self._transform("peek", function, name)

    def select_key(
        self, function: Callable[[K, V], K2], name: str | None = None, key: Serde[K2] | None = None
    ) -> "Relation[K2, V]":
        """Give each row the key `function(key, value)`."""
        return self._transform("select-key", function, name, key)

    def union(self, *others: "Relation[K, V]", name: str | None = None) -> "Relation[K, V]":
        """Return the rows of this relation and `others`, with added weights (UNION ALL). `distinct()` gives UNION."""
        check_kind(f"union after '{self._node.label}'", Relation, others, _BECOMES)
        same_topology("union", self._builder, [other._builder for other in others])
        nodes = (self._node, *(other._node for other in others))
        return Relation(self._builder, self._merge(nodes, name))

    def join(
        self,
        other: "Relation[K, W] | KTable[K, W]",
        merge: Callable[[K, V, W], tuple[K2, V2]],
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
        keeps_key: bool = False,
    ) -> "Relation[K2, V2]":
        """Match the rows of both sides by key, and make the row `merge(key, value, other's value)` of each match.

        Weights multiply, so retracting a row retracts every row made from it. With `keeps_key` the pair (key, value)
        from `merge` must have the matched key, so that rows remain in their partition; another key is a DataError.
        """
        if not isinstance(other, Relation | KTable):
            raise TopologyError(
                f"join after '{self._node.label}': {type(other).__name__} is neither Relation nor KTable; "
                "one of them is needed. A stream becomes a table by .to_table()"
            )
        same_topology("join", self._builder, [other._builder])
        name = name_or(name, f"{self._node.label}-{other._node.label}-join")
        check_function(f"join '{name}'", merge, "key", "value", "other")
        check_flag(f"join '{name}'", keeps_key=keeps_key)
        check_serdes(f"join '{name}'", key=key, value=value)
        left, right = self._builder.met((self._node, other._node), [f"{name}-left", f"{name}-right"])
        node = self._builder.add(
            plan.Join,
            name,
            kind="relation",
            inputs=(self._builder.by_key(left, f"{name}-left"), self._builder.by_key(right, f"{name}-right")),
            key=self._node.key if keeps_key else key,
            value=value,
            merge=_keeping(name, merge) if keeps_key else merge,
            rekeyed=not keeps_key,
        )
        return Relation(self._builder, node)

    def distinct(self, name: str | None = None) -> "Relation[K, V]":
        """Keep each row once, whatever its weight."""
        return self._weight_function(self._node, "distinct", name_or(name, f"{self._node.label}-distinct"))

    def valid(
        self,
        *,
        clock: ExpiryClock,
        from_: Callable[[K, V], int | None] | None = None,
        until: Callable[[K, V], int | None] | None = None,
        name: str | None = None,
    ) -> "Relation[K, V]":
        """Keep the rows that are true now: while `from_(key, value)` <= the clock < `until(key, value)`.

        Both functions return milliseconds since 1970, or None if there is no such bound. Rows are inserted and
        retracted as time passes, and everything made from them changes with them, recursions, too. Call it before a
        recursion, not inside it.

        Args:
            clock: `event time` is the greatest timestamp read from the row's partition of its source, so the rows
                depend on the input alone; they have to be rows of one topic, with its keys. `wall clock` is the time at
                which the worker runs, and advances without input.
            from_, until: functions of the row alone. At least one of them has to be given.
            name: of the step, whose states are `<name>-rows`, `<name>-moments` and `<name>-calendar`.

        Raises: TopologyError.
        """
        name = name_or(name, f"{self._node.label}-valid")
        where = f"valid '{name}'"
        for word, function in (("from_", from_), ("until", until)):
            if function is not None:
                check_function(where, function, "key", "value", what=word)
        source = check_clock(where, self._node, clock, bounded=not (from_ is None and until is None))
        if self._builder.open_loops:
            raise TopologyError(
                f"{where}: it is inside {self._builder.open_loops[-1]}, where no time passes; a relation "
                "outside of it is needed. Call valid on the relation that the recursion begins with or joins"
            )
        node = self._builder.by_key(self._node, name)
        made = self._builder.add(
            plan.ValidRows,
            name,
            kind="relation",
            inputs=(node,),
            from_=from_,
            until=until,
            clock=clock,
            source=source,
            **serdes(node),
        )
        return Relation(self._builder, made)

    def minus(self, other: "Relation[K, V]", name: str | None = None) -> "Relation[K, V]":
        """Reduce each row's weight by its weight in `other`, but not below 0 (EXCEPT ALL)."""
        check_kind(f"minus after '{self._node.label}'", Relation, [other], _BECOMES)
        same_topology("minus", self._builder, [other._builder])
        name = name_or(name, f"{self._node.label}-{other._node.label}-minus")
        negated = self._builder.transform(other._node, "negate", None, f"{name}-negate", kind="relation")
        both = self._merge((self._node, negated), f"{name}-difference")
        return self._weight_function(both, "minus", name)

    def group_by_key(self, key: Serde[K] | None = None, value: Serde[V] | None = None) -> KGroupedTable[K, V]:
        """Group the rows by their keys; `key` and `value` are the serdes of the groups' keys and values."""
        return KGroupedTable(self._builder, self._node, key, value)

    def group_by(
        self,
        function: Callable[[K, V], tuple[K2, V2]],
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
    ) -> KGroupedTable[K2, V2]:
        """Group the rows by the key in `function(key, value)`, a pair (key, value)."""
        return self._transform("map", function, None, key, value, method="group_by").group_by_key()

    def recursively(
        self,
        op: "Callable[[Relation[K, V]], Relation[K, V]]",
        name: str,
        max_depth: int | None = None,
        limit: int = 10_000,
        on_limit: Literal["hold", "stop", "return", "dead-letter"] = "hold",
    ) -> "RecursiveRelation[K, V]":
        """Compute X = seed + op(X). Weights add up, and a retracted row retracts all rows derived from it.

        The result is correct in any order of arrival, and after moves and deletions. If `op` is linear (filter, map,
        flat_map, union, joins with collections from outside), waves compute it; then a cycle in the data has no finite
        answer. With `distinct`, `minus`, aggregates, X joined with itself or recursions inside, nested time computes
        it: the result is the least fixpoint from empty, exact even if rows support one another in a cycle.

        Args:
            op: makes a relation of the same types from a relation; it may be called twice.
            name: of the loop, whose topic is `<application>-<name>-loop`.
            max_depth: the most applications of op to a row; op is not applied to deeper rows. Rows are then stored by
                depth.
            limit: by waves, the number of stale steps on a path after which the path is considered endless; a step is
                stale if it meets only rows outside the recursion that the path has met before. By nested time, the
                number of iterations.
            on_limit: `hold` holds rows without a finite answer and names the cause. `stop` does the same, and ends the
                worker if no unread input could change this. `return` and `dead-letter` stop at depth `limit` as
                `max_depth` does, and report the rows that were cut off.

        Raises: NonTerminatingRecursionError if op has no step that can drop a row; TopologyError.
        """
        on_limit = renamed_choice(f"recursively '{name}'", on_limit)
        return self._bounded(op, name, Bound.of_arguments(max_depth, limit, on_limit))

    def _bounded(self, op: Any, name: str, bound: Bound) -> "RecursiveRelation[K, V]":
        """Add the recursion, as `recursively` does, with its limits in `bound`."""
        check_function(f"recursively '{name}'", op, "rows", what="op")

        def build(variable: plan.Node) -> Any:
            result = op(Relation(self._builder, variable))
            return result._node if isinstance(result, Relation) else result

        node = close_recursion(self._builder, name, "relation", self._node, build, bound)
        return RecursiveRelation(self._builder, node)

    def reduce(
        self,
        function: Callable[[K, Mapping[V, int]], Iterable[V2]],
        name: str,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
    ) -> "Relation[K, V2]":
        """Compute the values `function(key, values)` of each key. `values` maps each value of the key to its weight.

        The function may be any function of all rows of a key: the least value, the three largest, a median. Weights are
        above 0, and a key without rows has no result. Each change of a key reads all its rows. The input rows are in a
        state called `name`.
        """
        check_name(name, "reduce")
        check_function(f"reduce '{name}'", function, "key", "values", iterates=True)
        check_serdes(f"reduce '{name}'", key=key, value=value)
        source = self._builder.by_key(self._node, name, key)
        node = self._builder.add(
            plan.Reduce, name, kind="relation", inputs=(source,), function=function, key=source.key, value=value
        )
        return Relation(self._builder, node)

    def to_table(self, name: str) -> "RelationTable[K, V]":
        """Make a table of the only row of each key, in a store called `name`.

        A key with several rows is not in the table until only one row remains; the table's `errors` names such keys.
        Two equal rows count as several; `distinct()` merges them. A row without a key, or with None as its value, is
        not in the table.
        """
        source = self._builder.by_key(self._node, check_name(name, "step"))
        node = self._builder.add(plan.OneRow, name, kind="table", inputs=(source,), **serdes(source))
        return RelationTable(self._builder, node)

    def at_one_owner(self, name: str) -> "Relation[K, V]":
        """Send all rows to a single partition, so that no downstream step sends them to other workers."""
        return Relation(self._builder, self._builder.at_one_owner(self._node, check_name(name, "step")))

    def _merge(self, nodes: tuple[plan.Node, ...], name: str | None) -> plan.Node:
        label = name or self._node.label
        nodes = self._builder.met(nodes, [f"{label}-union-{index}" for index in range(len(nodes))])
        return self._builder.anonymous(
            plan.Merge,
            "union",
            "relation",
            name,
            label=name or self._node.label,
            inputs=nodes,
            rekeyed=any(node.rekeyed for node in nodes),
            **serdes(self._node),
        )

    def _weight_function(self, node: plan.Node, form: str, name: str) -> "Relation[K, V]":
        source = self._builder.by_key(node, name)
        made = self._builder.add(
            plan.WeightFunction, name, kind="relation", inputs=(source,), form=form, **serdes(source)
        )
        return Relation(self._builder, made)

    def _transform(
        self,
        verb: str,
        function: Any,
        name: str | None,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        method: str = "",
    ) -> Any:
        node = self._builder.transform(self._node, verb, function, name, key, value, "relation", method)
        return Relation(self._builder, node)


class RecursiveRelation(Relation[K, V]):
    """The result of `recursively`: a relation, with the `errors` of the recursion."""

    @property
    def errors(self) -> Relation[str, str]:
        """The error of the recursion: a row (name of the recursion, message) while rows are held, otherwise no row.

        The message names the cycle, or the limit that was exceeded, and the remedy. If several partitions hold rows, it
        is the least of their messages. The first use of this property adds its steps to the topology.
        """
        recursion, builder = self._node, self._builder
        name = f"{recursion.name}-errors"
        for node in builder.plan.nodes:
            if node.role == "errors" and node.inputs == (recursion,):
                reduced = next(step for step in builder.plan.nodes if step.name == name)
                return Relation(builder, reduced)
        fields: dict[str, Any] = {"kind": "relation", "label": name, "key": String, "value": String}
        held = builder.add(plan.HeldErrors, f"{name}-held", inputs=(recursion,), rekeyed=True, **fields)
        told = Relation[str, str](builder, builder.at_one_owner(held, name))
        return told.reduce(lambda _, whys: [min(whys)], name, String, String)


class RelationTable(KTable[K, V]):
    """The result of `to_table`: a table, with the `errors` of keys with several rows."""

    @property
    def errors(self) -> KTable[K, str]:
        """A table of the keys with several rows, each with a message.

        The first use of this property adds its steps to the topology.
        """
        builder, name = self._builder, f"{self._node.name}-errors"
        made = next((node for node in builder.plan.nodes if node.name == name), None)
        if made is not None:
            return KTable(builder, made)
        source = self._node.inputs[0]
        rows = KGroupedTable[K, V](builder, source).count(f"{name}-counts")
        several = rows.filter(lambda key, count: count > 1, f"{name}-keys")
        return several.map_values(_Several(self._node.name), name, String)


class _Several:
    """A function that returns the message for a key with several rows."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, count: int) -> str:
        return (
            f"to_table '{self._name}': {count} rows have this key, and a table has one row for a key. Take rows away, "
            "or combine them: .distinct(), or .group_by_key() with .max(…), .top_k(…) or .aggregate(…)"
        )


def constant(
    builder: Builder, rows: Iterable[tuple[Any, Any]], name: str, key: Serde[Any] | None, value: Serde[Any] | None
) -> Relation[Any, Any]:
    """Add a relation of fixed rows: see `Topology.constant`."""
    pairs = check_rows(f"constant '{check_name(name, 'step')}'", rows, key, value)
    node = builder.add(plan.Constant, name, kind="relation", rows=pairs, rekeyed=True, key=key, value=value)
    return Relation(builder, node)


def _keeping(name: str, merge: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    def kept(key: Any, left: Any, right: Any) -> Any:
        row = merge(key, left, right)
        if row[0] != key:
            raise DataError(
                f"join '{name}': merge made the key {row[0]!r} of {key!r}; keeps_key=True says that it keeps it. "
                "Return the key as it is, or leave keeps_key out"
            )
        return row

    return kept
