"""The tables of a topology that other programs can read, each with the topic that has all its rows.

    source   a table of a user's topic: its changelog; the topic itself if it has none
    state    of a step that makes a table (`count`, `aggregate`, `top_k`, `to_table`) outside of loops: its changelog
    output   a table that is sent to a topic: that topic

The changelog of a source table has the rows that the application uses: it has no rejected records, but still has
records that were deleted from the topic by their age. A table has the name of its step; a table that is sent to a topic
has the topic's name. All other states are private to their steps: their rows have no meaning by themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eddy.connectors.log import Log, TopicPartition
from eddy.errors import QueryError, TableNotServedError
from eddy.operators.circuit import Circuit
from eddy.runtime.internal_topics import InternalTopics, internal_topics, partition_counts
from eddy.runtime.matching_topics import find_topics
from eddy.serde import Bytes, Float64, Int64, Plain, Serde, String
from eddy.topology.compiler.circuit_compiler import Environment, compile_plan, row_serdes
from eddy.topology.plan.plan import Sink
from eddy.topology.plan.scopes import Scopes
from eddy.topology.topology import Topology

__all__ = ["Catalog", "ServedTable", "catalog_of", "readable_serdes"]

_LAYOUT = 3
_TELLS_PLAIN = (String, Bytes, Int64, Float64)
"""The serdes that write as `Plain` does."""


@dataclass(frozen=True, slots=True)
class ServedTable:
    """A table: its rows are the latest values by key in all partitions of `topic`.

    `key` is the serde of keys in states, `value` the serde of values in `topic`.
    """

    name: str
    kind: Literal["source", "state", "output"]
    topic: str
    partitions: int
    key: Serde[Any]
    value: Serde[Any]
    internal: bool = False
    """Whether the topic is a changelog, which a reset deletes."""

    @property
    def topic_key(self) -> Serde[Any]:
        """The serde of keys in its topic."""
        return self.key if self.internal else self.key.in_topic(self.topic, "key")

    @property
    def parts(self) -> list[TopicPartition]:
        """The partitions of its topic."""
        return [TopicPartition(self.topic, p) for p in range(self.partitions)]

    def identity(self, incarnation: str) -> str:
        """Return a text of the properties on which stored rows depend.

        Rows stored with another identity cannot be used.
        """
        own = f" incarnation={incarnation}" if self.internal else ""
        return f"{_LAYOUT} {self.topic} {self.partitions} key={self.key.name} value={self.value.name}{own}"


@dataclass(frozen=True, slots=True)
class Catalog:
    """The tables of a topology by name, the reasons why other names are not served, and the topics."""

    tables: dict[str, ServedTable]
    refused: dict[str, str]
    internal: InternalTopics
    inputs: dict[str, int]

    def table(self, name: str) -> ServedTable:
        """Return a table by name. Raises: TableNotServedError; QueryError for something other than a name."""
        if not isinstance(name, str):
            raise QueryError(
                f"table {name!r}: the name of a table, as text, is needed: {', '.join(sorted(self.tables))}"
            )
        found = self.tables.get(name)
        if found is None:
            why = self.refused.get(name, "there is no such table")
            raise TableNotServedError(
                f"table '{name[:200]}': {why}; one that is served is needed: {', '.join(sorted(self.tables))}"
            )
        return found

    def topics(self) -> list[str]:
        """Return all topics that have to exist before tables are read."""
        return [*(table.topic for table in self.tables.values()), self.internal.cuts, self.internal.plan]


def catalog_of(topology: Topology, log: Log) -> Catalog:
    """Find the tables of a topology on this log.

    Raises: ConfigurationError if a user's topics do not exist; TopologyError.
    """
    plan = topology.plan
    find_topics(topology, log)
    sources = {source.topic: source for source in plan.sources()}
    names = {*sources, *(sink.topic for sink in plan.sinks())}
    specs = partition_counts(log, names, f"application '{topology.name}'")
    counts = {name: spec.partitions for name, spec in specs.items()}
    compacted = frozenset(name for name in sources if specs[name].compacted and log.compaction_waits)
    circuit = compile_plan(plan, Environment(counts, compacted))
    tables: dict[str, ServedTable] = {}
    refused: dict[str, str] = {}
    _add_sources(topology, circuit, counts, tables, refused)
    _add_states(topology, circuit, tables, refused)
    _add_outputs(topology, counts, tables, refused)
    inputs = {topic: counts[topic] for topic in sources}
    return Catalog(tables, refused, internal_topics(topology.name, circuit), inputs)


def _add_sources(
    topology: Topology,
    circuit: Circuit,
    counts: Mapping[str, int],
    tables: dict[str, ServedTable],
    refused: dict[str, str],
) -> None:
    for node in topology.plan.sources():
        if node.kind != "table":
            refused[node.name] = "it is a stream of facts, and no table: .to_table(name=…) makes one of it"
            continue
        assert node.key is not None
        assert node.value is not None
        changelog = circuit.states[node.name].spec.changelog
        where = changelog or node.topic, counts[node.topic]
        value = node.topic_value if changelog is None else node.value
        tables[node.name] = ServedTable(node.name, "source", *where, node.key, value, changelog is not None)


def _add_states(topology: Topology, circuit: Circuit, tables: dict[str, ServedTable], refused: dict[str, str]) -> None:
    around, owners = Scopes(topology.plan).around, {node.name: node for node in topology.plan.nodes}
    for name, state in circuit.states.items():
        node, spec = owners.get(name), state.spec
        if name in tables:
            continue
        if node is not None and node not in around and spec.kind == "table":
            assert spec.changelog is not None
            tables[name] = ServedTable(
                name, "state", spec.changelog, spec.partitions, spec.key, spec.value, internal=True
            )
        else:
            refused[name] = (
                "this state is private to its step: send the step's table to a topic, .to('…'), and read that table"
            )


def _add_outputs(
    topology: Topology, counts: Mapping[str, int], tables: dict[str, ServedTable], refused: dict[str, str]
) -> None:
    read, serdes = {source.topic for source in topology.plan.sources()}, row_serdes(topology.plan, counts)
    for sink in topology.plan.sinks():
        name = sink.topic
        if name in tables or name in read:
            continue  # served already, as the step's table or as a source
        if sink.kind == "stream":
            refused[name] = "it is a stream of facts, and no table: .to_table(name=…) makes one of it"
            continue
        key, value = readable_serdes(sink, *serdes[sink])
        if Plain in (key, value):
            what = "key" if key is Plain else "value"
            refused[name] = f"its topic does not tell the type of its {what}s: name a serde, .to('{name}', {what}=…)"
            continue
        refused.pop(name, None)
        tables[name] = ServedTable(name, "output", name, counts[name], key, value.in_topic(name, "value"))


def readable_serdes(sink: Sink, key: Serde[Any], value: Serde[Any]) -> tuple[Serde[Any], Serde[Any]]:
    """Return the serdes of keys and of values that read a sink's topic.

    Values that the sink writes as `Plain` are read by the serde of its input step, if this serde writes as `Plain`
    does.
    """
    (step,) = sink.inputs
    if value is Plain and step.value in _TELLS_PLAIN:
        assert step.value is not None
        value = step.value
    return key, value
