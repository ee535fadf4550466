"""Topology: the start of a program. It creates sources, and holds the plan that the DSL builds."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from eddy.errors import TopologyError
from eddy.operators.graph.reached import Reached
from eddy.serde import Bytes, Serde
from eddy.topology.arguments import (
    check_mapping,
    check_name,
    check_names,
    check_serdes,
    renamed_choice,
    takes_key,
)
from eddy.topology.dsl.builder import Builder
from eddy.topology.dsl.global_table import GlobalKTable
from eddy.topology.dsl.mutual import Bindings, mutually_recursive
from eddy.topology.dsl.processor_builder import declared_store
from eddy.topology.dsl.reach import CyclePolicy, DeletionMode, recursive_fixpoint
from eddy.topology.dsl.relation import Relation, constant
from eddy.topology.dsl.stream import KStream
from eddy.topology.dsl.table import KTable
from eddy.topology.plan import plan
from eddy.topology.plan.description import describe, mermaid
from eddy.topology.plan.picture import picture
from eddy.topology.plan.processors import StoreKind
from eddy.topology.plan.topic_patterns import check_pattern, pattern_name
from eddy.windows import check_span

if TYPE_CHECKING:
    from eddy.topology.sql.view import View

__all__ = ["Topology", "check_topology"]

K = TypeVar("K")
V = TypeVar("V")
_BYTES: Any = Bytes
_MILLISECOND = timedelta(milliseconds=1)


class Topology:
    """A named program that reads and writes topics. Its name is the application id, with which internal topics begin.

    >>> import eddy
    >>> topology = eddy.Topology("shout")
    >>> words = topology.stream("words", key=eddy.String, value=eddy.String)
    >>> words.map_values(str.upper).to("shouts")
    >>> with eddy.TopologyTestDriver(topology) as driver:
    ...     driver.input("words").pipe("greeting", "hello")
    ...     driver.output("shouts").read_key_values()
    [('greeting', 'HELLO')]
    """

    def __init__(self, name: str) -> None:
        self.name = check_name(name, "topology")
        self.plan = plan.Plan(name)
        self._builder = Builder(self.plan)

    def stream(
        self,
        topic: str | Sequence[str] | None = None,
        key: Serde[K] = _BYTES,
        value: Serde[V] = _BYTES,
        timestamp: Callable[..., int | datetime] | None = None,
        idle_after: timedelta | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
    ) -> KStream[K, V]:
        """Read `topic` as a stream of facts. A list of topics is read as one stream, each topic in its own order.

        `pattern`, in place of `topic`, is a regular expression. All topics of the log whose whole names match it are
        read, except topics that eddy makes. A topic that is created later is read, too, while the application runs; it
        needs as many partitions as the others. The application waits until a first topic matches. Steps that wait for
        the event times of all partitions, such as windows, need named topics.

        `timestamp(value)`, or `timestamp(key, value)`, returns the event time of a record with a value, which replaces
        its timestamp in the log: whole milliseconds since 1970, or a datetime with a time zone. If it raises, or
        returns anything else, the record is rejected as `Config.on_error` says.

        A partition without records keeps windows open. With `idle_after` it is idle after that time without a record;
        its event time is then at least the wall clock less `idle_after`. This decides whether later records are late.
        """
        if pattern is not None:
            return self._matching(topic, pattern, key, value, timestamp, idle_after)
        if not isinstance(topic, list | tuple):
            times = timestamp, idle_after
            source = self._source(topic, topic, "stream", key, value, *times)  # type: ignore[arg-type]
            return KStream(self._builder, source)
        names = check_names("stream: topics", topic)
        streams = [self.stream(name, key, value, timestamp, idle_after) for name in names]
        return streams[0].merge(*streams[1:]) if len(streams) > 1 else streams[0]

    def table(
        self,
        topic: str,
        key: Serde[K] = _BYTES,
        value: Serde[V] = _BYTES,
        name: str | None = None,
        timestamp: Callable[..., int | datetime] | None = None,
    ) -> KTable[K, V]:
        """Read `topic` as a table of the latest value of each key; a record without a value deletes its key.

        The table's store is called `name`, by default like the topic. `timestamp` returns the event time of a record,
        as in `stream`; the latest value is the last record's value, whatever its event time.
        """
        name = topic if name is None else name
        if isinstance(key, Serde) and key.topic_form is not None:
            # The bytes of its topic's keys are not the bytes of states' keys, so rows are sent to their keys' owners.
            records: KStream[K, V] = KStream(
                self._builder, self._source(topic, f"{name}-records", "stream", key, value, timestamp)
            )
            return records.to_table(name)
        return KTable(self._builder, self._source(topic, name, "table", key, value, timestamp))

    def global_table(
        self, topic: str, key: Serde[K] = _BYTES, value: Serde[V] = _BYTES, name: str | None = None
    ) -> GlobalKTable[K, V]:
        """Read `topic` as a table of latest values that every worker has whole, for joins of streams by any key.

        A worker reads the whole topic before its first record, and new records at the beginning of each epoch. The
        topic may have any number of partitions. The table is called `name`, by default like the topic.
        """
        self._check_topic(topic, key, value)
        fields = {"kind": "table", "topic": topic, "key": key, "value": value}
        return GlobalKTable(
            self._builder, self._builder.add(plan.GlobalTable, topic if name is None else name, **fields)
        )

    def store(
        self,
        name: str,
        key: Serde[K],
        value: Serde[V],
        changelog: bool = True,
        memory: bool = False,
        kind: StoreKind = "key-value",
        size: timedelta | None = None,
        retention: timedelta | None = None,
    ) -> plan.DeclaredStore:
        """Declare a state store. Processors use it by its name: `stream.process(…, stores=["name"])`.

        Processors that name the same store share its rows, so their inputs have to be co-partitioned. A processor sees
        the rows of its own partition only.

        Args:
            name: of the store; its changelog is `<application>-<name>-changelog`.
            key: the serde of keys. Ranges are in the order of its bytes.
            value: the serde of values.
            changelog: False keeps no changelog: the store is empty after its disk is lost, and after its partition has
                moved to another worker.
            memory: True keeps no rows on disk; each start, and each change of partitions, reads the changelog.
            kind: "key-value" maps keys to values; "window" and "session" map keys with a window or a session to values,
                for a time; "versioned" maps keys to the versions of their values. Times are also kept in
                `<name>-times`, versions in `<name>-versions`.
            size: the length of a window; only for kind "window".
            retention: how long rows are kept. A window is kept until a start this much later is put, so at least
                `size`; a session until an end this much later is put. Of a versioned store, values can be read as of
                times up to this much before the greatest timestamp that was put.

        Raises: TopologyError.
        """
        store = declared_store(name, key, value, kind, size, retention, changelog=changelog, memory=memory)
        return self.plan.declare(store)

    def recursive_fixpoint(
        self,
        *,
        roots: Relation[K, Any],
        edges: Relation[Any, Any] | KTable[Any, Any],
        name: str,
        expand: Callable[[Any, Any], Iterable[Any]] | None = None,
        max_depth: float | None = None,
        max_nodes: int | None = None,
        limit: int | None = None,
        cycle_policy: CyclePolicy = "dedupe-node",
        deletion_mode: DeletionMode = "recompute-affected",
        weight: Callable[[Any, Any], float] | None = None,
        node: Serde[Any] | None = None,
        on_limit: Literal["hold", "stop"] = "hold",
    ) -> Relation[K, Reached]:
        """Find the nodes that are reachable from each root over edges. Rows are (key of the root, `Reached`).

        The rows depend only on the current roots and edges, and not on the order of their arrival.

        Args:
            roots: rows (key, root node); a key may have several roots.
            edges: rows (node, edge). A row is an edge while its weight is above 0.
            name: of the step and its states.
            expand: `expand(node, edge)` returns the children that an edge leads to, nodes or `Child(node, order)`; by
                default the edge is the child.
            max_depth: the largest depth of a row. Deeper nodes are not part of the answer, and no error.
            max_nodes: the most nodes that a root may reach; more nodes are an error.
            limit: the depth beyond which a node is an error; by default 10,000, or none if `max_depth` is given.
            cycle_policy: `dedupe-node` makes one row for each node, at its least depth, with the least parent at that
                depth. `error` makes the same rows, and a row that names a cycle if one can be reached. `allow-paths`
                makes one row for each path: every walk of up to `max_depth` links, or, without `max_depth`, every path
                that meets no node twice.
            deletion_mode: `support-counts` counts the parents that hold a node at its depth, and so finds nodes
                without such a parent without a search; `recompute-affected` searches. The answer is the same.
            weight: `weight(node, edge)`, above 0: depths are then distances, which are lengths of shortest paths.
            node: the serde of nodes, by default the serde of the edges' keys.
            on_limit: `hold` holds rows that exceed a limit or are on a cycle. `stop` does so, too, and ends the worker
                if no unread input could change this.

        Raises: TopologyError.
        """
        on_limit = renamed_choice(f"recursive_fixpoint '{name}'", on_limit)
        given = (max_depth, max_nodes, limit, cycle_policy, deletion_mode, weight, node, on_limit)
        return recursive_fixpoint(self._builder, roots, edges, name, expand, *given)

    def constant(
        self,
        rows: Iterable[tuple[K, V]],
        name: str,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> Relation[K, V]:
        """Add a relation of fixed rows (key, value), which are present from the first epoch on.

        A change of the rows changes the plan. The next start refuses it or, with `accept_plan`, replaces the old rows.
        The rows are in a state called `name`.
        """
        return constant(self._builder, rows, name, key, value)

    def mutually_recursive(
        self,
        step: Callable[..., Any],
        name: str,
        limit: int | None = None,
        on_limit: Literal["hold", "stop", "return"] = "hold",
        serdes: Mapping[str, tuple[Serde[Any], Serde[Any]]] | None = None,
    ) -> Bindings:
        """Define several relations by one another. All are evaluated in turn, from empty, until none changes any more.

        Inside the function of another block or recursion, the block is evaluated again in each of its iterations.

        >>> topology = Topology("parity")
        >>> after = topology.table("after", key=Bytes, value=Bytes).to_relation()
        >>> def numbers(even, odd):
        ...     even = topology.constant([(b"0", None)], "zero").union(odd.join(after, lambda n, _, next: (next, None)))
        ...     odd = even.join(after, lambda n, _, next: (next, None), name="odd-join")
        ...     return even.distinct(), odd.distinct()
        >>> even, odd = topology.mutually_recursive(numbers, name="parity-of")

        Args:
            step: takes a relation for each binding, with its rows after the last iteration, and returns the bindings'
                definitions in the same order. Its parameters name the bindings. It may be called again.
            name: of the block.
            limit: the number of iterations. Without a limit the block runs until nothing changes, and is considered
                endless after 10,000 iterations.
            on_limit: `return` emits the rows after `limit` iterations. `hold` makes rows in `errors` if the last
                iteration has changed anything, and withholds all results until these rows are retracted. For a block
                inside another block, this counts in any iteration, and the outermost block has the rows of errors and
                withholds all results. `stop` is `hold`, and ends the worker if no unread input could change this.
            serdes: the serdes of the key and value of each binding, by name; otherwise `Native`.

        Raises: TopologyError if `step` is not such a function, or for a recursion around a block whose limit is an
            error.
        """
        on_limit = renamed_choice(f"mutually_recursive '{name}'", on_limit)
        return mutually_recursive(self._builder, step, name, limit, on_limit, serdes)

    def sql(
        self,
        text: str,
        tables: Mapping[str, Any] | None = None,
        name: str = "sql",
        key: str | Sequence[str] | None = None,
    ) -> "View":
        """Keep the rows of a SQL query up to date; `docs/sql.md` has the supported SQL.

        >>> topology = Topology("reach")
        >>> edges = topology.stream("edges", key=Bytes, value=Bytes).map_values(lambda data: (1, 2))
        >>> view = topology.sql(
        ...     "SELECT a.src, b.dst FROM edges a JOIN edges b ON a.dst = b.src",
        ...     tables={"edges": (edges, {"id": "text", "src": "bigint", "dst": "bigint"})},
        ...     name="hops",
        ... )
        >>> view.columns
        ('src', 'dst')

        Args:
            text: one query.
            tables: the tables by their names in the query. Each is a `KTable`, `KStream` or `Relation` whose serdes
                define the types of its columns, or a pair of one and its columns, {"name": "type", …}.
            name: the prefix of the names of all states of the query.
            key: the column, or columns, whose values are the rows' key; without it the key is empty. Rows are the
                values.

        Raises: TopologyError for an error in the text, or an unsupported feature, with its line and column.
        """
        from eddy.topology.sql.view_builder import create_view

        where = f"sql '{check_name(name, 'query')}'"
        if not isinstance(text, str):
            raise TopologyError(f"{where}: the text is {text!r}; one query as a str is needed")
        check_mapping(where, tables=tables)
        return create_view(self._builder, text, tables or {}, name, key)

    def describe(self) -> str:
        """Return the topology as text, in the form of Kafka Streams' `TopologyDescription`."""
        return describe(self.plan)

    def mermaid(self) -> str:
        """Return the topology as a Mermaid flowchart."""
        return mermaid(self.plan)

    def picture(self) -> str:
        """Return the topology as an SVG document; a notebook shows it."""
        return picture(self.plan)

    def _repr_svg_(self) -> str:
        return self.picture()

    def _matching(
        self,
        topic: Any,
        pattern: Any,
        key: Serde[Any],
        value: Serde[Any],
        timestamp: Callable[..., Any] | None,
        idle_after: timedelta | None,
    ) -> KStream[Any, Any]:
        where = f"stream: pattern={getattr(pattern, 'pattern', pattern)!r}"
        if topic is not None:
            raise TopologyError(f"{where} and topic={topic!r}; one of them is needed. For both write stream().merge()")
        compiled = check_pattern(where, self.name, pattern)
        if idle_after is not None:
            check_span(f"{where}: idle_after", idle_after, _MILLISECOND, "timedelta(minutes=5)")
        check_serdes(where, optional=False, key=key, value=value)
        for node in (*self.plan.sources(), *self.plan.global_tables()):
            if not getattr(node, "pattern", "") and compiled.fullmatch(node.topic):
                raise TopologyError(
                    f"{where} matches topic '{node.topic}', which is read already; one source a topic is needed. Let "
                    f"the pattern exclude it: (?!{re.escape(node.topic)}$)…"
                )
        name = pattern_name(compiled)
        fields = {"kind": "stream", "key": key, "value": value, "rekeyed": key.topic_form is not None}
        each = plan.Source(
            topic="",
            name=name,
            label=name,
            timestamp=_of_pair(compiled.pattern, timestamp),
            idle_after_ms=(idle_after or timedelta()) // _MILLISECOND,
            pattern=compiled.pattern,
            **fields,  # type: ignore[arg-type]
        )
        return KStream(self._builder, self._builder.add(plan.TopicPattern, name, pattern=compiled, each=each, **fields))

    def _source(
        self,
        topic: str,
        name: str,
        kind: plan.Kind,
        key: Serde[Any],
        value: Serde[Any],
        timestamp: Callable[..., Any] | None,
        idle_after: timedelta | None = None,
    ) -> plan.Node:
        self._check_topic(topic, key, value)
        if idle_after is not None:
            check_span(f"topic '{topic}': idle_after", idle_after, _MILLISECOND, "timedelta(minutes=5)")
        fields = {"kind": kind, "topic": topic, "key": key, "value": value, "rekeyed": key.topic_form is not None}
        fields |= {
            "timestamp": _of_pair(topic, timestamp),
            "idle_after_ms": (idle_after or timedelta()) // _MILLISECOND,
        }
        return self._builder.add(plan.Source, name, **fields)

    def _check_topic(self, topic: str, key: Serde[Any], value: Serde[Any]) -> None:
        """Check the name of a topic that a step reads. Raises: TopologyError."""
        check_name(topic, "topic")
        for matching in self.plan.patterns():
            if matching.pattern.fullmatch(topic):
                raise TopologyError(
                    f"topology '{self.name}': topic '{topic}' is read already, by pattern "
                    f"{matching.pattern.pattern!r}; one source a topic is needed. Let the pattern exclude it: "
                    f"(?!{re.escape(topic)}$)…"
                )
        for node in (*self.plan.sources(), *self.plan.global_tables()):
            if node.topic == topic:
                raise TopologyError(
                    f"topology '{self.name}': topic '{topic}' is read twice; one source a topic is needed. "
                    "Keep the result of stream() or table(), and make a table of a stream by .to_table()"
                )
        check_serdes(f"topic '{topic}'", optional=False, key=key, value=value)


def _of_pair(topic: str, timestamp: Callable[..., Any] | None) -> Callable[[Any, Any], Any] | None:
    """Return a source's function of event times as a function of key and value."""
    if timestamp is None or takes_key(f"topic '{topic}'", timestamp, "value", what="timestamp"):
        return timestamp
    return lambda _, value: timestamp(value)


def check_topology(where: str, topology: Any) -> None:
    """Refuse an argument that is not a topology. Raises: TopologyError."""
    if not isinstance(topology, Topology):
        raise TopologyError(
            f"{where}: topology={topology!r}; an eddy.Topology is needed. Write topology = eddy.Topology('name'), and "
            "its steps"
        )
