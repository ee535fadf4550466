"""A folder with the example in it, eddy's commands in this process, and `eddy` in processes of their own."""

import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from click.testing import CliRunner, Result

import eddy
from eddy.cli import main
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from tests.children import Child

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "family.py"

Command = Callable[..., Result]
Start = Callable[..., Child]


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The current directory: empty, but for `family.py`."""
    for variable in (
        "EDDY_DATA",
        "EDDY_STATE",
        "EDDY_BOOTSTRAP",
        "EDDY_CONFIG",
        "EDDY_HTTP_TOKEN_FILE",
        "EDDY_SCHEMA_REGISTRY",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    shutil.copy(EXAMPLE, tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: pathlib.Path) -> Command:
    """Run a command in this process; what it raises by mistake is raised here. With None any status will do."""

    def invoke(*arguments: str, stdin: str | bytes = "", status: int | None = 0) -> Result:
        result = CliRunner().invoke(main, arguments, input=stdin, catch_exceptions=False)
        assert status in (None, result.exit_code), result.output
        return result

    return invoke


@pytest.fixture
def take_in(folder: pathlib.Path) -> Callable[[eddy.Topology], None]:
    """Let a worker take everything in, on the log and with the state of the default directories."""

    def work(topology: eddy.Topology) -> None:
        log = LocalLog(folder / ".eddy" / "log")
        names = {node.topic for node in [*topology.plan.sources(), *topology.plan.sinks()]}
        log.create_topics(TopicSpec(name, 1) for name in names - log.topics(names).keys())
        worker = eddy.Worker(topology, log, eddy.Config(state_dir=folder / ".eddy" / "state"))
        worker.run_until_idle()
        worker.close()
        log.close()

    return work


@pytest.fixture
def start(folder: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start `python -m eddy` in a process of its own, which is killed with the test."""
    said = tmp_path_factory.mktemp("said")

    def begin(*arguments: str, **options: Any) -> Child:
        environment = os.environ | {"PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "eddy", *arguments]
        return stack.enter_context(Child(said, command, env=environment, **options))

    with ExitStack() as stack:
        yield begin
