"""The state of a worker, its liveness and its readiness: decided only here.

    CREATED ──▶ REBALANCING ◀──▶ RUNNING ──▶ PENDING_SHUTDOWN ──▶ NOT_RUNNING
                     └──────────────┴────────────▶ ERROR

The states are Kafka Streams' states, read from the worker's state (`runtime/lifecycle.py`): a worker that joins again
after a fence, with the partitions that it has, is RUNNING. *Alive* means that a restart of the process would not help:
its loop runs, or waits for an event that will happen. *Ready* means that it works: it owns partitions, their states are
restored, and the last attempt to commit succeeded. A worker whose attempts fail is alive, not ready.

A healthy step may take long. An epoch has `max_epoch_s`, which a user's function or a wave can exceed. A call to the
log waits for brokers, up to the client's timeouts. So the worker counts as dead after `patience_s` in a computing step,
and much later in a step that waits for the log or restores from it. In each of these steps it is not ready after
`patience_s`.
"""

from dataclasses import dataclass
from enum import StrEnum

from eddy.runtime.lifecycle import WorkerState

__all__ = [
    "LOG_PATIENCE_S",
    "Facts",
    "InstanceState",
    "ProbeResult",
    "Restoring",
    "health",
    "patience_s",
    "readiness",
    "state_of",
]

LOG_PATIENCE_S = 300.0
"""The time limit of a call to the log: longer than all timeouts of a client, which end the call with an error."""

_MIN_PATIENCE_S = 30.0
_COMPUTING = "compute"


class InstanceState(StrEnum):
    """Kafka Streams' states of an instance."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class Restoring:
    """The progress of a restore, in changelog offsets; `eta_s` is None until there is a rate.

    `held_back` is the reason if it makes no progress.
    """

    position: int
    end: int
    offsets_per_s: float
    eta_s: float | None
    held_back: str = ""

    def __str__(self) -> str:
        if self.held_back:
            return self.held_back
        done = "" if self.eta_s is None else f", done in about {self.eta_s:,.0f} s"
        return f"{self.position:,} of {self.end:,} offsets, {self.offsets_per_s:,.0f}/s{done}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The figures of a worker at one moment.

    Args:
        worker: the worker's state when its last step ended; None before the first.
        owned: partitions that the group gave it.
        restoring: the restore under way.
        stopping: whether it was asked to stop.
        closed: whether it has stopped.
        failure: the code of the error that ended it.
        silent_s: seconds since the end of its last step.
        patience_s: seconds that a computing step may take.
        doing: the current part of a step.
        failing_s: seconds since the first of the consecutive failed attempts.
        fenced: whether one of these attempts failed because another worker had taken over.
        unread_s: seconds since the lag could last be read from the log.
        error: the latest error as text. It may contain data of records.
    """

    worker: WorkerState | None = None
    owned: int = 0
    restoring: Restoring | None = None
    stopping: bool = False
    closed: bool = False
    failure: str | None = None
    silent_s: float = 0.0
    patience_s: float = _MIN_PATIENCE_S
    doing: str = ""
    failing_s: float | None = None
    fenced: bool = False
    unread_s: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The answer to a probe. `reason` contains no data of records, so that it may be public."""

    ok: bool
    state: InstanceState
    reason: str


def patience_s(max_epoch_s: float) -> float:
    """Return the seconds that a step of the worker may take if it computes; `max_epoch_s` is the limit of an epoch."""
    return max(_MIN_PATIENCE_S, 3 * max_epoch_s)


def state_of(facts: Facts) -> InstanceState:
    """Return the state; a later state in the picture above takes precedence."""
    if facts.failure is not None:
        return InstanceState.ERROR
    if facts.closed:
        return InstanceState.NOT_RUNNING
    if facts.stopping:
        return InstanceState.PENDING_SHUTDOWN
    if facts.worker is None:
        return InstanceState.CREATED
    if facts.worker is WorkerState.RESTORING or not facts.owned:
        return InstanceState.REBALANCING
    return InstanceState.RUNNING


def health(facts: Facts) -> ProbeResult:
    """Whether the process is alive."""
    return _result(facts, _illness(facts))


def readiness(facts: Facts) -> ProbeResult:
    """Whether the worker is ready."""
    return _result(facts, _illness(facts) or _hindrance(facts))


def _result(facts: Facts, trouble: str) -> ProbeResult:
    return ProbeResult(not trouble, state_of(facts), trouble)


def _illness(facts: Facts) -> str:
    if facts.failure is not None:
        return f"failed: {facts.failure}"
    if facts.closed:
        return "stopped"
    limit = facts.patience_s if facts.doing == _COMPUTING else max(facts.patience_s, LOG_PATIENCE_S)
    if facts.silent_s > limit:
        return f"stuck: {_silence(facts)}, more than {limit:,.0f} s"
    if facts.fenced and facts.restoring is None and (facts.failing_s or 0.0) > facts.patience_s:
        return f"fenced: another worker has its name or its partitions, for {facts.failing_s:,.0f} s"
    return ""


def _hindrance(facts: Facts) -> str:
    state = state_of(facts)
    if state is InstanceState.CREATED:
        return "starting: no step has ended yet"
    if state is InstanceState.PENDING_SHUTDOWN:
        return "stopping"
    if facts.failing_s is not None:
        what = "fenced, joining again" if facts.fenced else "failing, trying again"
        return f"{what}, for {facts.failing_s:,.0f} s; nothing was committed since"
    if facts.restoring is not None:
        return f"restoring: {facts.restoring}"
    if state is InstanceState.REBALANCING:
        return "rebalancing: the group has given it no partitions"
    if facts.unread_s is not None:
        return f"waiting for the log: it could not be read for {facts.unread_s:,.0f} s"
    if facts.silent_s > facts.patience_s:
        return f"waiting: {_silence(facts)}"
    return ""


def _silence(facts: Facts) -> str:
    part = f", in '{facts.doing}'" if facts.doing else ""
    return f"no step has ended for {facts.silent_s:,.0f} s{part}"
