"""A member of a group that joins and closes, over and over: `python -m tests.connectors.joining ORDER`, in JSON.

It closes at any moment of a rebalance, most of all when it has been given partitions and has not polled since. A close
that waits for ever may hold Python's global lock, so that only another process can tell: it prints a line a round.
"""

import contextlib
import random
import sys
import threading
import time

import msgspec

from eddy.connectors.closing import any_abandoned
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.errors import SlotTakenError

__all__ = ["Order"]

POLLED_S = (0.0, 0.0, 0.05, 0.3)
UNPOLLED_S = (0.0, 0.1, 0.2, 0.4)
GIVEN_S = 0.15
"""How long it takes, as a rule, until a member has been given partitions."""


class Order(msgspec.Struct):
    """Which group to join, as whom, and how often."""

    settings: list[str]
    group: str
    topic: str
    member: str
    rounds: int
    polls: bool


def join_and_close(order: Order) -> None:
    """One member's rounds. The random choices are its own, the same each time."""
    rng = random.Random(order.member)
    settings = KafkaSettings.of(pairs=order.settings)
    for turn in range(order.rounds):
        log = KafkaLog(settings)
        consumer = log.consumer(order.group, [order.topic], order.member)
        until = time.monotonic() + rng.choice(POLLED_S) * order.polls
        with contextlib.suppress(SlotTakenError):  # a name may stay taken for a session: see `error_codes.py`
            while time.monotonic() < until:
                consumer.poll(10, 0.02)
        time.sleep(rng.choice(UNPOLLED_S) if order.polls else GIVEN_S)  # pause: it does not poll meanwhile
        consumer.close()
        log.close()
        assert not any_abandoned()
        print(turn, threading.active_count(), flush=True)


if __name__ == "__main__":
    join_and_close(msgspec.json.decode(sys.argv[1], type=Order))
