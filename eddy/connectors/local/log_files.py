"""The files of the embedded log in its directory: one SQLite file, and a lock file for each group in use.

Invariant: no file of another application is ever opened for writing. A directory is used only if it does not exist, is
empty, or holds a log of this schema or an older one. The file's application id and schema version are read before any
setting is written.

A group's lock is `flock` on `<group>.lock`: the kernel drops it when its process ends. The file holds the owner's
process id, only for an error message, and is never deleted. Every failure of SQLite becomes a `ConnectorError`, in
`connector_error`.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import sqlite3
import time
from collections.abc import Iterator
from typing import IO

from eddy.errors import ConnectorError

__all__ = ["GroupLock", "check_name", "connector_error", "locked_groups", "open_database"]

_FILE = "eddy-log.sqlite3"
_APPLICATION_ID = 0x65646479  # "eddy" in ASCII
_SCHEMA_VERSION = 1
_PAGE_BYTES = 8_192
_CHECKPOINT_BYTES = 16 << 20
_CACHE_KIB = 32_768
_LOCK_ATTEMPTS = 20
_LOCK_STEP_S = 0.01

_SCHEMA = """
CREATE TABLE topics (name TEXT PRIMARY KEY, configs TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE partitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    begin_offset INTEGER NOT NULL DEFAULT 0,
    next_offset INTEGER NOT NULL DEFAULT 0,
    weighed_offset INTEGER NOT NULL DEFAULT 0,
    UNIQUE (topic, partition)
);
CREATE TABLE records (
    partition_id INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    key BLOB,
    value BLOB,
    headers BLOB,
    PRIMARY KEY (partition_id, offset)
) WITHOUT ROWID;
CREATE TABLE positions (
    group_name TEXT NOT NULL,
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    PRIMARY KEY (group_name, topic, partition)
) WITHOUT ROWID;
CREATE TABLE producers (transactional_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
"""


def check_name(where: str, what: str, name: str, longest: int) -> None:
    """Refuse a name that Kafka would refuse, or that is not safe as the name of a file. Raises: ConnectorError."""
    if not re.fullmatch(rf"[A-Za-z0-9._-]{{1,{longest}}}", name) or name in (".", ".."):
        raise ConnectorError(
            f"{where}: {what} name {name!r} cannot be used; it needs 1 to {longest} of A-Z a-z 0-9 . _ -"
            f" and must not be '.' or '..'. Choose another name."
        )


def connector_error(where: str, error: sqlite3.Error) -> ConnectorError:
    """Return eddy's error for an error of SQLite."""
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return ConnectorError(
            f"{where}: another process is writing ({error}); only one can at a time. Try again.",
            retriable=True,
        )
    if primary in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return ConnectorError(
            f"{where}: cannot be written or read ({error}); it needs room on the disk and a file size"
            f" limit (ulimit -f) above its size. The transaction had no effect: make room, run again."
        )
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return ConnectorError(
            f"{where}: {_FILE} is damaged ({error}); an intact SQLite file is needed. Restore it from a"
            f" backup, or move the directory away and start from an empty one."
        )
    return ConnectorError(
        f"{where}: SQLite cannot continue ({error}); the file must be open, readable and writable."
        f" Check the directory's permissions and that the log was not closed before its users."
    )


def open_database(path: pathlib.Path | None, where: str, busy_timeout_s: float) -> sqlite3.Connection:
    """Open a connection to the log at `path`, made if there is none; in memory without a path.

    Raises: ConnectorError if the directory holds other files, or the log is damaged or of a newer eddy.
    """
    if path is None:
        return _initialised(_connect(":memory:", busy_timeout_s), where, busy_timeout_s)
    file = _claim_directory(path, where)
    try:
        return _initialised(_connect(str(file), busy_timeout_s), where, busy_timeout_s)
    except sqlite3.Error as error:
        raise connector_error(where, error) from error


def _claim_directory(path: pathlib.Path, where: str) -> pathlib.Path:
    """Return the path of the database file in `path`, a directory that is made if it does not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        found = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise ConnectorError(
            f"{where}: cannot be used as a directory ({error.strerror});"
            f" a directory that this user can write is needed. Name another path."
        ) from error
    if found and _FILE not in found:
        raise ConnectorError(
            f"{where}: holds {len(found)} other files ({found[0]!r}, …) and no eddy log;"
            f" an empty directory or an eddy log is needed. Name another path."
        )
    return path / _FILE


def _connect(file: str, busy_timeout_s: float) -> sqlite3.Connection:
    # Transactions are opened explicitly; the mutex of `Storage` is held for each use of the connection.
    return sqlite3.connect(
        file, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False, cached_statements=512
    )


def _initialised(connection: sqlite3.Connection, where: str, busy_timeout_s: float) -> sqlite3.Connection:
    """Set up a connection, with the schema and the settings; close it on an error."""
    try:
        _check_format(connection, where)
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        _write_ahead(connection, busy_timeout_s)
        # FULL, because in WAL mode a commit survives a loss of power only if each commit syncs the write-ahead log.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_BYTES // _PAGE_BYTES}")
        connection.execute(f"PRAGMA cache_size = {-_CACHE_KIB}")
        _create_schema(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    """Set WAL mode, with retries.

    Processes that open a new log at the same time block each other, and SQLite does not wait.
    """
    deadline = time.monotonic() + busy_timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(_LOCK_STEP_S)


def _check_format(connection: sqlite3.Connection, where: str) -> None:
    connection.execute("BEGIN")  # read in one transaction: another process may be making the log
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    finally:
        connection.execute("COMMIT")
    if application != _APPLICATION_ID and (tables or application):
        raise ConnectorError(
            f"{where}: {_FILE} is of another application (id {application:#x}); an eddy log has id"
            f" {_APPLICATION_ID:#x}. Name another path."
        )
    if version > _SCHEMA_VERSION:
        raise ConnectorError(
            f"{where}: was written by a newer eddy (schema {version}); this one reads schema"
            f" {_SCHEMA_VERSION}. Upgrade: pip install -U eddy-streams"
        )


def _create_schema(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")  # if two processes open a new log at the same time, only one makes it
    try:
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class GroupLock:
    """The right of one process to run a group on the log in a directory; held until `release`."""

    def __init__(self, directory: pathlib.Path, group: str, where: str) -> None:
        # The flock belongs to this open file, not to the process. Child processes that exec do not inherit the file.
        self._file = _open_lock(directory / f"{group}.lock", where)
        if not _try_lock(self._file):
            self._file.seek(0)
            owner = self._file.read().strip() or "unknown"
            self._file.close()
            raise ConnectorError(
                f"{where}: group {group!r} is owned by process {owner}; one process at a time runs an"
                f" application on the embedded log. Stop it first, or give this application another name."
            )
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Let another process have the group."""
        self._file.close()


def _open_lock(path: pathlib.Path, where: str) -> IO[str]:
    try:
        return open(path, "a+")
    except OSError as error:
        raise ConnectorError(
            f"{where}: {path.name} cannot be opened ({error.strerror}); the user who runs a group must be able"
            f" to write in the directory. Change its owner or permissions."
        ) from error


def _try_lock(file: IO[str]) -> bool:
    """Take the lock if it is free, with retries for a moment, since `locked_groups` takes it briefly."""
    for attempt in range(_LOCK_ATTEMPTS):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if attempt + 1 < _LOCK_ATTEMPTS:
            time.sleep(_LOCK_STEP_S)
    return False


def locked_groups(directory: pathlib.Path) -> Iterator[str]:
    """Yield the groups that some process, perhaps this one, runs at this moment."""
    for path in directory.glob("*.lock"):
        with open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                yield path.name.removesuffix(".lock")
