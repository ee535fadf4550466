"""An application that runs, and live queries whose tables are in memory, on disk or in part."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eddy.live.dataflow import first_rows
from eddy.live.server import loading
from eddy.state.spaces import Spaces
from tests.live.server.running import Loaded, Running


@pytest.fixture
def running() -> Iterator[Running]:
    with ExitStack() as stack:
        yield Running(stack)


@pytest.fixture
def in_memory(running: Running) -> Iterator[Loaded]:
    with ExitStack() as stack:
        yield Loaded(running, stack)


@pytest.fixture(params=["memory", "disk"])
def loaded(request: pytest.FixtureRequest, running: Running, tmp_path: Path) -> Iterator[Loaded]:
    folder = tmp_path / "queries"
    with ExitStack() as stack:
        yield Loaded(running, stack, None if request.param == "memory" else Spaces(folder, "app", 1 << 20))
    assert not folder.exists()


@pytest.fixture
def passing(in_memory: Loaded, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """No table is small enough to be in memory for a window, and no row is kept beyond one."""
    monkeypatch.setattr(loading, "LARGE_ROWS", 0)
    monkeypatch.setattr(first_rows, "slack_of", lambda limit, scanned: 0)
    return in_memory


@pytest.fixture
def on_disk(running: Running, tmp_path: Path) -> Iterator[Loaded]:
    with ExitStack() as stack:
        yield Loaded(running, stack, Spaces(tmp_path / "queries", "app", 1 << 20))
