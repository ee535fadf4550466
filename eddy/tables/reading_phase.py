"""The phases of reading tables, and the transitions between them as a table.

    catching up   reads all records up to earlier ends of the log; shows records as inexact versions
    awaiting      shows records when a cut is reached; waits for a cut for some seconds
    streaming     no cut was read in this time: shows all committed records as they are read

A reader that falls back catches up again, since records before a cut may have been compacted away.
"""

from collections.abc import Mapping
from enum import StrEnum

from eddy.errors import InvariantError

__all__ = ["TRANSITIONS", "ReadingEvent", "ReadingPhase", "entered"]


class ReadingPhase(StrEnum):
    """A phase of reading."""

    CATCHING_UP = "catching up"
    AWAITING = "awaiting"
    STREAMING = "streaming"


class ReadingEvent(StrEnum):
    """A reason to change the phase.

    `CAUGHT_UP`: all records up to the ends were read. `CUT_READ`: a cut was read. `WAITED`: records have waited too
    long for a cut. `FELL_BACK`: records are read long after they were written.
    """

    CAUGHT_UP = "caught up"
    CUT_READ = "cut read"
    WAITED = "waited"
    FELL_BACK = "fell back"


TRANSITIONS: Mapping[ReadingPhase, Mapping[ReadingEvent, ReadingPhase]] = {
    ReadingPhase.CATCHING_UP: {
        ReadingEvent.CAUGHT_UP: ReadingPhase.AWAITING,
        ReadingEvent.CUT_READ: ReadingPhase.CATCHING_UP,
    },
    ReadingPhase.AWAITING: {
        ReadingEvent.CUT_READ: ReadingPhase.AWAITING,
        ReadingEvent.WAITED: ReadingPhase.STREAMING,
        ReadingEvent.FELL_BACK: ReadingPhase.CATCHING_UP,
    },
    ReadingPhase.STREAMING: {
        ReadingEvent.CUT_READ: ReadingPhase.AWAITING,
        ReadingEvent.FELL_BACK: ReadingPhase.CATCHING_UP,
    },
}
"""The next phase, by phase and event."""


def entered(phase: ReadingPhase, event: ReadingEvent) -> ReadingPhase:
    """Return the next phase. Raises: InvariantError for an event that the phase does not expect."""
    found = TRANSITIONS[phase].get(event)
    if found is None:
        raise InvariantError(f"reader of tables: event '{event}' is not expected in phase '{phase}'")
    return found
