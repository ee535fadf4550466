"""Assembly: the parts of a worker, from a topology and a log.

`assemble` first checks, in this order: the user's topics exist, the plan can be placed, and existing states were
written by this plan. Only then does it create internal topics.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from eddy.config import Config
from eddy.connectors.log import Consumer, Log
from eddy.errors import ConfigurationError
from eddy.operators.circuit import Circuit
from eddy.operators.exchange import Budget
from eddy.runtime.administration import commands
from eddy.runtime.calling_consumer import CallingConsumer, CallPath
from eddy.runtime.compiled_topology import UserTopics
from eddy.runtime.decoding import Decoder
from eddy.runtime.encoding import SinkTopic
from eddy.runtime.error_policy import ErrorPolicy
from eddy.runtime.global_tables import GlobalTables
from eddy.runtime.idle_partitions import IdlePartitions
from eddy.runtime.internal_topics import InternalTopics, metadata_topic
from eddy.runtime.joining_times import JoiningTopics, topics_with_times
from eddy.runtime.matching_topics import MatchingTopics
from eddy.runtime.metadata import Metadata, read_metadata
from eddy.runtime.origins import Senders
from eddy.runtime.partitioner_check import PartitionerCheck
from eddy.runtime.positions import Positions
from eddy.runtime.timestamp_extractors import TimestampExtractors
from eddy.runtime.timestamp_limits import TimestampLimits, take_any_timestamp, timestamp_limits
from eddy.state.memory import MemoryStore
from eddy.state.rocksdb import RocksDBStore
from eddy.state.store import Store
from eddy.topology.compiler.circuit_compiler import check_reads, sink_serdes
from eddy.topology.compiler.guard_placement import unmerged
from eddy.topology.plan.identity import check_identity, identity, optional_states, retired_states, states_of, topics_of
from eddy.topology.plan.plan import Node, Source
from eddy.topology.plan.scopes import Scopes
from eddy.topology.topology import Topology

__all__ = ["Assembly", "assemble", "open_store"]

_CELL_BYTES = 192
_BLOCKS_SHARE = 4
"""RocksDB gets 1/n of the cache; the states' cells in memory get the rest."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """The parts of a worker. `partitions` are the partition counts of sources, loops and repartitions, by topic.

    If `new_plan` is not empty, the first transaction writes it to the metadata, with `incarnation`. `stops` are the
    recursions that end the worker if they hold rows at quiescence.
    """

    circuit: Circuit
    internal: InternalTopics
    decoder: Decoder
    sinks: dict[str, SinkTopic]
    positions: Positions
    partitions: dict[str, int]
    new_plan: list[str]
    incarnation: str
    stops: frozenset[str]
    take_any_timestamp: bool
    """Whether the internal topics accept any timestamp."""
    global_tables: GlobalTables
    idle: IdlePartitions | None
    """The idle partitions of the sources that have `idle_after`, if an operator reads their event time."""

    matching: MatchingTopics
    """The topics that match patterns now."""

    def calling(self, consumer: Consumer) -> Consumer:
        """Return `consumer`; if steps make asynchronous calls, wrapped so that records wait for their calls' ends."""
        paths = CallPath.all_of(*self.circuit.layout)
        return CallingConsumer(consumer, self.decoder, paths) if paths else consumer


def open_store(config: Config, application: str, member: str) -> Store:
    """Open the store of a worker: in its own folder below `state_dir`, or in memory without `state_dir`."""
    if config.state_dir is None:
        return MemoryStore()
    return RocksDBStore(Path(config.state_dir) / application / member, application, config.cache_bytes // _BLOCKS_SHARE)


def assemble(
    topology: Topology,
    log: Log,
    config: Config,
    store: Store,
    elapsed: Callable[[], float],
    wall: Callable[[], float],
    complete: Callable[[], bool] = lambda: True,
) -> Assembly:
    """Check and compile a topology for a log, create its internal topics, and return the parts of a worker.

    `elapsed` returns the seconds since the epoch began, `wall` the seconds since 1970. `complete` tells whether the
    worker reads all topics that match a pattern now.

    Raises: ConnectorError for missing topics or unsuitable settings; TopologyError; PlanChangedError.
    """
    plan, name = topology.plan, topology.name
    topics = UserTopics.of(topology, log)
    check_reads(plan)
    sources = {node.topic: node for node in plan.sources()}
    outputs = {sink.topic for sink in plan.sinks()}
    counts = topics.counts
    metadata = read_metadata(log, metadata_topic(name))
    known = metadata.plan
    compiled = topics.compiled(
        budget=Budget(config.max_loop_rows, lambda: elapsed() > config.max_epoch_s),
        guard=Budget(config.max_nested_rows, lambda: elapsed() > config.max_nested_s),
        store=store,
        max_cells=(config.cache_bytes - config.cache_bytes // _BLOCKS_SHARE) // _CELL_BYTES,
        written=None if known is None else frozenset(states_of(known)),
        max_row_bytes=config.max_row_bytes,
        clock=elapsed,
    )
    circuit, internal = compiled.circuit, compiled.internal
    lines = identity(plan, circuit)
    _check_states(topology, metadata, lines, config, circuit)
    if missing := internal.make(log, config.create_topics, topics_of(name, known or [])):
        raise _missing(name, commands(name, sources, sorted(outputs), missing))
    read, tables = ({node.topic: counts[node.topic] for node in of} for of in (plan.sources(), plan.global_tables()))
    own = log.topics(spec.name for spec in internal.specs())
    exchanges = [spec for topic, spec in own.items() if topic in internal.exchanges]
    written = {topic: counts[topic] for topic in outputs} | internal.changelogs
    rest = complete, _joining(topics, log, name, read, circuit), _of_tables(sources)
    extractors = TimestampExtractors(sources)
    return Assembly(
        circuit,
        internal,
        Decoder(
            sources,
            {gate.topic: gate for gate in circuit.gates},
            _partitioner_check(topology, log, sources, read),
            Senders(log, internal.exchanges, {f"{name}-{step}" for step in unmerged(plan)}, extractors),
            extractors,
            TimestampLimits(timestamp_limits(plan, topics.specs, exchanges), wall),
            placed=circuit.reads_places,
        ),
        _sink_topics(topology, log, counts),
        Positions(log, name, read, internal.exchanges, written, internal.anchors, tables, *rest),
        read | internal.exchanges,
        [] if known == lines and metadata.incarnations else lines,
        min(metadata.incarnations, default=uuid.uuid4().hex),
        Scopes(plan).stopping(),
        take_any_timestamp(own.values()),
        _global_tables(topology, log, config, store, circuit, counts),
        _idle_partitions(log, sources, circuit),
        topics.matching,
    )


def _missing(name: str, lines: Iterable[str]) -> ConfigurationError:
    return ConfigurationError(
        f"application '{name}': internal topics do not exist, and only an administrator may create them. Run:\n"
        + "\n".join(f"    {line}" for line in lines)
    )


def _of_tables(sources: Mapping[str, Source]) -> frozenset[str]:
    return frozenset(topic for topic, source in sources.items() if source.kind == "table")


def _global_tables(
    topology: Topology, log: Log, config: Config, store: Store, circuit: Circuit, counts: Mapping[str, int]
) -> GlobalTables:
    tables = {node.topic: (node, circuit.global_tables[node.name]) for node in topology.plan.global_tables()}
    return GlobalTables(log, store, tables, counts, ErrorPolicy(config))


def _joining(
    topics: UserTopics, log: Log, name: str, read: Mapping[str, int], circuit: Circuit
) -> JoiningTopics | None:
    found = topics_with_times(topics.matching, circuit)
    return JoiningTopics(log, name, found, read) if found else None


def _idle_partitions(log: Log, sources: Mapping[str, Source], circuit: Circuit) -> IdlePartitions | None:
    read = circuit.reads.sources
    after = {topic: node.idle_after_ms for topic, node in sources.items() if node.idle_after_ms and topic in read}
    return IdlePartitions(log, after) if after else None


def _partitioner_check(
    topology: Topology, log: Log, sources: Mapping[str, Source], read: Mapping[str, int]
) -> PartitionerCheck:
    placed = {topic: count for topic, count in read.items() if not _is_only_rekeyed(topology, sources[topic])}
    tables = frozenset(topic for topic, source in sources.items() if source.kind == "table")
    tails = {topic: source.key.tail for topic, source in sources.items() if source.key is not None}
    return PartitionerCheck(placed, tables, tails, log.partitioner, lambda topic: log.topics([topic])[topic].partitions)


def _check_states(topology: Topology, metadata: Metadata, lines: list[str], config: Config, circuit: Circuit) -> None:
    name = topology.name
    if metadata.backfill is not None:
        raise ConfigurationError(
            f"application '{name}': a backfill of it has begun and not finished, so its states are not "
            f"complete. Run it again to continue: eddy backfill …"
        )
    if metadata.plan is not None:
        withheld = {where.step for where in metadata.set_aside}  # the metadata has the only copy of these rows
        retired = retired_states(topology.plan) - withheld
        check_identity(name, metadata.plan, lines, config.accept_plan, optional_states(circuit), retired)


def _is_only_rekeyed(topology: Topology, source: Node) -> bool:
    """Whether all steps that read a source repartition its records, so that the records may be in any partition."""
    if source.rekeyed:
        return True
    users = [node for node in topology.plan.nodes if source in node.inputs]
    return bool(users) and all(node.role == "exchange" for node in users)


def _sink_topics(topology: Topology, log: Log, counts: dict[str, int]) -> dict[str, SinkTopic]:
    placed = sink_serdes(topology.plan, counts)
    topics = {}
    for sink in topology.plan.sinks():
        (key, value), stream = placed[sink], sink.kind == "stream"
        # Equal keys such as 1 and 1.0 have equal bytes, so that a tombstone finds its record.
        if key.identify and not key.canonical and not stream:
            key = replace(key, encode=key.identify)
        count, final, refused = counts[sink.topic], _is_final(sink.inputs[0]), partial(log.refusals, sink.topic)
        topics[sink.name] = SinkTopic(sink.topic, key, value, count, stream, final, sink.partitioner, refused)
    return topics


def _is_final(table: Node) -> bool:
    """Whether a table's rows never change: they are the final rows of windows, or made from these row by row."""
    while not table.final and table.kind == "table" and not table.rekeys and not table.keeps and len(table.inputs) == 1:
        (table,) = table.inputs
    return table.final
