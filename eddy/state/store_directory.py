"""Handles the directory of a store as files: checks whether eddy made it, locks it, and removes it.

The directory is checked without RocksDB, which writes to any directory that it opens, even to read
(docs/adr/0022-store-lock.md).

Invariant: files of other programs are never changed or removed, even a file named LOCK.
"""

import shutil
from contextlib import suppress
from pathlib import Path

from eddy.errors import StateError
from eddy.state.directory_lock import LOCK, DirectoryLock
from eddy.state.store_errors import foreign_files

__all__ = ["CONFIG", "is_new", "lock", "remove_store"]

CONFIG = "rocksdict-config.json"
"""The file that shows that eddy made a directory. rocksdict writes it first; it says that keys and values are bytes."""


def lock(path: Path) -> DirectoryLock:
    """Lock the directory `path`, which is made if it is missing. Returns the lock.

    The files in it are checked only if there is no LOCK, since otherwise another process may be using them.

    Raises: StateInUseError; StateError if the directory has files not made by eddy; OSError.
    """
    _refuse_others_files(path)
    # Another process may make or remove the directory meanwhile. Then `DirectoryLock` finds it in use.
    with suppress(FileExistsError, FileNotFoundError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()
    return DirectoryLock(path)


def _refuse_others_files(path: Path) -> None:
    """Raise StateError if a directory without a LOCK has files not made by eddy.

    A directory with a LOCK is checked later, under the lock.
    """
    names = _names_in(path)
    if LOCK not in names:
        _check(path, names)


def is_new(path: Path) -> bool:
    """Return whether `path` is missing or empty, or was left by a crash before anything was written.

    Raises: StateError if it holds files not made by eddy.
    """
    return _check(path, _names_in(path))


def _check(path: Path, names: list[str]) -> bool:
    """Return what `is_new` returns, for a directory that has files of these names."""
    if not names or names == [LOCK]:
        return True
    config = path / CONFIG
    if config.is_file() and b'"raw_mode":false' not in config.read_bytes():
        return "CURRENT" not in names and not any(name.endswith(".sst") for name in names)
    raise foreign_files(path, names)


def remove_store(path: Path) -> None:
    """Delete the directory of a store, even a damaged one; do nothing if it does not exist.

    Raises: StateInUseError if a process has it open; StateError if it holds other files, or cannot be removed.
    """
    try:
        if path.exists():
            _refuse_others_files(path)
            held = DirectoryLock(path)
            try:
                is_new(path)  # refuses files of other programs, which may also have a file LOCK
                _remove_files(path)
            finally:
                held.release()
    except OSError as error:
        raise StateError(
            f"state {str(path)!r}: cannot be removed ({error}); a directory that this user may delete is needed. "
            "Check the permissions."
        ) from error


def _remove_files(path: Path) -> None:
    """Remove a locked directory.

    LOCK is removed last, because without it another process could begin a store there. The file that says that eddy
    made the directory is removed last but one, so that files that a crash leaves can be removed later.
    """
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name not in (LOCK, CONFIG):
            entry.unlink()
    (path / CONFIG).unlink(missing_ok=True)
    (path / LOCK).unlink()
    with suppress(OSError):  # another process has begun a store in the empty directory
        path.rmdir()


def _names_in(path: Path) -> list[str]:
    """The names in a directory; empty if it does not exist. Raises: StateError if the path is not a directory."""
    try:
        return sorted(entry.name for entry in path.iterdir())  # read once: a second read may find other files
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise foreign_files(path, [path.name]) from None
