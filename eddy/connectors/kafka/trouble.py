"""What clients report on the side: a request that fails says "no answer", and this says why.

A client that is refused (a wrong password, a certificate that does not fit) goes on trying, and its
requests time out. It reports the cause through a callback; what cannot heal is kept here, and asked
for where a request has failed.
"""

import logging

from confluent_kafka import KafkaError

from eddy.connectors.kafka.errors import kafka_error

__all__ = ["Trouble"]

_log = logging.getLogger("eddy.kafka")
_FINAL = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL)


class Trouble:
    """The last report of each kind from the clients of one log."""

    def __init__(self) -> None:
        self._final: KafkaError | None = None

    def report(self, error: KafkaError) -> None:
        """Take a report, as a client's `error_cb`. It may not raise: the call that is under way would fail for it."""
        _log.debug("client: %s (%s)", error.str(), error.name())
        if error.code() in _FINAL:
            self._final = error

    def check(self, where: str) -> None:
        """Raises: ConfigurationError where a client was refused."""
        error, self._final = self._final, None
        if error is not None:
            raise kafka_error(where, error, "Check user, password and certificates: --config, --set")
