"""`eddy run`: a worker in this process, until it is told to stop or has nothing left to do."""

import contextlib
import gc
import logging
import pathlib
from typing import Literal

import click
from rich.console import Console

from eddy.cli.application import user_topics
from eddy.cli.exits import exit_status, message
from eddy.cli.load import Program, load
from eddy.cli.messages import LogFormat, show_messages
from eddy.cli.options import create_missing, data_option, state_option, topology_argument
from eddy.cli.progress import LiveLine, LogLines, Meter
from eddy.cli.signals import StopRequest, stop_on_signals
from eddy.config import Config
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log
from eddy.errors import EddyError
from eddy.topology.topology import Topology
from eddy.worker import Worker

__all__ = ["command"]

_log = logging.getLogger("eddy.cli")
_POLL_S, _IDLE_POLL_S = 0.2, 0.02
_GC_THRESHOLDS = (100_000, 50, 100)


@click.command("run")
@topology_argument
@data_option
@state_option
@click.option(
    "--on-error",
    type=click.Choice(["fail", "skip", "dead-letter"]),
    default="fail",
    show_default=True,
    help="What to do about a record that cannot be processed: stop and name it, count and log it, or write it to "
    "<application>-dead-letter.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="Partitions of sources and sinks that do not exist yet. Default: as many as the others have, or 1.",
)
@click.option(
    "--cache",
    "cache_mib",
    type=click.IntRange(min=1),
    metavar="MIB",
    default=512,
    show_default=True,
    help="Memory for states. What does not fit is read from disk again: give it more where tables are large.",
)
@click.option("--until-idle", is_flag=True, help="Stop, with status 0, when everything is taken in and no loop turns.")
@click.option(
    "--accept-plan",
    is_flag=True,
    help="Start although states have come or gone since the last run. New ones start empty: what was read before is "
    "not in them, and results may be wrong.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Messages on stderr as lines of text, or of JSON.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least urgent messages to show.",
)
@click.option("--bootstrap", metavar="HOST:PORT", help="A Kafka broker to run on; not in this version.")
def command(
    program: str,
    data: pathlib.Path,
    state: pathlib.Path,
    on_error: Literal["fail", "skip", "dead-letter"],
    partitions: int | None,
    cache_mib: int,
    until_idle: bool,
    accept_plan: bool,
    log_format: LogFormat,
    log_level: str,
    bootstrap: str | None,
) -> None:
    """Run a topology.

    FILE is a Python file, or a dotted module, that defines a Topology; NAME says which, where there are several.
    Topics that the topology reads or writes are made where they do not exist. One process runs an application at a
    time; others may produce and consume meanwhile. Ctrl-C or SIGTERM finishes the epoch and stops; what was done
    is kept, and the next run goes on from there.

    \b
    Examples:
      eddy run family.py
      eddy run family.py --until-idle --on-error skip
    """
    if bootstrap is not None:
        raise click.UsageError(
            f"--bootstrap {bootstrap}: the Kafka connector is not in this version of eddy. "
            "Leave the option out to run on the embedded log (--data DIR)."
        )
    gc.set_threshold(*_GC_THRESHOLDS)  # batches are many small objects and no cycles
    console = Console(stderr=True, highlight=False)
    with stop_on_signals() as stop:
        show_messages(console, log_format, log_level)
        config = Config(state_dir=state, on_error=on_error, accept_plan=accept_plan, cache_bytes=cache_mib << 20)
        try:
            _run(load(program), data, config, partitions, stop, until_idle, console if log_format == "text" else None)
        except EddyError as error:
            if log_format == "text":
                raise
            _log.error("%s", message(error), extra={"fields": {"code": error.code}})
            raise SystemExit(exit_status(error)) from error


def _run(
    program: Program,
    data: pathlib.Path,
    config: Config,
    partitions: int | None,
    stop: StopRequest,
    until_idle: bool,
    console: Console | None,
) -> None:
    topology = program.topology
    with contextlib.closing(LocalLog(data)) as log:
        _make_topics(log, topology, partitions)
        with contextlib.closing(Worker(topology, log, config)) as worker:
            gc.collect()
            gc.freeze()
            sources, sinks = (
                ", ".join(n.topic for n in found) for found in (topology.plan.sources(), topology.plan.sinks())
            )
            _log.info("application '%s' runs on %s: %s → %s", topology.name, data, sources, sinks or "(no sink)")
            meter = Meter(worker)
            live = console is not None and console.is_terminal
            line = LiveLine(topology.name, meter, console) if live and console else LogLines(topology.name, meter)
            try:
                with line:
                    _step(worker, stop, until_idle, line)
            except EddyError as error:
                program.note_line(error)
                raise
            reason = f"stopped by {stop}" if stop else "idle: all input is taken in"
            done = worker.statistics
            _log.info("%s; %d records in, %d out, %d left out", reason, done.records, done.written, done.skipped)


def _step(worker: Worker, stop: StopRequest, until_idle: bool, line: LiveLine | LogLines) -> None:
    """Take epochs through until told to stop or, with `until_idle`, nothing is left to do."""
    while not stop:
        taken = worker.step(_IDLE_POLL_S if until_idle else _POLL_S)
        line.report()
        if until_idle and not taken and not worker.restoring and worker.quiescent():
            return


def _make_topics(log: Log, topology: Topology, partitions: int | None) -> None:
    """On the embedded log there is no administrator who would have made the sources and sinks."""
    names = user_topics(topology)
    count = partitions or max((spec.partitions for spec in log.topics(names).values()), default=1)
    for name in create_missing(log, names, count):
        _log.info("topic '%s' did not exist: made with %d partition%s", name, count, "s"[: count > 1])
