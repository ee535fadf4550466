"""eddy: a Kafka-Streams-like stream processor whose topologies may be recursive.

The way in: `Topology` makes a `KStream` or a `KTable` of a topic; these and `Relation` are
transformed, joined, aggregated and fed back by `recursively`; `TopologyTestDriver` tries it out,
and `eddy run` runs it. `docs/ARCHITECTURE.md` leads through the inside.
"""

from eddy.config import Config
from eddy.driver import OutputRecord, TopologyTestDriver
from eddy.errors import (
    ConfigurationError,
    ConnectorError,
    DataError,
    EddyError,
    FencedError,
    InvariantError,
    LoopLimitError,
    NonTerminatingRecursionError,
    PlanChangedError,
    RecordRefusedError,
    SlotTakenError,
    StateError,
    TopologyError,
)
from eddy.operators.reached import Child, Reached
from eddy.serde import Bytes, Float64, Int64, Json, Native, Plain, Serde, String, Struct
from eddy.topology.grouped import KGroupedStream, KGroupedTable
from eddy.topology.relation import Relation
from eddy.topology.sql.answer import Answer, query
from eddy.topology.sql.view import View
from eddy.topology.stream import KStream
from eddy.topology.table import KTable
from eddy.topology.topology import Topology
from eddy.worker import Worker

__all__ = [
    "Answer",
    "Bytes",
    "Child",
    "Config",
    "ConfigurationError",
    "ConnectorError",
    "DataError",
    "EddyError",
    "FencedError",
    "Float64",
    "Int64",
    "InvariantError",
    "Json",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "LoopLimitError",
    "Native",
    "NonTerminatingRecursionError",
    "OutputRecord",
    "Plain",
    "PlanChangedError",
    "Reached",
    "RecordRefusedError",
    "Relation",
    "Serde",
    "SlotTakenError",
    "StateError",
    "String",
    "Struct",
    "Topology",
    "TopologyError",
    "TopologyTestDriver",
    "View",
    "Worker",
    "query",
]
