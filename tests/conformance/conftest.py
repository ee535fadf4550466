"""What all cases on Kafka share."""

from collections.abc import Iterator

import pytest

from eddy.connectors.kafka import KafkaLog, KafkaSettings
from tests.conformance.engines import Kafka


@pytest.fixture(scope="session")
def kafka(broker: str) -> Iterator[Kafka]:
    log = KafkaLog(KafkaSettings.of(broker))
    shared = Kafka(log, log.producer(None))
    yield shared
    shared.writer.close()
    log.close()
