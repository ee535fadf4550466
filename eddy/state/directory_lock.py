"""The lock on a RocksDB directory: RocksDB's own lock, taken before RocksDB opens it.

RocksDB locks the file LOCK of a directory with a record lock (fcntl). But it reads other files before it takes the
lock, and takes no lock when it opens read-only; files that another process is writing then look damaged. So a directory
is locked here before it is checked, and remains locked as long as RocksDB has it open.

A process loses a record lock when it closes *any* descriptor of the file (POSIX, fcntl). So this process never opens a
file LOCK that it has locked. Instead, it looks into a set of the directories that it has locked.
"""

import fcntl
import struct
import sys
import threading
from pathlib import Path
from typing import IO

from eddy.errors import StateInUseError

__all__ = ["LOCK", "DirectoryLock"]

LOCK = "LOCK"
_FLOCK = "hhqqi"  # struct flock on Linux: type, whence, start, length, process
_held: set[Path] = set()
_guard = threading.Lock()


class DirectoryLock:
    """The lock on `path`, an existing directory, held from the call until `release`.

    Raises: StateInUseError if another process, or this one, holds it; OSError.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.resolve()
        self._file: IO[bytes] | None = None
        with _guard:
            if self._name in _held:
                raise _in_use(path, "another store of this process")
            self._file = _locked(path)
            _held.add(self._name)

    def release(self) -> None:
        """Release the lock, after RocksDB has closed the directory. A second call does nothing."""
        with _guard:
            if self._file is not None:
                _held.discard(self._name)
                self._file.close()
                self._file = None


def _locked(path: Path) -> IO[bytes]:
    """Open and lock the file LOCK of the directory."""
    name = path / LOCK
    try:
        name.touch()
        found = name.stat()
        file = name.open("r+b")
    except FileNotFoundError as error:  # the directory existed a moment ago
        raise _in_use(path, "another process") from error
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if name.stat().st_ino != found.st_ino:
            raise FileNotFoundError("the directory was made anew meanwhile")
    # If the lock is held, some systems raise the first error, others the second one.
    except (BlockingIOError, PermissionError, FileNotFoundError) as error:
        holder = _holder(file)
        file.close()
        raise _in_use(path, holder) from error
    except BaseException:
        file.close()
        raise
    return file


def _holder(file: IO[bytes]) -> str:
    """Return a text that names the process that holds the lock, as far as the system knows it."""
    if sys.platform == "linux":
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
        kind, _, _, _, process = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
        if kind != fcntl.F_UNLCK and process > 0:
            return f"another process, {process}"
    return "another process"


def _in_use(path: Path, holder: str) -> StateInUseError:
    return StateInUseError(
        f"state {str(path)!r}: is in use by {holder}; one at a time may have it. Stop the other one, or choose "
        "another directory: nothing in this one was changed."
    )
