"""SIGKILL and SIGTERM at every named step of an epoch and at random moments: nothing lost, nothing doubled.

Kills come in chains: most restarts are killed as well, while input goes on coming in. Then a clean
run to idle, after which outputs, changelogs and stores are held to the oracle.
"""

import shutil

import pytest

import eddy
from tests.kill.conftest import Build
from tests.kill.nursery import RESTORED, TERMINATE
from tests.seeds import in_turn
from tests.simulation.programs import PROGRAMS

NAMES = ["countdown", "materials", "permissions", "sessions", "visits", "clicks"]
KILLED = [*in_turn(NAMES, len(NAMES))]
"""One program a day; all of them in the long form."""
RANDOM_KILLS = 30
LONGEST_RUN_S = 0.15


def steps_of_an_epoch() -> list[str]:
    """The names that `observe` is called with: a new one is killed at without more ado."""
    seen: list[str] = []
    with eddy.TopologyTestDriver(PROGRAMS[0].topology()) as driver:
        driver.worker._parts.observe = seen.append  # private: a driver's worker has no observer
        driver.input("nodes").pipe("a", "b")
    return list(dict.fromkeys(seen))


STEPS = steps_of_an_epoch()
TIMES = [1, 2, 4, 1]
"""At which of its epochs a run is killed, one run after the other."""


@pytest.mark.parametrize("name", KILLED)
def test_nothing_is_lost_or_doubled_when_killed_at_every_step(build: Build, name: str) -> None:
    rig = build(name)
    for step in STEPS:
        for time in TIMES:
            rig.produce(20)
            assert rig.run(step, time, meanwhile=3).killed, f"'{step}' was not reached for the {time}. time"
        rig.settle()
    assert rig.kills == len(STEPS) * len(TIMES)


@pytest.mark.parametrize("name", KILLED)
def test_nothing_is_lost_or_doubled_when_killed_at_random_moments(build: Build, name: str) -> None:
    rig = build(name, seed=1)
    while rig.kills < RANDOM_KILLS:
        rig.produce(20)
        rig.run(kill_after_s=rig.rng.uniform(0, LONGEST_RUN_S), meanwhile=3)
        if rig.rng.random() < 0.1:
            rig.settle()
    rig.settle()


def test_a_restart_that_is_killed_while_it_restores_goes_on_restoring(build: Build) -> None:
    rig = build("materials", seed=2)
    rig.produce(100)
    rig.settle()
    shutil.rmtree(rig.state)
    while rig.run(RESTORED, time=3).killed:
        pass
    assert rig.kills > 2
    rig.settle()


def test_nothing_is_lost_or_doubled_when_killed_at_every_step_and_its_states_are_lost(build: Build) -> None:
    rig = build("clicks", seed=3)
    for step in STEPS:
        rig.produce(20)
        assert rig.run(step, 2, meanwhile=3).killed, f"'{step}' was not reached"
        shutil.rmtree(rig.state)
    rig.settle()


@pytest.mark.parametrize("step", [*in_turn(STEPS, 3)])
def test_a_worker_told_to_stop_in_an_epoch_finishes_it_and_exits_with_status_0(build: Build, step: str) -> None:
    rig = build("countdown")
    rig.produce(20)
    outcome = rig.run(step, 2, TERMINATE)
    assert (outcome.status, "stopped by SIGTERM" in outcome.errors) == (0, True), outcome.errors
    rig.settle()
