"""What a second run excuses: waits that ran out of time, and nothing else."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies

import eddy
from tests.second_run import ran_out_of_time
from tests.waiting import WaitTimeoutError, wait_for

pytest_plugins = "pytester"

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = """
import os, sys
sys.path.insert(0, os.environ["EDDY_ROOT"])
from tests.second_run import *
"""
WAITS = """
def test_waits(pytestconfig):
    from pathlib import Path
    from tests.waiting import wait_for
    wait_for(Path("there").exists, 0.05, "the file")
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("EDDY_ROOT", str(ROOT))
    pytester.makeconftest(CONFTEST)
    return pytester


def test_a_wait_that_ran_out_of_time_is_excused_and_printed(project: pytest.Pytester) -> None:
    project.makepyfile(WAITS)
    assert project.runpytest_subprocess().ret == pytest.ExitCode.TESTS_FAILED
    (project.path / "there").touch()
    second = project.runpytest_subprocess("--second-run")
    assert second.ret == pytest.ExitCode.OK
    second.stdout.fnmatch_lines(["*FLAKY *::test_waits*", "*WaitTimeoutError: not in 0.05 s: the file*"])


def slow_once() -> None:
    """Hypothesis tries again what failed; if it does not fail then, it raises a group."""
    tries: list[int] = []

    @settings(max_examples=1, database=None)
    @given(strategies.integers())
    def law(number: int) -> None:
        tries.append(number)
        if len(tries) == 1:
            pytest.fail("Timeout (>300.0s) from pytest-timeout.")

    law()


def not_ready() -> None:
    with closing(eddy.open_log()) as log:
        topology = eddy.Topology("late")
        topology.table("rows", key=eddy.String, value=eddy.String)
        eddy.create_topics(topology, log)
        with eddy.run(topology, log), eddy.views(topology, log) as views:
            views.wait()
            views.wait({"rows": [5]}, timeout_s=0.01)


def not_visible() -> None:
    from playwright.sync_api import TimeoutError

    raise TimeoutError("not visible")


def page_crashed() -> None:
    from playwright.sync_api import Error

    raise Error("the page has crashed")


def no_answer() -> None:
    raise TimeoutError("a socket")


def differs() -> None:
    raise AssertionError("1 == 2")


def in_a_thread() -> None:
    raise pytest.PytestUnhandledThreadExceptionWarning("a thread") from WaitTimeoutError("not in 1 s")


def both() -> None:
    raise ExceptionGroup("a wait, and a wrong answer", [WaitTimeoutError("not in 1 s"), AssertionError("1 == 2")])


@pytest.mark.parametrize(
    ("fails", "excused"),
    [
        (lambda: wait_for(lambda: False, 0.0), True),
        (lambda: subprocess.run(["sleep", "60"], timeout=0.05), True),
        (not_visible, True),
        (not_ready, True),
        (slow_once, True),
        (in_a_thread, True),
        (page_crashed, False),
        (no_answer, False),
        (differs, False),
        (both, False),
        (lambda: eddy.Topology(""), False),
    ],
)
def test_what_is_excused(fails: Callable[[], object], excused: bool) -> None:
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        fails()
    assert ran_out_of_time(caught.value) is excused


def test_a_wait_that_runs_out_of_time_twice_fails(project: pytest.Pytester) -> None:
    project.makepyfile(WAITS)
    project.runpytest_subprocess()
    second = project.runpytest_subprocess("--second-run")
    assert second.ret == pytest.ExitCode.TESTS_FAILED
    second.stdout.no_fnmatch_line("*FLAKY*")


@pytest.mark.parametrize(
    "wrong",
    [
        "def test_wrong(): assert 1 == 2",
        "import pytest\n@pytest.fixture\ndef broken():\n    yield\n    raise ValueError\ndef test_wrong(broken): pass",
        "import missing_module",
    ],
)
def test_nothing_else_is_excused_even_beside_a_wait(project: pytest.Pytester, wrong: str) -> None:
    project.makepyfile(test_waits=WAITS, test_wrong=wrong)
    assert project.runpytest_subprocess().ret != pytest.ExitCode.OK
    (project.path / "there").touch()
    second = project.runpytest_subprocess("--second-run")
    assert second.ret == pytest.ExitCode.USAGE_ERROR
    second.stderr.fnmatch_lines(["*no second run: *"])


def test_no_second_run_without_a_first(project: pytest.Pytester) -> None:
    project.makepyfile(WAITS)
    assert project.runpytest_subprocess("--second-run").ret == pytest.ExitCode.USAGE_ERROR


def test_a_failure_on_a_worker_of_xdist_is_written_down_too(project: pytest.Pytester) -> None:
    project.makepyfile(WAITS)
    assert project.runpytest_subprocess("-n", "1").ret == pytest.ExitCode.TESTS_FAILED
    (project.path / "there").touch()
    assert project.runpytest_subprocess("--second-run").ret == pytest.ExitCode.OK


def test_tests_started_with_sigint_ignored_start_processes_that_hear_it() -> None:
    """As `make test &` does in a script, with pytest-xdist in between."""
    test = "tests/cli/test_journey.py::test_first_signal_finishes_the_epoch[2]"
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "1", test]
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *words], cwd=ROOT, env=outside(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def outside() -> dict[str, str]:
    """The environment without what pytest and pytest-xdist leave in it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
