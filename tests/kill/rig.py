"""What a kill test holds: one program's log and state on disk, a producer, and workers to be killed."""

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.partitioner import partition_of
from tests.children import ROOT, Child
from tests.kill.nursery import KILL
from tests.simulation.programs import PROGRAMS, Program
from tests.simulation.witness import KeptStore, Witness

PARTITIONS = 3
SETTINGS = {
    "max_epoch_records": 4,
    "max_loop_rows": 5,
    "purge_interval_s": 0.0,
    "cut_interval_s": 0.0,
    "restore_records": 7,
    "cache_bytes": 1 << 20,
}
"""Many small epochs, so that a run has many moments to be killed at."""


@dataclass(frozen=True)
class Outcome:
    """How a process ended: its exit status, or a signal as a negative number; and what it said."""

    status: int
    errors: str

    @property
    def killed(self) -> bool:
        """Whether it came to the point where it was killed."""
        return self.status == -9


class Nursery:
    """The process that forks workers. See `nursery.py`."""

    def __init__(self, folder: Path) -> None:
        self._child = Child(folder, [sys.executable, "-W", "error", "-m", "tests.kill.nursery"], cwd=ROOT)

    def send(self, order: dict[str, Any]) -> None:
        """Let a worker run; `answer` waits for its end."""
        self._child.write(json.dumps(order) + "\n")

    def answer(self) -> Outcome:
        """How the worker ended."""
        return Outcome(**json.loads(self._child.next_line()))

    def close(self) -> None:
        """End the process."""
        self._child.kill()


def program_of(name: str) -> Program:
    """The program of that name."""
    return next(program for program in PROGRAMS if program.name == name)


class Rig:
    """One application in `folder`. Random choices come from `seed`."""

    def __init__(self, nursery: Nursery, folder: Path, name: str, seed: int = 0) -> None:
        self.nursery, self.program, self.rng = nursery, program_of(name), random.Random(seed)
        self.data, self.state = folder / "log", folder / "state"
        self.topology = self.program.topology()
        self.log = LocalLog(self.data)
        plan = self.topology.plan
        self._sources = {source.topic: source for source in plan.sources()}
        topics = [*self._sources, *(sink.topic for sink in plan.sinks())]
        self.log.create_topics(TopicSpec(topic, PARTITIONS) for topic in topics if topic not in self.log.topics())
        self.kills = self.time_ms = 0

    def produce(self, events: int) -> None:
        """Write records in one transaction."""
        producer = self.log.producer(None)
        producer.begin()
        for topic, key, value in [self.program.event(self.rng) for _ in range(events)]:
            self.time_ms += 1
            source = self._sources[topic]
            data = source.key.encode(key)
            body = None if value is None else source.value.encode(value)
            producer.send(topic, partition_of(data, PARTITIONS), [data], [body], [self.time_ms])
        producer.commit({}, None)

    def run(
        self,
        step: str | None = None,
        time: int = 1,
        deed: str = KILL,
        kill_after_s: float | None = None,
        meanwhile: int = 0,
    ) -> Outcome:
        """`eddy run … --until-idle`, with `deed` at a step or a kill after a while; more input comes meanwhile."""
        file = f"{ROOT / 'tests/kill/topologies.py'}:{self.program.name}"
        order = {"step": step, "time": time, "deed": deed, "kill_after_s": kill_after_s, "settings": SETTINGS}
        paths = ["--data", str(self.data), "--state", str(self.state)]
        self.nursery.send(order | {"arguments": ["run", file, *paths, "--until-idle"]})
        if meanwhile:
            self.produce(meanwhile)
        outcome = self.nursery.answer()
        self.kills += outcome.killed
        assert "Traceback" not in outcome.errors, outcome.errors
        return outcome

    def settle(self) -> None:
        """A clean run to idle; then outputs, changelogs, stores and counters are the oracle's answer."""
        outcome = self.run()
        assert outcome.status == 0, outcome.errors
        self.check()

    def check_outputs(self) -> None:
        """Outputs and changelogs are the oracle's answer, whatever is in the store."""
        worker = eddy.Worker(self.topology, self.log, store=KeptStore())
        try:
            worker.run_until_idle()
            witness = Witness(self.program, self.log, worker)
            assert witness.quiescent(), witness.pending()
        finally:
            worker.close()

    def check(self) -> None:
        """Outputs, changelogs, stores and counters are the oracle's answer, and nothing is left to do."""
        worker = eddy.Worker(self.topology, self.log, eddy.Config(state_dir=self.state))
        try:
            assert worker.run_until_idle() == 0, "a worker that said it was idle had left something"
            in_memory = any(state.spec.memory for state in worker.circuit.states.values())
            assert in_memory or worker.statistics.restored == 0, "a worker that ended well had not written its store"
            witness = Witness(self.program, self.log, worker)
            assert witness.quiescent(), witness.pending()
            witness.check_counters(seen=None)
            witness.check_store(worker, worker._consumer.assignment())  # private: the group's word
        finally:
            worker.close()

    def close(self) -> None:
        """Close the log."""
        self.log.close()
