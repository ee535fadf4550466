"""Random graphs, edited: after every epoch each program's answer is the one from scratch."""

import os

import pytest

from tests.recursion.programs import PROGRAMS
from tests.recursion.rig import Played, play

STORIES = int(os.environ.get("EDDY_STORIES", "12"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_answer_is_that_from_scratch_after_every_epoch(name: str) -> None:
    played = Played()
    for seed in range(STORIES):
        play(PROGRAMS[name], seed, played)
    assert played.epochs > 5 * STORIES
    assert played.rows > played.epochs / 4, "next to nothing ever changed"
