"""The torture in short: each fault a few times, on a real broker. `make torture` plays it in full.

A scenario that fails says its seed; `python -m tests.torture SEED --fault … --program … --kills 1` plays it again.
"""

from pathlib import Path

import pytest

import eddy
from tests.kafka import OwnBroker
from tests.simulation.programs import PROGRAMS
from tests.torture.__main__ import SETTINGS
from tests.torture.faults import FAULTS, STEPS
from tests.torture.scenario import torture

SHORT = [
    ("kill at steps", "countdown", 10),
    ("kill at random", "countdown", 3),
    ("stop", "orders", 1),
    ("storm", "descendants", 5),
    ("purge", "countdown", 3),
    ("state", "orders", 2),
]


@pytest.mark.parametrize(("fault", "program", "times"), SHORT)
def test_nothing_is_lost_or_doubled_or_called_done_too_early(
    broker: str, tmp_path: Path, fault: str, program: str, times: int
) -> None:
    outcome = torture(broker, tmp_path, fault, program, seed=1, times=times)
    assert not outcome.failure, f"seed 1 of '{fault}' on {program}:\n{outcome.failure}"
    assert outcome.declared, "it was never called quiescent: nothing was held against that"


def test_nothing_is_lost_or_doubled_when_the_broker_is_restarted_in_the_middle(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    with own_broker(settings=SETTINGS) as running:
        outcome = torture(running.bootstrap, tmp_path, "broker", "descendants", seed=1, times=1, broker=running)
    assert not outcome.failure, f"seed 1 of 'broker' on descendants:\n{outcome.failure}"


def test_every_fault_is_played_in_short_too() -> None:
    assert {fault for fault, _, _ in SHORT} | {"broker"} == set(FAULTS)


def test_the_steps_are_those_of_an_epoch() -> None:
    seen: list[str] = []
    with eddy.TopologyTestDriver(PROGRAMS[0].topology()) as driver:
        driver.worker._observe = seen.append
        driver.input("nodes").pipe("a", "b")
    assert seen[: len(STEPS)] == STEPS
