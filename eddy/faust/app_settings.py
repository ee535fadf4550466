"""From the settings of a Faust app to eddy's: the brokers, the folder of states, and a worker's name."""

import socket
from pathlib import Path

from faust.types import AppT

from eddy.config import Config
from eddy.connectors.kafka import KafkaSettings
from eddy.errors import ConfigurationError

__all__ = ["SCHEMES", "config_of", "member_of", "settings_of"]

SCHEMES = ("kafka", "aiokafka")
"""The URL schemes of broker addresses for Faust's aiokafka driver."""
_PORT = 9092


def settings_of(app: AppT) -> KafkaSettings:
    """Return the connection settings for the brokers of an app.

    Raises: ConfigurationError if the app's credentials or brokers cannot be used by another client.
    """
    name, conf = f"faust app '{app.conf.id}'", app.conf
    if conf.broker_credentials is not None:
        raise ConfigurationError(
            f"{name}: broker_credentials hold an SSL context or a login that only Faust's client can use; eddy needs "
            "them as settings of Kafka's. Write: eddy.faust.host(app, topology, log=eddy.kafka('HOST:PORT', "
            "security_protocol=…))"
        )
    if strange := [url for url in conf.broker if url.scheme not in SCHEMES or not url.host]:
        raise ConfigurationError(f"{name}: broker {strange[0]}; brokers as kafka://HOST:PORT are needed")
    servers = ",".join(f"{url.host}:{url.port or _PORT}" for url in conf.broker)
    return KafkaSettings.of(servers, environ={})


def config_of(app: AppT) -> Config:
    """Return the settings of a worker whose states are in the app's folder."""
    return Config(state_dir=Path(app.conf.datadir) / "eddy")


def member_of(app: AppT) -> str:
    """Return the name of this Faust worker: its host and port. It is unique, and the same after a restart."""
    return f"{socket.gethostname()}-{app.conf.web_port}"
