"""The settings of a connection to Kafka: read from the user's files and options, checked, and shown without secrets.

    NAME=VALUE                                 every client that has this setting
    consumer. producer. admin. + NAME=VALUE    only that client, overriding the general one, as in Kafka Streams
    topic. + NAME=VALUE                        the topics that eddy makes
    replication.factor=N                       their replicas; -1, the default, is the broker's own default

Names are librdkafka's, which are Kafka's for the most part; `java_settings.py` translates other names of Kafka.
Settings that eddy's guarantees depend on cannot be set; the connector adds them. This module does not import the client
library.
"""

import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eddy.connectors.kafka.java_settings import is_left_out, translated
from eddy.connectors.kafka.properties import Setting, read_file, read_pairs, resolved
from eddy.errors import ConfigurationError

__all__ = ["KafkaSettings", "shown"]

_log = logging.getLogger("eddy.kafka")

_POSITIONS = "positions are committed in one transaction with the outputs"
_REFUSED = {
    "group.id": "the group is the application's name",
    "group.instance.id": "it is made of the application's name and the member's. Name the member: --member NAME",
    "transactional.id": "it is made of the application's name and the member's. Name the member: --member NAME",
    "enable.auto.commit": _POSITIONS,
    "auto.commit.enable": _POSITIONS,
    "enable.auto.offset.store": _POSITIONS,
    "isolation.level": "records of open and aborted transactions are never read",
    "auto.offset.reset": "a new application begins at the first record, and a position that is lost is an error",
    "partition.assignment.strategy": "partition i of every topic has to belong to the same worker",
    "partitioner": "records are sent to the partition that Kafka's Java producers choose",
    "enable.idempotence": "transactions need it",
    "enable.sasl.oauthbearer.unsecure.jwt": "tokens without a signature prove nothing. Set sasl.oauthbearer.method",
}
_REFUSED_OF_TOPICS = {
    "cleanup.policy": "it follows from the purpose of a topic",
    "retention.ms": "records are deleted after they were read, and never by age",
    "retention.bytes": "records are deleted after they were read, and never by size",
    "message.timestamp.type": "records keep the timestamps of their input records",
}

_CONSUMER, _PRODUCER, _ADMIN, _TOPIC = "consumer", "producer", "admin", "topic"
_OF_CLIENTS = re.compile(r"topic\.(metadata\..*|blacklist)")
"""Settings of every client that begin with `topic.`, although this prefix marks the settings of topics."""

_OF_CONSUMERS = re.compile(
    r"(session\.timeout|heartbeat\.interval|coordinator\.query\.interval|max\.poll\.interval|auto\.commit\.interval)\.ms"
    r"|group\.(protocol(\.type)?|remote\.assignor)|queued\.(min\.messages|max\.messages\.kbytes)|max\.poll\.records"
    r"|fetch\..*|max\.partition\.fetch\.bytes|check\.crcs|enable\.partition\.eof|offset\.store\..*"
)
_OF_PRODUCERS = re.compile(
    r"transaction\.timeout\.ms|enable\.gapless\.guarantee|queue\.buffering\..*|linger\.ms|message\.send\.max\.retries"
    r"|retries|compression\..*|batch\.(size|num\.messages)|delivery\.(timeout\.ms|report\.only\.error)"
    r"|sticky\.partitioning\.linger\.ms|(request\.required\.)?acks|(request|message)\.timeout\.ms|queuing\.strategy"
)

_SECRET = re.compile(
    r"pass(word|phrase)|secret|token|jaas|ssl\.?key|\.pem$|oauthbearer\.(config|assertion)|credential|user\.info", re.I
)
_USER_INFO = re.compile(r"(?<=://)[^/@\s]*@")
_LOGIN = re.compile(r"[^,/\s]*@")
_SERVER = re.compile(r"(?:(?P<scheme>\w+)://)?(?P<host>\[[0-9a-fA-F:.%\w]+\]|[^\s:/@\[\]]+):(?P<port>\d{1,5})")
_LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|\[::1\]", re.I)


@dataclass(frozen=True, repr=False)
class KafkaSettings:
    """How to reach a cluster, and how eddy's topics are made there. Made by `of`.

    Invariant: its text forms show no secret.
    """

    shared: Mapping[str, str]
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = -1

    @classmethod
    def of(
        cls,
        bootstrap: str | None = None,
        files: Iterable[Path] = (),
        pairs: Iterable[str] = (),
        environ: Mapping[str, str] = os.environ,
    ) -> "KafkaSettings":
        """Read files and `KEY=VALUE` pairs; later ones override earlier ones, and `bootstrap` overrides all.

        Raises: ConfigurationError naming the setting, its origin and the problem.
        """
        read = [setting for path in files for setting in read_file(path)] + [*read_pairs(pairs)]
        latest = {setting.key: setting for setting in read}
        found = _Found()
        for setting in latest.values():
            found.take(resolved(setting, environ))
        own = {client: translated(part, found.origins) for client, part in found.parts.items()}
        shared = own.pop("")
        if bootstrap is not None:
            shared["bootstrap.servers"] = bootstrap
        _check_servers(shared, found.origins)
        if left_out := sorted(filter(is_left_out, latest)):
            _log.info("settings that only Java's clients read are left out: %s", ", ".join(left_out))
        return cls(shared, own, found.topic_configs, found.replication_factor)

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers: `HOST:PORT,…`."""
        return self.shared["bootstrap.servers"]

    def for_consumer(self) -> dict[str, str]:
        """Return the user's settings for a consumer."""
        return self._merged(_CONSUMER, _OF_PRODUCERS)

    def for_producer(self) -> dict[str, str]:
        """Return the user's settings for a producer."""
        return self._merged(_PRODUCER, _OF_CONSUMERS)

    def for_admin(self) -> dict[str, str]:
        """Return the user's settings for an admin client."""
        return {key: value for key, value in self._merged(_ADMIN, _OF_CONSUMERS).items() if not _is(_OF_PRODUCERS, key)}

    def _merged(self, client: str, others: re.Pattern[str]) -> dict[str, str]:
        shared = {key: value for key, value in self.shared.items() if not _is(others, key)}
        return {**shared, **self.own.get(client, {})}

    def __repr__(self) -> str:
        own = {f"{client}.{key}": value for client, part in self.own.items() for key, value in part.items()}
        topic = {f"topic.{key}": value for key, value in self.topic_configs.items()}
        parts = shown({**self.shared, **own, **topic, "replication.factor": str(self.replication_factor)})
        return f"KafkaSettings({', '.join(f'{key}={value}' for key, value in parts.items())})"


def shown(settings: Mapping[str, object]) -> dict[str, str]:
    """Return settings for display, with `***` in place of possible secrets."""
    return {
        key: "***" if _SECRET.search(key) else _USER_INFO.sub("***@", str(value)) for key, value in settings.items()
    }


class _Found:
    """Collects settings by the client that they are for; `parts` has "" for all clients."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, str]] = {"": {}, _CONSUMER: {}, _PRODUCER: {}, _ADMIN: {}}
        self.topic_configs: dict[str, str] = {}
        self.replication_factor = -1
        self.origins: dict[str, str] = {}

    def take(self, setting: Setting) -> None:
        """Add a setting. Raises: ConfigurationError if it cannot be set."""
        key, value, origin = setting
        prefix, _, name = key.partition(".")
        if key == "replication.factor":
            self.replication_factor = _replicas(value, origin)
        elif prefix == _TOPIC and name and not _OF_CLIENTS.fullmatch(key):
            _refuse(_REFUSED_OF_TOPICS, name, key, origin)
            self.topic_configs[name] = value
        else:
            client, name = (prefix, name) if prefix and prefix in self.parts and name else ("", key)
            _refuse(_REFUSED, name, key, origin)
            self.parts[client][name] = value
            self.origins[name] = origin


def _refuse(refused: Mapping[str, str], name: str, key: str, origin: str) -> None:
    if name in refused:
        raise ConfigurationError(f"{origin}: {key} cannot be set; {refused[name]}")


def _replicas(value: str, origin: str) -> int:
    if re.fullmatch(r"-1|[1-9]\d{0,3}", value):
        return int(value)
    raise ConfigurationError(f"{origin}: replication.factor={value[:20]}; a number, or -1 for the broker's, is needed")


def _check_servers(settings: Mapping[str, str], origins: Mapping[str, str]) -> None:
    """Check that there are servers; warn of servers reached without encryption. Raises: ConfigurationError."""
    text = settings.get("bootstrap.servers", "")
    servers = [_SERVER.fullmatch(server.strip()) for server in text.split(",")]
    hosts = [server["host"] for server in servers if server and int(server["port"]) < 1 << 16]
    if len(hosts) < len(servers):
        raise ConfigurationError(
            f"{origins.get('bootstrap.servers', 'settings')}: bootstrap.servers is {_LOGIN.sub('***@', text)!r}; "
            "servers as HOST:PORT are needed, with commas between them. Name them: --bootstrap HOST:PORT"
        )
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    far = [host for host in hosts if not _LOOPBACK.fullmatch(host)]
    if far and protocol.endswith("PLAINTEXT"):
        _log.warning("connections to %s are not encrypted: security.protocol=%s", ", ".join(far), protocol)


def _is(names: re.Pattern[str], key: str) -> bool:
    return names.fullmatch(key) is not None
