"""Runs one worker in this process, until a stop is requested or no work is left."""

import contextlib
import logging
import time
from dataclasses import dataclass, replace

from rich.console import Console

from eddy.cli.collector import OwnCollector
from eddy.cli.exits import HELD
from eddy.cli.freed_memory import FreedMemory
from eddy.cli.load import Program
from eddy.cli.logs import Target, create_missing, opened
from eddy.cli.patience import insisted
from eddy.cli.progress import LiveLine, LogLines, Meter
from eddy.cli.signals import Stopped, StopRequest
from eddy.config import Config
from eddy.connectors.log import Log
from eddy.errors import ConfigurationError, EddyError, NoTopicMatchesError
from eddy.live.streams.limits import Limits
from eddy.program.open_tables import Tables
from eddy.runtime.compiled_topology import user_topics
from eddy.runtime.holding import told
from eddy.runtime.metadata import read_metadata
from eddy.runtime.worker import Worker
from eddy.serve.endpoint import Endpoint
from eddy.serve.monitor import Monitor, monitored
from eddy.topology.topology import Topology

__all__ = ["Work"]

_log = logging.getLogger("eddy.cli")
_POLL_S, _IDLE_POLL_S = 0.2, 0.02
_WRITER_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Work:
    """Runs a worker. `partitions` is the partition count of topics that it creates, on the embedded log only."""

    target: Target
    config: Config
    member: str
    partitions: int | None
    until_idle: bool
    endpoint: Endpoint | None = None
    peers: tuple[str, ...] = ()

    def do(self, program: Program, stop: StopRequest, console: Console | None) -> int:
        """Run the program's topology. If `console` is a terminal, its last line shows the progress.

        Returns the exit status.
        """
        collector = OwnCollector()
        topology = program.topology
        with contextlib.ExitStack() as stack:
            with stop.abandons():
                log = stack.enter_context(opened(self.target, create=True, patience_s=_WRITER_PATIENCE_S))
                stop.check()
                monitor = stack.enter_context(monitored(self.endpoint, topology, lambda: bool(stop), peers=self.peers))
                made = self._started(log, topology, stop)
            worker = stack.enter_context(contextlib.closing(made))
            self._serve_tables(stack, monitor, log, program)
            collector.collect_all()
            _log_start(topology, self.target)
            meter = Meter(worker)
            live = console is not None and console.is_terminal
            line = LiveLine(topology.name, meter, console) if live and console else LogLines(topology.name, meter)
            try:
                with line, monitor.watching(worker):
                    self._step(worker, stop, line, monitor, collector)
            except EddyError as error:
                program.note_line(error)
                raise
            reason = f"stopped by {stop}" if stop else "idle: all input is processed"
            done = worker.statistics
            _log.info("%s; %d records in, %d out, %d rejected", reason, done.records, done.written, done.skipped)
            held = [] if stop else told(read_metadata(log, worker.internal.plan).held)
            for why in held:
                _log.warning("no finite answer: %s", why)
            return HELD if held else 0

    def _serve_tables(self, stack: contextlib.ExitStack, monitor: Monitor, log: Log, program: Program) -> None:
        """On the embedded log, serve the tables beside health and metrics.

        An error of the tables does not end the worker.
        """
        if self.endpoint is None or self.target.kafka:
            return
        try:
            tables = stack.enter_context(
                Tables(
                    program.topology,
                    log,
                    state_dir=self.config.state_dir,
                    queries=program.queries,
                    recent_bytes=Limits().recent_bytes,
                )
            )
        except EddyError as error:
            _log.warning("tables are not served: %s", error)
            return
        monitor.serve_tables(tables)
        _log.info("tables on http://%s/v1/tables", replace(self.endpoint, port=monitor.port or self.endpoint.port))

    def _started(self, log: Log, topology: Topology, stop: StopRequest) -> Worker:
        """Return a started worker. If no topic matches a pattern of the topology yet, wait for one.

        Raises: Stopped if a stop was requested before, or while brokers were away.
        """

        def start() -> Worker:
            self._prepare_topics(log, topology)
            return Worker(topology, log, self.config, member=self.member)

        told = False
        while not stop:
            try:
                made = insisted(start, log, self.config.retry_s, stop) if self.target.kafka else start()
            except NoTopicMatchesError as error:
                if self.until_idle:
                    raise
                if not told:
                    _log.warning("%s", error)
                told = True
                time.sleep(_POLL_S)
            else:
                if made is not None:
                    return made
        raise Stopped

    def _step(
        self,
        worker: Worker,
        stop: StopRequest,
        line: LiveLine | LogLines,
        monitor: Monitor,
        collector: OwnCollector,
    ) -> None:
        """Run epochs until a stop is requested or, with `until_idle`, no work is left."""
        freed = FreedMemory()
        with stop.abandons(lambda: not worker.in_epoch):
            while not stop:
                taken = worker.step(_IDLE_POLL_S if self.until_idle else _POLL_S)
                collector.after_epoch(at_rest=not taken)
                freed.after_epoch(at_rest=not taken)
                line.report()
                monitor.refresh()
                if self.until_idle and not taken and worker.idle():
                    return

    def _prepare_topics(self, log: Log, topology: Topology) -> None:
        """Create missing sources and sinks on the embedded log, which has no administrator. Kafka must have them."""
        names = user_topics(topology, log)
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


def _log_start(topology: Topology, target: Target) -> None:
    plan = topology.plan
    sources, sinks = (", ".join(node.topic for node in found) for found in (plan.sources(), plan.sinks()))
    _log.info("application '%s' runs on %s: %s → %s", topology.name, target, sources, sinks or "(no sink)")
