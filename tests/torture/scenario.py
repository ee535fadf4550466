"""A scenario: one fault, over and over, on one program; then rest, and the verifier."""

import contextlib
import shutil
import time
import traceback
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from eddy.connectors.broker import Broker
from eddy.errors import ConnectorError
from tests.torture.faults import FAULTS, both
from tests.torture.rig import Early, Hang, Rig
from tests.torture.verifier import Difference, difference, verify

__all__ = ["Outcome", "torture"]

LATE_S = 20.0


@dataclass
class Outcome:
    """What was done, how often it was called quiescent and cut, and what was found to be wrong."""

    fault: str
    program: str
    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    difference: Difference = field(default_factory=Difference)
    early: int = 0
    hangs: int = 0
    declared: int = 0
    checked: int = 0
    cuts: int = 0
    kills: int = 0
    asked: int = 0
    records: int = 0
    took_s: float = 0.0
    failure: str = ""


def torture(
    bootstrap: str,
    folder: Path,
    fault: str,
    program: str,
    seed: int,
    times: int | None = None,
    broker: Broker | None = None,
    planted: str = "",
) -> Outcome:
    """Run one scenario. `failure` of what it returns is empty where everything was as it has to be."""
    outcome, began, kind = Outcome(fault, program, seed), time.monotonic(), FAULTS[fault]
    run = uuid.uuid4().hex[:8]
    rig = Rig(bootstrap, folder / run, program, run, seed, **kind.config)
    try:
        rig.planted = planted
        kind.play(rig, kind.times if times is None else times, broker)
        both(rig)
        rig.settle()
        verify(rig, rig.end())
    except Exception as error:
        outcome.failure = "".join(traceback.format_exception(error, limit=-3))
        out_of_time = isinstance(error, ConnectorError) and error.retriable  # Kafka has not answered within a bound
        outcome.hangs, outcome.difference = isinstance(error, Hang) or out_of_time, _difference(rig)
        outcome.early = isinstance(error, Early) and outcome.difference == Difference()
    finally:
        watched = rig.observer
        outcome.faults, outcome.declared, outcome.checked = rig.faults, watched.declared, watched.checked
        outcome.asked, outcome.kills = watched.asked, rig.kills
        outcome.cuts, outcome.records = rig.witness.cuts, sum(rig.feed.acknowledged.values())
        rig.close(remove_topics=not outcome.failure)
        outcome.took_s = time.monotonic() - began
    if not outcome.failure:
        shutil.rmtree(rig.folder)
    return outcome


def _difference(rig: Rig) -> Difference:
    """What is wrong for good: workers that still run may go on for a while. Nothing, where that cannot be told."""
    rig.observer.close()
    rig.feed.running.clear()
    found, deadline = Difference(), time.monotonic() + LATE_S
    with contextlib.suppress(Exception):
        while time.monotonic() < deadline:
            found = Difference() if rig.witness.pending() else difference(rig.witness)
            if found == Difference() and not rig.witness.pending():
                break
            time.sleep(0.5)  # pause: the time between two looks
    return found
