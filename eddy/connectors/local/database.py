"""One SQLite connection for all threads of a process, and the locks by which they take turns.

A change takes the writer's lock (`hold`; also SQLite's, so that other processes wait), and then runs all its statements
and the COMMIT under the mutex (`changing`). Readers take only the mutex; `wait` is notified of changes by this process,
and polls for changes by other processes.

Invariant: no reader sees a part of a change. Lock order: the writer's lock first, then the mutex.
The meaning of the tables is in `storage`.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from eddy.connectors.local.log_files import connector_error
from eddy.errors import ConnectorError, IndeterminateCommitError

__all__ = ["Database", "Version"]

Version = tuple[int, int]
"""The version that `Database.wait` compares: a number of this process's changes, and SQLite's number of other
processes' changes. """

_FIRST_STEP_S, _LAST_STEP_S = 0.005, 0.05


class Database:
    """A connection to the log's file, which this object closes. `shared`: other processes may have the file open."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        where: str,
        *,
        shared: bool,
        busy_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self.where = where
        self.clock = clock
        self.mutex = threading.RLock()
        self._news = threading.Condition(self.mutex)
        self._writer = threading.Lock()
        self._connection = connection
        self._shared = shared
        self._busy_timeout_s = busy_timeout_s
        self._sleep = sleep
        self._changes = 0

    def hold(self) -> None:
        """Become the only writer, in this process and in all others, until `changing` or `release`.

        Raises: ConnectorError, retriable, if another writer does not finish in time.
        """
        if not self._writer.acquire(timeout=self._busy_timeout_s):
            raise ConnectorError(
                f"{self.where}: a transaction of this process was flushed and is still open after"
                f" {self._busy_timeout_s} s; one transaction is written at a time. Commit or abort it.",
                retriable=True,
            )
        try:
            self.rows("BEGIN IMMEDIATE")
        except BaseException:
            self._writer.release()
            raise

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Commit the statements of the block together at its end, and release the writer's lock.

        Raises: any exception of the block; then none of its statements has an effect.
        """
        with self.mutex:
            try:
                yield
                self._commit()
            except BaseException:
                self.release()
                raise
            self._writer.release()
            self.announce()

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_FSYNC:
                raise IndeterminateCommitError(
                    f"{self.where}: the disk did not confirm a commit ({error}); it is not known whether the"
                    f" log has it after a restart. Open the log again and read the committed positions."
                ) from error
            raise connector_error(self.where, error) from error

    def release(self) -> None:
        """Release the writer's lock without a change."""
        with self.mutex:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._writer.release()

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """Call `hold`, and run the block within `changing`."""
        self.hold()
        with self.changing():
            yield

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of one statement. Raises: ConnectorError."""
        try:
            with self.mutex:
                return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise connector_error(self.where, error) from error

    def rows_while(
        self, sql: str, parameters: Sequence[Any], goes_on: Callable[[list[Any]], bool], at_once: int
    ) -> list[Any]:
        """Fetch the rows of one statement, `at_once` at a time, until `goes_on` is False. Raises: ConnectorError."""
        found: list[Any] = []
        try:
            with self.mutex, contextlib.closing(self._connection.execute(sql, parameters)) as cursor:
                while rows := cursor.fetchmany(at_once):
                    found += rows
                    if not goes_on(rows):
                        break
        except sqlite3.Error as error:
            raise connector_error(self.where, error) from error
        return found

    def insert(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each of `rows`, inside a change. Raises: ConnectorError."""
        try:
            self._connection.executemany(sql, rows)
        except sqlite3.Error as error:
            raise connector_error(self.where, error) from error

    def announce(self) -> None:
        """Wake all waiting threads after a change in this process."""
        with self._news:
            self._changes += 1
            self._news.notify_all()

    def version(self) -> Version:
        """Return a version of the log.

        The versions of two calls differ if the log may have changed between the calls.
        """
        elsewhere = self.rows("PRAGMA data_version")[0][0] if self._shared else 0
        return self._changes, elsewhere

    def wait(self, seen: Version, deadline: float) -> bool:
        """Wait until the version is not `seen`, and return True; after `deadline` return False."""
        step = _FIRST_STEP_S
        while self.version() == seen:
            left = deadline - self.clock()
            if left <= 0:
                return False
            self._pause(seen, left, step)
            step = min(2 * step, _LAST_STEP_S)
        return True

    def _pause(self, seen: Version, left: float, step: float) -> None:
        if self._sleep is not None:
            self._sleep(min(left, step))
            return
        with self._news:
            if self._changes == seen[0]:
                # Other processes do not announce their changes, so the version is checked after each step of waiting.
                self._news.wait(min(left, step) if self._shared else left)

    def close(self) -> None:
        """Close the connection; an uncommitted change is dropped."""
        with self.mutex:
            self._connection.close()
        self.announce()
