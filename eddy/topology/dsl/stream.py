"""KStream: facts that happened. Names and their meaning follow Kafka Streams, in snake_case."""

import warnings
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, TypeVar, overload

from eddy.errors import TopologyError
from eddy.operators.bound import Bound
from eddy.operators.processors.record import RecordContext
from eddy.operators.row_clocks import ExpiryClock
from eddy.serde import Serde
from eddy.topology.arguments import (
    check_flag,
    check_function,
    check_kind,
    check_names,
    check_serdes,
    check_whole,
    name_or,
)
from eddy.topology.dsl.addressing import addressed, of_topic
from eddy.topology.dsl.async_maps import AsyncMaps
from eddy.topology.dsl.builder import same_topology, serdes
from eddy.topology.dsl.deduplicated import deduplicated
from eddy.topology.dsl.grouped import KGroupedStream
from eddy.topology.dsl.recursion_builder import close_recursion
from eddy.topology.dsl.table import KTable, add_sink
from eddy.topology.dsl.with_record import FromKey, FromValue, FromValueByName, check_of_row, first_of
from eddy.topology.plan import plan
from eddy.topology.plan.expiring_tables import check_expiry

if TYPE_CHECKING:
    from typing_extensions import TypeIs

__all__ = ["KStream"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
R = TypeVar("R")
_OfRow = Callable[[K, V], R] | Callable[[K, V, RecordContext], R]
"""A function of a key and a value, and of the record if it has a parameter named `record`."""


class KStream(AsyncMaps[K, V]):
    """A stream of records (K, V). Functions are called with each record and must not change it.

    A function that needs a parameter named `record` gets the record's `RecordContext`: its topic, partition, offset,
    timestamp and headers. This is allowed while records are in the partitions of their source.
    """

    @overload
    def filter(self, predicate: Callable[[K, V], Any], name: str | None = None) -> "KStream[K, V]": ...

    @overload
    def filter(self, predicate: Callable[[K, V, RecordContext], Any], name: str | None = None) -> "KStream[K, V]": ...

    @overload
    def filter(self, predicate: Callable[[V], TypeGuard[V2]], name: str | None = None) -> "KStream[K, V2]": ...

    @overload
    def filter(self, predicate: "Callable[[V], TypeIs[V2]]", name: str | None = None) -> "KStream[K, V2]": ...

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Any:
        """Keep the records for which `predicate(key, value)` is true.

        If it takes the value alone and is annotated to return a `TypeGuard` or `TypeIs`, the values' type is narrowed.
        """
        return self._transform("filter", predicate, name)

    @overload
    def filter_not(self, predicate: Callable[[K, V], Any], name: str | None = None) -> "KStream[K, V]": ...

    @overload
    def filter_not(
        self, predicate: Callable[[K, V, RecordContext], Any], name: str | None = None
    ) -> "KStream[K, V]": ...

    def filter_not(self, predicate: Callable[..., Any], name: str | None = None) -> Any:
        """Drop the records for which `predicate(key, value)` is true."""
        return self._transform("filter-not", predicate, name)

    @overload
    def map(
        self,
        function: Callable[[K, V], tuple[K2, V2]],
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
    ) -> "KStream[K2, V2]": ...

    @overload
    def map(
        self,
        function: Callable[[K, V, RecordContext], tuple[K2, V2]],
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
    ) -> "KStream[K2, V2]": ...

    def map(
        self,
        function: Callable[..., Any],
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
    ) -> Any:
        """Replace each record by `function(key, value)`, a pair (key, value)."""
        return self._transform("map", function, name, key, value)

    @overload
    def map_values(
        self, function: Callable[[V], V2], name: str | None = None, value: Serde[V2] | None = None
    ) -> "KStream[K, V2]": ...

    @overload
    def map_values(
        self, function: FromValue[V, V2], name: str | None = None, value: Serde[V2] | None = None
    ) -> "KStream[K, V2]": ...

    @overload
    def map_values(
        self, function: FromValueByName[V, V2], name: str | None = None, value: Serde[V2] | None = None
    ) -> "KStream[K, V2]": ...

    @overload
    def map_values(
        self, function: Callable[[K, V, RecordContext], V2], name: str | None = None, value: Serde[V2] | None = None
    ) -> "KStream[K, V2]": ...

    @overload
    def map_values(
        self, function: FromKey[K, V, V2], name: str | None = None, value: Serde[V2] | None = None
    ) -> "KStream[K, V2]": ...

    def map_values(self, function: Callable[..., Any], name: str | None = None, value: Serde[Any] | None = None) -> Any:
        """Replace each value by `function(value)`; the key is kept, so that records remain in their partition.

        A function whose first parameter is named `key` is called with `function(key, value)`. A function that needs a
        parameter named `record` also gets the record's `RecordContext`.
        """
        return self._transform("map-values", function, name, None, value)

    @overload
    def flat_map(
        self,
        function: Callable[[K, V], Iterable[tuple[K2, V2]]],
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
    ) -> "KStream[K2, V2]": ...

    @overload
    def flat_map(
        self,
        function: Callable[[K, V, RecordContext], Iterable[tuple[K2, V2]]],
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
    ) -> "KStream[K2, V2]": ...

    def flat_map(
        self,
        function: Callable[..., Any],
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
    ) -> Any:
        """Replace each record by the pairs of `function(key, value)`, any number of them."""
        return self._transform("flat-map", function, name, key, value)

    @overload
    def flat_map_values(
        self, function: Callable[[V], Iterable[V2]], name: str | None = None, value: Serde[V2] | None = None
    ) -> "KStream[K, V2]": ...

    @overload
    def flat_map_values(
        self, function: FromValue[V, Iterable[V2]], name: str | None = None, value: Serde[V2] | None = None
    ) -> "KStream[K, V2]": ...

    @overload
    def flat_map_values(
        self, function: FromValueByName[V, Iterable[V2]], name: str | None = None, value: Serde[V2] | None = None
    ) -> "KStream[K, V2]": ...

    @overload
    def flat_map_values(
        self,
        function: Callable[[K, V, RecordContext], Iterable[V2]],
        name: str | None = None,
        value: Serde[V2] | None = None,
    ) -> "KStream[K, V2]": ...

    @overload
    def flat_map_values(
        self, function: FromKey[K, V, Iterable[V2]], name: str | None = None, value: Serde[V2] | None = None
    ) -> "KStream[K, V2]": ...

    def flat_map_values(
        self, function: Callable[..., Any], name: str | None = None, value: Serde[Any] | None = None
    ) -> Any:
        """Replace each record by a record for each value of `function(value)`, with the same key. See `map_values`."""
        return self._transform("flat-map-values", function, name, None, value)

    @overload
    def select_key(
        self, function: Callable[[K, V], K2], name: str | None = None, key: Serde[K2] | None = None
    ) -> "KStream[K2, V]": ...

    @overload
    def select_key(
        self, function: Callable[[K, V, RecordContext], K2], name: str | None = None, key: Serde[K2] | None = None
    ) -> "KStream[K2, V]": ...

    def select_key(self, function: Callable[..., Any], name: str | None = None, key: Serde[K2] | None = None) -> Any:
        """Give each record the key `function(key, value)`."""
        return self._transform("select-key", function, name, key)

    @overload
    def peek(self, function: Callable[[K, V], object], name: str | None = None) -> "KStream[K, V]": ...

    @overload
    def peek(self, function: Callable[[K, V, RecordContext], object], name: str | None = None) -> "KStream[K, V]": ...

    def peek(self, function: Callable[..., Any], name: str | None = None) -> Any:
        """Call `function(key, value)` for its effect, at least once a record: it is called again after an abort."""
        return self._transform("peek", function, name)

    @overload
    def foreach(self, function: Callable[[K, V], object], name: str | None = None) -> None: ...

    @overload
    def foreach(self, function: Callable[[K, V, RecordContext], object], name: str | None = None) -> None: ...

    def foreach(self, function: Callable[..., Any], name: str | None = None) -> None:
        """End the branch by calling `function(key, value)`, at least once a record."""
        self._transform("peek", function, name, method="foreach")

    def merge(self, *others: "KStream[K, V]", name: str | None = None) -> "KStream[K, V]":
        """Return all records of this stream and of `others`; each stream keeps its own order."""
        check_kind(f"merge after '{self._node.label}'", KStream, others, "A table becomes one by .to_stream()")
        same_topology("merge", self._builder, [other._builder for other in others])
        nodes = (self._node, *(other._node for other in others))
        node = self._builder.anonymous(
            plan.Merge,
            "merge",
            "stream",
            name,
            label=name or self._node.label,
            inputs=nodes,
            rekeyed=any(n.rekeyed for n in nodes),
            **serdes(self._node),
        )
        return KStream(self._builder, node)

    def split(self, **branches: _OfRow[K, V, Any]) -> "dict[str, KStream[K, V]]":
        """Make a stream for each predicate, by name. A record is in the stream of the first predicate that is true.

        Without a true predicate it is in none.

        A last branch `default=lambda key, value: True` gets all other records.
        """
        result: dict[str, KStream[K, V]] = {}
        earlier: list[Callable[..., Any]] = []
        for name, predicate in branches.items():
            check_of_row(f"split after '{self._node.label}'", predicate, what=name)
            earlier.append(predicate)
            result[name] = self.filter(first_of(tuple(earlier)))
        return result

    def branch(self, **branches: _OfRow[K, V, Any]) -> "dict[str, KStream[K, V]]":
        """Deprecated: `split` under an old name of Kafka Streams."""
        warnings.warn("KStream.branch is called split", DeprecationWarning, stacklevel=2)
        return self.split(**branches)

    def repartition(
        self,
        partitions: int | None = None,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> "KStream[K, V]":
        """Move each record to the owner of its key, through a topic with `partitions` partitions."""
        where = f"repartition after '{self._node.label}'"
        check_whole(where, 1, partitions=partitions)
        check_serdes(where, key=key, value=value)
        name = name_or(name, self._node.label)
        node = self._builder.add(
            plan.Exchange,
            f"{name}-repartition",
            label=name,
            kind="stream",
            inputs=(self._node,),
            key=key or self._node.key,
            value=value or self._node.value,
            partitions=partitions,
        )
        return KStream(self._builder, node)

    def to(
        self,
        topic: str | Callable[[K, V], str] | Callable[[K, V, RecordContext], str],
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        topics: Iterable[str] | None = None,
        partitioner: Callable[[K, V, int], int] | None = None,
    ) -> None:
        """Write each record to `topic`, a topic of the user's that has to exist.

        If `topic` is a function, the topic is `topic(key, value)`, which has to be in `topics`; another topic is an
        error. `partitioner(key, value, partitions)` chooses the record's partition, from 0 to `partitions - 1`. Without
        it the key decides, as with Kafka's producers.
        """
        where = f"to after '{self._node.label}'"
        if partitioner is not None:
            check_function(where, partitioner, "key", "value", "partitions", what="partitioner")
        if isinstance(topic, str) or not callable(topic):
            if topics is not None:
                raise TopologyError(f"{where}: topics={topics!r}; topic= has to be a function then")
            add_sink(self._builder, self._node, topic, key, value, partitioner)
            return
        if topics is None:
            raise TopologyError(
                f"{where}: topic={topic!r} is a function, and topics=None; the topics that it may name are needed. "
                "Write topics=['one', 'other']"
            )
        names = check_names(f"{where}: topics", topics)
        check_of_row(where, topic, what="topic")
        check_serdes(where, key=key, value=value)
        chosen: KStream[K, tuple[str, V]] = self.map_values(addressed(topic, names))
        for name in names:
            part: KStream[K, V] = chosen.flat_map_values(of_topic(name))
            add_sink(self._builder, part._node, name, key, value or self._node.value, partitioner)

    def to_table(
        self,
        name: str | None = None,
        expire_after: timedelta | None = None,
        expire_by: ExpiryClock | None = None,
    ) -> KTable[K, V]:
        """Make a table of the latest value of each key, in a store called `name`. A value of None deletes the key.

        With `expire_after` a row is removed once this span has passed since the timestamp of its record. A later record
        of the key replaces the row and its deadline, even if the value is the same.

        Args:
            name: the name of the table.
            expire_after: a span of a millisecond or more.
            expire_by: `event time` is the greatest timestamp read from the row's source partition, so the rows depend
                on the input alone; `wall clock` is the time at which the worker runs, and advances without input.

        Raises: TopologyError if rows do not have the timestamp of a record or, by event time, are no longer in their
        source's partitions.
        """
        name = name_or(name, f"{self._node.label}-table")
        kind: type[plan.Node] = plan.Upsert
        fields: dict[str, Any] = {}
        if expire_after is not None or expire_by is not None:
            source = check_expiry(f"to_table '{name}'", self._node, expire_after, expire_by)
            kind, fields = plan.ExpiringTable, {"after": expire_after, "clock": expire_by, "source": source}
        facts = self._builder.by_key(self._node, name)
        node = self._builder.add(kind, name, kind="table", inputs=(facts,), **serdes(facts), **fields)
        return KTable(self._builder, node)

    def deduplicate(
        self,
        by: _OfRow[K, V, K2] | None = None,
        *,
        within: timedelta,
        grace: timedelta = timedelta(0),
        name: str | None = None,
        key: Serde[K2] | None = None,
    ) -> "KStream[K, V]":
        """Keep the first record of each `by(key, value)`; drop other records less than `within` before or after it.

        Records are ordered by event time: at each record, the greatest timestamp read so far from its partition. So the
        records of one partition keep their order. A record is kept if no record with the same `by` value was kept whose
        timestamp is less than `within` from its own. A record waits until all source partitions have reached its event
        time. Without `by`, and without an exchange before, it waits only for the partitions that can have its key.

        Args:
            by: makes the value by which duplicates are found, by default the record's key. A record for which `by`
                returns None is dropped.
            within: a span of a millisecond or more.
            grace: a record is late, and dropped, if its partition already has a timestamp of `within` and `grace` after
                the record's own. `statistics.late` counts late records, `statistics.duplicates` other dropped records.
            name: of the step; its states are called `<name>-passed`, `<name>-waiting` and so on.
            key: the serde of `by` values.

        Raises: TopologyError if rows are not the records of a source.
        """
        node = deduplicated(self._builder, self._node, by, within, grace, name, key)
        return KStream(self._builder, node)

    def group_by_key(self, key: Serde[K] | None = None, value: Serde[V] | None = None) -> KGroupedStream[K, V]:
        """Group the records by their keys; `key` and `value` are the serdes of the groups' keys and values."""
        return KGroupedStream(self._builder, self._node, key, value)

    @overload
    def group_by(
        self, function: Callable[[K, V], K2], key: Serde[K2] | None = None, value: Serde[V] | None = None
    ) -> KGroupedStream[K2, V]: ...

    @overload
    def group_by(
        self, function: Callable[[K, V, RecordContext], K2], key: Serde[K2] | None = None, value: Serde[V] | None = None
    ) -> KGroupedStream[K2, V]: ...

    def group_by(
        self, function: Callable[..., Any], key: Serde[K2] | None = None, value: Serde[V] | None = None
    ) -> Any:
        """Group the records by the key `function(key, value)`."""
        check_serdes(f"group_by after '{self._node.label}'", key=key, value=value)
        return self._transform("select-key", function, None, key, method="group_by").group_by_key(None, value)

    def recursively(
        self,
        op: "Callable[[KStream[K, V]], KStream[K, V]]",
        name: str | None = None,
        include_seeds: bool = True,
        max_depth: int | None = None,
        limit: int = 10_000,
        on_limit: Literal["error", "return", "dead-letter"] = "error",
    ) -> "KStream[K, V]":
        """Emit each record, the results of `op` for it, the results of `op` for these, and so on (KIP-857).

        Args:
            op: makes a stream of the same types from a stream; it may be called twice.
            name: of the loop, whose topic is `<application>-<name>-loop`.
            include_seeds: whether to emit the input records, too; the KIP describes False.
            max_depth: the most applications of op to a record; op is not applied to deeper records.
            limit: also the most applications of op to a record, as a guard against endless recursion.
            on_limit: the policy at `limit`. `error` raises LoopLimitError for the input record: the error policy
                applies to this record, and no result is emitted for it. `return` and `dead-letter` stop at depth
                `limit` as `max_depth` does, and report the records that were cut off.

        Raises: NonTerminatingRecursionError if op has no step that can drop a record.
        """
        name = name_or(name, f"{self._node.label}-recursively")
        check_function(f"recursively '{name}'", op, "rows", what="op")
        check_flag(f"recursively '{name}'", include_seeds=include_seeds)

        def build(variable: plan.Node) -> Any:
            result = op(KStream(self._builder, variable))
            return result._node if isinstance(result, KStream) else result

        bound = Bound(max_depth, limit, on_limit)
        node = close_recursion(self._builder, name, "stream", self._node, build, bound, include_seeds)
        return KStream(self._builder, node)

    def _transform(
        self,
        verb: str,
        function: Any,
        name: str | None,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        method: str = "",
    ) -> Any:
        node = self._builder.transform(self._node, verb, function, name, key, value, method=method)
        return KStream(self._builder, node)
