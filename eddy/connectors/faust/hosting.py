"""`host`: a topology becomes a part of a Faust app.

    app = faust.App("shop", broker="kafka://localhost:9092")
    topology = eddy.Topology("family")
    …
    eddy.faust.host(app, topology)

Only what Faust offers to libraries is used: a service, pages, a group of commands, sensors, a transport. Nothing of
Faust is patched, and the app's settings are read when it starts, not before.
"""

from typing import Any

import faust

from eddy.config import Config
from eddy.connectors.faust.command_group import add_commands
from eddy.connectors.faust.connection import config_of, member_of, settings_of
from eddy.connectors.faust.feed import Feed
from eddy.connectors.faust.log import FaustLog
from eddy.connectors.faust.pages import add_pages
from eddy.connectors.faust.service import WorkerMaker, service_class
from eddy.connectors.faust.source_agent import add_agent, check_app, source_topics
from eddy.connectors.faust.tables import changelogs, wait_for_changelogs
from eddy.connectors.faust.transport import read_committed
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.log import Log
from eddy.errors import TopologyError
from eddy.runtime.worker import Worker
from eddy.serve.watch import Watch
from eddy.topology.compile import check_reads
from eddy.topology.topology import Topology

__all__ = ["HostedTopology", "host", "hosted_topologies"]

_MODES = ("worker", "agents")
_IN_FLIGHT = 20_000
"""Records that Faust has read and eddy has not committed, at most."""
_hosted: list["HostedTopology"] = []


class HostedTopology:
    """A topology in an app. Made by `host`.

    `watch` has the worker's figures, from the app's start on. `registry` is Prometheus's, None for the process's.
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
        self.app, self.topology, self.registry, self._feed = app, topology, registry, feed
        self._config, self._member, self._log = config, member, log
        self.watch: Watch | None = None

    @property
    def alive(self) -> bool:
        """Whether the worker takes steps: it was started, has not been stopped, and has not failed."""
        return self.watch is not None and not self.watch.over

    def open_log(self) -> KafkaLog:
        """The app's brokers, by clients of their own; close it. Raises: ConfigurationError."""
        return KafkaLog(self._settings())

    def _settings(self) -> KafkaSettings:
        self.app.finalize()
        return self._log.settings if self._log is not None else settings_of(self.app)

    def _worker_log(self) -> KafkaLog:
        if self._feed is None:
            return self.open_log()
        sources = source_topics(self.app, self.topology)
        return FaustLog(self._settings(), self._feed, self.app.conf.id, sources, lambda: self.app.rebalancing)

    @property
    def group(self) -> str:
        """The group whose members run the worker: the topology's own, or Faust's."""
        return self.topology.name if self._feed is None else self.app.conf.id

    def worker_config(self) -> Config:
        """The worker's settings."""
        return self._config or config_of(self.app)

    def worker_maker(self) -> WorkerMaker:
        """A function that makes a worker and its log, to be called in the worker's thread."""
        config, member = self.worker_config(), self._member or member_of(self.app)
        if self._feed is not None:
            self._feed.begin()

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
        """The worker's thread has ended: Faust has no acknowledgements to wait for."""
        if self._feed is not None:
            self._feed.end()


def host(
    app: faust.App,
    topology: Topology,
    mode: str = "worker",
    *,
    config: Config | None = None,
    member: str | None = None,
    log: KafkaLog | None = None,
    registry: Any = None,
) -> HostedTopology:
    """Run a topology inside a Faust app, from the app's start to its stop.

    Args:
        app: the app. `faust worker` starts the topology with it, after its tables are recovered.
        topology: the program. Its name is the application's, and its group's: no other may have it.
        mode: `worker`: eddy's own worker reads the sources in a group of its own, on a thread beside Faust's loop;
            exactly once. Agents read its outputs as any topic, committed records only.
            `agents`: an agent of the app reads the sources, and Faust balances them among its workers; eddy's
            transactions, exactly once as well, are guarded by Faust's membership, and Faust's acknowledgements follow.
        config: the worker's settings; by default, states are kept in the app's `datadir`.
        member: this worker's name among those of the topology; by default, its host and web port.
        log: how to reach the brokers (`eddy.kafka(…)`), if the app's `broker` does not tell.
        registry: Prometheus's, if `setup_prometheus_sensors` was given one.

    Raises: ConfigurationError for an app whose settings do not go with it; TopologyError for a mode that there is not,
    a topology that cannot run, or one that is hosted already.
    """
    if mode not in _MODES:
        raise TopologyError(f"faust.host '{topology.name}': mode={mode!r}; one of {', '.join(_MODES)} is needed")
    if any(other.app is app and other.topology.name == topology.name for other in _hosted):
        raise TopologyError(f"faust.host '{topology.name}': the app hosts it already; each topology once is needed")
    check_reads(topology.plan)
    feed = Feed(_IN_FLIGHT) if mode == "agents" else None
    hosted = HostedTopology(app, topology, config, member, log, registry, feed)
    first = not any(other.app is app for other in _hosted)
    if first:
        read_committed(app)
    if feed is not None:
        check_app(app, topology)
        add_agent(app, topology, feed)
    app.service(service_class(hosted))
    add_pages(app, hosted, "/eddy/" if first else f"/eddy/{topology.name}/")
    add_commands()
    _hosted.append(hosted)
    return hosted


def hosted_topologies() -> list[HostedTopology]:
    """Those of all apps of this process, in the order of their `host`."""
    return list(_hosted)
