"""The short form of the torture: a few kills of each kind. `make torture` is the full one.

A failure names its seed; what was done and what the workers said is in the test's folder.
"""

from pathlib import Path

import pytest

import eddy
from tests.kafka import OwnBroker
from tests.torture.faults import STEPS
from tests.torture.scenario import Outcome, torture

KINDS = [
    ("kill at steps", "countdown", 10),
    ("kill at random", "descendants", 4),
    ("stop", "orders", 2),
    ("storm", "countdown", 6),
    ("purge", "descendants", 3),
    ("state", "orders", 4),
    ("kill at steps", "nearest", 8),
]


def say(outcome: Outcome) -> None:
    if outcome.failure:
        pytest.fail(f"{outcome.fault}, {outcome.program}, seed {outcome.seed}: {outcome.failure}")
    assert outcome.checked, "it was never called quiescent"


def test_the_steps_are_those_of_an_epoch() -> None:
    seen: list[str] = []
    topology = eddy.Topology("steps")
    topology.stream("in").to("out")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.worker._observe = seen.append
        driver.input("in").pipe(b"a", b"b")
    assert seen[: len(STEPS)] == STEPS


@pytest.mark.parametrize(("fault", "program", "times"), KINDS)
def test_nothing_is_lost_doubled_or_called_done_too_early(
    broker: str, tmp_path: Path, fault: str, program: str, times: int
) -> None:
    say(torture(broker, tmp_path, fault, program, 1, times))


def test_a_broker_that_ends_or_pauses_in_the_middle_of_transactions_loses_nothing(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    own = own_broker(settings={"broker.session.timeout.ms": "1000"})
    own.start()
    say(torture(own.bootstrap, tmp_path, "broker", "descendants", 1, 3, own))


@pytest.mark.parametrize(
    ("planted", "fault", "times"),
    [("write_the_store_before_the_commit", "kill at steps", 3), ("commit_for_nobody", "stop", 1)],
)
def test_a_planted_bug_is_found(broker: str, tmp_path: Path, planted: str, fault: str, times: int) -> None:
    assert torture(broker, tmp_path, fault, "countdown", 2, times, planted=planted).failure
