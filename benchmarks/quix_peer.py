"""Quix Streams, in an environment of its own: it needs an older confluent-kafka than eddy does."""

import subprocess
import sys
import venv
from functools import cache
from pathlib import Path

from benchmarks.cluster import MissingError
from benchmarks.workloads import CACHE

__all__ = ["python"]

_REQUIREMENT = "quixstreams==3.28.1"
_HOME = CACHE / "quix"


@cache
def python() -> str:
    """A Python that has Quix Streams; it is installed by pip if it is not there. Raises: MissingError."""
    found = _HOME / "bin" / "python"
    if _has_quix(found):
        return str(found)
    venv.create(_HOME, clear=True, with_pip=True)
    done = subprocess.run([found, "-m", "pip", "install", "-q", _REQUIREMENT], capture_output=True, text=True)
    if done.returncode or not _has_quix(found):
        raise MissingError(
            f"Quix Streams cannot be installed by {sys.executable} and pip: {done.stderr.strip()[-300:]}"
        )
    return str(found)


def _has_quix(found: Path) -> bool:
    return found.exists() and not subprocess.run([found, "-c", "import quixstreams"], capture_output=True).returncode
