"""The worker: poll → step → commit, repeatedly. No other part both waits and computes.

A step does the work of the worker's state; `lifecycle` has the table of states. A failed epoch is undone: transaction
aborted, states rolled back, consumer moved back to the committed positions. If a record caused the failure, the epoch's
records are retried without it, or in parts (`failing_records.py`). If memory may differ from the log, the worker joins
again.
"""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from eddy.config import Config
from eddy.connectors.log import Consumer, Log, Records, TopicPartition
from eddy.errors import ConnectorError, DataError, FencedError, NoTopicMatchesError
from eddy.runtime.assembly import Assembly, assemble, open_store
from eddy.runtime.calling_consumer import CallingConsumer
from eddy.runtime.epoch import Epoch, Stopwatch
from eddy.runtime.epoch_collections import without_collections
from eddy.runtime.epoch_room import EpochRoom
from eddy.runtime.failing_records import FailingRecords
from eddy.runtime.isolation import Part
from eddy.runtime.key_value_store import KeyValueStore, table_store
from eddy.runtime.lifecycle import Event, Lifecycle, WorkerState
from eddy.runtime.listeners import Listeners
from eddy.runtime.partitioner_check import refuse_growth
from eddy.runtime.producers import OwnProducer
from eddy.runtime.quiescence import Cut
from eddy.runtime.retries import Retries, TopicMadeAnewError, is_unknown, may_retry
from eddy.runtime.shares import Share, Strangers
from eddy.runtime.tenure import Tenure
from eddy.runtime.topic_watch import TopicWatch
from eddy.runtime.worker_arguments import worker_config
from eddy.runtime.worker_parts import Surroundings, parts_of
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
        clock: returns seconds that never decrease.
        wall: returns the seconds since 1970.
        observe: called with the name of each step of an epoch; if it raises an exception, the epoch fails at this step.
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
        self.topology, self.log, self.config = topology, log, worker_config("worker", topology, log, config, member)
        self.group, self.member, self.statistics = topology.name, member, Statistics()
        self.lifecycle = Lifecycle(f"worker '{member}' of '{self.group}'")
        self._listeners = Listeners(self.config)
        self.lifecycle.observe = self._listeners.transition
        self.trouble: Retries | None = None
        self.doing = ""  # the current or last part of a step, for monitors
        self._clock = clock
        self.local_store = store or open_store(self.config, self.group, member)
        self._producer = OwnProducer(log, f"{self.group}-{member}", self.statistics)
        self._surroundings = Surroundings(
            *(self.config, log, self.group, self.local_store, self._producer, self.statistics),
            *(self._listeners.restored, Stopwatch(clock), clock, wall, observe),
        )
        self._watch = TopicWatch(topology, log, self.config.topics_interval_s, clock)
        self._room = EpochRoom(self.config)
        self._adopt(*self._assembled())
        self._epoch: Epoch | None = None
        self._owned: frozenset[TopicPartition] = frozenset()
        self._strangers = Strangers(log, self.group)

    def _assemble(self) -> Assembly:
        clocks = self._surroundings.stopwatch.elapsed_s, self._surroundings.wall
        return assemble(self.topology, self.log, self.config, self.local_store, *clocks, self._watch.complete)

    def _assembled(self) -> tuple[Assembly, Consumer]:
        """Make the worker's parts, and join the group.

        Returns the parts and the consumer. Closes the store if this fails.
        """
        try:
            made = self._assemble()
            self._tenure = Tenure(self.log, self.group, made.internal.plan, self.member)
            self._tenure.begin(self._producer)  # ends an earlier worker's open transaction before positions are read
            return made, self.log.consumer(self.group, sorted(made.partitions), self.member, self._tenure.lasts)
        except BaseException:
            self._producer.drop()
            self.local_store.close()
            raise

    def _adopt(self, made: Assembly, membership: Consumer) -> None:
        """Use the parts of an assembly from now on."""
        self._membership, self._consumer = membership, made.calling(membership)
        self._partitions = made.partitions
        self._parts = parts = parts_of(made, self._surroundings, self._consumer)
        self.circuit, self.internal, self.positions = parts.circuit, parts.internal, parts.positions
        self.recovery, self.clocks = parts.recovery, parts.clocks
        self._cuts, self._holding = parts.cuts, parts.holding
        self._failing = FailingRecords(parts, self._room)
        self._watch.adopt(made.matching)

    def _join_topics(self) -> None:
        """Read the topics that match patterns now, a new topic from its first record.

        No epoch is open. Partitions, states and positions are taken over as after each change of the assignment.
        """
        consumer, parts = self._consumer, self._parts
        made = self._assemble()
        self._membership.subscribe(sorted(made.partitions))
        if isinstance(consumer, CallingConsumer):
            consumer.cancel()
        parts.circuit.close()
        parts.global_tables.close()
        self._adopt(made, self._membership)
        self._on(Event.MOVED)

    @property
    def state(self) -> WorkerState:
        """The state of the worker."""
        return self.lifecycle.state

    def step(self, timeout_s: float = 0.0) -> int:
        """Run one epoch, waiting up to `timeout_s` for a record. Returns the number of records processed.

        After a temporary failure the epoch is undone, and retried by the next step, for `Config.retry_s` at most. Such
        failures are a broker that is away, a rebalance in the middle of an epoch, and a commit with an unknown result.

        Raises: DataError naming the record, under the policy `fail`; SlotTakenError if another worker has taken this
        one's place; ConnectorError; StateError; InvariantError after `close`. After any exception the epoch is undone.
        """
        if self.state in (WorkerState.FAILED, WorkerState.CLOSING):
            self._on(Event.STEPPED)
        try:
            return self._attempt(timeout_s)
        except BaseException as error:
            if self._epoch is not None:
                self._undo()
            self._on(Event.FAILED if isinstance(error, Exception) else Event.LOST)
            raise

    def _attempt(self, timeout_s: float) -> int:
        if self.trouble is not None and self.trouble.waited(self._clock()):
            return 0
        try:
            return self._step(timeout_s)
        except ConnectorError as error:
            event = self._retry(error)
            if event is None:
                raise
            self._on(event)
            _log.warning("epoch undone, retrying: %s", error)
            return 0

    def _step(self, timeout_s: float) -> int:
        if (part := self._next_part()) is not None:
            return self._process(part)
        if self._watch.changed():
            self._join_topics()
            return 0
        if self._watch.made_anew(self._parts.topic_ids) and self._rewound():
            self._on(Event.LOST)  # drops records that were fetched from the former topic
        self.doing = "poll"
        self.clocks.polled()
        if self.state is WorkerState.PROCESSING:
            timeout_s = self.clocks.wait_s(timeout_s)
        polled = self._consumer.poll(self._room.records, 0.0 if self._busy else timeout_s, self.config.max_epoch_bytes)
        if polled.assigned or polled.revoked:
            self.statistics.rebalances += 1
            if self.trouble is not None:  # another worker may own the failed records now
                self.trouble = replace(self.trouble, owing=False)
            self._on(Event.MOVED)
        if self.state is WorkerState.JOINING and not (self._has_joined or self._consumer.assignment()):
            self.trouble = None  # the worker owns no partitions, so it has no records to commit
            return 0
        if self.state is WorkerState.JOINING:
            if self._watch.changed(now=True):
                self._join_topics()
                return 0
            self._take_over()
        if self.state is WorkerState.RESTORING:
            self._restore()
            return 0
        self._parts.global_tables.advance(self.config.max_epoch_records)
        return self._process(Part(self._parts.decoder.extractors.polled(polled.records)))

    @property
    def _has_joined(self) -> bool:
        """Whether the group has ever assigned partitions to this worker."""
        return bool(self.circuit.ownership.partitions)

    @property
    def _catches_up(self) -> bool:
        """Whether the worker still has to take over or restore its partitions, or to retry their records."""
        return self._has_joined and self.state is not WorkerState.PROCESSING

    @property
    def _busy(self) -> bool:
        """Whether the next step has to take over partitions or restore states, and need not wait for records."""
        due = self.state is WorkerState.JOINING and self._has_joined and self.trouble is None
        return due or self.state is WorkerState.RESTORING

    def _on(self, event: Event) -> None:
        """Change the worker's state; forget the records of a failed epoch unless they are isolated in the new state."""
        self.lifecycle.on(event)
        if self.state is not WorkerState.ISOLATING:
            self._failing.drop()

    def _begin(self) -> Epoch:
        self._epoch = Epoch(self._parts)
        return self._epoch

    def _undo(self) -> None:
        """Undo the open epoch, if there is one. The consumer's position does not change."""
        self.doing = "undo"
        self.statistics.aborts += 1
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            epoch.undo()

    def _retry(self, error: ConnectorError) -> Event | None:
        """Undo the attempt. Return the event for the worker's state; None if the next step may not retry."""
        computed, committed = (self._epoch.computed, self._epoch.committed) if self._epoch else (False, False)
        self._undo()
        permanent = not error.retriable and not isinstance(error, NoTopicMatchesError)
        anew = permanent and self._watch.made_anew(self._parts.topic_ids, now=True) and self._rewound()
        if anew or (permanent and self._watch.changed(now=True)):  # if so, a topic of a pattern may have been deleted
            return Event.LOST
        now = self._clock()
        self.trouble = (self.trouble or Retries(now)).after(error, computed, now, self.config.retry_s)
        unknown, lost = is_unknown(error), committed or isinstance(error, TopicMadeAnewError)
        if unknown:
            self.statistics.fences += isinstance(error, FencedError)
            self._producer.drop()
            self._cuts.lose()
        if not may_retry(error) or now - self.trouble.since >= self.config.retry_s:
            return None
        return Event.LOST if unknown or lost or not self._rewound() else Event.REWOUND

    def run(self, stop: Callable[[], bool], timeout_s: float = 0.2, after: Callable[[], None] = lambda: None) -> None:
        """Step until `stop()`, then close; `after` is called after each step."""
        try:
            while not stop():
                self.step(timeout_s)
                after()
        finally:
            self.close()

    def run_until_idle(self) -> int:
        """Step until no input, no restore and no row in a loop is left. Returns the number of records processed."""
        total = 0
        while True:
            processed = self.state is WorkerState.PROCESSING
            total += (taken := self.step())
            busy = (
                taken
                or self._catches_up
                or (self._has_joined and not processed)  # what no record announces is committed by the next step
                or self._due
                or self.circuit.unsettled
                or (self._parts.new_plan and self.positions.entry.positions)
            )
            if not busy and not self.lag():
                return total

    def store(self, name: str) -> KeyValueStore[Any, Any]:
        """Return a table's store, to read the rows of this worker's keys between steps. Raises: TopologyError."""
        return table_store(self.circuit, name)

    @property
    def in_epoch(self) -> bool:
        """Whether an epoch is being computed or committed: a stop now would undo it."""
        return self.doing in ("compute", "commit")

    def close(self) -> None:
        """Leave the group and release the store; uncommitted work is undone. The second call does nothing."""
        if self.state is WorkerState.CLOSING:
            return
        self._on(Event.CLOSED)
        with ExitStack() as ends:  # every part is closed, even if closing another part fails or is interrupted
            for part in (self.local_store, self._consumer, self._producer, self.circuit, self._parts.global_tables):
                ends.callback(part.close)

    @without_collections()
    def _process(self, part: Part) -> int:
        """Compute and commit the records of a poll, or a part of them that is isolated."""
        taken, owns = len(part), bool(self.positions.entry.positions)
        settling = not taken and owns and self.circuit.unsettled and self.positions.quiescent()
        if not taken and not settling and not self._due:
            self._idle(part.records)
            return 0
        began, epoch = self._clock(), self._begin()
        try:
            self.doing = "compute"
            epoch.compute(part, settling)
            self._commit(epoch, part.records)
        except DataError as error:
            if epoch.committed:
                raise
            self._undo()
            self._failing.check(error)
            self._on(Event.REJECTED)
            self._failing.narrow(error, part)
            return 0
        self.trouble = None
        took_s = self._clock() - began
        self.statistics.epoch_s.add(took_s)
        self._room.learn(taken, took_s)
        if not self._failing.committed() and self.state is WorkerState.ISOLATING:
            self._on(Event.ISOLATED)
        loops = self.circuit.statistics().values()
        self.statistics.waves = sum(loop.waves for loop in loops)
        self.statistics.loop_rows = sum(loop.rows for loop in loops)
        self._parts.purging.after_epoch()
        return taken

    def _commit(self, epoch: Epoch, records: list[Records], cut: Cut | None = None) -> None:
        self.doing = "commit"
        epoch.commit(records, cut)
        self._epoch = None
        self.doing = "poll"

    def _next_part(self) -> Part | None:
        """Return the part to retry; None if no part is left, or if the time is over and records are polled again."""
        if not self._failing:
            return None
        if (part := self._failing.next()) is None:
            self._rewind()
            self._on(Event.REWOUND)
        return part

    def _take_over(self) -> None:
        """Adopt the assignment: determine the owned partitions, and plan to restore their states."""
        self._tenure.check()
        self._producer.ready()  # ends the last transaction, whose result is unknown
        assigned = self._consumer.assignment()  # perhaps also of a topic that is no longer asked for
        assignment = {tp for tp in assigned if tp.topic in self._partitions}
        refuse_growth(assignment, self._partitions)
        share = Share.of(assignment, self._partitions)
        ownership = self.circuit.ownership.partitions = share.numbers
        self._owned, self.circuit.ownership.term = share.partitions, self.clocks.wall_ms()
        self._strangers.look()
        self._rewind()
        self._consumer.pause(assigned - self._owned)
        self._room.begin_anew()
        self.positions.reread_ends()
        self.recovery.begin(self.circuit.states.values(), ownership)
        self._parts.unlogged.begin(ownership)
        self._parts.global_tables.look()
        self._cuts.lose()  # the last transaction may be another worker's
        self.circuit.recall(self.recovery.set_aside)
        self.statistics.kept_aside = self.circuit.kept_aside
        self._holding.begin(self.recovery.held)
        self._consumer.pause(self._owned)
        self._on(Event.TAKEN_OVER)

    def _restore(self) -> None:
        """Restore one slice. No record is processed before the restore is complete. Raises: as `_idle`."""
        self.doing = "restore"
        tables, most = self._parts.global_tables, self.config.restore_records
        self.statistics.restored += self.recovery.step(most) + tables.restore(most, self.recovery.left_out)
        if self.recovery.done and tables.done:
            self.circuit.forget()
            self._consumer.seek(self.positions.entry.positions)  # records polled meanwhile were not processed
            self._consumer.resume(self._owned)
            self._on(Event.RESTORED)
            self._holding.check_stop(self.quiescent)

    def _rewind(self) -> None:
        """Let the next poll start from the committed positions."""
        self._consumer.seek(self.positions.reread(self._owned & self._consumer.assignment()))

    def _rewound(self) -> bool:
        try:
            self._rewind()
        except ConnectorError:
            return False
        return True

    def quiescent(self) -> bool:
        """Whether, at a moment during this call, all input was processed and nothing was in flight anywhere."""
        return not self.circuit.unsettled and self.positions.quiescent()

    def idle(self) -> bool:
        """Whether nothing is left to do at a moment during this call; False if the log does not answer.

        Rows that expire while the last epoch runs are not waited for.
        Raises: ConnectorError that is permanent.
        """
        if self._catches_up or (self.positions.entry.positions and self.clocks.left()):
            return False
        try:
            return self.quiescent()
        except ConnectorError as error:
            if not error.retriable:
                raise
            return False

    def lag(self) -> int:
        """Return the number of offsets from the committed positions to the ends of inputs and loops."""
        return self.positions.lag()

    def lags(self) -> dict[str, int]:
        """Return the lag of the whole group, in offsets, by topic."""
        return self.positions.lags()

    def held(self) -> dict[tuple[str, int], str]:
        """Return messages about data without a finite answer, as of the last commit, by recursion and partition."""
        return dict(self._holding.noted)

    @property
    def restoring(self) -> int:
        """The number of changelog offsets still to be restored."""
        return self.recovery.left + self._parts.global_tables.left

    @property
    def _due(self) -> bool:
        """Whether the worker has work without records: constants to send, or an operator whose work is due."""
        return bool(self.positions.entry.positions) and self.clocks.due()

    def _idle(self, records: list[Records]) -> None:
        """Do the work of a step without input: commit positions moved by control records, write a cut, purge rows.

        Raises: NoFiniteAnswerError if a recursion demands it and the group is quiescent.
        """
        entry = self.positions.after(records, {}, tables=(tables := self._parts.global_tables).offsets)
        if not entry.positions:
            self.trouble = None  # the worker owns no partitions, so it has no records to commit
            return
        cut = self._cuts.quiescent()
        owed = self._cuts.owed(entry) or self._parts.new_plan or self._holding.changes()
        if cut or owed or (tables.unreported and self._cuts.leads()) or self.positions.moves(entry):
            self._commit(self._begin(), records, cut)
        if self._parts.purging.due and self.quiescent():
            self._parts.purging.purge()
        if self.trouble is not None and self.trouble.owing and not self.positions.at_ends():
            return  # the failed records are polled again
        self.trouble = None
        self._holding.check_stop(self.quiescent)
