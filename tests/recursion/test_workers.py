"""The programs run by workers that abort, are killed and lose their state: whenever they rest, the answer is right."""

import os
import random
from collections.abc import Iterator

import pytest

from tests.recursion import blocks, nested_blocks
from tests.recursion.cluster import Cluster
from tests.recursion.programs import PROGRAMS
from tests.recursion.random_programs import random_block, random_nest, random_program

LIVES = int(os.environ.get("EDDY_LIVES", "1"))
assert blocks
assert nested_blocks


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Aborts are logged."""
    with caplog.at_level("ERROR", logger="eddy.worker"):
        yield


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_whatever_befalls_its_workers_the_answer_is_right(name: str, members: int) -> None:
    for seed in range(LIVES):
        rng = random.Random(f"{name} {members} {seed}")
        Cluster(PROGRAMS[name], members, rng.choice([1, 4]), rng).live(PROGRAMS[name])


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_whatever_the_program_and_whatever_befalls_its_workers(seed: int, members: int) -> None:
    for program in (random_program(seed), random_block(seed), random_nest(seed)):
        rng = random.Random(f"{program.name} {members}")
        Cluster(program, members, rng.choice([1, 4]), rng).live(program)
