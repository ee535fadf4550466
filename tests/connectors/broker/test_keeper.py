"""Brokers of tests end with the pytest process, even where that is killed."""

import signal
import subprocess
import sys
from pathlib import Path

from eddy.connectors.broker.process import claimed, gone, held, launch
from tests.kafka import start_keeper
from tests.waiting import PATIENCE_S, wait_for

HOLDER = """
import fcntl, sys, time
with open(sys.argv[1], "wb") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("locked", flush=True)
    time.sleep(600)
"""


def test_what_runs_ends_when_the_session_is_killed(tmp_path: Path) -> None:
    session, brokers, home = tmp_path / "session", tmp_path / "brokers", tmp_path / "brokers" / "one"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(session)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        start_keeper(session, brokers)
        start_keeper(session, brokers)
        home.mkdir()
        with claimed(home) as lock:
            assert lock is not None
            launch(["/bin/sleep", "60"], home, lock)
        assert held(home)
        holder.send_signal(signal.SIGKILL)
    wait_for(lambda: gone(home, timeout_s=1.0) and gone(brokers, timeout_s=1.0), PATIENCE_S, "processes that end")
    wait_for(lambda: not (brokers.exists() or session.exists()), PATIENCE_S, "folders that go away")
