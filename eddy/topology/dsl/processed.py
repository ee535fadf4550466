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
    """A collection of (K, V). Processors can take its records or, if it is a table, its changes."""

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
        """Pass the records one by one to processors, which forward records with any key.

        The records of a table are its changes: the new value of a key, or None for a deleted key.

        Args:
            factory: makes a processor, for each partition and whenever it has to be made again. For a check it is
                called twice at once. A processor has `process(record)` and may have `init(context)` and `close()`.
            stores: state stores, see `Topology.store`, and global tables, which can only be read; or their names.
            name: of the step. Schedules are in a state called `<name>-moments`.
            key: the serde of the keys that are forwarded.
            value: the serde of the values that are forwarded.
            weights: True passes a record of weight n once, with its weight; False passes it n times. With True, a
                change of a table is two records: the old row with weight -1, then the new row with weight 1.
            children: names of streams. The result is then a dict with a stream for each name. `forward(record, child)`
                passes a record on to the stream of this name, `forward(record)` to all.

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
        """Pass the records to processors as `process` does, but each forwarded record has the key of its input record.

        So records remain in their partition. In a punctuation a forwarded key has to be of the processor's partition.
        """
        rows = self._processed_rows(weights)
        node = add_processor(
            self._builder, rows, factory, stores, name, None, value, weights=weights, keeps_keys=True, children=children
        )
        return self._forwarded(node)

    def _processed_rows(self, weights: bool) -> plan.Node:
        """Return the step of the rows that processors take."""
        return self._node

    def _forwarded(self, step: plan.Process) -> Any:
        """Return the stream of all forwarded records or, if there are children, a stream for each child by its name."""
        from eddy.topology.dsl.stream import KStream

        if not step.children:
            return KStream(self._builder, step)
        fields = {"kind": "stream", "inputs": (step,), "rekeyed": step.rekeyed, **serdes(step)}
        nodes = {
            child: self._builder.add(plan.ChildStream, f"{step.name}-{child}", child=child, **fields)
            for child in step.children
        }
        return {child: KStream(self._builder, node) for child, node in nodes.items()}
