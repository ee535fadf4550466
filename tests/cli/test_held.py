"""What has no finite answer, as commands tell it: `status`, `wait`, `run --until-idle`, and `on_limit="stop"`."""

import json
import pathlib
import re
import uuid
from collections.abc import Callable

import pytest

from tests.cli.conftest import Command, Start
from tests.holding import way_round

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
sys.path.append({root!r})
from tests.holding import reaching
from tests.waiting import PATIENCE_S
topology = reaching({on_limit!r}, *{names!r})
"""
WHY = way_round("top", "a", "top")


@pytest.fixture
def program(folder: pathlib.Path) -> Callable[..., str]:
    """Write the program with a choice of `on_limit` and names of application and topics; returns its file."""

    def write(on_limit: str, *names: str) -> str:
        name = f"{on_limit}.py"
        (folder / name).write_text(PROGRAM.format(root=str(ROOT), on_limit=on_limit, names=names))
        return name

    return write


def test_what_is_held_is_told_by_every_command_and_goes_when_it_is_mended(
    run: Command, program: Callable[..., str]
) -> None:
    file = program("hold")
    run("produce", "links", stdin="top\ta\na\ttop\n")
    told = run("run", file, "--until-idle", status=3).stderr
    assert f"WARNING no finite answer: {WHY}" in told
    assert "idle: all input is processed" in told
    assert run("wait", file, status=3).stderr == f"no finite answer: {WHY}\n"
    status = json.loads(run("status", file, "--format", "json").stdout)
    assert status["quiescent"]
    assert status["held"] == [{"step": "reach", "partition": 0, "message": WHY}]
    shown = [line.split() for line in run("status", file).stdout.splitlines()]
    assert ["reach", "0", *WHY.split()] in shown
    run("produce", "links", stdin="a\tb\n")
    assert "reach' has a finite answer again, partition 0" in run("run", file, "--until-idle").stderr
    assert run("wait", file).stderr == ""
    assert json.loads(run("status", file, "--format", "json").stdout)["held"] == []
    assert "no finite answer" not in run("status", file).stdout


def test_stop_ends_with_a_status_of_its_own_until_it_is_mended(run: Command, program: Callable[..., str]) -> None:
    file = program("stop")
    run("produce", "links", stdin="top\ta\na\ttop\n")
    for options in ([], ["--until-idle"]):
        told = run("run", file, *options, status=65).stderr
        assert f"error [DATA_NO_FINITE_ANSWER]: all input is processed, and there is no finite answer: {WHY}\n" in told
    run("wait", file, status=3)
    run("produce", "links", stdin="a\tb\n")
    run("run", file, "--until-idle")
    run("wait", file)


def test_on_kafka_two_workers_hold_and_stop_alike(
    start: Start, run: Command, program: Callable[..., str], broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDDY_BOOTSTRAP", broker)
    app = f"held-{uuid.uuid4().hex[:8]}"
    names = (app, f"{app}-in", f"{app}-out")
    hold, stop = (program(on_limit, *names) for on_limit in ("hold", "stop"))
    both = ("--processes", "2", "--set", "session.timeout.ms=6000")
    run("topics", "create", *names[1:], "--partitions", "2")
    run("produce", names[1], stdin="top\ta\na\ttop\nleaf\ta\n")
    told = start("run", hold, "--until-idle", *both).ends(3).errors
    assert re.search(rf"^\[[01]\] .*WARNING no finite answer: {re.escape(WHY)}$", told, re.M), told
    assert run("wait", hold, status=3).stderr == f"no finite answer: {WHY}\n"
    held = json.loads(run("status", hold, "--format", "json").stdout)["held"]
    assert held == [{"step": "reach", "partition": 0, "message": WHY}]
    told = start("run", stop, *both).ends(65).errors
    assert re.search(r"ended with status 65; the others stop too", told), told
    run("produce", names[1], stdin="a\tb\n")
    start("run", stop, "--until-idle", *both).ends()
    assert run("wait", stop).stderr == ""
