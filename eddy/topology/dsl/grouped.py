"""Grouped collections, from which aggregates are made."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args

from eddy.errors import TopologyError
from eddy.operators.sums import Summation
from eddy.operators.top_k import Selection
from eddy.operators.windows.window_values import CollectedValues, DifferentValues
from eddy.operators.windows.windowed_fold import Emit
from eddy.serde import Float64, Int64, Native, Serde, Tuple
from eddy.topology.arguments import check_choice, check_function, check_name, check_serdes, check_whole
from eddy.topology.dsl.builder import Builder
from eddy.topology.dsl.windowed_groups import assigned_windows, check_ends, merger_of, slide
from eddy.topology.plan import plan
from eddy.windows import SessionWindows, SlidingWindows, Windowed, Windows, check_span

if TYPE_CHECKING:
    from eddy.topology.dsl.cogrouped import CogroupedKStream
    from eddy.topology.dsl.collected import CollectedTable
    from eddy.topology.dsl.table import KTable

__all__ = ["KGroupedStream", "KGroupedTable"]

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


class _Grouped(Generic[K, V]):
    def __init__(
        self,
        builder: Builder,
        node: plan.Node,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
    ) -> None:
        check_serdes(f"group_by_key after '{node.label}'", key=key, value=value)
        self._builder = builder
        self._node, self._key, self._value = node, key or node.key, value or node.value

    _count: type[plan.Node] = plan.Count
    _fold: type[plan.Node] = plan.Aggregate
    _sum: type[plan.Node] = plan.Sum
    _merges = False
    """Whether the groups are of sessions."""

    def _add(self, node_type: type[plan.Node], name: str, **fields: Any) -> plan.Node:
        """Add a step that folds the rows of each group."""
        return self._builder.add(node_type, name, kind="table", key=self._key, **fields)

    def _source(self, name: str) -> plan.Node:
        """Return the step of the rows at the owners of their groups, with the author's serdes."""
        return self._builder.by_key(self._node, name, self._key, self._value)

    def count(self, name: str) -> "KTable[K, int]":
        """Count the rows of each group, in a store called `name`. An empty group has no row."""
        from eddy.topology.dsl.table import KTable

        node = self._add(self._count, name, inputs=(self._source(name),), value=Int64)
        return KTable(self._builder, node)

    def distinct_count(
        self, name: str, of: Callable[[V], Any] | None = None, value: Serde[Any] | None = None
    ) -> "KTable[K, int]":
        """Count the different results of `of(value)` in each group, or the different values, in a store called `name`.

        None does not count, and a group with nothing to count has no row. Values that are equal in Python, such as 1
        and 1.0, count once. `value` is the serde of the values that are counted. They are in a state called
        `<name>-distinct`, or for windows `<name>-values`, as long as a window can get records. A record in a session
        needs a value.
        Cost: O(1) for each changed row.
        """
        where = f"distinct_count '{check_name(name, 'step')}'"
        if of is not None:
            check_function(where, of, "value", what="of")
        check_serdes(where, value=value)
        return self._distinct(name, of, value)

    def _distinct(self, name: str, of: Any, value: Serde[Any] | None) -> Any:
        rows = self._present(name, of, value)
        once = self._builder.add(
            plan.WeightFunction,
            f"{name}-distinct",
            label=name,
            kind="relation",
            inputs=(rows,),
            form="distinct",
            key=rows.key,
            value=rows.value,
        )
        return KGroupedTable[K, Any](self._builder, once, self._key).count(name)

    def sum(self, name: str, of: Callable[[V], Any] | None = None, value: Serde[Any] | None = None) -> "KTable[K, Any]":
        """Add up the numbers `of(value)` of each group, or its values, in a store called `name`.

        The sum is exact, and a float is rounded once, at the end, so the result does not depend on the order of rows.
        Numbers are ints of any size, floats and Decimals. None is ignored, and a group without numbers has no row.
        `value` is the serde of the sums, by default the serde of the values if these are summed. The exact totals are
        in a state called `<name>-totals`. A row whose value is no number is an error of this row.
        Cost: O(1) for each changed row.
        """
        given = self._value if value is None and of is None else value
        return self._summed(name, of, given, mean=False)

    def avg(
        self, name: str, of: Callable[[V], Any] | None = None, value: Serde[Any] | None = None
    ) -> "KTable[K, float]":
        """Compute the mean of the numbers `of(value)` of each group, as a float with serde `value`. See `sum`."""
        return self._summed(name, of, Float64 if value is None else value, mean=True)

    def _summed(self, name: str, of: Any, value: Serde[Any] | None, mean: bool) -> Any:
        from eddy.topology.dsl.table import KTable

        verb, types = ("avg", {None, float}) if mean else ("sum", {None, int, float, Decimal})
        where = f"{verb} '{check_name(name, 'step')}'"
        if of is not None:
            check_function(where, of, "value", what="of")
        check_serdes(where, value=value)
        if value is not None and value.type not in types:
            needed = "a serde of float" if mean else "a serde of int, float or Decimal"
            raise TopologyError(
                f"{where}: the serde {value.name} writes no {'means' if mean else 'sums'}; {needed} is needed. Name "
                "the number of a value, of=lambda value: …, or another serde, value=eddy.Float64"
            )
        source = self._source(name)
        summation = Summation(name, mean, of, None if value is None else value.type, self._merges)
        return KTable(self._builder, self._add(self._sum, name, inputs=(source,), value=value, summation=summation))

    def collect(
        self,
        name: str,
        by: Callable[[V], Any] | None = None,
        *,
        max: int,
        value: Serde[tuple[V, ...]] | None = None,
    ) -> "CollectedTable[K, V]":
        """Collect the values of each group in a tuple, in the order of `by(value)`, in a store called `name`.

        The least value is first and, among values with equal `by`, the value with the lesser bytes. Weights and None
        count as in `top_k`. A group with more than `max` values is not in the table; the table's `errors` names such
        groups. Values of windows are in a state called `<name>-values` as long as a window can get records.
        Cost: O(log n) for each change, and the values of the result.
        """
        where = f"collect '{check_name(name, 'step')}'"
        check_whole(where, 1, optional=False, max=max)
        if by is not None:
            check_function(where, by, "value", what="by")
        check_serdes(where, value=value)
        of = value or (Tuple(self._value, ...) if self._value else None)
        return self._collected(name, max, by, of)

    def _collected(self, name: str, most: int, by: Any, value: Serde[Any] | None) -> Any:
        from eddy.topology.dsl.collected import CollectedTable

        rows = self._present(name, None, None)
        selection = Selection(name, most, False, by, rows.value or Native, whole=True)
        node = self._add(plan.TopK, name, inputs=(rows,), value=value, selection=selection)
        return CollectedTable(self._builder, node, selection, KGroupedTable[K, V](self._builder, rows, self._key).count)

    def _present(self, name: str, of: Any, value: Serde[Any] | None) -> plan.Node:
        """Return the step of the results of `of(value)`, or of the values, that are not None."""
        source = self._source(name)
        serde = value or (source.value if of is None else None)
        return self._builder.transform(
            source, "flat-map-values", _Present(of), f"{name}-values", None, serde, kind="relation"
        )

    def top_k(
        self, n: int, name: str, by: Callable[[V], Any] | None = None, value: Serde[tuple[V, ...]] | None = None
    ) -> "KTable[K, tuple[V, ...]]":
        """Keep the `n` greatest values of each group by `by(value)`, the greatest first, in a store called `name`.

        Without `by` the values themselves are compared. Among values with equal `by`, the value with the greater bytes
        is first. A value with weight 2 is in the result twice. Values of None are ignored.
        Cost: O(log n) for each change of a group with n values.
        """
        check_whole(f"top_k '{check_name(name, 'step')}'", 1, optional=False, n=n)
        of = value or (Tuple(self._value, ...) if self._value else None)
        return self._first("top_k", name, n, True, by, of)

    def min(self, name: str, by: Callable[[V], Any] | None = None) -> "KTable[K, V]":
        """Keep the least value of each group by `by(value)`, in a store called `name`. See `top_k`."""
        return self._first("min", name, None, False, by, self._value)

    def max(self, name: str, by: Callable[[V], Any] | None = None) -> "KTable[K, V]":
        """Keep the greatest value of each group by `by(value)`, in a store called `name`. See `top_k`."""
        return self._first("max", name, None, True, by, self._value)

    def latest(self, name: str, by: Callable[[V], Any] | None = None) -> "KTable[K, V]":
        """Keep the value with the greatest `by(value)` of each group, in a store called `name`.

        `by` returns the time of a value, and has to be given: so the result does not depend on the order of arrival.
        """
        if by is None:
            raise TopologyError(
                f"latest '{check_name(name, 'step')}': by=None; the time of a value is needed, since rows arrive in "
                "any order. Write by=lambda value: value.time. For the last record of each key: stream.to_table()"
            )
        return self._first("latest", name, None, True, by, self._value)

    def _first(self, verb: str, name: str, n: int | None, descending: bool, by: Any, value: Serde[Any] | None) -> Any:
        from eddy.topology.dsl.table import KTable

        where = f"{verb} '{check_name(name, 'step')}'"
        if by is not None:
            check_function(where, by, "value", what="by")
        source = self._source(name)
        selection = Selection(name, n, descending, by, source.value or Native)
        fields: dict[str, Any] = {"inputs": (source,), "value": value}
        if source.kind == "stream":  # facts are never retracted, so only the first values have to be stored
            fold = {"initial": selection.nothing, "adder": selection.adding, "commutes": True, "selection": selection}
            return KTable(self._builder, self._add(self._fold, name, **fields, **fold))
        return KTable(self._builder, self._add(plan.TopK, name, **fields, selection=selection))

    def _aggregate(self, name: str, value: Serde[Any] | None, **functions: Any) -> Any:
        from eddy.topology.dsl.table import KTable

        node = self._add(self._fold, name, inputs=(self._source(name),), value=value, **functions)
        return KTable(self._builder, node)


class KGroupedStream(_Grouped[K, V]):
    """Records by key. Records are never retracted, so an aggregate needs no function that subtracts.

    A record without a key or without a value is in no group. It is dropped, and the worker counts it.
    """

    _values: type[plan.Node] = plan.WindowedValues
    _windowed: dict[str, Any] | None = None
    """The fields of the steps that fold windows."""

    def windowed_by(
        self, windows: Windows, emit: Emit = "update", retention: timedelta = timedelta(0)
    ) -> "KGroupedStream[Windowed[K], V]":
        """Group by key and window. The keys are then `Windowed(key, start_ms, end_ms)`.

        A record is in the windows that contain its timestamp. It is late for a window, and not in it, if its source
        partition already has a timestamp of `windows.grace` after the window's end; `late_records` counts this. A
        window closes when all source partitions from which its records may come have such a timestamp.

        Args:
            windows: `TimeWindows(size, advance, grace)`, `CalendarWindows(unit, zone, grace)`,
                `SlidingWindows(difference, grace)`, `SessionWindows(gap, grace)` or `UnlimitedWindows(start)`. Sessions
                merge, and so do their aggregates.
            emit: `update` emits a window's row after each epoch that changes it; `close` emits the row of each window
                once, when the window closes. Nothing is retracted when a window closes.
            retention: the event time for which a closed window's row is kept in the table, after the window's end.

        Raises: TopologyError if the rows are not records of a source.
        """
        where = f"windowed_by after '{self._node.label}'"
        if self._windowed is not None:
            raise TopologyError(f"{where}: the groups have windows already; one windowed_by is possible")
        check_choice(where, get_args(Emit), emit=emit)
        check_span(f"{where}: retention", retention, timedelta(0), "timedelta(days=1)")
        check_ends(where, windows, emit, retention)
        assigned = assigned_windows(where, self._builder, self._node, self._key, self._value, windows)
        key = windows.serde(assigned.inner_key)
        groups = KGroupedStream[Windowed[K], V](self._builder, assigned, key, self._value)
        groups._merges = isinstance(windows, SessionWindows)
        groups._count, groups._fold, groups._sum, groups._values = _OF_SESSIONS if groups._merges else _OF_WINDOWS
        groups._windowed = {
            "assigned": assigned,
            "emit": emit,
            "retention_ms": retention // timedelta(milliseconds=1),
        }
        return groups

    def _source(self, name: str) -> plan.Node:
        assigned = None if self._windowed is None else self._windowed["assigned"]
        if assigned is None or not isinstance(assigned.windows, SlidingWindows):
            return super()._source(name)
        return slide(self._builder, name, assigned, self._key, self._value)

    def _distinct(self, name: str, of: Any, value: Serde[Any] | None) -> Any:
        if self._windowed is None:
            return super()._distinct(name, of, value)
        from eddy.topology.dsl.table import KTable

        source = self._source(name)
        kept = value or (source.value if of is None else None) or Native
        values = DifferentValues(name, of, kept, required=self._merges)
        return KTable(self._builder, self._add(self._values, name, inputs=(source,), value=Int64, values=values))

    def _collected(self, name: str, most: int, by: Any, value: Serde[Any] | None) -> Any:
        if self._windowed is None:
            return super()._collected(name, most, by, value)
        from eddy.topology.dsl.collected import CollectedTable
        from eddy.topology.dsl.table import KTable

        source = self._source(name)
        selection = Selection(name, most, False, by, source.value or Native, whole=True)
        values = CollectedValues(selection)
        node = self._add(self._values, name, inputs=(source,), value=value, values=values)

        def counts(name: str) -> KTable[K, int]:
            return KTable(self._builder, self._add(self._count, name, inputs=(source,), value=Int64))

        return CollectedTable(self._builder, node, selection, counts)

    def _add(self, node_type: type[plan.Node], name: str, **fields: Any) -> plan.Node:
        if self._merges and node_type is self._fold:
            fields["merger"] = merger_of(name, fields)
        elif fields.pop("merger", None) is not None:
            raise TopologyError(f"aggregate '{name}': merger= merges sessions, and there are none; remove it")
        return super()._add(node_type, name, **fields, **(self._windowed or {}))

    def reduce(self, reducer: Callable[[V, V], V], name: str) -> "KTable[K, V]":
        """Fold the values of each group by `reducer(aggregate, value)`, starting with its first value.

        None deletes the group; its next value starts it again.
        """
        check_name(name, "reduce")
        check_function(f"reduce '{name}'", reducer, "aggregate", "value", what="reducer")
        functions = {"initial": _nothing, "adder": _Reduce(reducer), "subtractor": None, "reducers": (reducer, None)}
        return self._aggregate(name, self._value, **functions)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        name: str,
        value: Serde[A] | None = None,
        merger: Callable[[Any, A, A], A] | None = None,
    ) -> "KTable[K, A]":
        """Fold each group by `aggregator(key, value, aggregate)`, starting with `initializer()`.

        The function returns the next aggregate and does not change the old one. None deletes the group; its next record
        starts it again. Sessions need a `merger(key, aggregate, later aggregate)`. Then merger and aggregator have to
        give the same result in any order. These functions get keys without a window.
        """
        check_name(name, "aggregate")
        check_function(f"aggregate '{name}'", initializer, what="initializer")
        check_function(f"aggregate '{name}'", aggregator, "key", "value", "aggregate", what="aggregator")
        if merger is not None:
            check_function(f"aggregate '{name}'", merger, "key", "aggregate", "other", what="merger")
        merging = {} if merger is None else {"merger": merger}
        return self._aggregate(name, value, initial=initializer, adder=aggregator, **merging)

    def cogroup(self, aggregator: Callable[[K, V, A], A]) -> "CogroupedKStream[K, A]":
        """Begin an aggregate of several grouped streams with this stream, whose records `aggregator` folds.

        `aggregator(key, value, aggregate)` is as in `aggregate`.
        """
        if self._windowed is not None:
            raise TopologyError(
                f"cogroup after '{self._node.label}': the groups have windows already; groups without are needed. "
                "Write grouped.cogroup(…).windowed_by(…).aggregate(…)"
            )
        from eddy.topology.dsl.cogrouped import CogroupedKStream

        made: CogroupedKStream[K, A] = CogroupedKStream(self._builder)
        return made.cogroup(self, aggregator)


class _Present:
    """A function from a value to a list: with `of(value)`, or with the value itself, as the only item.

    If this item would be None, the list is empty.
    """

    def __init__(self, of: Callable[[Any], Any] | None) -> None:
        self._of = of

    def __call__(self, value: Any) -> list[Any]:
        found = value if value is None or self._of is None else self._of(value)
        return [] if found is None else [found]


class KGroupedTable(_Grouped[K, V]):
    """The rows of a table or a relation, by key, inserted and retracted. A row without a key is in no group."""

    def reduce(self, adder: Callable[[V, V], V], subtractor: Callable[[V, V], V], name: str) -> "KTable[K, V]":
        """Fold the values of each group by `adder(aggregate, value)`; `subtractor` retracts a value.

        None deletes the group; the next value starts it again.
        """
        check_name(name, "reduce")
        _needs(subtractor, f"reduce '{name}'")
        for what, function in (("adder", adder), ("subtractor", subtractor)):
            check_function(f"reduce '{name}'", function, "aggregate", "value", what=what)
        functions = {"initial": _nothing, "adder": _Reduce(adder), "subtractor": _TakeBack(subtractor)}
        return self._aggregate(name, self._value, **functions, reducers=(adder, subtractor))

    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        name: str,
        value: Serde[A] | None = None,
    ) -> "KTable[K, A]":
        """Fold each group by `adder(key, value, aggregate)`; `subtractor` retracts a row.

        Rows are inserted and retracted in any order, so the two functions have to undo each other in any order: they
        can compute sums, but not lists. None deletes the group, and the next call starts from `initializer()` again. So
        None may only be returned for an aggregate that equals `initializer()`, such as a sum of 0.
        """
        check_name(name, "aggregate")
        _needs(subtractor, f"aggregate '{name}'")
        check_function(f"aggregate '{name}'", initializer, what="initializer")
        for what, function in (("adder", adder), ("subtractor", subtractor)):
            check_function(f"aggregate '{name}'", function, "key", "value", "aggregate", what=what)
        return self._aggregate(name, value, initial=initializer, adder=adder, subtractor=subtractor)


def _needs(subtractor: Any, where: str) -> None:
    if not callable(subtractor):
        raise TopologyError(
            f"{where}: rows of a table are removed, and {subtractor!r} cannot retract them; a subtractor is needed. "
            f"Write e.g. {where.split()[0]}(..., lambda aggregate, value: aggregate - value, ...)"
        )


_OF_WINDOWS = plan.WindowedCount, plan.WindowedAggregate, plan.WindowedSum, plan.WindowedValues
_OF_SESSIONS = plan.SessionCount, plan.SessionAggregate, plan.SessionSum, plan.SessionValues


def _nothing() -> Any:
    return _START


class _Reduce:
    """Turns a reducer into an adder: the first value of a group becomes its aggregate."""

    def __init__(self, reducer: Callable[[Any, Any], Any]) -> None:
        self.reducer = reducer

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is _START else self.reducer(aggregate, value)


class _TakeBack(_Reduce):
    """Turns a reducer into a subtractor. If the reducer has returned None, there is no aggregate to subtract from."""

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        return None if aggregate is _START else self.reducer(aggregate, value)


_START: Any = object()
