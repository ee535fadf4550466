"""Assembly: a topology and a log made into what a worker runs.

Checks come first and in this order: the user's topics exist, the plan can be placed, it is the plan
that wrote what is there; only then are internal topics made.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from eddy.config import Config
from eddy.connectors.administration import commands
from eddy.connectors.inbound import Inbound
from eddy.connectors.internal import InternalTopics, internal_topics, partition_counts
from eddy.connectors.ledger import Ledger
from eddy.connectors.log import Log
from eddy.connectors.outbound import SinkTopic
from eddy.connectors.placement import Placement
from eddy.connectors.planlog import read_memory
from eddy.errors import ConfigurationError
from eddy.operators.circuit import Circuit
from eddy.operators.exchange import Budget, Ownership
from eddy.state.memory import MemoryStore
from eddy.state.rocksdb import RocksDBStore
from eddy.state.store import Store
from eddy.topology.compile import Environment, compile_plan, sink_serdes
from eddy.topology.identity import check_identity, identity, topics_of
from eddy.topology.topology import Topology

__all__ = ["Assembly", "assemble", "open_store"]

_CELL_BYTES = 192
_BLOCKS_SHARE = 4
"""RocksDB gets one part in so many of a cache, cells the rest."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """The parts of a worker. `partitions` is of the topics it reads; `new_plan` is still to be written, with `life`."""

    circuit: Circuit
    internal: InternalTopics
    inbound: Inbound
    sinks: dict[str, SinkTopic]
    ledger: Ledger
    partitions: dict[str, int]
    new_plan: list[str]
    life: str


def open_store(config: Config, application: str, member: str) -> Store:
    """The store that the settings ask for: a folder for each worker of an application."""
    if config.state_dir is None:
        return MemoryStore()
    return RocksDBStore(config.state_dir / application / member, application, config.cache_bytes // _BLOCKS_SHARE)


def assemble(topology: Topology, log: Log, config: Config, store: Store, elapsed: Callable[[], float]) -> Assembly:
    """Check, compile and make topics. `elapsed` tells the seconds since the epoch began.

    Raises: ConnectorError where topics are missing or not as they have to be; TopologyError;
    PlanChangedError.
    """
    plan, name = topology.plan, topology.name
    sources = {node.topic: node for node in plan.sources()}
    outputs = {sink.topic for sink in plan.sinks()}
    specs = partition_counts(log, {*sources, *outputs}, f"application '{name}'")
    counts = {topic: spec.partitions for topic, spec in specs.items()}
    compacted = frozenset(topic for topic in sources if specs[topic].compacted and log.compaction_waits)
    environment = Environment(
        counts,
        compacted,
        Ownership(),
        Budget(config.max_loop_rows, lambda: elapsed() > config.max_epoch_s),
        Budget(config.max_nested_rows, lambda: elapsed() > config.max_nested_s),
        log.partitioner,
        store,
        (config.cache_bytes - config.cache_bytes // _BLOCKS_SHARE) // _CELL_BYTES,
    )
    circuit = compile_plan(plan, environment)
    internal = internal_topics(name, circuit)
    memory, lines = read_memory(log, internal.plan), identity(plan, circuit)
    if memory.backfill is not None:
        raise ConfigurationError(
            f"application '{name}': a backfill of it has begun and not finished, so its states are not whole. Run it "
            "again, and it goes on: eddy backfill …; or start anew from the input: eddy reset …"
        )
    known = memory.plan
    if known is not None:
        check_identity(name, known, lines, config.accept_plan)
    if missing := internal.make(log, config.create_topics, topics_of(name, known or [])):
        raise ConfigurationError(
            f"application '{name}': internal topics do not exist, and making them is left to an administrator. Run:\n"
            + "\n".join(f"    {line}" for line in commands(name, sources, sorted(outputs), missing))
        )
    read = {topic: counts[topic] for topic in sources}
    tables = frozenset(topic for topic, source in sources.items() if source.kind == "table")
    written = {topic: counts[topic] for topic in outputs} | internal.changelogs
    placement = Placement(read, tables, log.partitioner, lambda topic: log.topics([topic])[topic].partitions)
    return Assembly(
        circuit,
        internal,
        Inbound(sources, {gate.topic: gate for gate in circuit.gates}, placement),
        _sink_topics(topology, counts),
        Ledger(log, name, read, internal.exchanges, written, internal.anchors),
        read | internal.exchanges,
        [] if known == lines and memory.lives else lines,
        min(memory.lives, default=uuid.uuid4().hex),
    )


def _sink_topics(topology: Topology, counts: dict[str, int]) -> dict[str, SinkTopic]:
    placed = sink_serdes(topology.plan, counts)
    topics = {}
    for sink in topology.plan.sinks():
        (key, value), stream = placed[sink], sink.kind == "stream"
        if key.identify and not stream:  # a table's record and its tombstone have the same bytes, as 1 and 1.0
            key = replace(key, encode=key.identify)
        topics[sink.name] = SinkTopic(sink.topic, key, value, counts[sink.topic], stream)
    return topics
