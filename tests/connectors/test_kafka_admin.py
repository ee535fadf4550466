"""Questions to a coordinator that stands still: without an answer they are given up, and the process lives on."""

import pytest

from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.kafka import admin as administration
from eddy.errors import ConnectorError
from tests.kafka import OwnBroker
from tests.waiting import wait_for


def test_who_holds_a_name_is_answered_once_the_broker_goes_on(
    own_broker: OwnBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that librdkafka itself ends meanwhile would end the process when the broker goes on (issue 4605)."""
    broker = own_broker()
    broker.start()
    log = KafkaLog(KafkaSettings.of(pairs=[f"bootstrap.servers={broker.bootstrap}"]))

    def free() -> bool:
        try:
            return log._admin.holder("group", "group-w1") is None  # private: asked by starts of workers only
        except ConnectorError as error:
            if error.retriable:
                return False
            raise

    monkeypatch.setattr(administration, "REQUEST_S", 1.0)
    wait_for(free)
    for _ in range(3):
        broker.pause()
        assert [free(), free()] == [False, False]
        broker.resume()
        wait_for(free)
    log.close()
