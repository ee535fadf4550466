"""The worker: poll → step → commit, over and over. The only part that both waits and computes.

    poll      the log returns the next records of the owned partitions
    step      the circuit computes deltas; nothing outside has changed yet
    commit    one transaction: outputs, loop and repartition rows, changelogs, a cut, positions
    store     the changed rows and their changelog offsets, in one batch

A crash before the commit has no effect; one between commit and store leaves an older store, which the changelogs update
at the next start. A failed epoch is undone: transaction aborted, states rolled back, consumer moved back to the
committed positions. If a record caused the failure, the epoch's records stay in memory and are retried without it, or
in parts; the error policy decides about it (docs/adr/0020).
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from eddy.config import Config
from eddy.connectors.log import Log, Producer, Records, TopicPartition
from eddy.dropping import Dropping
from eddy.errors import ConnectorError, DataError, FencedError, IndeterminateCommitError, SlotTakenError
from eddy.runtime.assembly import assemble, open_store
from eddy.runtime.cuts import Cuts
from eddy.runtime.decoding import Rejected
from eddy.runtime.encoding import Encoder
from eddy.runtime.holding import Holding
from eddy.runtime.isolation import Isolation, Part
from eddy.runtime.key_value_store import KeyValueStore, table_store
from eddy.runtime.metadata import write_plan
from eddy.runtime.partitioner_check import refuse_growth
from eddy.runtime.provenance import records_to_blame
from eddy.runtime.quiescence import Cut
from eddy.runtime.recovery import Recovery
from eddy.runtime.rejections import Rejections
from eddy.state.offsets import encode_offset, offset_key
from eddy.state.spec import Changes
from eddy.state.store import Store
from eddy.statistics import Statistics
from eddy.topology.topology import Topology

__all__ = ["Worker"]

_log = logging.getLogger("eddy.worker")


class Worker:
    """Runs one topology on a log. Not for several threads.

    Args:
        topology: the program.
        log: the log with its topics.
        config: see `Config`.
        member: a stable name among the application's workers; a restart with the same name takes its place.
        store: the store of states, in place of `config.state_dir`.
        clock: seconds, rising.
        wall: seconds since 1970.
        observe: called with the name of each step of an epoch; an exception ends the epoch there.
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
        self.doing = ""  # the current or last part of a step, for monitors
        self.failing_since: float | None = None
        self.last_error = ""
        self._clock, self._observe, self._began = clock, observe, 0.0
        self.local_store = store or open_store(self.config, self.group, member)
        self._producer: Producer | None = None
        try:
            parts = assemble(topology, log, self.config, self.local_store, lambda: clock() - self._began)
            self._own_producer()  # ends an earlier worker's open transaction before positions are read
            self._consumer = log.consumer(self.group, sorted(parts.partitions), member)
        except BaseException:
            self._drop_producer()
            self.local_store.close()
            raise
        self.circuit, self.internal, self.positions = parts.circuit, parts.internal, parts.positions
        self._decoder, self._sinks = parts.decoder, parts.sinks
        self._partitions, self._new_plan = parts.partitions, parts.new_plan
        self.recovery = Recovery(log, self.local_store, self.group, self.internal.plan, parts.incarnation, wall)
        self._restorable = {state.spec.source for state in self.circuit.states.values()} - {None}
        self._rejections = Rejections(
            self.internal, self._restorable, self.config.on_error == "dead-letter", self._decoder.senders
        )
        self._dropping = Dropping(clock)
        self._isolation: Isolation | None = None
        self._room = self.config.max_epoch_records
        self._last_purge = clock()
        self._unpurged = self._stale = self._owing = False
        self._cuts = Cuts(self.positions, self.circuit, self.config.cut_interval_s, clock)
        self._holding = Holding(self.circuit, self.internal.plan, parts.stops, self._cuts.leads)

    def step(self, timeout_s: float = 0.0) -> int:
        """Run one epoch, waiting up to `timeout_s` for a record. Returns the number of records processed.

        After a temporary failure (a broker that is away, a rebalance in the middle of an epoch, a commit with an
        unknown result) the epoch is undone, and retried by the next step, for `Config.retry_s` at most.

        Raises: DataError naming the record, under the policy `fail`; SlotTakenError if another worker has taken this
        one's place; ConnectorError; StateError. After any exception the epoch is undone.
        """
        try:
            return self._step(timeout_s)
        except ConnectorError as error:
            if not self._may_pass(error):
                raise
            _log.warning("undone, trying again: %s", error)
            return 0

    def _step(self, timeout_s: float) -> int:
        if (part := self._next_part()) is not None:
            return self._epoch(part)
        # there is work: do not wait for records
        busy = not self.recovery.done or (self._stale and self.failing_since is None)
        self.doing = "poll"
        polled = self._consumer.poll(self._room, 0.0 if busy else timeout_s, self.config.max_epoch_bytes)
        moved = bool(polled.assigned or polled.revoked)
        self.statistics.rebalances += moved
        self._stale |= moved
        self._owing &= not moved
        if moved or self._stale:
            self._take_over()
        elif not self.recovery.done:
            self._restore()
        else:
            return self._epoch(Part(polled.records))
        return 0

    def _next_part(self) -> Part | None:
        """The part to retry. After `max_epoch_s` a poll is due, for the group: with as many records."""
        if self._isolation is None or self._stale:
            return None
        part = self._isolation.next
        if part.tries or self._clock() - self._isolation.began_s <= self.config.max_epoch_s:
            return part
        self._room = len(part)
        self._rewind()
        return None

    def _may_pass(self, error: ConnectorError) -> bool:
        """Undo the current epoch; return whether the next step may retry."""
        self.last_error, now = str(error), self._clock()
        self.failing_since = now if self.failing_since is None else self.failing_since
        self._abandon()
        ended = isinstance(error, FencedError | IndeterminateCommitError)
        if ended:
            self.statistics.fences += isinstance(error, FencedError)
            self._drop_producer()
            self._cuts.lose()
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
        """Step until there is no input, no restore and no row in a loop. Returns the number of records processed."""
        total = 0
        while True:
            taken = self.step()
            total += taken
            busy = (
                taken
                or self.restoring
                or self._isolation
                or self._constants_wait
                or self.circuit.unsettled
                or (self._new_plan and self.positions.entry.positions)
            )
            if not busy and not self.lag():
                return total

    def store(self, name: str) -> KeyValueStore[Any, Any]:
        """A table's rows of the keys owned here, to be read between steps. Raises: TopologyError."""
        return table_store(self.circuit, name)

    @property
    def in_epoch(self) -> bool:
        """Whether an epoch is being computed or committed: a stop now would undo it."""
        return self.doing in ("compute", "commit")

    def close(self) -> None:
        """Leave the group and release the store; uncommitted work is undone."""
        if self._producer is not None:
            self._producer.close()
        self._producer = None
        self._consumer.close()
        self.local_store.close()

    def _epoch(self, part: Part) -> int:
        taken = len(part)
        owns = bool(self.positions.entry.positions)
        settling = not taken and owns and self.circuit.unsettled and self.positions.quiescent()
        if not taken and not settling and not self._constants_wait:
            self._idle(part.records)
            return 0
        began = self._clock()
        try:
            self._process(part, settling)
        except ConnectorError:
            self._owing = True
            raise
        except DataError as error:
            self._abandon()
            self._isolate(error, part)
            return 0
        except BaseException:
            self._abandon()
            self._stale = True
            raise
        self.statistics.epoch_s.add(self._clock() - began)
        self._advance()
        self._after_epoch()
        return taken

    def _process(self, part: Part, settling: bool) -> None:
        self.doing, records = "compute", part.records
        batches = self._decoder.decode(records, part.left_out)
        rejected = self._decoder.rejected
        if rejected and self.config.on_error == "fail":
            raise rejected[0].error()
        self._began = self._clock()
        draining = self.positions.draining(records)
        for gate in self.circuit.gates:
            gate.draining = draining[gate.topic]
        if self.circuit.care.on:
            self._rejections.trace(self.circuit, self._decoder, self._sinks, part)
        self.circuit.step(batches, divisible=len(part.numbers() if part.left_out else part) > 1, settling=settling)
        self._observe("stepped")
        changes = self.circuit.changes()
        time = max(batch.time for batch in batches.values()) if batches else 0
        self._transact(records, changes, rejected, time)

    def _transact(
        self,
        records: list[Records],
        changes: dict[str, Changes],
        rejected: list[Rejected],
        time: int,
        cut: Cut | None = None,
    ) -> None:
        """Send and commit everything; only then write the store. `cut` is that of a quiescent moment."""
        self.doing = "commit"
        producer = self._begin()
        out = Encoder(producer, self.log.partitioner)
        self._observe("begun")
        written = sum(out.sink(sink, self.circuit.outputs[name]) for name, sink in self._sinks.items())
        self._observe("outputs sent")
        entry = self.positions.after(records, self._send_exchanges(out, records), self.circuit.constants_sent)
        self._observe("exchanges sent")
        for name, rows in changes.items():
            if (topic := self.circuit.states[name].spec.changelog) is not None:
                out.changelog(topic, rows, time)
        set_aside = self._rejections.send(producer, out, rejected, self.circuit.asides, records)
        held = self._holding.changes()
        self._holding.write(producer, held)
        self._observe("changelogs sent")
        ends = producer.flush()
        self._observe("flushed")
        cut = cut or self._cuts.after(entry, ends)
        if cut is not None:
            producer.send(self.internal.cuts, 0, [b"cut"], [cut.encode()], [time])
        self._observe("cut sent")
        began = self._clock()
        producer.commit(self.positions.moves(entry), self._consumer.group_metadata())
        self.statistics.last_commit = self._clock()
        self.statistics.commit_s.add(self.statistics.last_commit - began)
        self._stale = True  # until the restore is complete
        self._observe("committed")
        self.failing_since, self._owing, self._new_plan = None, False, []
        self._cuts.commit(cut)
        self._holding.commit(held)
        self._unpurged |= entry.counters != self.positions.entry.counters
        self.positions.adopt(entry, ends)
        self._store(changes, ends)
        self._observe("stored")
        self.statistics.records += sum(map(len, records))
        self.statistics.written += written
        self.statistics.skipped += len(rejected)
        self.statistics.epochs += 1
        self.statistics.dropped += self._dropping.report(self.circuit.dropped())
        self.circuit.commit()
        self.statistics.set_aside += set_aside
        self.statistics.kept_aside = sum([len(aside.kept) for aside in self.circuit.asides])
        self._stale = False
        self._observe("done")
        self.doing = "poll"

    def _store(self, changes: dict[str, Changes], ends: Mapping[TopicPartition, int]) -> None:
        """Write one batch: the changed rows, and the changelog offsets that they reach."""
        batch: list[tuple[bytes, bytes | None]] = []
        for name, rows in changes.items():
            batch += self.circuit.states[name].spec.stored(rows)
        offsets = {tp: end for tp, end in ends.items() if tp.topic in self.internal.changelogs}
        positions = self.positions.entry.positions
        offsets |= {tp: offset for tp, offset in positions.items() if tp.topic in self._restorable}
        batch += [(offset_key(*tp), encode_offset(offset)) for tp, offset in offsets.items()]
        if batch:
            self.local_store.write([*batch, self.recovery.stamp()])

    def _send_exchanges(self, out: Encoder, records: list[Records]) -> dict[str, int]:
        """Send the rows of loops and repartitions, and report rows that loops had to cut."""
        leaving = [gate for gate in self.circuit.gates if gate.outbox]
        origins = self._decoder.senders.of(records if leaving else ())
        sent = {gate.topic: out.exchange(gate, gate.outbox, origins) for gate in leaving}
        self.statistics.cut_rows += self._rejections.beyond_limits(out, self.circuit)
        owed = {f"{self.group}-{loop}-queued": moved for loop, moved in self.circuit.owed_moves.items()}
        return {topic: rows for topic, rows in sent.items() if rows} | owed

    def _isolate(self, error: DataError, part: Part) -> None:
        """Let the next step retry without the failing records, or in parts.

        Raises: DataError naming the record, if it may not be rejected.
        """
        if self._decoder.rejected and self.config.on_error == "fail":
            self._rewind()
            raise error
        isolation = self._isolation = self._isolation or Isolation(part, self._clock())
        if self.config.on_error != "fail" and not self.circuit.care.on:
            self.circuit.care.on = True
            if self.circuit.may_set_aside:
                return
        numbers = part.numbers()
        alone = {numbers[0]: error} if len(numbers) == 1 else None
        blamed = alone or records_to_blame(self.circuit, self._decoder, self._sinks, part, error)
        internal = any(part.where(number)[0].topic in self.internal.exchanges for number in blamed)
        if isolation.narrow(blamed, self.config.on_error != "fail" and not internal):
            return
        self._rewind()  # later records may mend it: retry together with them
        if alone is None:
            raise error
        raise self._decoder.refusal(*part.where(numbers[0]), error) from error

    def _advance(self) -> None:
        """Continue after a committed part: with the next part, or a poll."""
        if self._isolation is not None:
            self._isolation.advance()
        if not self._isolation:
            self._isolation, self._room, self.circuit.care.on = None, self.config.max_epoch_records, False
            self._rejections.forget()

    def _abandon(self) -> None:
        """Undo the epoch, except for the consumer's position."""
        self.doing = "undo"
        self.statistics.aborts += 1
        if self._producer is not None:
            try:
                self._producer.abort()
            except ConnectorError:
                self._drop_producer()
        self.circuit.rollback()

    def _drop_producer(self) -> None:
        """After an unknown end of a transaction, only a new producer fences late requests of the old one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            self.statistics.producers_dropped += 1
            try:
                producer.close()
            except ConnectorError as error:
                _log.warning("producer given up: %s", error)

    def _take_over(self) -> None:
        """Adopt a new assignment, or start again: determine the owned partitions, and restore their states."""
        self._own_producer()  # settles the last transaction
        assignment = self._consumer.assignment()
        refuse_growth(assignment, self._partitions)
        owned: dict[int, set[int]] = {count: set() for count in self._partitions.values()}
        for topic, partition in assignment:
            owned[self._partitions[topic]].add(partition)
        ownership = self.circuit.ownership.partitions = {count: frozenset(mine) for count, mine in owned.items()}
        self._rewind()
        self.positions.reread_ends()
        self.recovery.begin(self.circuit.states.values(), ownership)
        self.circuit.recall(self.recovery.set_aside)
        self._holding.begin(self.recovery.held)
        if not self.recovery.done:
            self._consumer.pause(assignment)
        self._stale = False
        self._restore()

    def _restore(self) -> None:
        """Restore one slice; process nothing before the restore is complete. Raises: as `_idle`."""
        self.doing = "restore"
        self.statistics.restored += self.recovery.step(self.config.restore_records)
        if self.recovery.done:
            self.circuit.forget()
            self._consumer.seek(self.positions.entry.positions)  # records polled meanwhile were not processed
            self._consumer.resume(self._consumer.assignment())
            self._holding.check_stop(self.quiescent)

    def _rewind(self) -> None:
        """Let the next poll start from the committed positions; records in memory would be processed twice."""
        self._isolation = None
        self._consumer.seek(self.positions.reread(self._consumer.assignment()))

    def _rewound(self) -> bool:
        try:
            self._rewind()
        except ConnectorError:
            return False
        return True

    def quiescent(self) -> bool:
        """Whether, at a moment during this call, all input was processed and nothing was in flight anywhere."""
        return not self.circuit.unsettled and self.positions.quiescent()

    def lag(self) -> int:
        """The number of offsets between the committed positions and the ends of inputs and loops."""
        return self.positions.lag()

    def lags(self) -> dict[str, int]:
        """The lag of the whole group, by topic."""
        return self.positions.lags()

    def held(self) -> dict[tuple[str, int], str]:
        """Messages about parts without a finite answer in this worker's partitions, as of the last commit, by recursion
        and partition.
        """
        return dict(self._holding.noted)

    @property
    def restoring(self) -> int:
        """The number of changelog offsets still to be restored."""
        return self.recovery.left

    @property
    def _constants_wait(self) -> bool:
        """Whether constants still have to be sent from here."""
        return bool(self.positions.entry.positions) and self.circuit.due

    def _idle(self, records: list[Records]) -> None:
        """Without input: commit positions moved by control records, cut, purge consumed rows.

        Raises: NoFiniteAnswerError if a recursion demands it and the group is quiescent.
        """
        entry = self.positions.after(records, {})
        if not entry.positions:
            return  # it owns nothing
        cut = self._cuts.quiescent()
        if cut or self._cuts.owed(entry) or self._new_plan or self.positions.moves(entry) or self._holding.changes():
            self._transact(records, {}, [], 0, cut)
        if self._unpurged and self.quiescent():
            self._purge()
        if not self._owing:  # otherwise the failed records are polled again
            self.failing_since = None
            self._holding.check_stop(self.quiescent)

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
            write_plan(producer, self.internal.plan, self._new_plan, self.recovery.incarnation)
        return producer
