"""A topology that an app hosts, with its settings, log and worker; and all hosted topologies of this process."""

from collections.abc import Callable
from typing import Any

import faust

from eddy.config import Config
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.log import Log
from eddy.faust.app_settings import config_of, member_of, settings_of
from eddy.faust.app_tables import changelogs, wait_for_changelogs
from eddy.faust.feed import Feed
from eddy.faust.log import FaustLog
from eddy.runtime.worker import Worker
from eddy.serve.worker_watch import WorkerWatch
from eddy.topology.topology import Topology

__all__ = ["HOSTED", "HostedTopology", "WorkerMaker"]

WorkerMaker = Callable[[], tuple[Log, Worker]]


class HostedTopology:
    """A topology that a Faust app runs; made by `host`.

    `watch` has the worker's figures, from the app's start on. `registry` is a Prometheus registry; None means the
    default registry. In mode="agents", `feed` has the records of the sources, otherwise it is None.
    """

    def __init__(
        self,
        app: faust.App,
        topology: Topology,
        config: Config | None,
        member: str | None,
        log: KafkaLog | None,
        registry: Any,
        feed: Feed | None,
    ) -> None:
        self.app, self.topology, self.registry, self.feed = app, topology, registry, feed
        self._config, self._member, self._log = config, member, log
        self.watch: WorkerWatch | None = None

    @property
    def alive(self) -> bool:
        """Whether the worker takes steps: it was started, has not been stopped, and has not failed."""
        return self.watch is not None and not self.watch.over

    def open_log(self) -> KafkaLog:
        """Open a log on the app's brokers with its own clients; the caller closes it. Raises: ConfigurationError."""
        return KafkaLog(self._settings())

    def _settings(self) -> KafkaSettings:
        self.app.finalize()
        return self._log.settings if self._log is not None else settings_of(self.app)

    def _worker_log(self) -> KafkaLog:
        if self.feed is None:
            return self.open_log()
        return FaustLog(self._settings(), self.feed, self.app.conf.id)

    @property
    def group(self) -> str:
        """The name of the group whose members run the topology: its own group, or Faust's in mode="agents"."""
        return self.topology.name if self.feed is None else self.app.conf.id

    @property
    def member(self) -> str:
        """The worker's name."""
        return self._member or member_of(self.app)

    def worker_config(self) -> Config:
        """Return the worker's settings."""
        return self._config or config_of(self.app)

    def worker_maker(self) -> WorkerMaker:
        """Return a function that makes a worker and its log. The worker's thread is to call it."""
        config, member = self.worker_config(), self.member
        if self.feed is not None:
            self.feed.begin()

        def make() -> tuple[Log, Worker]:
            log = self._worker_log()
            try:
                own = changelogs(self.app) & {source.topic for source in self.topology.plan.sources()}
                wait_for_changelogs(log, own, lambda: self.app.should_stop)
                return log, Worker(self.topology, log, config, member=member)
            except BaseException:
                log.close()
                raise

        return make

    def ended(self) -> None:
        """Let the feed ignore Faust's records, since the worker's thread has ended."""
        if self.feed is not None:
            self.feed.end()


HOSTED: list[HostedTopology] = []
"""The hosted topologies of all apps of this process, in the order of their calls of `host`."""
