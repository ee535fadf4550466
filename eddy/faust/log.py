"""The log of a worker whose sources Faust reads: Kafka, with another consumer."""

from collections.abc import Callable, Mapping, Sequence

from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.kafka.producer import KafkaProducer
from eddy.connectors.log import Consumer, Position, TopicPartition, never
from eddy.errors import ConfigurationError
from eddy.faust.consumer import FaustConsumer
from eddy.faust.feed import Feed

__all__ = ["FaustLog"]


class FaustLog(KafkaLog):
    """A `KafkaLog` for one worker, whose source records arrive through a `Feed` from a member of `faust_group`."""

    def __init__(
        self,
        settings: KafkaSettings,
        feed: Feed,
        faust_group: str,
    ) -> None:
        super().__init__(settings)
        self._feed, self._faust_group = feed, faust_group
        self._member: FaustConsumer | None = None

    def consumer(  # type: ignore[override]
        self, group: str, topics: Sequence[str], member: str, is_last: Callable[[], bool] = never
    ) -> Consumer:
        """Return the consumer that Faust feeds, as `Log.consumer` returns one.

        Raises: ConfigurationError for an internal topic whose partition count no source has.
        """
        counts = {name: spec.partitions for name, spec in self.topics(topics).items()}
        sources = {name: counts[name] for name in topics if name in self._feed.topics}
        exchanges = {name: counts[name] for name in topics if name not in self._feed.topics}
        for name, count in exchanges.items():
            if count not in {1, *sources.values()}:
                raise ConfigurationError(
                    f"faust.host '{group}': '{name}' has {count} partitions, and no source that an agent reads has as "
                    "many; Faust balances only sources. Use mode='worker': eddy.faust.host(app, topology)"
                )
        self._member = FaustConsumer(self, self._feed, (group, self._faust_group), sources, exchanges)
        return self._member

    def producer(self, transactional_id: str | None) -> KafkaProducer:
        """Return a producer that passes the positions it has committed to Faust, which then commits them, too."""
        made = super().producer(transactional_id)
        made.observe(self._committed)
        return made

    def _committed(self, positions: Mapping[TopicPartition, Position]) -> None:
        if self._member is not None:
            self._member.committed(positions)
