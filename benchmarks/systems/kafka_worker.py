"""One worker on Kafka, as `eddy run` runs it, until SIGTERM.

    PROGRAM BOOTSTRAP APPLICATION STATE_DIR MEMBER TOPICS…

PROGRAM is `family`, the descendants, of the topics of nodes and of counts; or one of `in_time.py`.

Says when it owns partitions anew and has their states, as `benchmarks.applications` wants it.
"""

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import eddy
from benchmarks.systems.family import family
from benchmarks.systems.in_time import topology_of
from eddy.cli.collector import OwnCollector
from eddy.cli.freed_memory import FreedMemory
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.runtime.worker import Worker


def speaker(worker: Worker, begun: float) -> Callable[[], None]:
    """What tells, step by step, when the worker is ready."""
    before = 0

    def speak() -> None:
        nonlocal before
        owned = sum(map(len, worker.circuit.ownership.partitions.values()))
        if owned != before and not worker.restoring:
            before = owned
            ready = {"ready": perf_counter() - begun, "partitions": owned, "restored": worker.statistics.restored}
            print(json.dumps(ready), flush=True)

    return speak


def main(program: str, bootstrap: str, application: str, state_dir: str, member: str, *topics: str) -> None:
    """Run until told to stop."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    collector, freed = OwnCollector(), FreedMemory()
    begun = perf_counter()
    log = KafkaLog(KafkaSettings.of(bootstrap))
    topology = family(application, *topics) if program == "family" else topology_of(program, application, *topics)
    worker = Worker(topology, log, eddy.Config(state_dir=Path(state_dir)), member=member)
    collector.collect_all()
    speak = speaker(worker, begun)

    def after() -> None:
        collector.after_epoch(at_rest=False)
        freed.after_epoch(at_rest=False)
        speak()

    worker.run(lambda: bool(told), after=after)
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
