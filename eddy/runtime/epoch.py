"""An epoch: the work of one transaction, and the only way to undo it.

    compute   decode the records and step the circuit: only memory has changed
    commit    one transaction: outputs, loop and repartition rows, changelogs, a cut, positions; after that the store
              gets the changed rows and their changelog offsets, in one batch
    undo      abort the transaction and roll the states back

A crash before the end of the transaction has no effect. After a crash between the transaction and the store's batch,
the store lags the log, and the next start updates it from the changelogs.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from eddy.config import Config
from eddy.connectors.log import Consumer, Log, Position, Producer, Records, TopicPartition
from eddy.operators.circuit import Circuit
from eddy.operators.context import Context
from eddy.runtime.clocks import Clocks
from eddy.runtime.cuts import Cuts
from eddy.runtime.decoding import Decoder, Rejected
from eddy.runtime.dropped_rows import LATE, Dropping
from eddy.runtime.encoding import Encoder, SinkTopic
from eddy.runtime.global_tables import GlobalTables
from eddy.runtime.holding import Holding
from eddy.runtime.internal_topics import InternalTopics
from eddy.runtime.isolation import Part
from eddy.runtime.metadata import write_plan
from eddy.runtime.own_positions import CUT, write_positions
from eddy.runtime.positions import Positions
from eddy.runtime.producers import OwnProducer
from eddy.runtime.purging import Purging
from eddy.runtime.quiescence import Cut
from eddy.runtime.recovery import Recovery
from eddy.runtime.rejections import Rejections
from eddy.runtime.table_versions import write_versions
from eddy.runtime.unlogged_stores import UnloggedStores
from eddy.state.offsets import encode_offset, offset_key
from eddy.state.spec import Changes
from eddy.state.store import Store
from eddy.statistics import Statistics

__all__ = ["Epoch", "Parts", "Stopwatch"]


class Stopwatch:
    """Measures the seconds since an epoch began to compute, by `clock`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._began = clock, clock()

    def restart(self) -> None:
        """Start at 0, since an epoch begins."""
        self._began = self._clock()

    def elapsed_s(self) -> float:
        """Return the seconds since the epoch began."""
        return self._clock() - self._began


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts of a worker that its epochs use.

    `restorable` are the sources whose topics restore tables. The next commit writes `new_plan` to the metadata topic.
    `take_any_timestamp`: whether the internal topics accept any timestamp.
    """

    config: Config
    log: Log
    consumer: Consumer
    producer: OwnProducer
    store: Store
    circuit: Circuit
    decoder: Decoder
    sinks: Mapping[str, SinkTopic]
    internal: InternalTopics
    positions: Positions
    recovery: Recovery
    global_tables: GlobalTables
    rejections: Rejections
    unlogged: UnloggedStores
    clocks: Clocks
    cuts: Cuts
    holding: Holding
    purging: Purging
    dropping: Dropping
    statistics: Statistics
    stopwatch: Stopwatch
    clock: Callable[[], float]
    observe: Callable[[str], None]
    restorable: Set[str | None]
    new_plan: list[str]
    take_any_timestamp: bool

    @property
    def topic_ids(self) -> dict[str, int]:
        """The ids of the topics that sources and global tables read, by topic."""
        return {**self.positions.topic_ids, **self.global_tables.topic_ids}


class Epoch:
    """One attempt, from a poll to its commit.

    `computed`: the epoch processes records, constants or rows of a loop. `committed`: its transaction has committed, so
    memory and store lag the log if the attempt fails now.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._rejected: list[Rejected] = []
        self._letters: list[Rejected] = []
        self._of_tables: list[Rejected] = []
        self._changes: Mapping[str, Changes] = {}
        self._time = self._cut_rows = 0
        self._clocks: Context | None = None
        self.computed = self.committed = False

    def compute(self, part: Part, settling: bool) -> None:
        """Compute the deltas of `part`. `settling`: there is no input, and nothing is in flight anywhere.

        Raises: DataError for a record that cannot be processed, or that may not be rejected; a retriable ConnectorError
        for a record that is to be tried again.
        """
        self.computed = True
        parts, circuit = self._parts, self._parts.circuit
        batches = parts.decoder.decode(part.records, part.left_out)
        self._rejected = parts.decoder.rejected
        self._letters = parts.rejections.policy.records(self._rejected)
        parts.stopwatch.restart()
        circuit.ownership.draining = parts.positions.draining(part.records)
        divisible = len(part.numbers() if part.left_out else part) > 1
        context = parts.clocks.context(part, self._rejected, divisible=divisible)
        if circuit.care.on:
            parts.rejections.trace(circuit, parts.decoder, parts.sinks, part, context)
        self._changes = circuit.compute(batches, context, settling)
        parts.observe("stepped")
        self._time = max((batch.time for batch in batches.values()), default=context.tick or 0)
        self._clocks = context if parts.clocks.read else None

    def commit(self, records: Sequence[Records], cut: Cut | None = None) -> None:
        """Send and commit all records and positions, then write the store. `cut` is the cut of a quiescent moment.

        Raises: DataError for a row that a topic cannot store; ConnectorError; StateError.
        """
        parts, observe = self._parts, self._parts.observe
        # The log answers while the records are sent.
        same_topics = parts.positions.same_topics(records, parts.global_tables.topic_ids)
        producer = self._begin()
        out = Encoder(producer, parts.log.partitioner, None if parts.take_any_timestamp else parts.clocks.wall_ms())
        observe("begun")
        written = sum(out.sink(sink, parts.circuit.outputs[name]) for name, sink in parts.sinks.items())
        observe("outputs sent")
        sent, circuit = self._send_exchanges(out, records), parts.circuit
        numbered, tables = self.computed and bool(parts.unlogged), parts.global_tables.offsets
        entry = parts.positions.after(
            records, sent, circuit.constants_sent, self._clocks, circuit.left_due, numbered, tables
        )
        observe("exchanges sent")
        self._send_changelogs(out)
        set_aside = parts.rejections.send(producer, out, self._rejected, self._letters, parts.circuit.asides, records)
        if parts.cuts.leads():
            self._of_tables = parts.rejections.of_tables(producer, out, parts.global_tables)
        held = parts.holding.changes()
        parts.holding.write(producer, held)
        moves = parts.positions.moves(entry)
        write_positions(producer, parts.internal.cuts, moves, own_time := out.own_time(self._time))
        write_versions(producer, parts.internal.cuts, parts.positions.versions(entry), own_time)
        observe("changelogs sent")
        ends = producer.flush()
        observe("flushed")
        cut = cut or parts.cuts.after(entry, ends)
        if cut is not None:
            producer.send(parts.internal.cuts, 0, [CUT], [cut.encode()], [parts.clocks.now()])
        observe("cut sent")
        same_topics()
        self._end(producer, moves)
        observe("committed")
        parts.new_plan = []
        parts.cuts.commit(cut)
        parts.holding.commit(held)
        parts.global_tables.reported(record.place for record in self._of_tables)
        parts.purging.due |= entry.counters != parts.positions.entry.counters
        parts.positions.adopt(entry, ends)
        parts.clocks.committed(records)
        self._store(ends)
        observe("stored")
        self._count(sum(map(len, records)), written, set_aside)
        observe("done")

    def undo(self) -> None:
        """Abort the open transaction, if any, and roll the states back. A committed transaction remains in the log."""
        try:
            self._parts.producer.abort()
        finally:
            self._parts.circuit.rollback()

    def _begin(self) -> Producer:
        parts = self._parts
        producer = parts.producer.ready()
        producer.begin()
        if parts.new_plan:
            write_plan(producer, parts.internal.plan, parts.new_plan, parts.recovery.incarnation)
        return producer

    def _send_exchanges(self, out: Encoder, records: Sequence[Records]) -> dict[str, int]:
        """Send the rows of loops and repartitions, and report rows that loops had to cut. Returns counts by topic."""
        parts, circuit = self._parts, self._parts.circuit
        leaving = [gate for gate in circuit.gates if gate.outbox]
        origins = parts.decoder.senders.of(records if leaving else ())
        sent: Counter[str] = Counter()
        for gate in leaving:  # several gates may share a topic
            sent[gate.topic] += out.exchange(gate, gate.outbox, origins)
        self._cut_rows = parts.rejections.beyond_limits(out, circuit)
        owed = {f"{parts.internal.application}-{loop}-queued": moved for loop, moved in circuit.owed_moves.items()}
        return {topic: rows for topic, rows in sent.items() if rows} | owed

    def _send_changelogs(self, out: Encoder) -> None:
        for name, rows in self._changes.items():
            if (topic := self._parts.circuit.states[name].spec.changelog) is not None:
                out.changelog(topic, rows, self._time)

    def _end(self, producer: Producer, moves: Mapping[TopicPartition, Position]) -> None:
        """Commit the transaction with its new positions."""
        parts, statistics = self._parts, self._parts.statistics
        began = parts.clock()
        producer.commit(moves, parts.consumer.group_metadata())
        self.committed = True
        statistics.last_commit = parts.clock()
        statistics.commit_s.add(statistics.last_commit - began)

    def _store(self, ends: Mapping[TopicPartition, int]) -> None:
        """Write one batch to the store: the changed rows, and their offsets in changelogs and sources."""
        parts, states = self._parts, self._parts.circuit.states
        batch: list[tuple[bytes, bytes | None]] = []
        for name, rows in self._changes.items():
            if not states[name].spec.memory:
                batch += states[name].spec.stored(rows)
        batch += parts.unlogged.marks(parts.positions.entry, memory=False)
        offsets = {tp: end for tp, end in ends.items() if tp.topic in parts.internal.changelogs}
        positions = parts.positions.entry.positions
        offsets |= {tp: offset for tp, offset in positions.items() if tp.topic in parts.restorable}
        batch += [(offset_key(*tp), encode_offset(offset)) for tp, offset in offsets.items()]
        if batch:
            parts.store.write([*batch, parts.recovery.stamp()])

    def _count(self, records: int, written: int, set_aside: int) -> None:
        """Count the epoch, and commit the circuit's states, which can then no longer be rolled back."""
        parts, statistics = self._parts, self._parts.statistics
        statistics.records += records
        statistics.written += written
        statistics.skipped += len(self._rejected) + len(self._of_tables)
        statistics.cut_rows += self._cut_rows
        statistics.epochs += 1
        statistics.dropped += parts.dropping.report(parts.circuit.dropped())
        statistics.late += parts.dropping.report(parts.circuit.late(), LATE)
        statistics.duplicates += parts.circuit.duplicates()
        parts.circuit.commit()
        parts.unlogged.commit()
        statistics.set_aside += set_aside
        statistics.kept_aside = parts.circuit.kept_aside
