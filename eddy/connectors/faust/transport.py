"""A transport that reads committed records only: Faust's own, by aiokafka, with another isolation level.

Faust reads records of open and aborted transactions, unless the app is `exactly_once`. An app that hosts a topology
reads topics that are written in transactions, eddy's outputs first of all; without this its agents would see rows of
epochs that were undone. It is set by the app's own `transport`, once the app is configured.
"""

from typing import Any

import faust
from faust.transport.drivers import aiokafka as driver

from eddy.errors import ConfigurationError

__all__ = ["CommittedConsumer", "read_committed"]

_SCHEMES = ("kafka", "aiokafka")


class _Thread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: driver.Transport) -> Any:
        made = super()._create_worker_consumer(transport)
        made._isolation_level = "read_committed"  # read when it starts; Faust has no setting for it
        return made

    def member(self) -> tuple[str, str | None]:
        """The id of this member of the group, and its static name, if any."""
        coordinator = self._ensure_consumer()._coordinator
        return coordinator.member_id, self.app.conf.consumer_group_instance_id


class CommittedConsumer(driver.Consumer):
    """Faust's consumer, for committed records; it tells which member of the group it is."""

    def _new_consumer_thread(self) -> driver.AIOKafkaConsumerThread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    def member(self) -> tuple[str, str | None]:
        """The id of this member of the group, and its static name, if any."""
        assert isinstance(self._thread, _Thread)
        return self._thread.member()


class ReadCommittedTransport(driver.Transport):
    """Faust's transport for Kafka, for committed records."""

    Consumer = CommittedConsumer


def read_committed(app: faust.App) -> None:
    """Let all agents and tables of an app read committed records only, from its start on."""

    def configured(*_: Any, **__: Any) -> None:
        urls = app.conf.broker_consumer
        if strange := [url for url in urls if url.scheme not in _SCHEMES]:
            raise ConfigurationError(
                f"faust app '{app.conf.id}': the driver of {strange[0]} drops headers and timestamps, and has a "
                "partitioner that differs with every process; Faust's aiokafka driver is needed. Write: "
                f"broker='kafka://{strange[0].host}:{strange[0].port}'"
            )
        app.transport = ReadCommittedTransport(urls, app)

    if app.configured:
        configured()
    else:
        app.on_after_configured.connect(configured, weak=False)
