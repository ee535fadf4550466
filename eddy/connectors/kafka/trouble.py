"""Errors that clients report by callback: they explain why a request got no answer.

A client that is refused (a wrong password, an invalid certificate) keeps retrying, and its requests time out. It
reports the cause through a callback; a permanent one is stored here, and raised when a request has failed.

A client also reports that it has lost every broker, even if an idle connection was closed. So the poller then asks the
cluster once a second. An outage begins with the third question in a row that got no answer: a broker that is busy may
leave one open. It ends when all questions of ten seconds were answered: a broker that starts answers some of them.
"""

import logging
import time
from collections.abc import Callable

from confluent_kafka import KafkaError

from eddy.connectors.kafka.errors import kafka_error

__all__ = ["Trouble"]

_log = logging.getLogger("eddy.kafka")
_LOOK_S, _REST_S = 1.0, 10.0
_UNANSWERED = 3
_FINAL = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL)


class Trouble:
    """The latest permanent error and the latest outage, from the clients of one log at `where`."""

    def __init__(self, where: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._where, self._clock = where, clock
        self._final: KafkaError | None = None
        self._away_since: float | None = None
        self._back_since: float | None = None
        self._unanswered = 0
        self._told = False
        self._due = 0.0

    def report(self, error: KafkaError) -> None:
        """Store a report, as a client's `error_cb`. It must not raise: the call in progress would fail."""
        _log.debug("client: %s (%s)", error.str(), error.name())
        if error.code() in _FINAL:
            self._final = error
        elif error.code() == KafkaError._ALL_BROKERS_DOWN and self._away_since is None:
            self._away_since = self._clock()

    def look(self, answers: Callable[[], bool]) -> None:
        """If all brokers were reported away: check, and log an outage and its end, once each."""
        now = self._clock()
        if self._away_since is None or now < self._due:
            return
        self._due = now + _LOOK_S
        if answers():
            self._answered(now, self._away_since)
            return
        self._back_since = None
        self._unanswered += 1
        if self._unanswered >= _UNANSWERED and not self._told:
            _log.warning("%s: no broker answers; trying until one does", self._where)
            self._told = True

    def _answered(self, now: float, away_since: float) -> None:
        self._unanswered = 0
        if self._told:
            back_since = self._back_since = now if self._back_since is None else self._back_since
            if now - back_since < _REST_S:
                return
            _log.info("%s: answers again, after %.0f s", self._where, back_since - away_since)
        self._away_since, self._back_since, self._told = None, None, False

    def check(self, where: str) -> None:
        """Raises: ConfigurationError if a client was refused."""
        error, self._final = self._final, None
        if error is not None:
            raise kafka_error(where, error, "Check user, password and certificates: --config, --set")
