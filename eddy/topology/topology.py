"""Topology: where a program begins. It makes sources, and holds the plan that the DSL builds."""

from typing import Any, TypeVar

from eddy.errors import TopologyError
from eddy.serde import Bytes, Serde
from eddy.topology import plan
from eddy.topology.builder import Builder, check_name
from eddy.topology.describe import describe, mermaid
from eddy.topology.stream import KStream
from eddy.topology.table import KTable

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
