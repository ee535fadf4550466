"""A Kafka broker on this machine, for development and for tests: one process in KRaft mode, in a folder.

`server.py` is the broker; `jars.py` gets its jars, `settings.py` has its settings, `process.py` finds a process that
outlives this one. This package has no client: `connectors/kafka` is the client.
"""

from eddy.connectors.broker.jars import kafka_version
from eddy.connectors.broker.ports import free_port
from eddy.connectors.broker.server import Broker

__all__ = ["Broker", "free_port", "kafka_version"]
