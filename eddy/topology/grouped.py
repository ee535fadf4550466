"""Grouped collections: the inputs of aggregates."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from eddy.errors import TopologyError
from eddy.serde import Int64, Serde
from eddy.topology import plan
from eddy.topology.arguments import check_function, check_serdes
from eddy.topology.builder import Builder

if TYPE_CHECKING:
    from eddy.topology.table import KTable

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

    def _source(self, name: str) -> plan.Node:
        """The rows at the owners of their groups, with the author's serdes."""
        return self._builder.by_key(self._node, name, self._key, self._value)

    def count(self, name: str) -> "KTable[K, int]":
        """The number of rows of each group, in a store called `name`. An empty group is absent."""
        from eddy.topology.table import KTable

        node = self._builder.add(
            plan.Count, name, kind="table", inputs=(self._source(name),), key=self._key, value=Int64
        )
        return KTable(self._builder, node)

    def _aggregate(self, name: str, value: Serde[Any] | None, **functions: Any) -> Any:
        from eddy.topology.table import KTable

        node = self._builder.add(
            plan.Aggregate,
            name,
            kind="table",
            inputs=(self._source(name),),
            key=self._key,
            value=value,
            **functions,
        )
        return KTable(self._builder, node)


class KGroupedStream(_Grouped[K, V]):
    """Records by key. They are facts, so an aggregate only ever adds.

    A record without a key or without a value is in no group: it is dropped, and counted by the worker.
    """

    def reduce(self, reducer: Callable[[V, V], V], name: str) -> "KTable[K, V]":
        """Fold the values of each group by `reducer(aggregate, value)`, starting with its first value.

        None deletes the group; its next value starts it again.
        """
        check_function(f"reduce '{name}'", reducer, "aggregate", "value", what="reducer")
        return self._aggregate(name, self._value, initial=_nothing, adder=_Reduce(reducer), subtractor=None)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        name: str,
        value: Serde[A] | None = None,
    ) -> "KTable[K, A]":
        """Fold each group by `aggregator(key, value, aggregate)`, starting with `initializer()`.

        The function returns the next aggregate and does not change the old one. None deletes the group; its next record
        starts it again.
        """
        check_function(f"aggregate '{name}'", initializer, what="initializer")
        check_function(f"aggregate '{name}'", aggregator, "key", "value", "aggregate", what="aggregator")
        return self._aggregate(name, value, initial=initializer, adder=aggregator)


class KGroupedTable(_Grouped[K, V]):
    """Rows by key, inserted and retracted: of a table, or of a relation. A row without a key is in no group."""

    def reduce(self, adder: Callable[[V, V], V], subtractor: Callable[[V, V], V], name: str) -> "KTable[K, V]":
        """Fold the values of each group by `adder(aggregate, value)`; `subtractor` retracts a value.

        None deletes the group; the next value starts it again.
        """
        _needs(subtractor, f"reduce '{name}'")
        for what, function in (("adder", adder), ("subtractor", subtractor)):
            check_function(f"reduce '{name}'", function, "aggregate", "value", what=what)
        return self._aggregate(
            name, self._value, initial=_nothing, adder=_Reduce(adder), subtractor=_TakeBack(subtractor)
        )

    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        name: str,
        value: Serde[A] | None = None,
    ) -> "KTable[K, A]":
        """Fold each group by `adder(key, value, aggregate)`; `subtractor` retracts a row.

        Rows are inserted and retracted in any order, so the two functions have to undo each other in any order: sums,
        not lists. None deletes the group; for the next call it is the same as the result of `initializer()`: None for a
        sum of 0.
        """
        _needs(subtractor, f"aggregate '{name}'")
        check_function(f"aggregate '{name}'", initializer, what="initializer")
        for what, function in (("adder", adder), ("subtractor", subtractor)):
            check_function(f"aggregate '{name}'", function, "key", "value", "aggregate", what=what)
        return self._aggregate(name, value, initial=initializer, adder=adder, subtractor=subtractor)


def _needs(subtractor: Any, where: str) -> None:
    if not callable(subtractor):
        raise TopologyError(
            f"{where}: rows of a table go away, and {subtractor!r} cannot take them back; a subtractor is needed. "
            f"Write e.g. {where.split()[0]}(..., lambda aggregate, value: aggregate - value, ...)"
        )


def _nothing() -> Any:
    return _START


class _Reduce:
    """A reducer as an adder: the first value of a group is its first aggregate."""

    def __init__(self, reducer: Callable[[Any, Any], Any]) -> None:
        self.reducer = reducer

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is _START else self.reducer(aggregate, value)


class _TakeBack(_Reduce):
    """A subtractor: after the reducer returned None there is no aggregate to subtract from."""

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        return None if aggregate is _START else self.reducer(aggregate, value)


_START: Any = object()
