"""A process is found again by its lock, and no other one is ever taken for it."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eddy.connectors.broker.process import (
    LOCK,
    LOG,
    PID,
    claimed,
    gone,
    held,
    launch,
    process_id,
    send_signal,
    stands_still,
)
from tests.waiting import PATIENCE_S, wait_for

SLEEP = ["/bin/sleep", "600"]


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[int]:
    """The id of a process that runs in the folder."""
    with claimed(tmp_path) as lock:
        assert lock is not None
        launch(SLEEP, tmp_path, lock)
    pid = process_id(tmp_path)
    assert pid is not None
    yield pid
    send_signal(tmp_path, signal.SIGKILL)
    wait_for(lambda: gone(tmp_path, 1.0), PATIENCE_S, "the end of the process")


def test_process_holds_the_lock_as_long_as_it_lives(tmp_path: Path, sleeper: int) -> None:
    assert held(tmp_path)
    assert process_id(tmp_path) == sleeper
    send_signal(tmp_path, signal.SIGKILL)
    wait_for(lambda: gone(tmp_path, 1.0), PATIENCE_S, "the end of the process")
    assert process_id(tmp_path) is None


def test_process_is_in_a_session_of_its_own_and_writes_a_log(tmp_path: Path) -> None:
    code = f"import os, sys; print(os.getsid(0) != {os.getsid(0)}, file=sys.stderr); print(os.getcwd())"
    with claimed(tmp_path) as lock:
        assert lock is not None
        launch([sys.executable, "-c", code], tmp_path, lock)
    wait_for(lambda: gone(tmp_path, 1.0), PATIENCE_S, "the end of the process")
    assert (tmp_path / LOG).read_text() == f"True\n{tmp_path}\n"


def test_two_do_not_run_in_one_folder(tmp_path: Path, sleeper: int) -> None:
    with claimed(tmp_path) as lock:
        assert lock is None
    assert process_id(tmp_path) == sleeper


def test_lock_that_is_only_looked_at_is_claimed_a_moment_later(tmp_path: Path) -> None:
    """Two starts look whether one runs; then both would find the lock taken, and neither would start it."""
    looking = os.open(tmp_path / LOCK, os.O_RDONLY | os.O_CREAT)
    fcntl.flock(looking, fcntl.LOCK_SH)
    looked = threading.Timer(0.05, os.close, [looking])
    looked.start()
    with claimed(tmp_path) as lock:
        assert lock is not None
    looked.join()


def test_folder_that_was_removed_is_made_for_the_lock(tmp_path: Path) -> None:
    with claimed(tmp_path / "gone") as lock:
        assert lock is not None
        assert held(tmp_path / "gone")


def test_lock_that_was_not_handed_down_is_let_go(tmp_path: Path) -> None:
    with claimed(tmp_path) as lock:
        assert lock is not None
        assert held(tmp_path)
    assert not held(tmp_path)


def test_lock_is_free_once_its_holder_was_killed(tmp_path: Path) -> None:
    code = f"""
import pathlib, os, signal
from eddy.connectors.broker.process import claimed
with claimed(pathlib.Path({str(tmp_path)!r})):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert not held(tmp_path)


def test_process_that_was_given_the_id_since_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(SLEEP) as other:
        (tmp_path / PID).write_text(str(other.pid))
        assert process_id(tmp_path) is None
        send_signal(tmp_path, signal.SIGKILL)
        assert other.poll() is None
        with claimed(tmp_path) as lock:
            assert lock is not None
            assert process_id(tmp_path) is None
        other.kill()


def test_nothing_runs_where_there_is_no_folder(tmp_path: Path) -> None:
    assert not held(tmp_path / "nowhere")
    assert process_id(tmp_path / "nowhere") is None


def test_a_process_that_is_stopped_stands_still_with_all_its_threads(tmp_path: Path) -> None:
    code = """
import pathlib, threading, time
def count(file):
    for number in range(10**9):
        file.write_text(str(number))
for name in "abcd":
    threading.Thread(target=count, args=[pathlib.Path(name)], daemon=True).start()
time.sleep(600)
"""
    with claimed(tmp_path) as lock:
        assert lock is not None
        launch([sys.executable, "-c", code], tmp_path, lock)
    files = [tmp_path / name for name in "abcd"]
    wait_for(lambda: all(file.exists() for file in files), PATIENCE_S, "all threads")
    pid = process_id(tmp_path)
    assert pid is not None
    assert not stands_still(pid)
    send_signal(tmp_path, signal.SIGSTOP)
    wait_for(lambda: stands_still(pid), PATIENCE_S, "the stop of all threads")
    before = [file.stat().st_mtime_ns for file in files]
    time.sleep(0.05)  # pause: nothing is written meanwhile
    assert [file.stat().st_mtime_ns for file in files] == before
    send_signal(tmp_path, signal.SIGCONT)
    wait_for(lambda: [file.stat().st_mtime_ns for file in files] != before, PATIENCE_S, "the threads going on")
    send_signal(tmp_path, signal.SIGKILL)
    wait_for(lambda: gone(tmp_path, 1.0), PATIENCE_S, "the end of the process")
