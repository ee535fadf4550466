"""Lets tests share what is under `tests/`, and says how hard the laws are tried: EDDY_EXAMPLES=1000 make test."""

import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = str(Path(__file__).parent.parent)
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from tests import second_run, seeds  # noqa: E402
from tests.kafka import broker, brokers_folder, cluster, hold_session, own_broker, secured_broker  # noqa: E402
from tests.second_run import (  # noqa: E402
    pytest_addoption,
    pytest_runtest_makereport,
)

__all__ = [
    "broker",
    "brokers_folder",
    "cluster",
    "own_broker",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_runtest_makereport",
    "secured_broker",
]

LONGEST = ("tests/torture/", "tests/bad_input/", "tests/kill/", "tests/types/")
"""Where single tests take longest. Next to the groups of Spark's they come first; else one would be left at the end."""

settings.register_profile("eddy", deadline=None, max_examples=seeds.EXAMPLES)
settings.load_profile("eddy")


def pytest_report_header() -> str:
    """Which seeds are tried."""
    return f"seeds of day {seeds.DAY}; EDDY_SEED={seeds.DAY} tries them again"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that are to run, those first that take longest; else they are in their order."""
    second_run.pytest_collection_modifyitems(config, items)
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_configure(config: pytest.Config) -> None:
    """Let the brokers of `tests/kafka.py` end with this process, and let processes that tests start hear signals.

    A shell starts `make test &` with SIGINT ignored, and what is ignored stays so in all that it starts.
    """
    hold_session(config)
    second_run.pytest_configure(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
