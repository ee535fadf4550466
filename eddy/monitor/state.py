"""What state a worker is in, whether it is alive, and whether it is ready: the only place that decides it.

    CREATED ──▶ REBALANCING ◀──▶ RUNNING ──▶ PENDING_SHUTDOWN ──▶ NOT_RUNNING
                     └──────────────┴────────────▶ ERROR

The words are those of Kafka Streams. *Alive* means that starting the process again would not help: its loop
turns, or waits for something that will come. *Ready* means that it does its work: it owns partitions, their
states are restored, and the last attempt to commit succeeded. A worker that tries in vain is alive, not ready.

A step may take long and be well: an epoch has `max_epoch_s`, which a user's function or a wave can overrun, and
a call to the log waits for brokers, up to the client's timeouts. So a step that computes is given `patience_s`,
and one that waits for the log or restores from it much more, before the worker counts as dead; it stops being
ready after `patience_s` in either case.
"""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["LOG_PATIENCE_S", "Facts", "Restoring", "State", "Verdict", "health", "patience_s", "readiness", "state_of"]

LOG_PATIENCE_S = 300.0
"""How long a call to the log may take: longer than all timeouts of a client, which end it with an error."""

_MIN_PATIENCE_S = 30.0
_COMPUTING = "compute"


class State(StrEnum):
    """Kafka Streams' states of an instance."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class Restoring:
    """How far a restore is, in changelog offsets; `eta_s` is None until there is a rate.

    `held_back` says what it waits for, where it does not get on.
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
    """What is known about a worker at a moment.

    Args:
        begun: whether it has ended a step.
        owned: partitions that the group gave it.
        restoring: the restore under way.
        stopping: whether it was asked to stop.
        closed: whether it has stopped.
        failure: the code of the error that ended it.
        silent_s: seconds since it last ended a step.
        patience_s: how many of them are well while it computes.
        doing: the part of a step it is in.
        failing_s: seconds since the first of the attempts that have failed up to now.
        fenced: whether another worker's coming was behind one of them.
        unread_s: seconds since the log could last be read to see how far it is.
        error: the latest error as text. It may hold what records hold.
    """

    begun: bool = False
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
class Verdict:
    """An answer to a probe. `reason` holds nothing of records, so that it may be shown to anybody."""

    ok: bool
    state: State
    reason: str


def patience_s(max_epoch_s: float) -> float:
    """How long a step may compute without ending."""
    return max(_MIN_PATIENCE_S, 3 * max_epoch_s)


def state_of(facts: Facts) -> State:
    """The state; a later one of the picture above comes first."""
    if facts.failure is not None:
        return State.ERROR
    if facts.closed:
        return State.NOT_RUNNING
    if facts.stopping:
        return State.PENDING_SHUTDOWN
    if not facts.begun:
        return State.CREATED
    if facts.restoring is not None or not facts.owned:
        return State.REBALANCING
    return State.RUNNING


def health(facts: Facts) -> Verdict:
    """Whether the process should go on as it is."""
    return _verdict(facts, _illness(facts))


def readiness(facts: Facts) -> Verdict:
    """Whether the worker does its work."""
    return _verdict(facts, _illness(facts) or _hindrance(facts))


def _verdict(facts: Facts, trouble: str) -> Verdict:
    return Verdict(not trouble, state_of(facts), trouble)


def _illness(facts: Facts) -> str:
    if facts.failure is not None:
        return f"failed: {facts.failure}"
    if facts.closed:
        return "stopped"
    limit = facts.patience_s if facts.doing == _COMPUTING else max(facts.patience_s, LOG_PATIENCE_S)
    if facts.silent_s > limit:
        return f"stuck: {_silence(facts)}, more than {limit:,.0f} s"
    if facts.fenced and (facts.failing_s or 0.0) > facts.patience_s:
        return f"fenced: another worker has its name or its partitions, for {facts.failing_s:,.0f} s"
    return ""


def _hindrance(facts: Facts) -> str:
    state = state_of(facts)
    if state is State.CREATED:
        return "starting: no step has ended yet"
    if state is State.PENDING_SHUTDOWN:
        return "stopping"
    if facts.failing_s is not None:
        what = "fenced, taking up again" if facts.fenced else "failing, trying again"
        return f"{what}, for {facts.failing_s:,.0f} s; nothing was committed since"
    if facts.restoring is not None:
        return f"restoring: {facts.restoring}"
    if state is State.REBALANCING:
        return "rebalancing: the group has given it no partitions"
    if facts.unread_s is not None:
        return f"waiting for the log: it could not be read for {facts.unread_s:,.0f} s"
    if facts.silent_s > facts.patience_s:
        return f"waiting: {_silence(facts)}"
    return ""


def _silence(facts: Facts) -> str:
    part = f", in '{facts.doing}'" if facts.doing else ""
    return f"no step has ended for {facts.silent_s:,.0f} s{part}"
