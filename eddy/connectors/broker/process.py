"""A background process that continues after its starter has ended. Its folder identifies it.

The process that starts it takes an advisory lock on a file of the folder, and the started process inherits the lock.
The system releases a lock when its holder ends, however it ends, and not before.

Invariant: at most one process runs in a folder; and while the lock is held, the process id written there is its own.
If the process has ended, its id, which another process may have by now, is not used.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = [
    "LOCK",
    "LOG",
    "PID",
    "claimed",
    "gone",
    "held",
    "launch",
    "make_folder",
    "process_id",
    "send_signal",
    "stands_still",
]

LOCK, PID, LOG = "lock", "pid", "broker.log"
"""The files of the folder."""

_POLL_S = 0.02
_ATTEMPTS = 10
_DETACH = 'pid=$1; shift; "$@" & echo $! > "$pid"'


def make_folder(folder: Path) -> None:
    """Make the folder if it is missing. The holder of the lock may remove the folder again at any moment."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # `exist_ok` would check afterwards whether the path is a folder, which may be removed by then.
    with contextlib.suppress(FileExistsError):
        folder.mkdir()


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[int | None]:
    """Hold the lock within the block.

    Yields the lock's file descriptor, for `launch`, or None if another process has the lock.

    The folder is made if it is missing.
    """
    if (lock := _claim(folder)) is None:
        yield None
        return
    try:
        (folder / PID).unlink(missing_ok=True)
        yield lock
    finally:
        os.close(lock)


def held(folder: Path) -> bool:
    """Whether a process runs in the folder, or is being started there."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _lock(lock, fcntl.LOCK_SH)
    finally:
        os.close(lock)


def launch(command: Sequence[str], folder: Path, lock: int) -> None:
    """Start `command` in the folder, in a session of its own.

    The process inherits the lock, and keeps it after the block of `claimed`.
    """
    with (folder / LOG).open("wb") as log:
        # The shell ends immediately, so that no process has to wait for the started one as its child.
        subprocess.run(
            ["/bin/sh", "-c", _DETACH, "sh", PID, *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock],
            start_new_session=True,
            check=True,
        )


def process_id(folder: Path) -> int | None:
    """Return the id of the process that runs in the folder; None if no process runs there yet, or any more."""
    if not held(folder):
        return None
    try:
        return int((folder / PID).read_text())
    except (FileNotFoundError, ValueError):
        return None


def send_signal(folder: Path, number: signal.Signals) -> None:
    """Send a signal to the process that runs in the folder, if there is one."""
    if (pid := process_id(folder)) is not None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return


def stands_still(pid: int) -> bool:
    """Whether all threads of a process are stopped, or have ended; True also where the system has no /proc."""
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state = thread.read_bytes().rpartition(b") ")[2][:1]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in (b"T", b"t", b"Z", b"X"):
            return False
    return True


def gone(folder: Path, timeout_s: float) -> bool:
    """Wait up to `timeout_s` until no process runs in the folder. Returns whether none runs."""
    deadline = time.monotonic() + timeout_s
    while held(folder):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _claim(folder: Path) -> int | None:
    """Open the lock file and take the lock. Return its descriptor, or None if another process has the lock.

    Retries for a moment, since `held` takes the lock briefly and the folder may be removed meanwhile.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_POLL_S)
        try:
            make_folder(folder)
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            continue
        if _lock(lock, fcntl.LOCK_EX) and _is_at(lock, folder / LOCK):
            return lock
        os.close(lock)
    return None


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(file: int, path: Path) -> bool:
    """Whether the open file is still the file at `path`: the folder may have been removed in between."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
