"""Grouped collections: what aggregates are taken over."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from eddy.errors import TopologyError
from eddy.serde import Int64, Serde
from eddy.topology import plan
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
        self._builder = builder
        self._node, self._key, self._value = node, key or node.key, value or node.value

    def _source(self, name: str) -> plan.Node:
        """The rows at the owners of their groups, with the serdes that the author named for them."""
        return self._builder.by_key(self._node, name, self._key, self._value)

    def count(self, name: str) -> "KTable[K, int]":
        """The number of rows of each group, in a store called `name`. A group without rows is not in it."""
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
    """Records by key. They are facts, so an aggregate only ever adds."""

    def reduce(self, reducer: Callable[[V, V], V], name: str) -> "KTable[K, V]":
        """Fold the values of each group by `reducer(aggregate, value)`, from its first value on."""
        return self._aggregate(name, self._value, initial=_nothing, adder=_Reduce(reducer), subtractor=None)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        name: str,
        value: Serde[A] | None = None,
    ) -> "KTable[K, A]":
        """Fold each group by `aggregator(key, value, aggregate)` from `initializer()` on.

        The function returns the next aggregate and leaves the old one as it was.
        """
        return self._aggregate(name, value, initial=initializer, adder=aggregator)


class KGroupedTable(_Grouped[K, V]):
    """Rows by key that come and go: of a table, or of a relation."""

    def reduce(self, adder: Callable[[V, V], V], subtractor: Callable[[V, V], V], name: str) -> "KTable[K, V]":
        """Fold the values of each group by `adder(aggregate, value)`; `subtractor` takes a value back."""
        _needs(subtractor, f"reduce '{name}'")
        return self._aggregate(
            name, self._value, initial=_nothing, adder=_Reduce(adder), subtractor=_Reduce(subtractor)
        )

    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        name: str,
        value: Serde[A] | None = None,
    ) -> "KTable[K, A]":
        """Fold each group by `adder(key, value, aggregate)`; `subtractor` takes a row back.

        Rows come and go in any order, so the two have to undo each other in any order: sums, not lists.
        """
        _needs(subtractor, f"aggregate '{name}'")
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


_START: Any = object()
