"""Retries the start of a worker while brokers are away, for the worker's retry time or until a stop is requested.

A request that no broker answers waits for ten seconds without handling signals. So the cluster is first checked with a
short request, of less than a second.
"""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from eddy.cli.signals import StopRequest
from eddy.connectors.log import Log
from eddy.errors import ConnectorError

__all__ = ["insisted"]

T = TypeVar("T")

_log = logging.getLogger("eddy.cli")
_REACH_S = 0.8
_PAUSE_S = 0.2


def insisted(attempt: Callable[[], T], log: Log, retry_s: float, stop: StopRequest) -> T | None:
    """Return the result of `attempt`, retried while its error is temporary; None if a stop was requested first.

    Raises: ConnectorError that is permanent, or lasts longer than `retry_s`.
    """
    deadline = time.monotonic() + retry_s
    said = ""
    while not stop:
        try:
            log.reach(_REACH_S)
            return attempt()
        except ConnectorError as error:
            if not error.retriable or time.monotonic() >= deadline:
                raise
            if said != error.code:
                _log.warning("not started yet; trying for %g s: %s", retry_s, error)
                said = error.code
        time.sleep(_PAUSE_S)
    return None
