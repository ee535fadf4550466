"""The worker: poll → step → commit, over and over. The only part that both waits and computes.

    poll      the log hands over the next records of the partitions owned
    step      the circuit makes deltas of them; nothing outside has changed yet
    commit    one transaction: outputs, loop and repartition rows, changelogs, a cut, positions
    store     the changed rows and their changelog offsets, in one batch

A crash before the commit leaves nothing; one between commit and store leaves an older store, which
the changelogs bring up to date at the next start. An epoch that fails is undone whole: transaction
aborted, states rolled back, positions sought back. Where a record is to blame, the epoch is tried
again by halves until that record stands alone; then the error policy decides about it.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eddy.config import Config
from eddy.connectors.inbound import Inbound, Misfit, misfit
from eddy.connectors.internal import internal_topics, partition_counts
from eddy.connectors.log import Consumer, Log, Position, Producer, Records, TopicPartition
from eddy.connectors.outbound import Outbound, SinkTopic
from eddy.connectors.planlog import read_plan, write_plan
from eddy.connectors.quiescence import Counters, Cut, lags, quiescent
from eddy.connectors.restore import Restore, restores
from eddy.errors import (
    ConnectorError,
    DataError,
    FencedError,
    IndeterminateCommitError,
)
from eddy.operators.circuit import Circuit
from eddy.operators.exchange import Budget, Ownership
from eddy.partitioner import partition_of
from eddy.state.memory import MemoryStore
from eddy.state.offsets import encode_offset, offset_key
from eddy.state.rocksdb import RocksDBStore
from eddy.state.spec import Change
from eddy.state.store import Store
from eddy.topology.compile import Environment, compile_plan, sink_serdes
from eddy.topology.identity import check_identity, identity
from eddy.topology.topology import Topology

__all__ = ["Statistics", "Worker"]

_log = logging.getLogger("eddy.worker")
_CELL_BYTES = 512
_RETRIES = 10


@dataclass(slots=True)
class Statistics:
    """What a worker has done since it was made."""

    records: int = 0
    epochs: int = 0
    written: int = 0
    aborts: int = 0
    skipped: int = 0
    cut_rows: int = 0
    restored: int = 0
    purges: int = 0
    waves: int = 0
    loop_rows: int = 0


@dataclass(slots=True)
class _Isolation:
    """An epoch is tried again in parts: `room` records at a time, until `left` have got through."""

    room: int
    left: int


class Worker:
    """Runs one topology on a log. Not for several threads.

    Args:
        topology: what to run.
        log: where its topics are.
        config: see `Config`.
        member: a stable name among the application's workers; a restart takes its predecessor's place.
        store: where states are kept, in place of `config.state_dir`.
        clock: seconds, rising.
        observe: called with the name of each step of an epoch; what it raises ends the epoch there.
    """

    def __init__(
        self,
        topology: Topology,
        log: Log,
        config: Config | None = None,
        *,
        member: str = "0",
        store: Store | None = None,
        clock: Callable[[], float] = time.monotonic,
        observe: Callable[[str], None] = lambda step: None,
    ) -> None:
        self.topology, self.log, self.config = topology, log, config or Config()
        self.group, self.member = topology.name, member
        self.statistics = Statistics()
        self._clock, self._observe = clock, observe
        self._deadline = 0.0
        self._ownership = Ownership()
        self._sources = {node.topic: node for node in topology.plan.sources()}
        specs = partition_counts(
            log,
            [*self._sources, *(sink.topic for sink in topology.plan.sinks())],
            f"application '{self.group}'",
        )
        self._partitions = {name: spec.partitions for name, spec in specs.items()}
        self.store = store or self._open_store()
        try:
            self.circuit = self._compile(frozenset(n for n, spec in specs.items() if spec.compacted))
            self.internal = internal_topics(self.group, self.circuit)
            self._check_plan()
            self.internal.make(log)
            self._partitions |= self.internal.exchanges | self.internal.changelogs
            self._sinks = self._sink_topics()
            self._inbound = Inbound(self._sources, {gate.topic: gate for gate in self.circuit.gates})
            self._consumer: Consumer = log.consumer(
                self.group, sorted([*self._sources, *self.internal.exchanges]), member
            )
        except BaseException:
            self.store.close()
            raise
        self._producer: Producer | None = None
        self._restoring: list[Restore] = []
        self._isolation: _Isolation | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._counters: dict[TopicPartition, Counters] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._last_purge = self._last_cut = clock()
        self._uncut = self._unpurged = False
        self._failures = 0
        self._stale = False

    # The life of a batch

    def step(self, timeout_s: float = 0.0) -> int:
        """Take one epoch through, waiting up to `timeout_s` for a record. Returns the records taken in.

        Raises: DataError naming the record, under the policy `fail`; FencedError where another worker has
        taken this one's place; ConnectorError; StateError. Whatever is raised, the epoch is undone.
        """
        room = self._isolation.room if self._isolation else self.config.max_epoch_records
        polled = self._consumer.poll(room, timeout_s)
        if polled.assigned or polled.revoked or self._stale:
            self._take_over()
        elif self._restoring:
            self._restore()
        else:
            return self._epoch(polled.records)
        return 0

    def run(self, stop: Callable[[], bool], timeout_s: float = 0.2, after: Callable[[], None] = lambda: None) -> None:
        """Step until `stop()`, then close; `after` is called after each step."""
        try:
            while not stop():
                self.step(timeout_s)
                after()
        finally:
            self.close()

    def run_until_idle(self) -> int:
        """Step until there is no input, nothing to restore and nothing in a loop. Returns the records taken in."""
        total = 0
        while True:
            taken = self.step()
            total += taken
            if not taken and not self.restoring and not self._isolation and not self.lag():
                return total

    def close(self) -> None:
        """Leave the group and release the store; what was not committed is undone."""
        if self._producer is not None:
            self._producer.close()
        self._producer = None
        self._consumer.close()
        self.store.close()

    def _epoch(self, records: list[Records]) -> int:
        taken = sum(map(len, records))
        if not taken:
            self._idle(records)
            return 0
        try:
            if not self._attempt(lambda: self._process(records)):
                return 0
        except DataError as error:
            return self._isolate(error, records, taken)
        self._narrow(taken)
        self._after_epoch()
        return taken

    def _attempt(self, work: Callable[[], None]) -> bool:
        """Do the work of an epoch, or undo it. Returns whether it was done; if not, it is to be tried again."""
        try:
            work()
        except FencedError:
            self._undo()
            self._drop_producer()
            return False
        except IndeterminateCommitError as error:
            _log.warning("taking up again from the log: %s", error)
            self._undo()
            self._drop_producer()
            self._stale = True
            return False
        except ConnectorError as error:
            self._undo()
            self._failures += 1
            if not error.retriable or self._failures > _RETRIES:
                raise
            _log.warning("epoch undone, trying again: %s", error)
            return False
        except BaseException:
            self._undo()
            raise
        self._failures = 0
        return True

    def _process(self, records: list[Records]) -> None:
        batches = self._inbound.decode(records)
        misfits = self._inbound.misfits
        if misfits and self.config.on_error == "fail":
            raise misfits[0].error()
        self._deadline = self._clock() + self.config.max_epoch_s
        self.circuit.step(batches)
        self._observe("stepped")
        changes = self.circuit.changes()
        time = max(batch.time for batch in batches.values()) if batches else 0
        self._transact(records, changes, misfits, time)

    def _transact(
        self, records: list[Records], changes: dict[str, list[Change]], misfits: list[Misfit], time: int
    ) -> None:
        """Send and commit everything; then, and only then, write the store."""
        producer = self._begin()
        out = Outbound(producer, partition_of)
        self._observe("begun")
        written = sum(out.sink(sink, self.circuit.outputs[name].batches) for name, sink in self._sinks.items())
        self._observe("outputs sent")
        counters = self._count(records, self._send_exchanges(out))
        self._observe("exchanges sent")
        for name, rows in changes.items():
            if (topic := self.circuit.states[name].spec.changelog) is not None:
                out.changelog(topic, rows, time)
        self._letters(out, misfits)
        self._observe("changelogs sent")
        ends = producer.flush()
        self._observe("flushed")
        positions = self._positions | {TopicPartition(r.topic, r.partition): r.next_offset for r in records}
        self._send_cut(producer, positions, counters, ends, time)
        self._observe("cut sent")
        moved = {tp for tp, offset in positions.items() if offset != self._positions.get(tp)}
        moved |= {tp for tp, count in counters.items() if count != self._counters.get(tp)}
        producer.commit(
            {tp: Position(positions[tp], counters[tp].note() if tp in counters else "") for tp in moved},
            self._consumer.group_metadata(),
        )
        self._stale = True  # until the store has what the log has
        self._observe("committed")
        self._new_plan.clear()
        self._ends |= ends
        self._positions, self._counters = positions, counters
        self._store(changes, ends)
        self._observe("stored")
        self.statistics.records += sum(map(len, records))
        self.statistics.written += written
        self.statistics.epochs += 1
        self.circuit.commit()
        self._stale = False
        self._observe("done")

    def _store(self, changes: dict[str, list[Change]], ends: Mapping[TopicPartition, int]) -> None:
        """One batch: the changed rows, and how far the changelogs are in the store with them."""
        batch: list[tuple[bytes, bytes | None]] = []
        for name, rows in changes.items():
            spec = self.circuit.states[name].spec
            prefixes = {partition: spec.prefix(partition) for partition in {row[0] for row in rows}}
            batch += [(prefixes[partition] + key, value) for partition, key, value in rows]
        offsets = {tp: end for tp, end in ends.items() if tp.topic in self.internal.changelogs}
        restored = {state.spec.source for state in self.circuit.states.values()} - {None}
        offsets |= {tp: offset for tp, offset in self._positions.items() if tp.topic in restored}
        batch += [(offset_key(*tp), encode_offset(offset)) for tp, offset in offsets.items()]
        if batch:
            self.store.write(batch)

    def _send_exchanges(self, out: Outbound) -> dict[str, int]:
        """Send what leaves through loops and repartitions, and report what loops had to cut."""
        sent = {gate.topic: out.exchange(gate, gate.outbox) for gate in self.circuit.gates if gate.outbox}
        for loop in self.circuit.recursions.values():
            for batch in loop.cut:
                self.statistics.cut_rows += len(batch)
                _log.warning(
                    "recursively '%s': %d rows beyond limit %d, the first %r", loop.name, len(batch), loop.bound.limit,
                    batch.rows[0] if batch.rows else None,
                )  # fmt: skip
                if loop.bound.on_limit == "dead-letter":
                    out.dead_rows(self.internal.dead_letter, loop.gate, batch, loop.name, loop.bound.limit)
        return {topic: rows for topic, rows in sent.items() if rows}

    def _letters(self, out: Outbound, misfits: list[Misfit]) -> None:
        for record in misfits:
            self.statistics.skipped += 1
            _log.warning("record left out: %s", record.error())
        if misfits and self.config.on_error == "dead-letter":
            out.dead_letters(self.internal.dead_letter, misfits)

    # Errors

    def _isolate(self, error: DataError, records: list[Records], taken: int) -> int:
        """Try the epoch again in smaller parts, or decide about the one record that is to blame."""
        if self._inbound.misfits and self.config.on_error == "fail":
            self._isolation = None
            raise error
        if taken > 1:
            self._isolation = _Isolation(taken // 2, max(taken, self._isolation.left if self._isolation else 0))
            return 0
        (culprit,) = (r for r in records if len(r))
        record = misfit(culprit, 0, str(error))
        if self.config.on_error == "fail" or culprit.topic in self.internal.exchanges:
            self._isolation = None  # what comes next may mend it: tried together again, then one by one
            raise type(error)(str(record.error())) from error
        if not self._attempt(lambda: self._transact(records, {}, [record], record.timestamp)):
            return 0
        self._narrow(taken)
        return taken

    def _narrow(self, taken: int) -> None:
        if self._isolation is not None:
            self._isolation.left -= taken
            if self._isolation.left <= 0:
                self._isolation = None

    def _undo(self) -> None:
        """As if the epoch had never begun."""
        self.statistics.aborts += 1
        if self._producer is not None:
            try:
                self._producer.abort()
            except ConnectorError:
                self._drop_producer()
        self.circuit.rollback()
        self._rewind()

    def _drop_producer(self) -> None:
        """After an end of a transaction that cannot be known, only a new producer fences the old one's traces."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close()
            except ConnectorError as error:
                _log.warning("producer given up: %s", error)

    # Ownership

    def _take_over(self) -> None:
        """Adopt a new assignment, or begin again: know what is owned, and bring its states into the store."""
        if self._stale and self._producer is None:
            self._producer = self.log.producer(f"{self.group}-{self.member}")  # settles the last transaction
        assignment = self._consumer.assignment()
        counts = {self._partitions[topic] for topic in (*self._sources, *self.internal.exchanges)}
        owned: dict[int, set[int]] = {count: set() for count in counts}
        for topic, partition in assignment:
            owned[self._partitions[topic]].add(partition)
        self._ownership.partitions = {count: frozenset(mine) for count, mine in owned.items()}
        self._rewind()
        states = list(self.circuit.states.values())
        self._restoring = restores(self.log, self.store, self.group, states, self._ownership.partitions)
        outputs = [*(sink.topic for sink in self._sinks.values()), *self.internal.changelogs]
        self._ends = self.log.end_offsets(
            TopicPartition(topic, p) for topic in outputs for p in range(self._partitions[topic])
        )
        self._consumer.pause(assignment)
        self._stale = False
        self._restore()

    def _restore(self) -> None:
        """Bring one slice of what is missing into the store; process nothing before all of it is there."""
        if self._restoring:
            current = self._restoring[0]
            self.statistics.restored += current.step(self.log, self.store, self.config.restore_records)
            if current.done:
                self._restoring.pop(0)
        if not self._restoring:
            self.circuit.forget()
            self._consumer.resume(self._consumer.assignment())

    def _rewind(self) -> None:
        """Let the next poll start from the committed positions."""
        assignment = self._consumer.assignment()
        committed = self.log.committed(self.group, assignment)
        begins = self.log.begin_offsets(assignment)
        self._positions = {tp: committed[tp].offset if tp in committed else begins[tp] for tp in assignment}
        self._counters = {
            tp: Counters.of(committed.get(tp)) for tp in assignment if tp.topic in self.internal.exchanges
        }
        self._consumer.seek(self._positions)

    # Being done

    def quiescent(self) -> bool:
        """Whether, at a moment during this call, all input was taken in and nothing was under way anywhere."""
        return quiescent(self.log, self.group, *self._inputs())

    def lag(self) -> int:
        """How many offsets lie between the committed positions and the ends of inputs and loops."""
        inputs, internal = self._inputs()
        return sum(lags(self.log, self.group, [*inputs, *internal]).values())

    @property
    def restoring(self) -> int:
        """How many changelog offsets are still to be restored."""
        return sum(restore.end - restore.position for restore in self._restoring)

    def _inputs(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        inputs = [TopicPartition(t, p) for t in self._sources for p in range(self._partitions[t])]
        internal = [TopicPartition(t, p) for t, n in self.internal.exchanges.items() for p in range(n)]
        return inputs, internal

    def _count(self, records: list[Records], sent: Mapping[str, int]) -> dict[TopicPartition, Counters]:
        """The counters as they will be after this epoch."""
        counters = {tp: Counters(count.emitted, count.consumed) for tp, count in self._counters.items()}
        for r in records:
            if r.topic in self.internal.exchanges:
                counters[TopicPartition(r.topic, r.partition)].consumed += len(r)
        for topic, rows in sent.items():
            counters[min(tp for tp in counters if tp.topic == topic)].emitted += rows
        if sent or any(r.topic in self.internal.exchanges for r in records):
            self._unpurged = True
        return counters

    def _send_cut(
        self,
        producer: Producer,
        positions: Mapping[TopicPartition, int],
        counters: Mapping[TopicPartition, Counters],
        ends: Mapping[TopicPartition, int],
        time: int,
    ) -> None:
        """Write a cut where this worker is the only owner, its loops are empty, and one is due."""
        due = self._clock() - self._last_cut >= self.config.cut_interval_s
        if not (due and self._exact(counters)):
            return
        inputs = {tp: offset for tp, offset in positions.items() if tp.topic in self._sources}
        cut = Cut(Cut.by_topic(inputs), Cut.by_topic({**self._ends, **ends}))
        producer.send(self.internal.cuts, 0, [b"cut"], [cut.encode()], [time])
        self._last_cut, self._uncut = self._clock(), False

    def _exact(self, counters: Mapping[TopicPartition, Counters]) -> bool:
        """Whether an epoch that ends now is a cut: one owner of everything, and nothing in a loop."""
        alone = all(self._ownership.all_of(count) for count in self._ownership.partitions)
        return alone and not sum(count.emitted - count.consumed for count in counters.values())

    def _idle(self, records: list[Records]) -> None:
        """Nothing came: commit positions that control records moved, cut, purge what is consumed."""
        moved = {TopicPartition(r.topic, r.partition): r.next_offset for r in records}
        cut = self._uncut and self._exact(self._counters)
        if cut:
            self._last_cut = float("-inf")
        if cut or any(self._positions.get(tp) != offset for tp, offset in moved.items()):
            if not self._attempt(lambda: self._transact(records, {}, [], 0)):
                return
        if self._unpurged and self.quiescent():
            self._purge()

    def _after_epoch(self) -> None:
        loops = self.circuit.statistics().values()
        self.statistics.waves = sum(loop.waves for loop in loops)
        self.statistics.loop_rows = sum(loop.rows for loop in loops)
        if self._unpurged and self._clock() - self._last_purge >= self.config.purge_interval_s:
            self._purge()

    def _purge(self) -> None:
        self._last_purge, self._unpurged = self._clock(), False
        try:
            self.statistics.purges += bool(self.internal.purge(self.log, self.group))
        except ConnectorError as error:
            self._unpurged = True
            _log.warning("purge put off: %s", error)

    # Making

    def _begin(self) -> Producer:
        if self._producer is None:
            self._producer = self.log.producer(f"{self.group}-{self.member}")
        self._producer.begin()
        if self._new_plan:
            write_plan(self._producer, self.internal.plan, self._new_plan)
        return self._producer

    def _open_store(self) -> Store:
        if self.config.state_dir is None:
            return MemoryStore()
        path = self.config.state_dir / self.group
        return RocksDBStore(path, self.group, self.config.cache_bytes // 2)

    def _compile(self, compacted: frozenset[str]) -> Circuit:
        stateful = sum(1 for node in self.topology.plan.nodes if node.kind != "stream")
        environment = Environment(
            self._partitions,
            compacted & self._sources.keys(),
            self._ownership,
            Budget(self.config.max_loop_rows, lambda: self._clock() > self._deadline),
            partition_of,
            self.store,
            max(1_000, self.config.cache_bytes // 2 // _CELL_BYTES // max(1, stateful)),
        )
        return compile_plan(self.topology.plan, environment)

    def _check_plan(self) -> None:
        """Refuse a topology that would misread what is there; note the plan for the first transaction."""
        lines = identity(self.topology.plan, self.circuit)
        known = read_plan(self.log, self.internal.plan)
        if known is not None and not self.config.accept_plan:
            check_identity(self.group, known, lines)
        self._new_plan: list[str] = [] if known == lines else lines

    def _sink_topics(self) -> dict[str, SinkTopic]:
        placed = sink_serdes(self.topology.plan, self._partitions)
        return {
            sink.name: SinkTopic(sink.topic, *placed[sink], self._partitions[sink.topic], sink.kind == "stream")
            for sink in self.topology.plan.sinks()
        }
