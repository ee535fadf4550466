"""A process that answers one SQL query over given rows, so that the caller is not blocked.

    caller ─ pickled Question ─▶ stdin;  stdout ─ a line when it has begun, JSON of the answer, or the error ─▶ caller

A query can take any time and memory, as for a join of each row with each, or a recursion. Python cannot end a thread,
so each query has a process. The process may take two gigabytes of memory, and is ended when its time is over. It is
started before its query is known, because the import of the engine takes a second. A process ends by itself if it gets
no question for five minutes, or if its caller has ended. It also ends by itself some seconds after its time, if the
caller has not ended it by then.
"""

import os
import pickle
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from eddy.errors import EddyError, NotReadyError, QueryError
from eddy.json_text import encode
from eddy.live.query.refusals import QueryFailedError, QueryLimitError
from eddy.topology.sql.answer import AnswerTable

__all__ = ["MAX_ANSWERED", "Question", "SqlProcesses"]

MAX_ANSWERED = 1_000
"""The most rows of an answer; further rows are left out."""
_MAX_ANSWER_BYTES = 16 << 20
_IDLE_S, _START_S = 300.0, 60.0
_GRACE_S = 2
_MAX_BYTES = 2 << 30
_BEGUN = b"\n"
_HINT = " Give it: tables="
"""The beginning of an advice in a message that is only useful in a program."""


@dataclass(frozen=True)
class Question:
    """A query, its name for error messages, and all tables that it may read."""

    text: str
    name: str
    tables: Mapping[str, AnswerTable]


class SqlProcesses:
    """Answers each question in a process of its own. The next process is started ahead; `close` ends it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ahead: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def begin(self) -> None:
        """Start the process for the next question, unless one is waiting already."""
        with self._lock:
            if not self._is_closed and (self._ahead is None or self._ahead.poll() is not None):
                self._end()
                self._ahead = _begun(self.seconds)

    def ask(self, question: Question) -> bytes:
        """Return the answer as JSON: {"columns", "types", "rows", "count"}. Values are text, as PostgreSQL prints them.

        Raises: QueryError for an error in the text or in a row; QueryLimitError; QueryFailedError.
        """
        status, found = self._asked(question)
        if status == 0 and not found:  # the process ended by itself just before it got the question
            status, found = self._asked(question)
        if status == 0 and found.startswith(b"{"):
            return found
        if status == 0 and found.startswith(b"!"):
            raise QueryError(found[1:].decode())
        if status == 0 and found.startswith(b"#"):
            raise QueryLimitError(found[1:].decode())
        raise QueryFailedError(
            f"sql '{question.name}': its process has ended with status {status}; a query of fewer rows is needed, "
            "as it may have had too little memory"
        )

    def _asked(self, question: Question) -> tuple[int, bytes]:
        self.begin()
        with self._lock:
            process, self._ahead = self._ahead, None
        if process is None:
            raise NotReadyError("sql: the server stops; another one, or a later time, is needed")
        with process:
            try:
                assert process.stdout is not None
                if not select.select([process.stdout], [], [], _START_S)[0]:
                    raise NotReadyError(f"sql: its process has not begun within {_START_S:.0f} seconds. Try again")
                process.stdout.read(1)  # the process has started: from now on the time is for the query alone
                found, _ = process.communicate(pickle.dumps(question), timeout=self.seconds)
            except subprocess.TimeoutExpired as error:
                raise QueryLimitError(
                    f"sql '{question.name}': it was not answered in {self.seconds:g} seconds, which is the limit; a "
                    "query of fewer rows is needed. Take time with: eddy sql"
                ) from error
            finally:
                process.kill()
        return process.returncode, found

    def close(self) -> None:
        """End the process that waits for a question. No question may be asked afterwards."""
        with self._lock:
            self._is_closed = True
            self._end()

    def _end(self) -> None:
        if self._ahead is not None:
            with self._ahead:
                self._ahead.kill()
            self._ahead = None


def _begun(seconds: float) -> subprocess.Popen[bytes]:
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-P", "-c", f"from {__name__} import answer_one; answer_one({seconds})"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment)


def answer_one(seconds: float) -> None:
    """Run the process: read a question from stdin, print its answer, and end."""
    import resource
    import signal

    from eddy.program.sql_evaluation import run
    from eddy.topology.sql.display import shown
    from eddy.topology.sql.statement_text import StatementText

    sys.stdout.buffer.write(_BEGUN)
    sys.stdout.flush()
    if not select.select([sys.stdin], [], [], _IDLE_S)[0]:
        return
    data = sys.stdin.buffer.read()
    if not data:
        return  # the caller has ended
    signal.alarm(int(seconds) + _GRACE_S)  # ends this process even if the caller was killed and cannot
    with suppress(ValueError, OSError):  # some systems do not have this limit
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    question: Question = pickle.loads(data)
    try:
        found = run(StatementText(question.text, question.name), question.tables)
        shown_rows = found.rows[:MAX_ANSWERED]
        rows = [[shown(value, type) for value, type in zip(row, found.types, strict=True)] for row in shown_rows]
        said = encode({"columns": found.columns, "types": found.types, "rows": rows, "count": len(found.rows)})
        if len(said) > _MAX_ANSWER_BYTES:
            most = f"{_MAX_ANSWER_BYTES >> 20} MiB"
            said = (
                f"#sql '{question.name}': its answer has more than {most}; fewer or shorter values are needed".encode()
            )
    except EddyError as error:
        said = b"!" + str(error).partition(_HINT)[0].encode()
    except MemoryError:
        most = f"{_MAX_BYTES >> 30} GiB of memory"
        said = f"#sql '{question.name}': it needs more than {most}; a query of fewer rows is needed".encode()
    sys.stdout.buffer.write(said)
