"""Uninterruptible calls of the client, made in slices between which signals are handled."""

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from eddy.connectors.kafka.error_codes import is_transient, the_error

__all__ = ["SLICE_S", "in_slices"]

T = TypeVar("T")

SLICE_S = 1.0
"""The length of a slice: the most seconds until a signal is handled."""


def in_slices(call: Callable[[float], T], patience_s: float) -> T:
    """Retry a call, whose argument is a time limit in seconds, until it succeeds or `patience_s` seconds have passed.

    Raises: KafkaException, the error of the last try.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return call(SLICE_S)
        except KafkaException as exception:
            if not is_transient(the_error(exception)) or time.monotonic() > deadline:
                raise
