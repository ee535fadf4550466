"""What a torture holds: one application on a broker, its workers as processes, its input, and whoever watches.

Processes are started anew, never forked, and signalled by their own id. One that ends with the status of
what is temporary is started again, as a supervisor would; one that ends otherwise of itself has failed.
"""

import contextlib
import os
import random
import shutil
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

import eddy
from eddy.cli.exits import is_temporary
from eddy.connectors.kafka import KafkaLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.errors import ConnectorError
from eddy.runtime.assembly import Assembly, assemble
from eddy.state.memory import MemoryStore
from tests.children import Child, ordered
from tests.simulation.witness import Witness
from tests.torture.child import KILL, Order, settings_of
from tests.torture.feed import Feed
from tests.torture.observer import Observer
from tests.torture.programs import PARTITIONS, program_of
from tests.torture.replica import Replica

__all__ = ["TRANSACTION_S", "Early", "Failure", "Hang", "Rig"]

HANGS_AFTER_S = 120.0
GIVES_UP_AFTER_S = 400.0
LAST_WORDS_S = 2.0
STOPPED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)
"""How a process that was told to stop may end; by the signal where it has not said yet how it is to be stopped."""
_TICK_S = 0.02

SESSION_S, TRANSACTION_S = 2.0, 6.0
CLIENTS = {
    "consumer.session.timeout.ms": str(int(SESSION_S * 1000)),
    "consumer.heartbeat.interval.ms": "300",
    "producer.transaction.timeout.ms": str(int(TRANSACTION_S * 1000)),
    "reconnect.backoff.max.ms": "500",
}
CONFIG: dict[str, int | float] = {
    "max_epoch_records": 10,
    "max_loop_rows": 20,
    "purge_interval_s": 5.0,
    "cut_interval_s": 0.1,
    "restore_records": 100,
    "cache_bytes": 1 << 20,
}
"""Many small epochs, so that a run has many moments to be killed at; loops go through their topics."""


LASTS = 50
"""So many times in a row it has to be at rest in the end: workers that have just joined have begun epochs by then."""


class Failure(AssertionError):  # noqa: N818
    """Something is not as it has to be."""


class Early(Failure):
    """The application was called quiescent, and was not; or records were purged that nobody had taken."""


class Hang(Failure):
    """What has to happen does not."""


@dataclass
class Slot:
    """A worker by its name: its process, the latest one, and whether it is to end."""

    child: Child
    doomed: bool = False

    def owned(self) -> set[TopicPartition] | None:
        """The partitions that it has said it owns, None before it has said anything."""
        lines = self.child.lines()
        if not lines:
            return None
        words = lines[-1].split()
        return {TopicPartition(topic, int(p)) for topic, p in zip(words[::2], words[1::2], strict=True)}


class Rig:
    """One application under a name of its own, in `folder`. Random choices come from `seed`."""

    def __init__(self, bootstrap: str, folder: Path, name: str, run: str, seed: int, **config: float) -> None:
        self.rng, self.folder, self.name, self.run, self.bootstrap = random.Random(seed), folder, name, run, bootstrap
        self.program = program_of(name, run)
        self.application = self.program.topology().name
        self.config, self.planted = CONFIG | config, ""
        self.faults: Counter[str] = Counter()
        self.slots: dict[str, Slot] = {}
        self.damaged: set[str] = set()
        self.kills = 0
        self._restarts = Counter[str]()
        folder.mkdir(parents=True, exist_ok=True)
        settings = settings_of(bootstrap, CLIENTS)
        self.log, self._observed = KafkaLog(settings), KafkaLog(settings)
        self._asking = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self.parts = self._make_topics()
        counts = {topic: spec.partitions for topic, spec in self.log.topics(self.topics).items()}
        self.replica = Replica(self._observed, counts, self.parts.internal.exchanges)
        self.witness = Witness(self.program, self.replica, self.parts)  # type: ignore[arg-type]
        self.feed = Feed(settings, self.program, seed, transactional=self.rng.random() < 0.5)
        self.observer = Observer(self._observed, self.witness, self.feed, seed)

    def _make_topics(self) -> Assembly:
        plan = self.program.topology().plan
        users = [*(source.topic for source in plan.sources()), *(sink.topic for sink in plan.sinks())]
        self.log.create_topics(TopicSpec(topic, PARTITIONS) for topic in users)
        parts = assemble(self.program.topology(), self.log, eddy.Config(), MemoryStore(), lambda: False, time.time)
        self.topics = [*users, *(spec.name for spec in parts.internal.specs())]
        return parts

    # Workers

    @property
    def state(self) -> Path:
        """Where the workers keep their states, each in a folder of its name."""
        return self.folder / "state" / self.application

    def start(self, member: str, step: str = "", time: int = 1, deed: str = KILL) -> Slot:
        """Start a worker, which may have a deed to do to itself."""
        order = Order(
            bootstrap=self.bootstrap,
            clients=CLIENTS,
            program=self.name,
            run=self.run,
            member=member,
            state_dir=str(self.folder / "state"),
            config=self.config,
            step=step,
            time=time,
            deed=deed,
            planted=self.planted,
        )
        self.slots[member] = Slot(ordered(self.folder, order), doomed=bool(step))
        return self.slots[member]

    def signal(self, member: str, number: signal.Signals) -> None:
        """Send a signal; of one that kills, wait for the end."""
        slot = self.slots[member]
        slot.doomed |= number in (signal.SIGKILL, signal.SIGTERM)
        slot.child.signal(number)
        if number == signal.SIGKILL:
            self.bury(member)

    def bury(self, member: str) -> int:
        """Wait for the end of a worker that is doomed. Returns how it ended: a signal is negative."""
        slot = self.slots[member]
        self.wait_for(lambda: not slot.child.running, f"{member} ends")
        del self.slots[member]
        status = slot.child.ended()
        self.kills += status == -signal.SIGKILL
        return status

    def wait_for_stop(self, member: str) -> None:
        """Wait until a worker has stopped itself."""

        def has_stopped() -> bool:
            process = self.slots[member].child.process
            with contextlib.suppress(ChildProcessError):
                return os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG) is not None
            raise Failure(f"{member} ended with status {process.poll()} and was to stop")

        self.wait_for(has_stopped, f"{member} stops")

    def wait_for_takeover(self, member: str) -> None:
        """Wait until a worker is alone in its group, owns everything, and goes on with the input."""
        everything = {*self.witness.inputs, *self.witness.exchanges}
        self.wait_for(lambda: self.members() == {f"{self.application}-{member}"}, f"{member} is alone in the group")
        self.wait_for(lambda: self.slots[member].owned() == everything, f"{member} takes over")
        self.wait_for_progress()

    def members(self) -> set[str]:
        """Who is in the application's group, by its static name."""
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        (described,) = client.describe_consumer_groups([self.application]).values()
        return {member.group_instance_id for member in described.result().members}

    def _all_joined(self) -> bool:
        """Asked by the older call: a request to a coordinator that is loading can end this process."""
        with contextlib.suppress(KafkaException), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            found = self._asking.list_groups(self.application, timeout=5.0)
            there = {member.client_id for group in found for member in group.members}
            return there == {f"{self.application}-{member}" for member in self.slots}
        return False

    def wait_for_all(self) -> None:
        """Wait until the workers there are own everything, each something of its own."""
        everything = sorted([*self.witness.inputs, *self.witness.exchanges])

        def shared_out() -> bool:
            owned = [slot.owned() or set() for slot in self.slots.values()]
            return sorted(tp for each in owned for tp in each) == everything

        self.wait_for(shared_out, f"{sorted(self.slots)} share everything out")

    def wait_for_progress(self) -> None:
        """Wait until more of the input is taken in than is now."""
        before: int | None = None

        def moved() -> bool:
            nonlocal before
            with contextlib.suppress(ConnectorError):  # the broker may be away
                committed = self.log.committed(self.application, self.witness.inputs)
                now = sum(position.offset for position in committed.values())
                before = now if before is None else before
                return now > before
            return False

        self.wait_for(moved, "input is taken in")

    def wait_for(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for a condition. Raises: Hang after a time without progress; Failure if a worker fails meanwhile."""
        began = moved = time.monotonic()
        positions = self.observer.positions
        while not holds():
            self.look_after()
            now = time.monotonic()
            if self.observer.positions != positions:
                positions, moved = self.observer.positions, now
            if now - moved > HANGS_AFTER_S or now - began > GIVES_UP_AFTER_S:
                raise Hang(f"waited {now - began:.0f} s until {what}:\n{self.stacks()}")
            time.sleep(_TICK_S)  # pause: the rig's own wait, which looks after the workers

    def look_after(self) -> None:
        """Start again who has ended for what is temporary. Raises: Failure for who ended otherwise, or is wrong."""
        for member, slot in list(self.slots.items()):
            if slot.child.running or slot.doomed:
                continue
            status = slot.child.ended()
            if status == 1 and member in self.damaged and "StateError" in slot.child.said().errors:
                shutil.rmtree(self.state / member)
                self.damaged.discard(member)
                self.faults["damage named"] += 1
                self.start(member)
                continue
            self._restarts[member] += 1
            if not is_temporary(status) or status < 0 or self._restarts[member] > 20:
                raise Failure(f"{member} ended with status {status}:\n{slot.child.last_words()}")
            self.faults["restarts for what is temporary"] += 1
            self.start(member)
        if self.observer.early:
            raise Early(self.observer.early)
        for trouble in (self.observer.trouble, self.feed.trouble):
            if trouble is not None:
                raise trouble

    def stacks(self) -> str:
        """What every worker's threads are at, and what it said last."""
        for slot in self.slots.values():
            if slot.child.running:
                slot.child.signal(signal.SIGCONT)
                slot.child.signal(signal.SIGUSR1)
        time.sleep(LAST_WORDS_S)  # pause: no worker says that it has said all
        owned = {member: sorted(slot.owned() or []) for member, slot in self.slots.items()}
        words = [f"--- {member}\n{slot.child.last_words()}" for member, slot in self.slots.items()]
        return "\n".join([f"owned {owned}", f"pending {self._pending()}", *words])

    def _pending(self) -> object:
        """What is left to do, where the broker says it."""
        try:
            return self.witness.pending() if self.observer.trouble is None else []
        except ConnectorError as error:
            return error

    # The end

    def settle(self) -> None:
        """No more input; wait until the application says that it has come to rest, and it lasts with all workers there.

        A worker that the group has lost may not know it yet. When it joins again, the workers exchange messages about
        what is held: the application is at work once more.
        """
        self.feed.running.clear()
        with self.feed.gate:
            checked = self.observer.checked
        self.wait_for(lambda: self.observer.checked > checked, "it has come to rest")
        self.wait_for(self._all_joined, "all are in the group")
        self.wait_for_all()
        self.observer.lasting = 0
        self.wait_for(lambda: self.observer.lasting >= LASTS, "the rest lasts")

    def end(self) -> dict[str, set[TopicPartition]]:
        """End all workers as they should end. Returns what each has owned."""
        for member in self.slots:
            self.signal(member, signal.SIGTERM)
        owned = {}
        for member, slot in list(self.slots.items()):
            status = self.bury(member)
            owned[member] = slot.owned() or set()
            if status not in STOPPED:
                raise Failure(f"{member} ended with status {status}:\n{slot.child.last_words()}")
        return owned

    def close(self, remove_topics: bool = False) -> None:
        """Kill what still runs, and let go of the broker."""
        for slot in self.slots.values():
            slot.child.kill()
        self.observer.close()
        self.feed.close()
        self.replica.close()
        self._observed.close()
        if remove_topics:
            self.log.delete_topics(self.topics)
        self.log.close()
