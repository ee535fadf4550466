"""How tests are run: signals reach the processes that they start, and the end of a run says its cost."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_tests_started_with_sigint_ignored_start_processes_that_hear_it() -> None:
    """As `make test &` does in a script, with pytest-xdist in between."""
    test = "tests/cli/test_journey.py::test_first_signal_finishes_the_epoch[2]"
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "1", test]
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *words], cwd=ROOT, env=outside(), capture_output=True, text=True
    )
    told = done.stdout
    assert done.returncode == 0, told
    assert "1 passed" in told
    assert re.search(
        rf"cost: .* min, of processors .* min =+\nprocessor s .*\n +[0-9.]+ .* 1  tests/cli\n"
        rf"processor s .*\n +[0-9.]+ .*{re.escape(test)}",
        done.stdout,
    )


def outside() -> dict[str, str]:
    """The environment without what pytest and pytest-xdist leave in it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
