"""Apps of tests, on the broker that the environment names."""

import os
from typing import Any

import faust

__all__ = ["app_on_broker"]


def app_on_broker(name: str, **settings: Any) -> faust.App:
    """An app that reads from the start, with settings of its own."""
    return faust.App(
        name,
        broker=os.environ.get("BROKER", "kafka://localhost:9092"),
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        **settings,
    )
