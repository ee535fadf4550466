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
from eddy.connectors.assembly import assemble, open_store
from eddy.connectors.inbound import Misfit, misfit
from eddy.connectors.ledger import Entry
from eddy.connectors.log import Log, Producer, Records, TopicPartition
from eddy.connectors.outbound import Outbound
from eddy.connectors.placement import refuse_growth
from eddy.connectors.planlog import write_left_out, write_plan
from eddy.connectors.quiescence import Cut
from eddy.connectors.recovery import Recovery
from eddy.errors import ConnectorError, DataError, FencedError, IndeterminateCommitError, SlotTakenError
from eddy.operators.fixpoint import Fixpoint
from eddy.state.offsets import encode_offset, offset_key
from eddy.state.spec import Changes
from eddy.state.store import Store
from eddy.statistics import Statistics
from eddy.topology.topology import Topology

__all__ = ["Worker"]

_log = logging.getLogger("eddy.worker")


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
        wall: seconds since 1970.
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
        wall: Callable[[], float] = time.time,
        observe: Callable[[str], None] = lambda step: None,
    ) -> None:
        self.topology, self.log, self.config = topology, log, config or Config()
        self.group, self.member = topology.name, member
        self.statistics = Statistics()
        self.doing = ""  # the part of a step that is under way, or came last: for whoever watches from outside
        self.failing_since: float | None = None
        self.last_error = ""
        self._clock, self._observe = clock, observe
        self._began = 0.0
        self.store = store or open_store(self.config, self.group, member)
        self._producer: Producer | None = None
        try:
            parts = assemble(topology, log, self.config, self.store, lambda: clock() - self._began)
            self._own_producer()  # ends what a predecessor left open, before positions are asked for
            self._consumer = log.consumer(self.group, sorted(parts.partitions), member)
        except BaseException:
            self._drop_producer()
            self.store.close()
            raise
        self.circuit, self.internal, self.ledger = parts.circuit, parts.internal, parts.ledger
        self._inbound, self._sinks = parts.inbound, parts.sinks
        self._partitions, self._new_plan = parts.partitions, parts.new_plan
        self.recovery = Recovery(log, self.store, self.group, self.internal.plan, parts.life, wall)
        self._restorable = {state.spec.source for state in self.circuit.states.values()} - {None}
        self._isolation: _Isolation | None = None
        self._last_purge = self._last_cut = clock()
        self._uncut = self._unpurged = self._stale = self._owing = False
        self._last_inputs: dict[str, list[int]] = {}

    def step(self, timeout_s: float = 0.0) -> int:
        """Take one epoch through, waiting up to `timeout_s` for a record. Returns the records taken in.

        What may pass (a broker that is away, a rebalance in the middle of an epoch, a commit of unknown end) is
        undone, and tried again by the next step, for `Config.retry_s` at most.

        Raises: DataError naming the record, under the policy `fail`; SlotTakenError where another worker has
        taken this one's place; ConnectorError; StateError. Whatever is raised, the epoch is undone.
        """
        try:
            return self._step(timeout_s)
        except ConnectorError as error:
            if not self._may_pass(error):
                raise
            _log.warning("undone, trying again: %s", error)
            return 0

    def _step(self, timeout_s: float) -> int:
        room = self._isolation.room if self._isolation else self.config.max_epoch_records
        busy = not self.recovery.done or (self._stale and self.failing_since is None)  # work to do: wait for no record
        self.doing = "poll"
        polled = self._consumer.poll(room, 0.0 if busy else timeout_s)
        moved = bool(polled.assigned or polled.revoked)
        self.statistics.rebalances += moved
        self._stale |= moved
        self._owing &= not moved
        if moved or self._stale:
            self._take_over()
        elif not self.recovery.done:
            self._restore()
        else:
            return self._epoch(polled.records)
        return 0

    def _may_pass(self, error: ConnectorError) -> bool:
        """Undo what was under way, and tell whether the next step may try again."""
        self.last_error, now = str(error), self._clock()
        if self.failing_since is None:
            self.failing_since = now
        self._abandon()
        ended = isinstance(error, FencedError | IndeterminateCommitError)
        if ended:
            self.statistics.fences += isinstance(error, FencedError)
            self._drop_producer()
        if isinstance(error, SlotTakenError):
            return False
        self._stale |= ended or not self._rewound()
        return (ended or error.retriable) and now - self.failing_since <= self.config.retry_s

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
            busy = (
                taken
                or self.restoring
                or self._isolation
                or self._constants_wait
                or (self._new_plan and self.ledger.entry.positions)
            )
            if not busy and not self.lag():
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
        if not taken and not self._constants_wait:
            self._idle(records)
            return 0
        began = self._clock()
        try:
            self._process(records)
        except ConnectorError:
            self._owing = True
            raise
        except DataError as error:
            self._abandon()
            self._rewind()
            if not taken:
                raise
            return self._isolate(error, records, taken)
        except BaseException:
            self._abandon()
            self._stale = True
            raise
        self.statistics.epoch_s.add(self._clock() - began)
        self._narrow(taken)
        self._after_epoch()
        return taken

    def _process(self, records: list[Records]) -> None:
        self.doing = "compute"
        batches = self._inbound.decode(records)
        misfits = self._inbound.misfits
        if misfits and self.config.on_error == "fail":
            raise misfits[0].error()
        self._began = self._clock()
        draining = self.ledger.draining(records)
        for gate in self.circuit.gates:
            gate.draining = draining[gate.topic]
        self.circuit.step(batches)
        self._observe("stepped")
        changes = self.circuit.changes()
        time = max(batch.time for batch in batches.values()) if batches else 0
        self._transact(records, changes, misfits, time)

    def _transact(
        self,
        records: list[Records],
        changes: dict[str, Changes],
        misfits: list[Misfit],
        time: int,
        cut: Cut | None = None,
    ) -> None:
        """Send and commit everything; then, and only then, write the store. `cut` is one of a quiescent moment."""
        self.doing = "commit"
        producer = self._begin()
        out = Outbound(producer, self.log.partitioner)
        self._observe("begun")
        written = sum(out.sink(sink, self.circuit.outputs[name].batches) for name, sink in self._sinks.items())
        self._observe("outputs sent")
        entry = self.ledger.after(records, self._send_exchanges(out), self.circuit.constants_sent)
        self._observe("exchanges sent")
        for name, rows in changes.items():
            if (topic := self.circuit.states[name].spec.changelog) is not None:
                out.changelog(topic, rows, time)
        self._letters(producer, out, misfits)
        self._observe("changelogs sent")
        ends = producer.flush()
        self._observe("flushed")
        cut = cut or self._cut(entry, ends)
        if cut is not None:
            producer.send(self.internal.cuts, 0, [b"cut"], [cut.encode()], [time])
        self._observe("cut sent")
        began = self._clock()
        producer.commit(self.ledger.moves(entry), self._consumer.group_metadata())
        self.statistics.last_commit = self._clock()
        self.statistics.commit_s.add(self.statistics.last_commit - began)
        self._stale = True  # until the store has what the log has
        self._observe("committed")
        self.failing_since, self._owing, self._new_plan = None, False, []
        self._uncut = cut is None
        if cut is not None:
            self._last_cut, self._last_inputs = self._clock(), cut.inputs
        self._unpurged |= entry.counters != self.ledger.entry.counters
        self.ledger.adopt(entry, ends)
        self._store(changes, ends)
        self._observe("stored")
        self.statistics.records += sum(map(len, records))
        self.statistics.written += written
        self.statistics.epochs += 1
        self.circuit.commit()
        self._stale = False
        self._observe("done")

    def _store(self, changes: dict[str, Changes], ends: Mapping[TopicPartition, int]) -> None:
        """One batch: the changed rows, and how far the changelogs are in the store with them."""
        batch: list[tuple[bytes, bytes | None]] = []
        for name, rows in changes.items():
            batch += self.circuit.states[name].spec.stored(rows)
        offsets = {tp: end for tp, end in ends.items() if tp.topic in self.internal.changelogs}
        positions = self.ledger.entry.positions
        offsets |= {tp: offset for tp, offset in positions.items() if tp.topic in self._restorable}
        batch += [(offset_key(*tp), encode_offset(offset)) for tp, offset in offsets.items()]
        if batch:
            self.store.write([*batch, self.recovery.stamp()])

    def _send_exchanges(self, out: Outbound) -> dict[str, int]:
        """Send what leaves through loops and repartitions, and report what loops had to cut."""
        sent = {gate.topic: out.exchange(gate, gate.outbox) for gate in self.circuit.gates if gate.outbox}
        for loop in self.circuit.recursions.values():
            for key, _ in loop.overdue[:1]:
                what = "recursively '%s': key %r has been round %d times and goes on; mend the cycle in the data"
                _log.error(what, loop.name, key, loop.bound.limit)
            for batch in loop.cut:
                self.statistics.cut_rows += len(batch)
                what = "recursively '%s': %d row(s) beyond limit %d, the first %r"
                _log.warning(what, loop.name, len(batch), loop.bound.limit, batch.rows[0])
                if loop.bound.on_limit == "dead-letter" and not isinstance(loop, Fixpoint):
                    out.dead_rows(self.internal.dead_letter, loop.gate, batch, loop.name, loop.bound.limit)
        return {topic: rows for topic, rows in sent.items() if rows}

    def _letters(self, producer: Producer, out: Outbound, misfits: list[Misfit]) -> None:
        for record in misfits:
            self.statistics.skipped += 1
            where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            _log.warning("record left out: %s", record.error(), extra={"fields": where})
        found_late = [r for r in misfits if r.topic in self._restorable and r not in self._inbound.misfits]
        write_left_out(producer, self.internal.plan, found_late)
        if misfits and self.config.on_error == "dead-letter":
            out.dead_letters(self.internal.dead_letter, misfits)

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
        self._transact(records, {}, [record], record.timestamp)
        self._consumer.seek(self.ledger.entry.positions)  # past the record, which undoing the epoch went back to
        self._narrow(taken)
        return taken

    def _narrow(self, taken: int) -> None:
        if self._isolation is not None:
            self._isolation.left -= taken
            if self._isolation.left <= 0:
                self._isolation = None

    def _abandon(self) -> None:
        """As if the epoch had never begun, but for where the consumer is."""
        self.statistics.aborts += 1
        if self._producer is not None:
            try:
                self._producer.abort()
            except ConnectorError:
                self._drop_producer()
        self.circuit.rollback()

    def _drop_producer(self) -> None:
        """After an end of a transaction that cannot be known, only a new producer fences the old one's traces."""
        producer, self._producer = self._producer, None
        if producer is not None:
            self.statistics.producers_dropped += 1
            try:
                producer.close()
            except ConnectorError as error:
                _log.warning("producer given up: %s", error)

    def _take_over(self) -> None:
        """Adopt a new assignment, or begin again: know what is owned, and bring its states into the store."""
        self._own_producer()  # settles the last transaction
        assignment = self._consumer.assignment()
        refuse_growth(assignment, self._partitions)
        owned: dict[int, set[int]] = {count: set() for count in self._partitions.values()}
        for topic, partition in assignment:
            owned[self._partitions[topic]].add(partition)
        ownership = self.circuit.ownership.partitions = {count: frozenset(mine) for count, mine in owned.items()}
        self._rewind()
        self.ledger.reread_ends()
        self.recovery.begin(self.circuit.states.values(), ownership)
        if not self.recovery.done:
            self._consumer.pause(assignment)
        self._stale = False
        self._restore()

    def _restore(self) -> None:
        """Bring one slice of what is missing into the store; process nothing before all of it is there."""
        self.doing = "restore"
        self.statistics.restored += self.recovery.step(self.config.restore_records)
        if self.recovery.done:
            self.circuit.forget()
            self._consumer.resume(self._consumer.assignment())

    def _rewind(self) -> None:
        """Let the next poll start from the committed positions."""
        self._consumer.seek(self.ledger.reread(self._consumer.assignment()))

    def _rewound(self) -> bool:
        try:
            self._rewind()
        except ConnectorError:
            return False
        return True

    def quiescent(self) -> bool:
        """Whether, at a moment during this call, all input was taken in and nothing was under way anywhere."""
        return self.ledger.quiescent()

    def lag(self) -> int:
        """How many offsets lie between the committed positions and the ends of inputs and loops."""
        return self.ledger.lag()

    def lags(self) -> dict[str, int]:
        """The lag of the whole group, by topic."""
        return self.ledger.lags()

    @property
    def restoring(self) -> int:
        """How many changelog offsets are still to be restored."""
        return self.recovery.left

    @property
    def _constants_wait(self) -> bool:
        """Whether rows that need no input have yet to go out, here."""
        return bool(self.ledger.entry.positions) and self.circuit.due

    def _sole(self) -> bool:
        """Whether this worker owns everything."""
        return all(map(self.circuit.ownership.all_of, self.circuit.ownership.partitions))

    def _cut(self, entry: Entry, ends: Mapping[TopicPartition, int]) -> Cut | None:
        """The cut that an epoch ends with, where one is due: everything has one owner, and nothing is in a loop."""
        if self._clock() - self._last_cut < self.config.cut_interval_s or not self._sole() or entry.in_loops:
            return None
        return self.ledger.cut(entry, ends)

    def _cut_of_all(self) -> Cut | None:
        """The cut of a quiescent moment among several workers: the owner of the first partition looks for it."""
        if self._clock() - self._last_cut < self.config.cut_interval_s or self._sole() or not self.ledger.leads():
            return None
        self._last_cut = self._clock()
        cut = self.ledger.quiescent_cut()
        return None if cut is None or cut.inputs == self._last_inputs else cut

    def _idle(self, records: list[Records]) -> None:
        """Nothing came: commit positions that control records moved, cut, purge what is consumed."""
        entry = self.ledger.after(records, {})
        if not entry.positions:
            return  # it owns nothing
        cut = self._cut_of_all()
        last = self._uncut and self._sole() and not entry.in_loops
        if last:
            self._last_cut = float("-inf")
        if cut or last or self._new_plan or self.ledger.moves(entry):
            self._transact(records, {}, [], 0, cut)
        if self._unpurged and self.quiescent():
            self._purge()
        if not self._owing:  # else what failed comes again
            self.failing_since = None

    def _after_epoch(self) -> None:
        loops = self.circuit.statistics().values()
        self.statistics.waves = sum(loop.waves for loop in loops)
        self.statistics.loop_rows = sum(loop.rows for loop in loops)
        if self._unpurged and self._clock() - self._last_purge >= self.config.purge_interval_s:
            self._purge()

    def _purge(self) -> None:
        self._last_purge, self._unpurged = self._clock(), False
        try:
            purged = self.internal.purge(self.log, self.group)
            self.statistics.purges += bool(purged)
            self.statistics.purged_offsets += sum(purged.values())
        except ConnectorError as error:
            self._unpurged = True
            _log.warning("purge put off: %s", error)

    def _own_producer(self) -> Producer:
        if self._producer is None:
            self._producer = self.log.producer(f"{self.group}-{self.member}")
        return self._producer

    def _begin(self) -> Producer:
        producer = self._own_producer()
        producer.begin()
        if self._new_plan:
            write_plan(producer, self.internal.plan, self._new_plan, self.recovery.life)
        return producer
