"""Several grouped streams with the same keys, folded into one aggregate."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from eddy.errors import TopologyError
from eddy.operators.windows.windowed_fold import Emit
from eddy.serde import Native, Serde, Tuple
from eddy.topology.arguments import check_function, check_kind, check_name
from eddy.topology.dsl.builder import Builder, same_topology
from eddy.topology.dsl.grouped import KGroupedStream
from eddy.topology.plan import plan
from eddy.windows import Windowed, Windows

if TYPE_CHECKING:
    from eddy.topology.dsl.table import KTable

__all__ = ["CogroupedKStream", "WindowedCogroupedKStream"]

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
Aggregator = Callable[[Any, Any, Any], Any]
Part = tuple[KGroupedStream[Any, Any], Aggregator]


class CogroupedKStream(Generic[K, A]):
    """Grouped streams with the same keys; a function for each stream folds its records into one shared aggregate."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._parts: list[Part] = []

    def cogroup(self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, A], A]) -> "CogroupedKStream[K, A]":
        """Add a grouped stream. `aggregator(key, value, aggregate)` folds its records. Returns this object."""
        check_kind("cogroup", KGroupedStream, [grouped], "A stream becomes one by .group_by_key()")
        same_topology("cogroup", self._builder, [grouped._builder])
        check_function("cogroup", aggregator, "key", "value", "aggregate", what="aggregator")
        if grouped._windowed is not None:
            raise TopologyError(
                f"cogroup: the groups of '{grouped._node.label}' have windows already; groups without are needed. "
                "Write grouped.cogroup(…).windowed_by(…).aggregate(…)"
            )
        self._parts.append((grouped, aggregator))
        return self

    def windowed_by(
        self, windows: Windows, emit: Emit = "update", retention: timedelta = timedelta(0)
    ) -> "WindowedCogroupedKStream[K, A]":
        """Group the records of all streams by key and window, as `KGroupedStream.windowed_by` does.

        Raises: TopologyError if the streams have different serdes of keys, or for the reasons of that method.
        """
        names = list(dict.fromkeys((grouped._key or Native).name for grouped, _ in self._parts))
        if len(names) > 1:
            raise TopologyError(
                f"windowed_by after cogroup: the streams have keys of {' and '.join(names)}; one serde is needed, so "
                "that a key is in one partition. Name it on all: group_by_key(key=…)"
            )
        key = self._parts[0][0]._key
        marked = tuple(
            self._builder.transform(grouped._node, "map-values", _in_place(place, len(self._parts)), None)
            for place, (grouped, _) in enumerate(self._parts)
        )
        merged = self._builder.anonymous(
            plan.Merge,
            "merge",
            "stream",
            None,
            label=self._parts[0][0]._node.label,
            inputs=marked,
            rekeyed=any(node.rekeyed for node in marked),
            key=key,
            value=Tuple(*(grouped._value or Native for grouped, _ in self._parts)),
        )
        groups: KGroupedStream[Any, Any] = KGroupedStream(self._builder, merged, key, merged.value)
        aggregators = [aggregator for _, aggregator in self._parts]
        return WindowedCogroupedKStream(groups.windowed_by(windows, emit, retention), aggregators)

    def aggregate(self, initializer: Callable[[], A], name: str, value: Serde[A] | None = None) -> "KTable[K, A]":
        """Fold the records of all streams, starting with `initializer()`, in a store called `name`.

        None deletes the group; its next record starts it again.
        """
        check_function(f"cogroup '{check_name(name, 'step')}'", initializer, what="initializer")
        aggregators = [aggregator for _, aggregator in self._parts]
        marked = [
            self._builder.transform(grouped._source(f"{name}-{place}"), "map-values", _marked(place), None)
            for place, (grouped, _) in enumerate(self._parts)
        ]
        key = next((grouped._key for grouped, _ in self._parts if grouped._key), None)
        merged = self._builder.anonymous(plan.Merge, "merge", "stream", None, label=name, inputs=tuple(marked), key=key)

        def adder(key: Any, pair: tuple[int, Any], aggregate: Any) -> Any:
            place, record = pair
            return aggregators[place](key, record, aggregate)

        return KGroupedStream[K, Any](self._builder, merged)._aggregate(name, value, initial=initializer, adder=adder)


class WindowedCogroupedKStream(Generic[K, A]):
    """Grouped streams with the same keys, by key and window."""

    def __init__(self, groups: KGroupedStream[Any, Any], aggregators: list[Aggregator]) -> None:
        self._groups, self._aggregators = groups, aggregators

    def aggregate(
        self,
        initializer: Callable[[], A],
        name: str,
        value: Serde[A] | None = None,
        merger: Callable[[Any, A, A], A] | None = None,
    ) -> "KTable[Windowed[K], A]":
        """Fold the records of all streams in each window, as `KGroupedStream.aggregate` does with windows.

        Sessions need a `merger(key, aggregate, later aggregate)`.
        """
        aggregators = self._aggregators

        def adder(key: Any, values: tuple[Any, ...], aggregate: Any) -> Any:
            place = next(place for place, value in enumerate(values) if value is not None)
            return aggregators[place](key, values[place], aggregate)

        return self._groups.aggregate(initializer, adder, name, value, merger)


def _marked(place: int) -> Callable[[Any], tuple[int, Any] | None]:
    """Return a function that turns a value of a stream into the pair (`place`, value).

    None remains None, and is in no group.
    """
    return lambda value: None if value is None else (place, value)


def _in_place(place: int, count: int) -> Callable[[Any], tuple[Any, ...] | None]:
    """Return a function that puts a value into a tuple of `count` items, at `place`. All other items are None.

    So one serde fits the values of all streams.
    """
    before, after = (None,) * place, (None,) * (count - place - 1)
    return lambda value: None if value is None else (*before, value, *after)
