"""How a command ends: its exit status, and an error of eddy as one message without a traceback.

    0  done        2   used wrongly            75  it may work if tried again
    1  failed      78  topology or settings    130 interrupted

75 and 78 are EX_TEMPFAIL and EX_CONFIG of sysexits.h, which supervisors know.
"""

import os

from eddy.errors import ConnectorError, EddyError, FencedError, TopologyError

__all__ = ["exit_status", "message"]


def exit_status(error: EddyError) -> int:
    """The status of a process that `error` ends."""
    if isinstance(error, TopologyError):
        return os.EX_CONFIG
    if isinstance(error, FencedError) or (isinstance(error, ConnectorError) and error.retriable):
        return os.EX_TEMPFAIL
    return 1


def message(error: EddyError) -> str:
    """The error with its notes, which name lines of the author's files."""
    return "\n  ".join([str(error), *getattr(error, "__notes__", [])])
