"""One worker of the descendants program on Kafka, as `eddy run` runs it, until SIGTERM.

BOOTSTRAP APPLICATION NODES COUNTS STATE_DIR MEMBER

Says when it owns partitions anew and has their states, as `benchmarks.applications` wants it.
"""

import gc
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import eddy
from benchmarks.systems.family import family
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


def main(bootstrap: str, application: str, nodes: str, counts: str, state_dir: str, member: str) -> None:
    """Run until told to stop."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    gc.set_threshold(100_000, 50, 100)
    begun = perf_counter()
    log = KafkaLog(KafkaSettings.of(bootstrap))
    worker = Worker(family(application, nodes, counts), log, eddy.Config(state_dir=Path(state_dir)), member=member)
    gc.collect()
    gc.freeze()
    worker.run(lambda: bool(told), after=speaker(worker, begun))
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
