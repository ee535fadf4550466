"""The settings of a broker: `server.properties` for development, and its logging.

A broker of one node answers at once: groups do not wait for more members, aborted transactions are cleaned up every
second, internal topics have few partitions. Nothing here makes data less durable than Kafka's own defaults do.
"""

from collections.abc import Mapping

from eddy.connectors.broker.ports import HOST

__all__ = ["DATA", "LOG_SETTINGS", "STARTED", "properties", "server_settings"]

DATA = "data"
"""The folder of Kafka's logs, relative to the broker's folder, in which Kafka runs."""

STARTED = b"Kafka Server started"
"""The line that a node logs once it serves clients: it is in the quorum, registered, and listening."""

LOG_SETTINGS = """\
status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %p %c{1} %m%n
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
logger.started.name=kafka.server.KafkaRaftServer
logger.started.level=info
"""
"""The settings of log4j2: warnings and errors are logged, and the line `STARTED`."""

_DEVELOPMENT = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "1",
    # A broker that was killed can register again when its last session is over, by Kafka's own default after 9 s.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # The buffer is allocated when the broker starts; Kafka's own default size is a quarter of our heap.
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
}


def server_settings(node_id: int, port: int, voters: Mapping[int, int]) -> dict[str, str]:
    """Return the settings of node `node_id`, which serves clients on `port`; `voters` are the nodes' controller ports.

    Each node is broker and controller. Internal topics have three replicas, or as many as there are nodes.
    """
    copies = min(3, len(voters))
    replicated = {
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "share.coordinator.state.topic.replication.factor": copies,
        "transaction.state.log.min.isr": copies - copies // 2,
        "share.coordinator.state.topic.min.isr": copies - copies // 2,
    }
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"CLIENTS://{HOST}:{port},CONTROLLERS://{HOST}:{voters[node_id]}",
        "advertised.listeners": f"CLIENTS://{HOST}:{port}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLERS:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "controller.listener.names": "CONTROLLERS",
        "controller.quorum.voters": ",".join(f"{node}@{HOST}:{at}" for node, at in sorted(voters.items())),
        "log.dirs": DATA,
        **_DEVELOPMENT,
        **{name: str(value) for name, value in replicated.items()},
    }


def properties(settings: Mapping[str, str]) -> str:
    r"""Return settings in the form that Java reads: one a line, in ASCII.

    >>> print(properties({"a.b": "x=y", "c": "1\\2é"}), end="")
    a.b=x=y
    c=1\\2\u00e9
    """
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(value: str) -> str:
    units = value.replace("\\", "\\\\").replace("\n", "\\n").encode("utf-16-be").hex(" ", 2).split()
    return "".join(chr(int(unit, 16)) if int(unit, 16) < 128 else f"\\u{unit}" for unit in units)
