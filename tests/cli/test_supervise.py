"""The supervisor of `eddy run --processes`, over programs that end as it pleases them."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from eddy.cli.signals import StopRequest
from eddy.cli.supervise import Supervisor
from tests import waiting
from tests.children import Child
from tests.waiting import PATIENCE_S, Deadline

Supervised = Callable[..., Child]

ENDS = """
import os, pathlib, signal, sys
starts = pathlib.Path(sys.argv[1])
with starts.open("a") as file:
    file.write("x")
end = sys.argv[2:][len(starts.read_text()) - 1]
if end.startswith("SIG"):
    os.kill(os.getpid(), getattr(signal, end))
sys.exit(int(end))
"""
"""Ends in a way that the arguments name: as the first one says at first, and so on."""

STAYS = """
import pathlib, sys, threading
from eddy.cli.lifeline import watch_lifeline
asked = threading.Event()
watch_lifeline(lambda by: asked.set(), patience_s=float(sys.argv[2]))
pathlib.Path(sys.argv[1]).touch()
asked.wait()
if sys.argv[3:]:
    threading.Event().wait()
"""
"""Says that it is there, and stops when it is asked to; with a third argument, it does not."""

SUPERVISES = """
import sys
from eddy.cli.signals import stop_on_signals
from eddy.cli.supervise import Supervisor
supervisor = Supervisor([[sys.executable, "-c", *sys.argv[1:]]])
with stop_on_signals(supervisor.kill) as stop:
    sys.exit(supervisor.run(stop))
"""


def program(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


def wait_for(condition: Callable[[], bool]) -> None:
    waiting.wait_for(condition, PATIENCE_S)


def starts(file: pathlib.Path) -> int:
    return len(file.read_text())


@pytest.mark.parametrize("end", ["75", "130", "SIGKILL", "SIGTERM"])
def test_worker_that_may_do_better_is_started_again(tmp_path: pathlib.Path, end: str) -> None:
    commands = [program(ENDS, tmp_path / "0", end, "0"), program(ENDS, tmp_path / "1", "0")]
    assert Supervisor(commands, until_idle=True, backoff_s=(0.01, 0.01)).run(StopRequest()) == 0
    assert [starts(tmp_path / name) for name in "01"] == [2, 1]


def test_worker_that_just_ends_is_started_again_unless_it_was_to_run_until_idle(tmp_path: pathlib.Path) -> None:
    assert Supervisor([program(ENDS, tmp_path / "0", "0", "70")], backoff_s=(0.01, 0.01)).run(StopRequest()) == 70
    assert starts(tmp_path / "0") == 2


def test_starts_are_apart_by_a_time_that_doubles_up_to_a_limit(tmp_path: pathlib.Path) -> None:
    ends, least = ["75"] * 12 + ["1"], 0.05 + 0.1 + 10 * 0.2
    began, deadline = time.monotonic(), Deadline(least + PATIENCE_S)
    assert Supervisor([program(ENDS, tmp_path / "0", *ends)], backoff_s=(0.05, 0.2)).run(StopRequest()) == 1
    assert least <= time.monotonic() - began
    # Were there no limit, the last start alone would be a hundred seconds after the one before.
    deadline.check("the last start")
    assert starts(tmp_path / "0") == 13


@pytest.mark.parametrize("status", [1, 2, 70, 78])
def test_worker_that_fails_for_good_ends_the_others_and_gives_the_status(tmp_path: pathlib.Path, status: int) -> None:
    there = tmp_path / "there"
    waits = f"import pathlib, time\nwhile not pathlib.Path({str(there)!r}).exists(): time.sleep(0.01)\nexit({status})"
    assert Supervisor([program(STAYS, there, PATIENCE_S), program(waits)]).run(StopRequest()) == status


def test_stop_that_is_asked_for_reaches_all(tmp_path: pathlib.Path) -> None:
    class WhenAllAreThere(StopRequest):
        def __bool__(self) -> bool:
            return all((tmp_path / name).exists() for name in "01")

    commands = [program(STAYS, tmp_path / name, PATIENCE_S) for name in "01"]
    assert Supervisor(commands).run(WhenAllAreThere()) == 0


def test_every_line_tells_whose_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    speaks = "import sys; print('one', file=sys.stderr); sys.stderr.write('two'); print('data')"
    Supervisor([program(speaks)] * 2, until_idle=True).run(StopRequest())
    out, err = capfd.readouterr()
    assert sorted(line for line in err.splitlines() if line.startswith("[")) == [
        "[0] one",
        "[0] two",
        "[1] one",
        "[1] two",
    ]
    assert out == "data\ndata\n"
    Supervisor([program(speaks)], prefixed=False, until_idle=True).run(StopRequest())
    assert capfd.readouterr().err.endswith("one\ntwo\n")


@pytest.fixture
def supervised(tmp_path: pathlib.Path) -> Iterator[Supervised]:
    """A supervisor of one worker that is there, in a process of its own. Both have its stdout."""

    def begin(*arguments: object) -> Child:
        there = tmp_path / "there"
        command = program(SUPERVISES, STAYS, there, *arguments)
        child = stack.enter_context(Child(tmp_path, command, stdout=subprocess.PIPE))
        child.wait_for(there.exists, "its worker")
        return child

    with ExitStack() as stack:
        yield begin


def test_no_worker_outlives_its_supervisor(supervised: Supervised) -> None:
    supervisor = supervised(2 * PATIENCE_S)
    supervisor.process.kill()
    # The end of stdout is the end of all who have it.
    assert supervisor.process.communicate(timeout=PATIENCE_S) == (b"", None)


def test_worker_that_cannot_stop_does_not_outlive_it_for_long(
    supervised: Supervised,
) -> None:
    supervisor = supervised(0.1, "goes on")
    supervisor.process.kill()
    supervisor.process.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_asks_them_to_stop(supervised: Supervised, number: signal.Signals) -> None:
    supervisor = supervised(2 * PATIENCE_S)
    supervisor.signal(number)
    supervisor.process.communicate(timeout=PATIENCE_S)
    assert supervisor.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_second_signal_kills_them(supervised: Supervised, number: signal.Signals) -> None:
    supervisor = supervised(10 * PATIENCE_S, "goes on")
    supervisor.insist(number)
    supervisor.process.communicate(timeout=PATIENCE_S)
    assert supervisor.ended() == 128 + number


def test_worker_that_does_not_stop_in_time_is_killed(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    class WhenItIsThere(StopRequest):
        def __bool__(self) -> bool:
            return (tmp_path / "there").exists()

    command = program(STAYS, tmp_path / "there", 10 * PATIENCE_S, "goes on")
    assert Supervisor([command], patience_s=0.3).run(WhenItIsThere()) == os.EX_TEMPFAIL
    assert "worker 0 has not stopped within 0.3 s: killed" in caplog.text
