"""The transactional producer of a worker: made when needed, and replaced if the end of its transaction is unknown."""

import logging

from eddy.connectors.log import Log, Producer
from eddy.errors import ConnectorError
from eddy.statistics import Statistics

__all__ = ["OwnProducer"]

_log = logging.getLogger("eddy.worker")


class OwnProducer:
    """One producer at a time of `transactional_id`."""

    def __init__(self, log: Log, transactional_id: str, statistics: Statistics) -> None:
        self._log, self._id, self._statistics = log, transactional_id, statistics
        self.current: Producer | None = None

    def ready(self) -> Producer:
        """Return the current producer, or a new one, which ends the open transactions of all earlier producers."""
        if self.current is None:
            self.current = self._log.producer(self._id)
        return self.current

    def abort(self) -> None:
        """Abort the open transaction, if there is one."""
        if self.current is None:
            return
        try:
            self.current.abort()
        except ConnectorError:
            self.drop()
        except BaseException:  # interrupted: the transaction may be half ended
            self.drop()
            raise

    def drop(self) -> None:
        """Close the producer after an unknown end of its transaction: only a new producer fences its late requests."""
        producer, self.current = self.current, None
        if producer is not None:
            self._statistics.producers_dropped += 1
            try:
                producer.close()
            except ConnectorError as error:
                _log.warning("producer abandoned: %s", error)

    def close(self) -> None:
        """Abort the open transaction and release the transactional id."""
        producer, self.current = self.current, None
        if producer is not None:
            producer.close()
