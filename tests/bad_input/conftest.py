"""Rigs for a test, on the broker of the session or another, closed with it."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.bad_input.rig import Rig

MakeRig = Callable[..., Rig]


@pytest.fixture
def name() -> str:
    return f"app-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def rigs() -> Iterator[list[Rig]]:
    """What is in this list is closed with the test."""
    made: list[Rig] = []
    yield made
    for rig in made:
        rig.close()


@pytest.fixture
def make_rig(broker: str, name: str, rigs: list[Rig]) -> MakeRig:
    """Make a rig with settings of the test's own; several of them are of one application."""

    def make(*pairs: str) -> Rig:
        rigs.append(Rig(name, [f"bootstrap.servers={broker}", *pairs]))
        return rigs[-1]

    return make


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    return make_rig()
