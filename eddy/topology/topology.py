"""Topology: where a program begins. It makes sources, and holds the plan that the DSL builds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from eddy.errors import TopologyError
from eddy.operators.reached import Reached
from eddy.serde import Bytes, Serde
from eddy.topology import plan
from eddy.topology.builder import Builder, check_name
from eddy.topology.describe import describe, mermaid
from eddy.topology.mutual import Bindings, mutually_recursive
from eddy.topology.reach import CyclePolicy, DeletionMode, recursive_fixpoint
from eddy.topology.relation import Relation
from eddy.topology.stream import KStream
from eddy.topology.table import KTable

if TYPE_CHECKING:
    from eddy.topology.sql.view import View

__all__ = ["Topology"]

K = TypeVar("K")
V = TypeVar("V")
_BYTES: Any = Bytes


class Topology:
    """A named program over topics. The name is the application id: the prefix of every internal topic.

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

    def stream(self, topic: str, key: Serde[K] = _BYTES, value: Serde[V] = _BYTES) -> KStream[K, V]:
        """The records of `topic` as facts."""
        return KStream(self._builder, self._source(topic, topic, "stream", key, value))

    def table(
        self,
        topic: str,
        key: Serde[K] = _BYTES,
        value: Serde[V] = _BYTES,
        name: str | None = None,
    ) -> KTable[K, V]:
        """The latest value of each key of `topic`; a record without a value deletes its key.

        The table's store is called `name`, or like the topic.
        """
        return KTable(self._builder, self._source(topic, name or topic, "table", key, value))

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
    ) -> Relation[K, Reached]:
        """What is reached from each root over edges: rows (key of the root, `Reached`).

        The rows are a function of the roots and edges that are there now, whatever the order of arrival.

        Args:
            roots: rows (key, root node); a key may have several roots.
            edges: rows (node, edge). A row is an edge while its weight is above 0.
            name: of the step and its states.
            expand: `expand(node, edge)` returns the children of an edge, nodes or `Child(node, order)`; by
                default the edge is the child.
            max_depth: how far from the root rows go, as part of the answer.
            max_nodes: an error where a root reaches more.
            limit: an error where a node lies deeper, 10,000 by default; with `max_depth` there is none.
            cycle_policy: `dedupe-node` has a row a node, at its least depth, under the least parent there;
                `error` the same, and a row that names a cycle while one can be reached; `allow-paths` a row a
                path: every walk of up to `max_depth` links, or without it every path that meets no node twice.
            deletion_mode: `support-counts` counts the parents that hold a node at its depth, so that a node
                without any is told at once; `recompute-affected` looks. The answer is the same.
            weight: `weight(node, edge)`, above 0: depths are then distances, those of shortest paths.
            node: the serde of nodes, by default that of the edges' keys.

        Raises: TopologyError.
        """
        given = (max_depth, max_nodes, limit, cycle_policy, deletion_mode, weight, node)
        return recursive_fixpoint(self._builder, roots, edges, expand, name, *given)

    def constant(
        self,
        rows: Iterable[tuple[K, V]],
        name: str,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> Relation[K, V]:
        """A relation of fixed rows (key, value), there from the first epoch on.

        Other rows are another plan, which a start refuses, or replaces the old ones by where it is told to accept it.
        They are kept in a state called `name`.
        """
        node = self._builder.add(
            plan.Constant, name, kind="relation", rows=tuple(rows), rekeyed=True, key=key, value=value
        )
        return Relation(self._builder, node)

    def mutually_recursive(
        self,
        step: Callable[..., Any],
        name: str,
        limit: int | None = None,
        on_limit: Literal["error", "return"] = "error",
        serdes: Mapping[str, tuple[Serde[Any], Serde[Any]]] | None = None,
    ) -> Bindings:
        """Several relations defined by one another: each in turn, from empty, round by round until none changes.

        >>> topology = Topology("parity")
        >>> after = topology.table("after", key=Bytes, value=Bytes).to_relation()
        >>> def numbers(even, odd):
        ...     even = topology.constant([(b"0", None)], "zero").union(odd.join(after, lambda n, _, next: (next, None)))
        ...     odd = even.join(after, lambda n, _, next: (next, None), name="odd-join")
        ...     return even.distinct(), odd.distinct()
        >>> even, odd = topology.mutually_recursive(numbers, name="parity-of")

        Args:
            step: takes a relation for each binding, what it held after the last round, and returns what each
                holds after this one, in the same order. Its parameters name the bindings. It may be called twice.
            name: of the block.
            limit: the number of rounds. Without one the block runs until it is at rest, and 10,000 rounds are
                taken to be a recursion without end.
            on_limit: `return` leaves the state after `limit` rounds; `error` makes rows in `errors` if the last
                round has changed anything, and keeps everything back until they are gone.
            serdes: by binding, those of its key and value; `Native` otherwise.

        Raises: TopologyError where step does not fit, and for a block inside a recursion.
        """
        return mutually_recursive(self._builder, step, name, limit, on_limit, serdes)

    def sql(
        self,
        text: str,
        tables: Mapping[str, Any] | None = None,
        name: str = "sql",
        key: str | Sequence[str] | None = None,
    ) -> "View":
        """The rows of a SQL query, kept up to date; `docs/sql.md` says what of SQL there is.

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
            tables: by the name that the query calls them: a `KTable`, `KStream` or `Relation` whose serdes tell the
                types of its columns, or a pair of one and its columns, {"name": "type", …}.
            name: begins the names of all states of the query.
            key: the column, or columns, whose values are the rows' key; otherwise it is empty. Rows are the values.

        Raises: TopologyError for what is wrong or not supported, with its line and column.
        """
        from eddy.topology.sql.build import create_view

        return create_view(self, text, tables or {}, check_name(name, "query"), key)

    def describe(self) -> str:
        """The topology as text, in the form of Kafka Streams' `TopologyDescription`."""
        return describe(self.plan)

    def mermaid(self) -> str:
        """The topology as a Mermaid flowchart."""
        return mermaid(self.plan)

    def _repr_markdown_(self) -> str:
        return f"```mermaid\n{self.mermaid()}\n```"

    def _source(self, topic: str, name: str, kind: plan.Kind, key: Serde[Any], value: Serde[Any]) -> plan.Node:
        check_name(topic, "topic")
        for node in self.plan.sources():
            if node.topic == topic:
                raise TopologyError(
                    f"topology '{self.name}': topic '{topic}' is read twice; one source a topic is needed. "
                    "Keep what stream() or table() returned, and make a table of a stream by .to_table()"
                )
        if not isinstance(key, Serde) or not isinstance(value, Serde):
            raise TopologyError(
                f"topic '{topic}': key={key!r}, value={value!r}; serdes are needed. Use e.g. key=eddy.String, "
                "value=eddy.Json()"
            )
        return self._builder.add(plan.Source, name, kind=kind, topic=topic, key=key, value=value)
