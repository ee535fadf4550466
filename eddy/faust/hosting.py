"""`host`: a topology becomes a part of a Faust app.

    app = faust.App("shop", broker="kafka://localhost:9092")
    topology = eddy.Topology("family")
    …
    eddy.faust.host(app, topology)

Faust is extended only in the ways that it offers to libraries: a service, pages, a group of commands, sensors, a
transport. Faust itself is not patched, and the app's settings are not read before it starts.
"""

from typing import Any

import faust

from eddy.config import Config
from eddy.connectors.kafka import KafkaLog
from eddy.errors import TopologyError
from eddy.faust.command_group import add_commands
from eddy.faust.feed import Feed
from eddy.faust.hosted import HOSTED, HostedTopology
from eddy.faust.monitor_pages import add_pages
from eddy.faust.service import service_class
from eddy.faust.source_agent import add_agent, check_app, source_topics
from eddy.faust.transport import read_committed
from eddy.topology.compiler.circuit_compiler import check_reads
from eddy.topology.topology import Topology

__all__ = ["host"]

_MODES = ("worker", "agents")
_IN_FLIGHT, _IN_FLIGHT_BYTES = 20_000, 32 << 20
"""The limits of records that Faust has read and eddy has not committed: their number, and their bytes."""


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
        topology: the program. Its name is the application id and the name of its group, so it has to be unique.
        mode: `worker`: eddy's own worker reads the sources in a group of its own, on a thread beside Faust's loop,
            exactly once. Agents can read its outputs like any topic, and see committed records only.
            `agents`: an agent of the app reads the sources, and Faust balances them among its workers. Rows are
            processed exactly once, too: eddy's transactions commit only while the process is a member of Faust's
            group, and Faust acknowledges the records after that.
        config: the worker's settings; by default, states are kept in the app's `datadir`.
        member: this worker's name among the topology's workers; by default, its host and web port.
        log: the connection to the brokers (`eddy.kafka(…)`), if the app's `broker` setting does not suffice.
        registry: the Prometheus registry that was passed to `setup_prometheus_sensors`, if any.

    Raises: ConfigurationError for unsuitable settings of the app; TopologyError for an unknown mode, or for a topology
    that cannot run or is hosted already.
    """
    if mode not in _MODES:
        raise TopologyError(f"faust.host '{topology.name}': mode={mode!r}; one of {', '.join(_MODES)} is needed")
    if any(other.app is app and other.topology.name == topology.name for other in HOSTED):
        raise TopologyError(f"faust.host '{topology.name}': the app hosts it already; each topology once is needed")
    check_reads(topology.plan)
    feed = Feed(frozenset(source_topics(app, topology)), _IN_FLIGHT, _IN_FLIGHT_BYTES) if mode == "agents" else None
    hosted = HostedTopology(app, topology, config, member, log, registry, feed)
    first = not any(other.app is app for other in HOSTED)
    if first:
        feeds = lambda: [other.feed for other in HOSTED if other.app is app and other.feed is not None]  # noqa: E731
        read_committed(app, feeds, lambda: hosted.member)
    if feed is not None:
        check_app(app, topology)
        add_agent(app, topology, feed)
    app.service(service_class(hosted))
    add_pages(app, hosted, "/eddy/" if first else f"/eddy/{topology.name}/")
    add_commands()
    HOSTED.append(hosted)
    return hosted
