"""Commands in processes of their own, which can be killed with the JVM and the Python workers that they started."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.children import Child, without_settings

__all__ = ["QUICK_TO_START", "SPARK", "Job", "eddy", "ended"]

QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""A JVM with these is ready sooner; what it would run for long would be slower."""
SPARK = ("--master", "local[2]", "--memory", "1g")
_PATIENCE_S = 480.0
"""Of a whole job of Spark; less than a test may take, so that the failure says which one it was."""


class Job(Child):
    """A command that runs, as the leader of a session."""

    def __init__(self, folder: Path, *command: str | Path, **environment: str) -> None:
        alone: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "start_new_session": True}
        super().__init__(folder, command, cwd=folder, env=without_settings(**environment), **alone)

    def wait(self) -> tuple[int, str]:
        """Its exit status, and all that it said."""
        return self.ended(_PATIENCE_S), self.said().out

    def terminate(self) -> tuple[int, str]:
        """Ask it to end, as Ctrl-C does."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> bool:
        """SIGKILL to all of its processes. Returns whether it had not ended by itself."""
        while members := _members(self.process.pid):
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
        return self.ended(_PATIENCE_S) == -signal.SIGKILL


def _members(session: int) -> list[int]:
    """The processes of a session that are not dead."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True)
    found = []
    for line in listed.stdout.splitlines():
        pid, state = line.split()
        with contextlib.suppress(ProcessLookupError):
            if not state.startswith("Z") and os.getsid(int(pid)) == session:
                found.append(int(pid))
    return found


def eddy(folder: Path, *words: str | Path, **environment: str) -> Job:
    """`eddy …`, started in a folder."""
    return Job(folder, sys.executable, "-P", "-m", "eddy", *words, **environment)


def ended(folder: Path, *words: str | Path, **environment: str) -> str:
    """What `eddy …` says that ends well."""
    status, said = eddy(folder, *words, **environment).wait()
    assert status == 0, said
    return said
