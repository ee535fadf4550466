"""Lets tests share what is under `tests/`, and says how hard the laws are tried: EDDY_EXAMPLES=1000 make test."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = str(Path(__file__).parent.parent)
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from tests.kafka import broker, brokers_folder, cluster, hold_session, own_broker, secured_broker  # noqa: E402

__all__ = ["broker", "brokers_folder", "cluster", "own_broker", "secured_broker"]

settings.register_profile("eddy", deadline=None, max_examples=int(os.environ.get("EDDY_EXAMPLES", "40")))
settings.load_profile("eddy")


def pytest_configure(config: pytest.Config) -> None:
    """Let the brokers of `tests/kafka.py` end with this process."""
    hold_session(config)
