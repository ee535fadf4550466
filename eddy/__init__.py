"""eddy: a Kafka-Streams-like stream processor whose topologies may be recursive.

Start with `Topology`. It makes a `KStream` or a `KTable` from a topic. Streams, tables and relations (`Relation`) are
transformed, joined, aggregated and fed back by `recursively`. `TopologyTestDriver` tests a topology, and `eddy run`
runs it. `docs/ARCHITECTURE.md` explains the implementation.

A name is imported when it is first used, so that a command can handle signals before the rest is imported.
"""

import importlib
import warnings

TYPE_CHECKING = False
"""As in `typing`, which takes longer to import than this module. Until the command line handles signals, Ctrl-C shows
a traceback, so imports before that have to be short.
"""

if TYPE_CHECKING:
    from eddy import faust as faust
    from eddy.as_of import AsOf
    from eddy.config import Config
    from eddy.connectors.schema_registry.registry import SchemaRegistry
    from eddy.driver import OutputRecord, TopologyTestDriver
    from eddy.errors import (
        ConfigurationError,
        ConnectorError,
        DataError,
        EddyError,
        FencedError,
        InvariantError,
        LoopLimitError,
        NoFiniteAnswerError,
        NonTerminatingRecursionError,
        NotReadyError,
        PlanChangedError,
        ProcessorError,
        QueryBuildError,
        QueryError,
        RecordRefusedError,
        SlotTakenError,
        StateError,
        StateInUseError,
        TableNotServedError,
        TopologyError,
        UnknownSchemaError,
    )
    from eddy.failed_record import FailedRecord, Retry
    from eddy.join_windows import JoinWindows
    from eddy.live.dataflow.action import Action
    from eddy.live.query.explain import QueryPlan
    from eddy.live.query.named import Claims, Queries
    from eddy.live.query.query import LiveTable, Query, live_table, query_from_json
    from eddy.live.server.live_view import LiveView, Patch
    from eddy.operators.graph.reached import Child, Reached
    from eddy.operators.processors.processor_context import ProcessorContext, Schedule
    from eddy.operators.processors.record import Record, RecordContext, RecordMetadata
    from eddy.operators.processors.session_store import SessionStore
    from eddy.operators.processors.state_store import StateStore
    from eddy.operators.processors.versioned_store import VersionedRecord, VersionedStore
    from eddy.operators.processors.window_store import WindowStore
    from eddy.program.open_tables import Tables, open_tables
    from eddy.program.running import create_topics, kafka, open_log, run
    from eddy.program.sql_query import query
    from eddy.runtime.worker import Worker
    from eddy.serde import Bytes, Float64, Int64, Json, Native, Plain, Serde, String, Struct
    from eddy.tables.version import Version
    from eddy.topology.dsl.cogrouped import CogroupedKStream, WindowedCogroupedKStream
    from eddy.topology.dsl.collected import CollectedTable
    from eddy.topology.dsl.global_table import GlobalKTable
    from eddy.topology.dsl.grouped import KGroupedStream, KGroupedTable
    from eddy.topology.dsl.relation import RecursiveRelation, Relation, RelationTable
    from eddy.topology.dsl.stream import KStream
    from eddy.topology.dsl.table import KTable
    from eddy.topology.sql.answer import Answer
    from eddy.topology.sql.view import View
    from eddy.topology.topology import Topology
    from eddy.unlimited_windows import UnlimitedWindows
    from eddy.windows import (
        CalendarWindows,
        SessionWindowed,
        SessionWindows,
        SlidingWindows,
        TimeWindowed,
        TimeWindows,
        Windowed,
    )

__all__ = [
    "Action",
    "Answer",
    "AsOf",
    "Bytes",
    "CalendarWindows",
    "Child",
    "Claims",
    "CogroupedKStream",
    "CollectedTable",
    "Config",
    "ConfigurationError",
    "ConnectorError",
    "DataError",
    "EddyError",
    "FailedRecord",
    "FencedError",
    "Float64",
    "GlobalKTable",
    "Int64",
    "InvariantError",
    "JoinWindows",
    "Json",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "LiveTable",
    "LiveView",
    "LoopLimitError",
    "Native",
    "NoFiniteAnswerError",
    "NonTerminatingRecursionError",
    "NotReadyError",
    "OutputRecord",
    "Patch",
    "Plain",
    "PlanChangedError",
    "ProcessorContext",
    "ProcessorError",
    "Queries",
    "Query",
    "QueryBuildError",
    "QueryError",
    "QueryPlan",
    "Reached",
    "Record",
    "RecordContext",
    "RecordMetadata",
    "RecordRefusedError",
    "RecursiveRelation",
    "Relation",
    "RelationTable",
    "Retry",
    "Schedule",
    "SchemaRegistry",
    "Serde",
    "SessionStore",
    "SessionWindowed",
    "SessionWindows",
    "SlidingWindows",
    "SlotTakenError",
    "StateError",
    "StateInUseError",
    "StateStore",
    "String",
    "Struct",
    "TableNotServedError",
    "Tables",
    "TimeWindowed",
    "TimeWindows",
    "Topology",
    "TopologyError",
    "TopologyTestDriver",
    "UnknownSchemaError",
    "UnlimitedWindows",
    "Version",
    "VersionedRecord",
    "VersionedStore",
    "View",
    "WindowStore",
    "Windowed",
    "WindowedCogroupedKStream",
    "Worker",
    "create_topics",
    "kafka",
    "live_table",
    "open_log",
    "open_tables",
    "query",
    "query_from_json",
    "run",
]

_HOMES = {
    "eddy.config": ("Config",),
    "eddy.connectors.schema_registry.registry": ("SchemaRegistry",),
    "eddy.driver": ("OutputRecord", "TopologyTestDriver"),
    "eddy.errors": (
        "ConfigurationError",
        "ConnectorError",
        "DataError",
        "EddyError",
        "FencedError",
        "InvariantError",
        "LoopLimitError",
        "NoFiniteAnswerError",
        "NonTerminatingRecursionError",
        "NotReadyError",
        "PlanChangedError",
        "ProcessorError",
        "QueryBuildError",
        "QueryError",
        "RecordRefusedError",
        "SlotTakenError",
        "StateError",
        "StateInUseError",
        "TableNotServedError",
        "TopologyError",
        "UnknownSchemaError",
    ),
    "eddy.as_of": ("AsOf",),
    "eddy.failed_record": ("FailedRecord", "Retry"),
    "eddy.join_windows": ("JoinWindows",),
    "eddy.operators.processors.processor_context": ("ProcessorContext", "Schedule"),
    "eddy.operators.processors.record": ("Record", "RecordContext", "RecordMetadata"),
    "eddy.operators.processors.state_store": ("StateStore",),
    "eddy.operators.processors.session_store": ("SessionStore",),
    "eddy.operators.processors.versioned_store": ("VersionedRecord", "VersionedStore"),
    "eddy.operators.processors.window_store": ("WindowStore",),
    "eddy.operators.graph.reached": ("Child", "Reached"),
    "eddy.live.dataflow.action": ("Action",),
    "eddy.serde": ("Bytes", "Float64", "Int64", "Json", "Native", "Plain", "Serde", "String", "Struct"),
    "eddy.program.running": ("create_topics", "kafka", "open_log", "run"),
    "eddy.live.server.live_view": ("LiveView", "Patch"),
    "eddy.tables.version": ("Version",),
    "eddy.program.open_tables": ("Tables", "open_tables"),
    "eddy.topology.dsl.cogrouped": ("CogroupedKStream", "WindowedCogroupedKStream"),
    "eddy.topology.dsl.collected": ("CollectedTable",),
    "eddy.topology.dsl.global_table": ("GlobalKTable",),
    "eddy.topology.dsl.grouped": ("KGroupedStream", "KGroupedTable"),
    "eddy.live.query.explain": ("QueryPlan",),
    "eddy.live.query.named": ("Claims", "Queries"),
    "eddy.live.query.query": ("LiveTable", "Query", "live_table", "query_from_json"),
    "eddy.topology.dsl.relation": ("RecursiveRelation", "Relation", "RelationTable"),
    "eddy.topology.sql.answer": ("Answer",),
    "eddy.program.sql_query": ("query",),
    "eddy.topology.sql.view": ("View",),
    "eddy.topology.dsl.stream": ("KStream",),
    "eddy.topology.dsl.table": ("KTable",),
    "eddy.topology.topology": ("Topology",),
    "eddy.runtime.worker": ("Worker",),
    "eddy.windows": (
        "CalendarWindows",
        "SessionWindowed",
        "SessionWindows",
        "SlidingWindows",
        "TimeWindowed",
        "TimeWindows",
        "Windowed",
    ),
    "eddy.unlimited_windows": ("UnlimitedWindows",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_RENAMED = {"Views": "Tables", "views": "open_tables"}  # deprecated


if not TYPE_CHECKING:  # a type checker reads the imports above, so that it reports any other name

    def __getattr__(name: str) -> object:
        if name == "faust":  # `faust` is not in `__all__`: its package is optional
            return importlib.import_module("eddy.faust")
        if name in _RENAMED:
            warnings.warn(f"eddy.{name} is called {_RENAMED[name]} now", DeprecationWarning, stacklevel=2)
            return __getattr__(_RENAMED[name])
        if name not in _HOME:
            raise AttributeError(f"module 'eddy' has no attribute '{name}'")
        found = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
        return found


def __dir__() -> list[str]:
    return __all__
