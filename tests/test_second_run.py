"""What a second run excuses: waits that ran out of time, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "wait",
    [
        "from playwright.sync_api import TimeoutError; raise TimeoutError('not visible')",
        "import subprocess; subprocess.run(['sleep', '60'], timeout=0.05)",
    ],
)
def test_waits_for_a_browser_or_a_process_are_excused(project: pytest.Pytester, wait: str) -> None:
    project.makepyfile(
        f"def test_waits():\n    from pathlib import Path\n    if not Path('there').exists():\n        {wait}"
    )
    assert project.runpytest_subprocess().ret == pytest.ExitCode.TESTS_FAILED
    (project.path / "there").touch()
    assert project.runpytest_subprocess("--second-run").ret == pytest.ExitCode.OK


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
        "from playwright.sync_api import Error\ndef test_wrong(): raise Error('the page has crashed')",
        "def test_wrong(): raise TimeoutError('a socket')",
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
