"""One worker in this process, until it is told to stop or has nothing left to do."""

import contextlib
import gc
import logging
from dataclasses import dataclass

from rich.console import Console

from eddy.cli.application import user_topics
from eddy.cli.load import Program
from eddy.cli.logs import Target, create_missing, opened
from eddy.cli.progress import LiveLine, LogLines, Meter
from eddy.cli.signals import StopRequest
from eddy.config import Config
from eddy.connectors.log import Log
from eddy.errors import ConfigurationError, ConnectorError, EddyError
from eddy.monitor.endpoint import Endpoint
from eddy.monitor.monitor import Monitor, monitored
from eddy.topology.topology import Topology
from eddy.worker import Worker

__all__ = ["Work"]

_log = logging.getLogger("eddy.cli")
_POLL_S, _IDLE_POLL_S = 0.2, 0.02
_GC_THRESHOLDS = (100_000, 50, 100)
_WRITER_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker is to do. `partitions` is of topics that are made, on the embedded log only."""

    target: Target
    config: Config
    member: str
    partitions: int | None
    until_idle: bool
    endpoint: Endpoint | None = None

    def do(self, program: Program, stop: StopRequest, console: Console | None) -> None:
        """Run the program's topology; how it gets on shows in the last line of `console`, where that is a terminal."""
        gc.set_threshold(*_GC_THRESHOLDS)  # batches are many small objects and no cycles
        topology = program.topology
        with opened(self.target, create=True, patience_s=_WRITER_PATIENCE_S) as log:
            self._prepare_topics(log, topology)
            with (
                monitored(self.endpoint, topology, lambda: bool(stop)) as monitor,
                contextlib.closing(Worker(topology, log, self.config, member=self.member)) as worker,
            ):
                gc.collect()
                gc.freeze()
                _say_what_runs(topology, self.target)
                meter = Meter(worker)
                live = console is not None and console.is_terminal
                line = LiveLine(topology.name, meter, console) if live and console else LogLines(topology.name, meter)
                try:
                    with line, monitor.watching(worker):
                        self._step(worker, stop, line, monitor)
                except EddyError as error:
                    program.note_line(error)
                    raise
                reason = f"stopped by {stop}" if stop else "idle: all input is taken in"
                done = worker.statistics
                _log.info("%s; %d records in, %d out, %d left out", reason, done.records, done.written, done.skipped)

    def _step(self, worker: Worker, stop: StopRequest, line: LiveLine | LogLines, monitor: Monitor) -> None:
        """Take epochs through until told to stop or, with `until_idle`, nothing is left to do."""
        while not stop:
            taken = worker.step(_IDLE_POLL_S if self.until_idle else _POLL_S)
            line.report()
            monitor.refresh()
            if self.until_idle and not taken and not worker.restoring and _quiescent(worker):
                return

    def _prepare_topics(self, log: Log, topology: Topology) -> None:
        """On the embedded log there is no administrator who would have made the sources and sinks."""
        names = user_topics(topology)
        found = log.topics(names)
        if not self.target.kafka:
            count = self.partitions or max((spec.partitions for spec in found.values()), default=1)
            for name in create_missing(log, names, count):
                _log.info("topic '%s' did not exist: made with %d partition%s", name, count, "s"[: count > 1])
        elif missing := [name for name in names if name not in found]:
            raise ConfigurationError(
                f"application '{topology.name}': topics {', '.join(missing)} do not exist; they are yours, "
                f"and eddy run does not make them on Kafka. Create them: eddy topics create {' '.join(missing)} "
                "--partitions N"
            )


def _quiescent(worker: Worker) -> bool:
    """Whether nothing is left to do. A log that does not answer now does not say so."""
    try:
        return worker.quiescent()
    except ConnectorError as error:
        if not error.retriable:
            raise
        return False


def _say_what_runs(topology: Topology, target: Target) -> None:
    plan = topology.plan
    sources, sinks = (", ".join(node.topic for node in found) for found in (plan.sources(), plan.sinks()))
    _log.info("application '%s' runs on %s: %s → %s", topology.name, target, sources, sinks or "(no sink)")
