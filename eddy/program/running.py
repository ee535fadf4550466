"""Logs for a user's program, and a worker that runs on a separate thread.

log = eddy.open_log("data")                   # or eddy.kafka("localhost:9092")
with eddy.run(topology, log) as worker:       # an error that ends the worker is raised at the end of the block
    ...
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.config import Config
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log, TopicSpec, check_log
from eddy.errors import ConfigurationError, ConnectorError, NoTopicMatchesError, TopologyError
from eddy.program.own_workers import own_workers, place_of
from eddy.runtime.compiled_topology import named_topics
from eddy.runtime.matching_topics import find_topics
from eddy.runtime.worker import Worker
from eddy.runtime.worker_arguments import worker_config
from eddy.statistics import Statistics
from eddy.topology.arguments import check_function, check_number, check_whole, folder_of
from eddy.topology.topology import Topology, check_topology

if TYPE_CHECKING:
    from eddy.connectors.kafka import KafkaLog

__all__ = ["RunningWorker", "create_topics", "kafka", "open_log", "run"]

_log = logging.getLogger("eddy.worker")
_POLL_S = 0.1
_START_S = 60.0
_WRITER_PATIENCE_S = 30.0


def open_log(path: str | Path | None = None) -> LocalLog:
    """Open the embedded log in the directory `path`, which is created if missing; without a path, a log in memory.

    The caller has to close it. Raises: ConnectorError.
    """
    return LocalLog(folder_of("open_log", path=path), busy_timeout_s=_WRITER_PATIENCE_S)


def kafka(bootstrap: str, **settings: object) -> "KafkaLog":
    """Return a Kafka cluster at these brokers. Settings are Kafka's, with `_` for `.`: `security_protocol="SSL"`.

    Raises: ConfigurationError for a setting that the client does not know.
    """
    from eddy.connectors.kafka import KafkaLog, KafkaSettings

    if not isinstance(bootstrap, str) or not bootstrap:
        raise ConfigurationError(
            f"kafka: bootstrap={bootstrap!r}; the addresses of brokers are needed, as text. Write "
            "eddy.kafka('host:9092'), with commas between several"
        )
    pairs = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
    return KafkaLog(KafkaSettings.of(bootstrap, [], pairs))


def create_topics(topology: Topology, log: Log, partitions: int | Mapping[str, int] = 1) -> list[str]:
    """Create the missing topics of a topology, for its sources and sinks, and return their names.

    `partitions` is one number of partitions for all topics, or a number for each topic.
    Raises: TopologyError for other arguments; ConnectorError.
    """
    check_topology("create_topics", topology)
    check_log("create_topics", log)
    counts_given = partitions if isinstance(partitions, Mapping) else {"": partitions}
    for topic, count in counts_given.items():
        check_whole(f"create_topics{topic and f', topic {topic!r}'}", 1, optional=False, partitions=count)
    names = named_topics(topology)
    if unknown := [name for name in counts_given if name and name not in names]:
        raise TopologyError(
            f"create_topics: partitions={partitions!r} names {unknown[0]!r}, which topology '{topology.name}' neither "
            f"reads nor writes; some of {names} are needed"
        )
    found = log.topics(names)
    missing = [name for name in names if name not in found]
    counts = {name: partitions if isinstance(partitions, int) else partitions.get(name, 1) for name in missing}
    log.create_topics(TopicSpec(name, count) for name, count in counts.items())
    return missing


class RunningWorker:
    """A worker on a separate thread, from `eddy.run` until the end of its block."""

    def __init__(
        self,
        topology: Topology,
        log: Log,
        config: Config | None,
        member: str,
        on_failure: Callable[[BaseException], object] | None,
    ) -> None:
        self._topology, self._config, self._member = topology, config, member
        self._on_failure = on_failure
        self._given, self._log = log, log.reopened()
        self._stop, self._started = threading.Event(), threading.Event()
        self._wanted: list[Callable[[Worker], None]] = []
        self._worker: Worker | None = None
        self._place = place_of(topology.name, log)
        self.error: BaseException | None = None
        """The error that has ended the worker; None if none has."""
        self._told = False
        own_workers.begin(self._place)
        self._thread = threading.Thread(target=self._run, name=f"eddy-worker-{topology.name}", daemon=True)
        self._thread.start()
        self._started.wait(_START_S)
        if not self._thread.is_alive():
            self.stop()

    @property
    def statistics(self) -> Statistics:
        """The worker's counters."""
        return self._worker.statistics if self._worker is not None else Statistics()

    @property
    def alive(self) -> bool:
        """Whether the worker runs. If not, an error has ended it, which is raised at the end of the block."""
        return self._thread.is_alive()

    def wait_idle(self, timeout_s: float = 60.0) -> None:
        """Wait until all input is processed and no row is in flight.

        Raises: ConnectorError, retriable, after `timeout_s` seconds; the error that has ended the worker.
        """
        check_number("wait_idle", 0, optional=False, timeout_s=timeout_s)
        idle, deadline = threading.Event(), time.monotonic() + timeout_s

        def look(worker: Worker) -> None:
            if worker.idle():
                idle.set()

        self._wanted.append(look)
        try:
            while not idle.wait(_POLL_S / 10):
                if not self.alive:
                    self.stop()
                    if self.error is not None:
                        raise self.error
                    raise ConnectorError("worker: it was stopped; one that runs is needed")
                if time.monotonic() > deadline:
                    raise ConnectorError(
                        f"worker: not idle after {timeout_s:g} s; input may arrive faster", retriable=True
                    )
        finally:
            self._wanted.remove(look)

    def stop(self) -> None:
        """Finish the epoch, and close. Raises: the error that has ended the worker, if no call has raised it yet."""
        self._stop.set()
        self._thread.join()
        own_workers.told(self._place)
        if self.error is not None and not self._told:
            self._told = True
            raise self.error

    def _run(self) -> None:
        try:
            self._worker = self._made()
            self._started.set()
            if self._worker is not None:
                self._worker.run(self._stop.is_set, _POLL_S, self._after)
        except BaseException as error:
            self.error = error
            _log.error("the worker of '%s' has ended: %s", self._topology.name, error)
            if self._on_failure is not None:
                self._on_failure(error)
        finally:
            self._started.set()
            own_workers.end(self._place, self.error)
            if self._log is not self._given:
                self._log.close()

    def _made(self) -> Worker | None:
        """Make the worker once topics match the topology's patterns; None if it is stopped before that."""
        told = False
        while not self._stop.is_set():
            try:
                find_topics(self._topology, self._log)
                return Worker(self._topology, self._log, self._config, member=self._member)
            except NoTopicMatchesError as error:
                if not told:
                    _log.warning("%s", error)
                told = True
                self._started.set()
                self._stop.wait(_POLL_S)
        return None

    def _after(self) -> None:
        assert self._worker is not None
        for look in list(self._wanted):
            look(self._worker)

    def __enter__(self) -> "RunningWorker":
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def run(
    topology: Topology,
    log: Log,
    config: Config | None = None,
    *,
    member: str = "0",
    on_failure: Callable[[BaseException], object] | None = None,
) -> RunningWorker:
    """Run a worker on a separate thread, with its own client of the log.

    Use it in a `with` block, or call `stop()`. An error that ends the worker is logged at once, `on_failure(error)` is
    called on the worker's thread, and the end of the block or `stop()` raises the error. On an embedded log, reads and
    waits of open tables raise it, too, until then or until another worker starts. `Worker` explains `config`, `member`.
    Raises: the errors of `Worker`.
    """
    config = worker_config("run", topology, log, config, member)
    if on_failure is not None:
        check_function("run", on_failure, "error", what="on_failure")
    return RunningWorker(topology, log, config, member, on_failure)
