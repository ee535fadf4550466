"""eddy's worker on the embedded log, with RocksDB and changelogs: `run` to quiescence, or `restart`.

run LOG STATE [--live TREE]     from the first poll to quiescence; live: another process produces meanwhile
restart LOG STATE OUT           from `Worker(...)` to the first processed record; writes the table of counts
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import eddy
from benchmarks.embedded import COUNTS, family
from benchmarks.systems.process import report, settle, write_counts
from benchmarks.workloads import ROOT
from eddy.connectors.local import LocalLog
from eddy.runtime.worker import Worker


def run(log: LocalLog, config: eddy.Config) -> None:
    """Take in what the topic holds."""
    worker = eddy.Worker(family(), log, config)
    start = settle()
    _run_until(worker, worker.quiescent)
    report(start, records=worker.statistics.records, epochs=worker.statistics.epochs)
    worker.close()


def run_live(log: LocalLog, config: eddy.Config, tree: str, folder: str) -> None:
    """Take in what another process produces, from before its first transaction to after its last."""
    worker = eddy.Worker(family(), log, config)
    _run_until(worker, worker.quiescent)
    with Path(tree).open() as lines:
        records = sum(1 for _ in lines)
    start = settle()
    command = [sys.executable, "-m", "benchmarks.systems.produce", folder, tree]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdout is not None
        begun = float(producer.stdout.readline())
        _run_until(worker, lambda: worker.statistics.records >= records and worker.quiescent())
        seconds, produced = perf_counter() - begun, float(producer.stdout.readline()) - begun
    report(start, seconds=seconds, producer_seconds=produced, records=records, epochs=worker.statistics.epochs)
    worker.close()


def restart(log: LocalLog, config: eddy.Config, out: str) -> None:
    """Start on a log that holds one record more than was processed."""
    start = settle()
    worker = eddy.Worker(family(), log, config)
    made = perf_counter() - start.wall_s
    restored = 0.0
    while not worker.statistics.records:
        worker.step()
        if worker.statistics.restored and not restored and not worker.restoring:
            restored = perf_counter() - start.wall_s
    figures = {"made_seconds": made, "restore_seconds": restored, "restored": worker.statistics.restored}
    report(start, **figures)
    counts = worker.circuit.states[COUNTS].items()  # type: ignore[attr-defined]
    write_counts(out, ((int(key[1:]), count) for key, count in counts))
    worker.close()


def _run_until(worker: Worker, done: Callable[[], bool]) -> None:
    while worker.step(0.01) or not done():
        pass


def main() -> None:
    """Run as `python -m benchmarks.systems.worker`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["run", "restart"])
    parser.add_argument("log")
    parser.add_argument("state", type=Path)
    parser.add_argument("out", nargs="?")
    parser.add_argument("--live", metavar="TREE")
    arguments = parser.parse_args()
    log, config = LocalLog(Path(arguments.log)), eddy.Config(state_dir=arguments.state)
    if arguments.what == "restart":
        restart(log, config, arguments.out)
    elif arguments.live:
        run_live(log, config, arguments.live, arguments.log)
    else:
        run(log, config)
    log.close()


if __name__ == "__main__":
    main()
