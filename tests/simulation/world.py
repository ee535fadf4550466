"""A world in one process: workers, an embedded log in memory, and everything that can go wrong, from a seed.

Strategy. A seed draws a program, partitions, settings and the faults that are on (swarm testing);
then, turn by turn, what happens next: a worker steps, input is produced, a worker joins, leaves,
is thrown out or comes back. A worker that steps may meet a fate at a named step of its epoch:

    crash     it is gone as by SIGKILL, nothing is undone; its store is kept, lost, or an older copy
    abort     a retriable error: the epoch is undone and tried again
    unknown   a commit of which it never learns whether it happened, and both happen
    refused   the store takes no write after the commit (a full disk): the worker stops, or is stepped again
    zombie    it is thrown out in the middle of its epoch, and goes on
    usurped   the same, and others take over and commit before it goes on
    stolen    another worker takes its name in the middle of its epoch
    paused    it stands still, past its session, when the log has answered a question of its: others take over,
              commit and purge before it sees the answer

In one of three worlds more of them, `MISHAPS`, may end a worker's step in whichever state the worker is: when the log
answers, or while records are isolated. A worker may leave then, too.

In one of three worlds somebody meddles with the group: an operator resets positions or deletes all, and a stranger
joins under the application's name, reads some of its topics, and commits how far it has come.

In two of three worlds some records cannot be processed: each worker leaves them out, or writes letters of them.

After the turns of this safety phase comes liveness: faults off, the dead thrown out, everybody steps
until nothing is left and no worker is in trouble, within a bound.

Invariants, held by `Witness` against naive oracles:

1. `quiescent()` is true only when nothing is left to do, and then outputs and changelogs are exact.
2. Each cut names offsets at which outputs and changelogs are f(inputs).
3. No position lies before its partition's first record: purged ≤ committed.
4. A zombie commits nothing.
5. In the end outputs (facts as multisets), changelogs, stores and memories are exact, rows emitted
   and consumed are as many as were in the topics, and `quiescent()` is true. There is one letter of
   each record that cannot be processed, and none of any other. As many rows are remembered as set
   aside as fail, and keys as withheld whose values cannot be written.
6. The same seed takes the same turns.
"""

import contextlib
import hashlib
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.local.consumer import LocalConsumer
from eddy.connectors.log import Position, TopicPartition, TopicSpec
from eddy.errors import ConnectorError, FencedError, IndeterminateCommitError
from eddy.operators.errors.guarded import unguarded
from eddy.operators.windows.due_keys import DueKeys
from eddy.partitioner import partition_of
from eddy.runtime import lifecycle
from eddy.state.rocksdb import RocksDBStore
from eddy.state.store import Store
from tests.children import KilledError
from tests.simulation.later_programs import BURSTS, FIRST_SEED, LASTING, ONCE, PAIRED, RATED
from tests.simulation.programs import PROGRAMS, Event, Program
from tests.simulation.witness import KeptStore, Witness

__all__ = ["FATES", "STEPS", "World"]

STEPS = [
    "stepped",
    "begun",
    "outputs sent",
    "exchanges sent",
    "changelogs sent",
    "flushed",
    "cut sent",
    "committed",
    "stored",
    "done",
]
"""The named steps of an epoch, in order; `test_steps_are_all_those_of_an_epoch` keeps the list whole."""

BEFORE_COMMIT = STEPS[: STEPS.index("committed")]
UNLOCKED = STEPS[: STEPS.index("flushed")]
"""From `flushed` on a producer of the embedded log holds the writer's lock: no other one can commit."""

ANSWERED = "answered"
"""In place of a step: the log has answered a question of the worker's, at any moment."""

FATES = {
    "crash": STEPS,
    "abort": BEFORE_COMMIT,
    "unknown": ["cut sent", "committed"],
    "refused": ["committed"],
    "zombie": BEFORE_COMMIT,
    "usurped": UNLOCKED,
    "stolen": UNLOCKED,
    "paused": [ANSWERED],
}
MISHAPS = ["abort", "unknown", "unknown", "refused", "crash"]
RARE = (lifecycle.WorkerState.RESTORING, lifecycle.WorkerState.ISOLATING)
"""States that a worker is in for few steps: mishaps come ten times as often there."""
TURNS = {"step": 60, "produce": 18, "join": 4, "leave": 1, "crash": 2, "evict": 4, "throw out": 1, "compact": 1}
LATEST_MS = 6
"""By so many milliseconds, less one, records are late at most, where a program reads their timestamps."""
MAX_WORKERS = 4
ROUNDS = 3_000


def due_keys(step: Any) -> list[DueKeys[Any]]:
    """What says which rows of a step over time are due: of the step itself, or of the sides of a join."""
    parts = vars(step)
    sides = [*parts.get("_sides", ()), parts.get("_waiting"), parts.get("_versions")]  # private: of joins
    return [one.due for one in (step, *sides) if isinstance(getattr(one, "due", None), DueKeys)]


@dataclass
class Actor:
    """One worker of the world, and what is to happen to it in its next epoch; from `epochs` on it is a zombie."""

    name: str
    store: Store
    worker: eddy.Worker = field(init=False)
    fate: tuple[str, str] | None = None
    doomed: bool = False
    epochs: int = 0
    running: bool = False


class FolderStore(RocksDBStore):
    """A store on disk, which another one may follow in its folder."""

    def __init__(self, folder: Path, owner: str) -> None:
        super().__init__(folder, owner, 1 << 20)
        self.folder, self.owner = folder, owner


class AnswersLate:
    """The world's log as one worker sees it: `answered` is called before it gets an answer."""

    def __init__(self, log: LocalLog, answered: Callable[[], None]) -> None:
        self._log, self._answered = log, answered

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._log, name)
        return self._late(found) if name in ("committed", "begin_offsets", "end_offsets", "read") else found

    def _late(self, question: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            answer = question(*arguments)
            self._answered()
            return answer

        return ask


class World:
    """One seed's world. `run` plays it and raises AssertionError where an invariant does not hold."""

    def __init__(self, seed: int, turns: int = 45) -> None:
        self.seed, self.turns = seed, turns
        self.rng = random.Random(seed)
        self.trace: list[str] = []
        *others, sessions, visits, clicks = PROGRAMS
        drawn = self.rng.choice(others)
        timed = {9: sessions, 8: visits, 7: clicks}
        if seed >= FIRST_SEED:
            timed |= {6: LASTING, 5: RATED, 4: PAIRED, 3: ONCE, 2: BURSTS}
        self.program: Program = timed.get(self.seed % 10, drawn)
        self.times = random.Random(f"times {self.seed}")
        self.now = 0.0
        self.actors: list[Actor] = []
        self.dead: list[str] = []
        self.left_behind: list[Store] = []
        self.older: list[KeptStore] = []
        self.transitions: set[tuple[lifecycle.WorkerState, lifecycle.Event]] = set()
        self.living = False
        self._checked: object = None
        self.stranger: LocalConsumer | None = None
        self._rocksdb = self.rng.random() < 0.03
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.log = LocalLog(None, clock=self._clock, busy_timeout_s=0.0)
        self._draw_settings()
        self._make_topics()

    def _draw_settings(self) -> None:
        rng = self.rng
        self.config = eddy.Config(
            max_epoch_s=5.0,
            max_epoch_records=rng.choice([1, 2, 3, 5, 20]),
            max_loop_rows=rng.choice([1, 3, 10, 10_000]),
            cache_bytes=rng.choice([1, 1 << 20]),
            purge_interval_s=rng.choice([0.0, 0.0, 5.0]),
            cut_interval_s=rng.choice([0.0, 0.0, 3.0]),
            restore_records=rng.choice([1, 3, 5, 1000]),
        )
        self.cells = rng.choice([2, 4, 10_000])
        self.faults = [fate for fate in FATES if rng.random() < 0.5]
        self.rate = rng.choice([0.0, 0.05, 0.2, 0.4]) if self.faults else 0.0
        self.weights = {turn: weight * rng.choice([1, 1, 3]) for turn, weight in TURNS.items()}
        self.compacted = rng.random() < 0.3
        self.mishaps = random.Random(f"answers {self.seed}")  # by numbers of its own
        self.mishap_rate = self.mishaps.choice([0.0, 0.0, 0.05])
        self.meddling = random.Random(f"meddling {self.seed}")
        self.meddling_rate = self.meddling.choice([0.0, 0.0, 0.1])
        self._draw_poison()
        self.say(f"{self.program.name} {self.config} cells={self.cells} faults={self.faults} rate={self.rate}")

    def _draw_poison(self) -> None:
        """By numbers of its own. What a compacted topic keeps of a key may be a record that was left out."""
        self.bad_luck = random.Random(f"poison {self.seed}")
        tables = {source.topic for source in self.program.topology().plan.sources() if source.kind == "table"}
        self.poison = [event for event in self.program.poison if event[0] not in tables or not self.compacted]
        self.poison += self.program.bad_rows
        policy: Any = self.bad_luck.choice(["fail", "skip", "dead-letter"])
        self.config = replace(
            self.config, on_error=policy, max_epoch_bytes=self.bad_luck.choice([1 << 26, 1 << 26, 1 << 26, 30])
        )
        if policy == "fail":
            self.poison = []
        self.say(f"poison {self.poison} {policy}, {self.config.max_epoch_bytes} bytes")

    def _make_topics(self) -> None:
        plan = self.program.topology().plan
        counts = {topic: self.rng.choice([1, 2, 2, 3, 4, 6]) for topic in self.program.partitions}
        counts = {topic: counts[like] for topic, like in self.program.partitions.items()}
        policy = {"cleanup.policy": "compact"} if self.compacted else {}
        tables = {source.topic for source in plan.sources() if source.kind == "table"}
        specs = [TopicSpec(topic, n, policy if topic in tables else {}) for topic, n in counts.items()]
        specs += [TopicSpec(sink.topic, self.rng.randrange(1, 4)) for sink in plan.sinks()]
        self.log.create_topics(specs)
        self.counts, self._serdes = counts, {source.topic: source for source in plan.sources()}
        self.say(f"partitions {counts} compacted={self.compacted} rocksdb={self._rocksdb}")

    def _clock(self) -> float:
        return self.now

    def say(self, line: str) -> None:
        """Put a line into the trace."""
        self.trace.append(line)

    def digest(self) -> str:
        """A hash of all that happened."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def run(self) -> "World":
        """Play the safety phase, then the liveness phase."""
        try:
            self._start()
            self.witness = Witness(self.program, self.log, self.actors[0].worker)
            for _ in range(self.turns):
                self._turn()
            self._live()
        finally:
            self._close()
        return self

    def _close(self) -> None:
        for actor in self.actors:
            actor.worker.close()
        for store in self.left_behind:
            store.close()
        self.log.close()
        if self._folder is not None:
            self._folder.cleanup()

    # Turns

    def _turn(self) -> None:
        self.now += self.rng.choice([0.0, 0.1, 2.0])
        if self.meddling.random() < self.meddling_rate:
            self._meddle()
            self._check()
        turn = self.rng.choices(list(self.weights), list(self.weights.values()))[0]
        actor = self.rng.choice(self.actors) if self.actors else None
        if turn == "produce":
            self._produce()
        elif turn == "compact":
            if self.witness.are_others():
                return  # it may keep no more than the group has read, by positions that others have written
            self.log.compact()
            self.say("compact")
        elif turn == "evict":
            self._evict_a_dead_one()
        elif actor is None or (turn == "join" and len(self.actors) < MAX_WORKERS):
            self._start()
        elif turn == "step":
            self._draw_fate(actor)
            self._step(actor)
            if actor in self.actors and actor.worker.state in RARE and self.mishaps.random() < self.mishap_rate:
                self._leave(actor)
        elif turn == "leave":
            self._leave(actor)
        elif turn == "crash" and "crash" in self.faults:
            self._bury(actor, "between two steps")
        elif turn == "throw out" and "zombie" in self.faults:
            self._throw_out(actor)
        self._check()

    def _check(self) -> None:  # private: no log says whether it has changed
        """Hold the log to the invariants; where it has not changed there is nothing new to see."""
        version = self.log._storage.version()
        if version == self._checked:
            return
        self._checked = version
        self.witness.count_exchanged()
        self.witness.quiescent()
        self.witness.check_cuts()

    def _produce(self) -> None:
        events = [self.program.event(self.rng) for _ in range(self.rng.randrange(1, 5))]
        if self.poison:
            events = [self.bad_luck.choice(self.poison) if self.bad_luck.random() < 0.2 else event for event in events]
        producer = self.log.producer(None)
        producer.begin()
        for event in events:
            topic, partition, key, value = self._encoded(event)
            late = self.times.randrange(LATEST_MS) if self.program.timed else 0
            producer.send(topic, partition, [key], [value], [max(0, int(self.now) - late)])
        if self.rng.random() < 0.15:
            producer.abort()
            self.say("produce, aborted")
        else:
            producer.commit({}, None)
            self.say(f"produce {events}")

    def _encoded(self, event: Event) -> tuple[str, int, bytes, bytes | None]:
        topic, key, value = event
        source = self._serdes[topic]
        data = source.key.encode(key)
        body = None if value is None else source.value.encode(value)
        return topic, partition_of(data, self.counts[topic]), data, body

    def _evict_a_dead_one(self) -> None:
        if self.dead:
            name = self.dead.pop(self.rng.randrange(len(self.dead)))
            self.log.evict(self.program.topology().name, name)
            self.say(f"evict {name}")

    def _leave(self, actor: Actor) -> None:
        actor.worker.close()
        self.actors.remove(actor)
        self._keep_store(actor)
        self.say(f"{actor.name} leaves")

    def _throw_out(self, actor: Actor) -> None:
        self.log.evict(self.program.topology().name, actor.name)
        self.say(f"{actor.name} is thrown out")

    # Others

    def _meddle(self) -> None:  # private: of a group with members, as Kafka lets nobody
        """Somebody else writes positions of the group, or joins it."""
        partitions, rng, group = self.witness.before_others_write(), self.meddling, self.witness.group
        deed = rng.choice(["forget", "reset", "stranger", "stranger"])
        if deed == "stranger":
            self._be_a_stranger(partitions)
        elif deed == "forget":
            with self.log._storage.change():
                self.log._storage.delete_group(group)
        elif partitions:
            begins, ends = self.log.begin_offsets(partitions), self.log.end_offsets(partitions)
            chosen = rng.sample(partitions, rng.randint(1, len(partitions)))
            with self.log._storage.change():
                self.log._storage.move(group, {tp: Position(rng.randint(begins[tp], ends[tp])) for tp in chosen})
        self.say(f"meddling: {deed}")

    def _be_a_stranger(self, committed: list[TopicPartition]) -> None:
        """Join, with some of the topics; or leave; or commit what was read, only where workers have a position."""
        rng, topics = self.meddling, sorted({tp.topic for tp in [*self.witness.inputs, *self.witness.exchanges]})
        if self.stranger is None:
            some = rng.sample(topics, rng.randint(1, len(topics)))
            self.stranger = self.log.consumer(self.witness.group, some, rng.choice(["stranger", "zealot"]))
        elif rng.random() < 0.3:
            self._leave_as_stranger()
        else:
            with contextlib.suppress(ConnectorError):  # a position that was reset, and whose records were deleted
                self.stranger.poll(10, 0.0)
            taken = self.stranger.assignment() & set(committed)
            producer = self.log.producer(None)
            producer.begin()
            ends = self.log.end_offsets(taken)
            producer.commit({tp: Position(ends[tp]) for tp in taken}, self.stranger.group_metadata())

    def _leave_as_stranger(self) -> None:
        if self.stranger is not None:
            self.stranger.close()
            self.stranger = None

    # Workers

    def _start(self, name: str | None = None) -> None:
        if name is None:
            free = [f"w{i}" for i in range(MAX_WORKERS + 2) if f"w{i}" not in [a.name for a in self.actors]]
            name = self.rng.choice(free)
        if name in self.dead:
            self.dead.remove(name)
        actor = Actor(name, self._draw_store())
        actor.worker = eddy.Worker(
            self.program.topology(),
            AnswersLate(self.log, lambda: self._answer(actor)),  # type: ignore[arg-type]
            self.config,
            member=name,
            store=actor.store,
            clock=self._clock,
            observe=lambda step: self._observe(actor, step),
        )
        actor.worker.circuit.max_cells = self.cells  # fewer than a setting in bytes can ask for
        for operator in actor.worker.circuit.operators:
            step = unguarded(operator)
            for keys in due_keys(step):
                keys.most = 2  # so that rows often wait for the next epoch
        actor.worker.lifecycle.observe = lambda left, event, entered: self._enters(actor, left, event, entered)
        self.actors.append(actor)
        self.say(f"{name} joins")

    def _enters(
        self, actor: Actor, left: lifecycle.WorkerState, event: lifecycle.Event, entered: lifecycle.WorkerState
    ) -> None:
        self.transitions.add((left, event))
        self.say(f"{actor.name} {left} → {entered}: {event}")

    def _draw_store(self) -> Store:
        if self.older and self.rng.random() < 0.2:
            self.say("an older copy of a store")
            return self.older.pop(self.rng.randrange(len(self.older))).copy()
        if self.left_behind and self.rng.random() < 0.7:
            return self.left_behind.pop(self.rng.randrange(len(self.left_behind)))
        if not self._rocksdb:
            return KeptStore()
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / str(len(self.trace))
        return FolderStore(path, self.program.topology().name)

    def _keep_store(self, actor: Actor) -> None:
        """The store outlives its worker, or is lost; of one in memory an older copy may be taken."""
        if isinstance(actor.store, FolderStore):
            actor.store.close()
            self.left_behind.append(FolderStore(actor.store.folder, actor.store.owner))
        elif self.rng.random() < 0.8:
            self.left_behind.append(actor.store)

    def _bury(self, actor: Actor, where: str) -> None:
        """The worker is gone without a word; its name stays in the group until it is evicted."""
        self.actors.remove(actor)
        if not actor.doomed:
            self.dead.append(actor.name)
        self._keep_store(actor)
        self.say(f"{actor.name} dies {where}")

    def _step(self, actor: Actor) -> int:
        epochs = actor.epochs = actor.worker.statistics.epochs
        actor.doomed, actor.running = False, True
        if isinstance(actor.store, KeptStore) and self.rng.random() < 0.05:
            self.older.append(actor.store.copy())
        taken = 0
        try:
            taken = actor.worker.step()
        except KilledError:
            self._bury(actor, "in its epoch")
        except FencedError:
            assert self._replaced(actor), "fenced, but nobody has its name"
            actor.doomed = True
            self._bury(actor, "fenced")
        except eddy.StateError:
            self._fail(actor)
        finally:
            actor.running = False
            if actor.fate is not None and actor.fate[1] != ANSWERED:
                actor.fate = None
        if actor.doomed:
            assert actor.worker.statistics.epochs == actor.epochs, f"{actor.name}: a zombie has committed"
        did = actor.worker.statistics
        self.say(f"{actor.name} steps: {taken} in, {did.written} out, {did.aborts} aborts, {did.restored} restored")
        if did.epochs != epochs:
            self.witness.count_exchanged()
        return taken

    def _fail(self, actor: Actor) -> None:
        """Its store has refused: it is closed, or, being thrown out by nobody, stepped again."""
        if not actor.doomed and self.mishaps.random() < 0.5:
            self.say(f"{actor.name} has failed, and is stepped again")
            return
        actor.worker.close()
        self._bury(actor, "of a full disk")
        if not actor.doomed:
            self.dead.remove(actor.name)

    def _replaced(self, actor: Actor) -> bool:
        return sum(other.name == actor.name for other in self.actors) > 1 or actor.name in self.dead

    # Fates

    def _draw_fate(self, actor: Actor) -> None:
        if actor.fate is None and self.rng.random() < self.rate:
            fate = self.rng.choice(self.faults)
            actor.fate = fate, self.rng.choice(FATES[fate])

    def _observe(self, actor: Actor, step: str) -> None:
        if step != ANSWERED and actor.worker.state is lifecycle.WorkerState.ISOLATING:
            self._mishap(actor, step, [deed for deed in MISHAPS if step in FATES[deed]])
        if actor.fate is None or actor.fate[1] != step:
            return
        (fate, _), actor.fate = actor.fate, None
        self.say(f"{actor.name} at '{step}': {fate}")
        self.deeds[fate](actor, step)

    @property
    def deeds(self) -> dict[str, Callable[[Actor, str], None]]:
        """By fate."""
        return {
            "crash": self._crash,
            "abort": self._abort,
            "unknown": self._lose_answer,
            "refused": self._refuse,
            "zombie": self._evict_running,
            "usurped": self._usurp,
            "stolen": self._steal,
            "paused": self._pause,
        }

    def _answer(self, actor: Actor) -> None:
        if actor.running and actor.fate is not None and actor.fate[1] == ANSWERED and self.rng.random() < 0.3:
            self._observe(actor, ANSWERED)
        self._mishap(actor, ANSWERED, MISHAPS)

    def _mishap(self, actor: Actor, step: str, deeds: list[str]) -> None:
        if not deeds or not actor.running or self.living:
            return
        rate = self.mishap_rate * (10 if actor.worker.state in RARE else 1)
        if self.mishaps.random() < rate:
            deed = self.mishaps.choice(deeds)
            self.say(f"{actor.name} at '{step}': {deed}")
            self.deeds[deed](actor, step)

    def _crash(self, actor: Actor, step: str) -> None:  # private: a SIGKILL undoes nothing
        actor.worker._undo = lambda: None  # type: ignore[method-assign]
        actor.worker.lifecycle.observe = lambda left, event, entered: None
        if step in BEFORE_COMMIT and (step not in UNLOCKED or self.rng.random() < 0.5):
            # The lock goes with the process; the open transaction goes when its time is out.
            actor.worker._producer.abort()
        raise KilledError

    def _abort(self, actor: Actor, step: str) -> None:
        raise eddy.ConnectorError(f"simulated at '{step}'", retriable=True)

    def _lose_answer(self, actor: Actor, step: str) -> None:
        raise IndeterminateCommitError(f"simulated at '{step}'")

    def _refuse(self, actor: Actor, step: str) -> None:
        raise eddy.StateError(f"simulated at '{step}'")

    def _evict_running(self, actor: Actor, step: str) -> None:
        self.log.evict(self.program.topology().name, actor.name)
        actor.doomed, actor.epochs = True, actor.worker.statistics.epochs

    def _usurp(self, actor: Actor, step: str, steps: int = 0) -> None:
        """Throw it out, and let the others go on for a while, restore and commit."""
        self._evict_running(actor, step)
        if all(other.running for other in self.actors):
            self._start()
        for _ in range(steps or self.rng.randrange(1, 12)):
            idle = [other for other in self.actors if not other.running]
            if idle:
                self._step(self.rng.choice(idle))

    def _pause(self, actor: Actor, step: str) -> None:
        """The same, when what it has committed in this step is seen by all."""
        self.witness.count_exchanged()
        self.now += 10.0
        self._usurp(actor, step, self.rng.randrange(10, 40))

    def _steal(self, actor: Actor, step: str) -> None:
        """Another worker of the same name: one of the two has to go."""
        actor.doomed, actor.epochs = True, actor.worker.statistics.epochs
        self._start(actor.name)
        if step in UNLOCKED:
            for _ in range(self.rng.randrange(6)):
                if not self.actors[-1].running:
                    self._step(self.actors[-1])

    # Liveness

    def _live(self) -> None:
        self.say("liveness")
        self.living = True
        for actor in self.actors:
            actor.fate = None  # one that waits for an answer would come now
        self._leave_as_stranger()
        while self.dead:
            self._evict_a_dead_one()
        if not self.actors:
            self._start()
        for _ in range(ROUNDS):
            self.now += 1.0
            taken = sum(self._step(actor) for actor in list(self.actors))
            at_work = any(actor.worker.restoring or actor.worker.trouble for actor in self.actors)
            if not taken and not at_work and self.witness.quiescent():
                break
        else:
            raise AssertionError(f"not at rest after {ROUNDS} rounds: {self.witness.pending()}")
        self._check()
        self.witness.check_counters(self.witness.exchanged)
        self.witness.check_set_aside()
        if self.config.on_error == "dead-letter":
            self.witness.check_letters()
        for actor in self.actors:
            assigned = actor.worker._consumer.assignment()  # private: the group's word, not the worker's
            self.witness.check_store(actor.worker, assigned)
        self.say(f"at rest, {self.witness.cuts} cuts, {self.witness.exchanged} rows exchanged")
