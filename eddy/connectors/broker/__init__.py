"""A Kafka broker on this machine, for development and for tests: one process in KRaft mode, in a folder.

`broker_node.py` is the broker; `jars.py` gets its jars, `server_settings.py` has its settings, `process.py` finds a
process that outlives this one. This package has no client: `connectors/kafka` is the client.
"""

from eddy.connectors.broker.broker_node import Broker
from eddy.connectors.broker.jars import kafka_version
from eddy.connectors.broker.ports import free_port

__all__ = ["Broker", "free_port", "kafka_version"]
