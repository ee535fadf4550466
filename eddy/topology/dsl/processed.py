"""Processors of a KStream or a KTable: `process` and `process_values`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from eddy.operators.processors.task import Factory
from eddy.serde import Serde
from eddy.topology.dsl.builder import Builder, serdes
from eddy.topology.dsl.processor_builder import Stores, add_processor
from eddy.topology.plan import plan

if TYPE_CHECKING:
    from eddy.topology.dsl.stream import KStream

__all__ = ["Processed"]

K = TypeVar("K")
V = TypeVar("V")


class Processed(Generic[K, V]):
    """A collection of (K, V) whose records, or changes, can be taken by processors."""

    def __init__(self, builder: Builder, node: plan.Node) -> None:
        self._builder, self._node = builder, node

    @overload
    def process(
        self,
        factory: Factory,
        stores: Stores = (),
        name: str | None = None,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        weights: bool = False,
        children: None = None,
    ) -> "KStream[Any, Any]": ...

    @overload
    def process(
        self,
        factory: Factory,
        stores: Stores = (),
        name: str | None = None,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        weights: bool = False,
        *,
        children: Iterable[str],
    ) -> "dict[str, KStream[Any, Any]]": ...

    def process(
        self,
        factory: Factory,
        stores: Stores = (),
        name: str | None = None,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        weights: bool = False,
        children: Iterable[str] | None = None,
    ) -> Any:
        """The records, taken one by one by processors, which forward records with any key.

        A table's records are its changes: the new value of a key, None for a deleted one.

        Args:
            factory: makes a processor, for each partition and whenever one is made anew; it is called twice at once, to
                be checked. A processor has `process(record)` and may have `init(context)` and `close()`.
            stores: state stores, see `Topology.store`, and global tables, which are read only; or their names.
            name: of the step. Schedules are in a state called `<name>-moments`.
            key: the serde of the keys that are forwarded.
            value: the serde of the values.
            weights: pass a record of weight n once, with its weight; otherwise n times. Of a table: pass its rows, a
                replaced one with weight -1, then the new one with 1.
            children: names of streams. The result is then a dict with a stream for each of them:
                `forward(record, child)` passes a record on to this one, `forward(record)` to all.

        Raises: TopologyError.
        """
        rows = self._processed_rows(weights)
        node = add_processor(
            self._builder, rows, factory, stores, name, key, value, weights=weights, keeps_keys=False, children=children
        )
        return self._forwarded(node)

    @overload
    def process_values(
        self,
        factory: Factory,
        stores: Stores = (),
        name: str | None = None,
        value: Serde[Any] | None = None,
        weights: bool = False,
        children: None = None,
    ) -> "KStream[K, Any]": ...

    @overload
    def process_values(
        self,
        factory: Factory,
        stores: Stores = (),
        name: str | None = None,
        value: Serde[Any] | None = None,
        weights: bool = False,
        *,
        children: Iterable[str],
    ) -> "dict[str, KStream[K, Any]]": ...

    def process_values(
        self,
        factory: Factory,
        stores: Stores = (),
        name: str | None = None,
        value: Serde[Any] | None = None,
        weights: bool = False,
        children: Iterable[str] | None = None,
    ) -> Any:
        """As `process`, but a forwarded record has the key of its record, so that records remain in their partition.

        In a punctuation: a key of the processor's partition.
        """
        rows = self._processed_rows(weights)
        node = add_processor(
            self._builder, rows, factory, stores, name, None, value, weights=weights, keeps_keys=True, children=children
        )
        return self._forwarded(node)

    def _processed_rows(self, weights: bool) -> plan.Node:
        """The rows that processors take."""
        return self._node

    def _forwarded(self, step: plan.Process) -> Any:
        """The stream of all records that are forwarded, or a stream for each child by its name."""
        from eddy.topology.dsl.stream import KStream

        if not step.children:
            return KStream(self._builder, step)
        fields = {"kind": "stream", "inputs": (step,), "rekeyed": step.rekeyed, **serdes(step)}
        nodes = {
            child: self._builder.add(plan.ChildStream, f"{step.name}-{child}", child=child, **fields)
            for child in step.children
        }
        return {child: KStream(self._builder, node) for child, node in nodes.items()}
