"""How a command ends: its exit status, and an error of eddy as one message without a traceback.

    0  done      2   used wrongly            75  it may work if tried again
    1  failed    70  eddy is wrong           78  topology, settings, topics or rights
                                            130  interrupted

70, 75 and 78 are EX_SOFTWARE, EX_TEMPFAIL and EX_CONFIG of sysexits.h, which supervisors know.
"""

import os

from eddy.errors import (
    ConfigurationError,
    ConnectorError,
    EddyError,
    FencedError,
    InvariantError,
    SlotTakenError,
    TopologyError,
)

__all__ = ["INTERRUPTED", "exit_status", "is_temporary", "message"]

INTERRUPTED = 130


def exit_status(error: EddyError) -> int:
    """The status of a process that `error` ends."""
    if isinstance(error, ConnectorError) and error.retriable:
        return os.EX_TEMPFAIL
    if isinstance(error, TopologyError | ConfigurationError | SlotTakenError):
        return os.EX_CONFIG
    if isinstance(error, FencedError):
        return os.EX_TEMPFAIL
    return os.EX_SOFTWARE if isinstance(error, InvariantError) else 1


def is_temporary(status: int) -> bool:
    """Whether a process that ended so may do better when started again; a signal is a negative number."""
    return status < 0 or status in (os.EX_TEMPFAIL, INTERRUPTED)


def message(error: EddyError) -> str:
    """The error with its notes, which name lines of the author's files."""
    return "\n  ".join([str(error), *getattr(error, "__notes__", [])])
