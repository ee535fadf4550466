"""Random graphs, edited, and random programs: after every epoch the answer is the one from scratch.

One half of the random programs is played every second day; the long form plays both.
EDDY_STORIES=1000 plays more of them; `python -m tests.recursion` plays until its time is out.
"""

import os
from collections.abc import Callable

import pytest

from tests.recursion import blocks, nested_blocks
from tests.recursion.programs import PROGRAMS, Program
from tests.recursion.random_programs import random_block, random_nest, random_program
from tests.recursion.rig import Played, play
from tests.seeds import in_turn

assert blocks
assert nested_blocks
ENOUGH = 6
STORIES = int(os.environ.get("EDDY_STORIES", ENOUGH))
CHUNKS = 6


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_answer_is_that_from_scratch_after_every_epoch(name: str) -> None:
    played = Played()
    for seed in range(STORIES):
        play(PROGRAMS[name], seed, played)
    assert played.epochs > 6 * STORIES
    assert played.rows > played.epochs / 4 or STORIES < ENOUGH, "next to nothing ever changed"


@pytest.mark.parametrize("chunk", [*in_turn(range(CHUNKS), CHUNKS)])
@pytest.mark.parametrize(("kind", "each"), [(random_program, 3), (random_block, 3), (random_nest, 1)])
def test_whatever_the_program_the_answer_is_that_from_scratch(
    kind: Callable[[int], Program], each: int, chunk: int
) -> None:
    for seed in range(each * chunk * STORIES, each * (chunk + 1) * STORIES):
        play(kind(seed), seed)
