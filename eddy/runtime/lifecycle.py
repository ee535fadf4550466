"""The states of a worker, and the transitions between them as a table.

    joining      waits for partitions, or has not taken them over yet
    restoring    brings the states of its partitions up to the committed positions
    processing   poll → step → commit; it may own no partitions
    isolating    retries the records of a failed epoch in parts, from memory
    closing      has left the group
    failed       the last step has raised an error; the next one joins again

The diagram in docs/ARCHITECTURE.md is made from `TRANSITIONS`.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum

from eddy.errors import InvariantError

__all__ = ["TRANSITIONS", "Event", "Lifecycle", "WorkerState"]


class WorkerState(StrEnum):
    """The state of a worker."""

    JOINING = "joining"
    RESTORING = "restoring"
    PROCESSING = "processing"
    ISOLATING = "isolating"
    CLOSING = "closing"
    FAILED = "failed"


class Event(StrEnum):
    """A reason to change the state.

    - `MOVED`: partitions were assigned or revoked
    - `TAKEN_OVER`: ownership, positions and the restores to do are known
    - `RESTORED`: the states agree with the positions
    - `REJECTED`: an epoch failed on a record
    - `ISOLATED`: all parts of the failed epoch are committed
    - `REWOUND`: the epoch is undone, and its records will be polled again
    - `LOST`: memory and store may differ from the log, after a fence, an unknown commit or an interrupt
    - `STEPPED`: a step was begun
    """

    MOVED = "moved"
    TAKEN_OVER = "taken over"
    RESTORED = "restored"
    REJECTED = "rejected"
    ISOLATED = "isolated"
    REWOUND = "rewound"
    LOST = "lost"
    FAILED = "failed"
    STEPPED = "stepped"
    CLOSED = "closed"


TRANSITIONS: Mapping[WorkerState, Mapping[Event, WorkerState]] = {
    WorkerState.JOINING: {
        Event.MOVED: WorkerState.JOINING,
        Event.TAKEN_OVER: WorkerState.RESTORING,
        Event.REWOUND: WorkerState.JOINING,
        Event.LOST: WorkerState.JOINING,
        Event.FAILED: WorkerState.FAILED,
        Event.CLOSED: WorkerState.CLOSING,
    },
    WorkerState.RESTORING: {
        Event.RESTORED: WorkerState.PROCESSING,
        Event.MOVED: WorkerState.JOINING,
        Event.REWOUND: WorkerState.RESTORING,
        Event.LOST: WorkerState.JOINING,
        Event.FAILED: WorkerState.FAILED,
        Event.CLOSED: WorkerState.CLOSING,
    },
    WorkerState.PROCESSING: {
        Event.REJECTED: WorkerState.ISOLATING,
        Event.MOVED: WorkerState.JOINING,
        Event.REWOUND: WorkerState.PROCESSING,
        Event.LOST: WorkerState.JOINING,
        Event.FAILED: WorkerState.FAILED,
        Event.CLOSED: WorkerState.CLOSING,
    },
    WorkerState.ISOLATING: {
        Event.REJECTED: WorkerState.ISOLATING,
        Event.ISOLATED: WorkerState.PROCESSING,
        Event.REWOUND: WorkerState.PROCESSING,
        Event.LOST: WorkerState.JOINING,
        Event.FAILED: WorkerState.FAILED,
        Event.CLOSED: WorkerState.CLOSING,
    },
    WorkerState.FAILED: {
        Event.STEPPED: WorkerState.JOINING,
        Event.CLOSED: WorkerState.CLOSING,
    },
    WorkerState.CLOSING: {},
}
"""The next state, by state and event. There is no poll while a worker isolates, so its partitions cannot move."""


class Lifecycle:
    """The state of one worker, at first `joining`. Errors name the worker by `name`.

    `observe` is called after each transition with the old state, the event and the new state.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.state = WorkerState.JOINING
        self.observe: Callable[[WorkerState, Event, WorkerState], None] = lambda left, event, entered: None

    def on(self, event: Event) -> None:
        """Change the state. Raises: InvariantError naming state and event, if the state does not expect the event."""
        left = self.state
        entered = TRANSITIONS[left].get(event)
        if entered is None:
            raise InvariantError(f"{self._name}: event '{event}' is not expected in state '{left}'")
        self.state = entered
        self.observe(left, event, entered)
