"""Node and Chromium, for tests of the client and the page: skipped with a reason where they are not installed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["CHROMIUM", "NODE", "needed", "run_node"]

ROOT = Path(__file__).resolve().parents[2]
NODE = shutil.which("node")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def needed(program: str | None, name: str, package: str) -> str:
    """The program; without it the test is skipped, or fails if `EDDY_ALL_PROGRAMS` is set, as by `make test-long`."""
    if program is not None:
        return program
    missing = f"{name} is not installed, so this part is NOT TESTED. On Debian: apt-get install {package}"
    if os.environ.get("EDDY_ALL_PROGRAMS"):
        pytest.fail(missing)
    pytest.skip(missing)


def run_node(*arguments: str, timeout_s: float = 120.0, **environment: str) -> str:
    """Run Node, and return its output. It fails the test with the output where Node fails."""
    command = [needed(NODE, "node", "nodejs"), *arguments]
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout_s
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
