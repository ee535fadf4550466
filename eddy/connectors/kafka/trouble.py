"""Errors that clients report by callback: they explain why a request got no answer.

A client that is refused (a wrong password, an invalid certificate) keeps retrying, and its requests time out. It
reports the cause through a callback; a permanent one is stored here, and raised when a request has failed.

A client also reports that it has lost every broker, even if an idle connection was closed. So the poller then asks the
cluster once a second, and logs when no broker answers and when one answers again.
"""

import logging
import time
from collections.abc import Callable

from confluent_kafka import KafkaError

from eddy.connectors.kafka.errors import kafka_error

__all__ = ["Trouble"]

_log = logging.getLogger("eddy.kafka")
_LOOK_S = 1.0
_FINAL = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL)


class Trouble:
    """The latest permanent error and the latest outage, from the clients of one log at `where`."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._final: KafkaError | None = None
        self._away_since: float | None = None
        self._told = False
        self._due = 0.0

    def report(self, error: KafkaError) -> None:
        """Store a report, as a client's `error_cb`. It must not raise: the call in progress would fail."""
        _log.debug("client: %s (%s)", error.str(), error.name())
        if error.code() in _FINAL:
            self._final = error
        elif error.code() == KafkaError._ALL_BROKERS_DOWN and self._away_since is None:
            self._away_since = time.monotonic()

    def look(self, answers: Callable[[], bool]) -> None:
        """If all brokers were reported away: check, and log the outage and its end."""
        now = time.monotonic()
        if self._away_since is None or now < self._due:
            return
        self._due = now + _LOOK_S
        if not answers():
            if not self._told:
                _log.warning("%s: no broker answers; trying until one does", self._where)
            self._told = True
            return
        if self._told:
            _log.info("%s: answers again, after %.0f s", self._where, now - self._away_since)
        self._away_since, self._told = None, False

    def check(self, where: str) -> None:
        """Raises: ConfigurationError if a client was refused."""
        error, self._final = self._final, None
        if error is not None:
            raise kafka_error(where, error, "Check user, password and certificates: --config, --set")
