"""Commands in processes of their own, which can be killed with the JVM and the Python workers that they started."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["QUICK_TO_START", "SPARK", "Job", "eddy", "ended"]

QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""A JVM with these is ready sooner; what it would run for long would be slower."""
SPARK = ("--master", "local[2]", "--memory", "1g")
_PATIENCE_S = 480.0
"""Of a whole job of Spark; less than a test may take, so that the failure says which one it was."""


class Job:
    """A command that runs, as the leader of a session."""

    def __init__(self, folder: Path, *command: str | Path, **environment: str) -> None:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("EDDY_")}
        descriptor, name = tempfile.mkstemp(".said", dir=folder)
        self._said = Path(name)
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables | environment,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
        os.close(descriptor)

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def said(self) -> str:
        """All that it has printed by now."""
        return self._said.read_text(encoding="utf-8")

    def wait(self) -> tuple[int, str]:
        """Its exit status, and all that it said."""
        return self.process.wait(_PATIENCE_S), self.said()

    def terminate(self) -> tuple[int, str]:
        """Ask it to end, as Ctrl-C does."""
        self.process.terminate()
        return self.wait()

    def kill(self) -> bool:
        """SIGKILL to all of its processes. Returns whether it had not ended by itself."""
        session = self.process.pid
        while members := _members(session):
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
        return self.process.wait(_PATIENCE_S) == -signal.SIGKILL


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
