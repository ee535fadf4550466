"""One nursery for all tests of a module, and rigs in folders of their own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kill.rig import Nursery, Rig

Build = Callable[..., Rig]


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()


@pytest.fixture
def build(nursery: Nursery, tmp_path: Path) -> Iterator[Build]:
    """Make a rig for a program; a second one of the same folder shares log and state."""
    rigs: list[Rig] = []

    def make(name: str, seed: int = 0, folder: Path = tmp_path) -> Rig:
        rigs.append(Rig(nursery, folder, name, seed))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()
