"""Errors that clients report by callback: they explain why a request got no answer.

A client that is refused (a wrong password, an invalid certificate) keeps retrying, and its requests time out. It
reports the cause through a callback. A permanent cause is stored here, and raised when a request has failed.

A client also reports the loss of a broker when only an idle connection was closed. So each polled client then sends the
cluster a request every second, until all requests of ten seconds were answered, because a broker that is starting
answers only some requests. An outage begins with the third request in a row without an answer, because a busy broker
may miss one.

A client may lose its brokers for ever. A broker that has just started may answer with an empty list of brokers. The
client then forgets all brokers and sends no more requests (librdkafka issue 5301). So a client that gets no answer,
while brokers answer another client, is replaced.
"""

import logging
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from eddy.connectors.kafka.error_codes import kafka_error

__all__ = ["UNANSWERED", "ClusterTrouble", "ClusterWatch", "is_answered"]

_log = logging.getLogger("eddy.kafka")
_LOOK_S, _REST_S = 1.0, 10.0
_ASK_S = 0.2
UNANSWERED = 3
"""The number of requests in a row without an answer that are an outage."""
_FINAL = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL)
_AWAY = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)


def is_answered(client: Consumer | AdminClient, topic: str) -> bool:
    """Whether a broker answers a client now.

    An answer with an empty list of brokers is from a broker that is starting.
    """
    try:
        return bool(client.list_topics(topic, timeout=_ASK_S).brokers)
    except KafkaException:
        return False


class ClusterTrouble:
    """Keeps the latest permanent error and the latest outage that the clients of one log at `where` have reported.

    `reachable` sends a request by a client that is known to have brokers, and returns whether one answers.
    """

    def __init__(self, where: str, reachable: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._where, self.reachable, self.clock = where, reachable, clock
        self._final: KafkaError | None = None
        self._away_since: float | None = None
        self._back_since: float | None = None
        self._told = False

    def report(self, error: KafkaError) -> None:
        """Store a report, as a client's `error_cb`. It must not raise, or the client's call in progress would fail."""
        _log.debug("client: %s (%s)", error.str(), error.name())
        if error.code() in _FINAL:
            self._final = error
        elif error.code() in _AWAY and self._away_since is None:
            self._away_since = self.clock()

    @property
    def suspected(self) -> bool:
        """Whether a client has reported the loss of a broker, and requests are not answered reliably since then."""
        return self._away_since is not None

    def unanswered(self, times: int) -> None:
        """Count a client's requests in a row without an answer; log an outage, once."""
        self._back_since = None
        if times >= UNANSWERED and not self._told:
            _log.warning("%s: no broker answers; trying until one does", self._where)
            self._told = True

    def answered(self) -> None:
        """Note that a client got an answer; log the end of an outage, once."""
        now = self.clock()
        back_since = self._back_since = now if self._back_since is None else self._back_since
        if now - back_since < _REST_S:
            return
        if self._told and self._away_since is not None:
            _log.info("%s: answers again, after %.0f s", self._where, back_since - self._away_since)
        self._away_since, self._back_since, self._told = None, None, False

    def check(self, where: str) -> None:
        """Raise the permanent error, a ConfigurationError, if a client has reported one."""
        error, self._final = self._final, None
        if error is not None:
            raise kafka_error(where, error, "Check user, password and certificates: --config, --set")


class ClusterWatch:
    """Sends requests to the cluster by one client, while an outage is suspected."""

    def __init__(self, trouble: ClusterTrouble) -> None:
        self._trouble = trouble
        self._unanswered = 0
        self._due = 0.0

    def is_lost(self, answers: Callable[[], bool]) -> bool:
        """Send a request if one is due.

        Returns whether this client must be replaced, because brokers answer other clients, but not this client.
        """
        now = self._trouble.clock()
        if not self._trouble.suspected or now < self._due:
            return False
        self._due = now + _LOOK_S
        if answers():
            self._unanswered = 0
            self._trouble.answered()
            return False
        self._unanswered += 1
        self._trouble.unanswered(self._unanswered)
        return self._unanswered >= UNANSWERED and self._trouble.reachable()
