"""The main job on Kafka: two workers share it, one of them is killed at its work, and every count is right.

    python examples/wordnet/demo_kafka.py

It starts a Kafka broker of its own in a temporary folder, and two workers as `eddy run` does, each in a
process of its own. While records come one of them gets SIGKILL; it is started again. Every count is
checked against one made from scratch by plain Python. Ctrl-C and errors, too, end all that was started.
"""

import os
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click
from concepts import Concepts, Records, animals_and_furniture, load, shuffled
from kafka_job import PARTITIONS, PROGRAM, KafkaJob, make_topics, wait, wait_until_ready
from processes import WorkerProcess, everything_ends
from story import check, console, move, remove, show_top

import eddy
from eddy.cli.exits import exit_status
from eddy.connectors.broker import Broker, kafka_version
from eddy.connectors.broker.jars import kept_folder

if TYPE_CHECKING:
    from eddy.connectors.kafka import KafkaLog

PIECES = 40
PIECES_WAITING = 5


def load_and_crash(job: KafkaJob, records: Records) -> None:
    """Write all records piece by piece while the workers take them in; kill one half way, and restart it."""
    size, victim = len(records) // PIECES, job.workers[1]
    pieces = iter([records[start : start + size] for start in range(0, len(records), size)])
    for piece in islice(pieces, PIECES // 2):
        job.write(piece)
        wait(lambda: job.lag() < PIECES_WAITING * size, "the workers to keep up", job.workers)
    wait(lambda: victim.figures().get("eddy_records_total", 0) > 0, f"work of worker {victim.member}", job.workers)
    for piece in pieces:
        job.write(piece)
        if job.lag():
            break  # there is something to do at this moment
    crash(victim)
    for piece in pieces:
        job.write(piece)
    restart(victim)


def crash(worker: WorkerProcess) -> None:
    """Kill it, and say what it had done."""
    done = worker.figures()
    worker.kill()
    epochs, taken = done["eddy_epochs_total"], done["eddy_records_total"]
    what = f"gets SIGKILL at its work, after {epochs:,.0f} epochs, {taken:,.0f} records and rows"
    console.print(f"[red]✗[/] worker {worker.member} {what}")


def restart(worker: WorkerProcess) -> None:
    """Start it again under its name."""
    began = time.perf_counter()
    worker.start()
    wait_until_ready([worker])
    seconds, restored = time.perf_counter() - began, worker.figures()["eddy_restored_records_total"]
    what = f"is back: {seconds:.1f} s, {restored:,.0f} records restored from changelogs"
    console.print(f"[green]✓[/] worker {worker.member} {what}")


def tell(log: "KafkaLog", workers: list[WorkerProcess], concepts: Concepts) -> None:
    """All that happens, once there is a broker."""
    make_topics(log)
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    wait_until_ready(workers)
    console.print(f"two workers share {PARTITIONS} partitions: {time.perf_counter() - began:.1f} s")
    records = shuffled(concepts)
    job = KafkaJob(log, workers)
    console.print(f"{len(records):,} concepts in shuffled order, children before parents, come while they work …")
    began = time.perf_counter()
    load_and_crash(job, records)
    job.run()
    seconds = time.perf_counter() - began
    rate = len(records) / seconds
    console.print(f"counted in {seconds:.1f} s, crash included: {rate:,.0f} records/s, exactly once\n")
    show_top(job.sizes.values())
    check(job, concepts)
    move(job, concepts)
    remove(job, concepts)
    statuses = [worker.stop() for worker in workers]
    console.print(f"both workers stopped by SIGTERM, with statuses {statuses[0]} and {statuses[1]}")


def start(broker: Broker) -> None:
    """Start it, and say so."""
    if not (kept_folder().is_dir() or "EDDY_KAFKA_JARS" in os.environ):
        console.print(f"fetching Kafka {kafka_version()}, once: 43 MB …")
    began = time.perf_counter()
    broker.start()
    console.print(f"Kafka {broker.version} runs on {broker.bootstrap}: {time.perf_counter() - began:.1f} s")


@click.command()
@click.option("--bootstrap", metavar="HOST:PORT", help="A broker that runs already; topics stay there.")
@click.option("--quick", is_flag=True, help="Only animals and furniture: a twentieth of the concepts.")
def main(bootstrap: str | None, quick: bool) -> None:
    """Count WordNet's concepts on Kafka, with two workers and a crash."""
    from eddy.connectors.kafka import KafkaLog, KafkaSettings  # where it is not installed, it says what to install

    with everything_ends() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eddy-demo-")))
        if bootstrap is None:
            broker = Broker(folder / "broker")
            stack.callback(broker.kill)
            start(broker)
        address = bootstrap or broker.bootstrap
        workers = [WorkerProcess(PROGRAM, member, address, folder) for member in ("a", "b")]
        for worker in workers:
            stack.callback(worker.kill)
        log = KafkaLog(KafkaSettings.of(address, pairs=["log_level=2"]))  # that brokers go away is no news in the end
        stack.callback(log.close)
        tell(log, workers, animals_and_furniture(load()) if quick else load())


if __name__ == "__main__":
    try:
        main()
    except eddy.EddyError as error:
        click.echo(f"error [{error.code}]: {error}", err=True)
        raise SystemExit(exit_status(error)) from error
