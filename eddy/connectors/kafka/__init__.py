"""The connector to Kafka (confluent-kafka): the only package that imports it."""

try:
    import confluent_kafka  # noqa: F401
except ImportError as error:
    from eddy.errors import ConfigurationError

    raise ConfigurationError(
        "kafka: confluent-kafka is not installed; it is needed to connect to brokers. "
        "Install it: pip install 'eddy-streams[kafka]'"
    ) from error

from eddy.connectors.kafka.log import KafkaLog
from eddy.connectors.kafka.membership import GuardedGroup, Member
from eddy.connectors.kafka.settings import KafkaSettings

__all__ = ["GuardedGroup", "KafkaLog", "KafkaSettings", "Member"]
