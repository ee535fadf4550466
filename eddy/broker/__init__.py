"""A Kafka broker on this machine, for development and for tests: one process in KRaft mode, in a folder.

`server.py` is the broker; `jars.py` gets what it runs on, `settings.py` says how it is set up, `process.py` how a
process that outlives this one is found again. It speaks to no broker: what a client sees is the connector's.
"""

from eddy.broker.jars import kafka_version
from eddy.broker.ports import free_port
from eddy.broker.server import Broker

__all__ = ["Broker", "free_port", "kafka_version"]
