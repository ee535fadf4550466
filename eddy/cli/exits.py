"""Exit statuses of commands, and an error of eddy as one message without a traceback.

    0  done            3   done, and some part has no finite answer    75  temporary failure: try again
    1  failed         65   stopped because of that                     78  topology, settings, topics or rights
    2  used wrongly   70   eddy is wrong                              130  interrupted; 143 ended by SIGTERM
                                                                      141  the reader of the output has ended

65, 70, 75 and 78 are EX_DATAERR, EX_SOFTWARE, EX_TEMPFAIL and EX_CONFIG of sysexits.h, which process supervisors use.
130 and 141 are a shell's statuses for a process that SIGINT or SIGPIPE has ended.
"""

import os

from eddy.errors import (
    ConfigurationError,
    ConnectorError,
    EddyError,
    FencedError,
    IndeterminateCommitError,
    InvariantError,
    NoFiniteAnswerError,
    StateInUseError,
    TopologyError,
)

__all__ = ["HELD", "INTERRUPTED", "PIPE_CLOSED", "TERMINATED", "exit_status", "is_temporary", "message"]

HELD = 3
INTERRUPTED = 130
TERMINATED = 143
PIPE_CLOSED = 141


def exit_status(error: EddyError) -> int:
    """Return the exit status for `error`."""
    if isinstance(error, ConnectorError) and error.retriable:
        return os.EX_TEMPFAIL
    if isinstance(error, TopologyError | ConfigurationError):
        return os.EX_CONFIG
    if isinstance(error, NoFiniteAnswerError):
        return os.EX_DATAERR
    if isinstance(error, FencedError | IndeterminateCommitError | StateInUseError):
        return os.EX_TEMPFAIL
    return os.EX_SOFTWARE if isinstance(error, InvariantError) else 1


def is_temporary(status: int) -> bool:
    """Whether a restart may succeed after this exit status; a signal is a negative number."""
    return status < 0 or status in (os.EX_TEMPFAIL, INTERRUPTED, TERMINATED)


def message(error: EddyError) -> str:
    """Return an error's text with its notes, which name lines of the author's files."""
    return "\n  ".join([str(error), *getattr(error, "__notes__", [])])
