"""The identity of a plan: what of it the stored state depends on, and how two of them differ.

Lambdas may change, they are the author's to mend. Not without saying so may change: which states
there are, how their rows are written and placed, and what is read and looped.
"""

import difflib
import zlib
from collections.abc import Iterable, Iterator

from eddy.errors import PlanChangedError
from eddy.operators.circuit import Circuit
from eddy.operators.constant import Constant
from eddy.topology.plan import Plan

__all__ = ["check_identity", "identity", "topics_of"]


def identity(plan: Plan, circuit: Circuit) -> list[str]:
    """One line for each source, loop and state, in order of name."""
    sources = [f"source {node.topic} as {node.kind}" for node in plan.sources()]
    gates = [
        f"topic {gate.topic} partitions={gate.partitions} key={gate.key.name} value={gate.value.name}"
        for gate in circuit.gates
    ]
    states = []
    for state in circuit.states.values():
        spec = state.spec
        restored = f" restored from {spec.source}" if spec.source else ""
        states.append(
            f"state {spec.name} {spec.kind} partitions={spec.partitions} key={spec.key.name} "
            f"value={spec.value.name}{restored}"
        )
    constants = [f"constant {constant.name}:{_digest(constant):08x}" for constant in circuit.constants]
    return sorted({*sources, *gates, *states, *constants})


def _digest(constant: Constant) -> int:
    spec = constant.sent.spec
    rows = [(*spec.key.identify_many([key]), *spec.value.identify_many([value])) for key, value in constant.rows]
    return zlib.crc32(repr(sorted(rows)).encode())


def topics_of(application: str, lines: Iterable[str]) -> Iterator[str]:
    """The loop, repartition and changelog topics of the plan with this identity."""
    for line in lines:
        what, name, *_ = line.split(" ")
        if what == "topic":
            yield name
        elif what == "state" and " restored from " not in line:
            yield f"{application}-{name}-changelog"


def check_identity(application: str, old: list[str], new: list[str], accept: bool = False) -> None:
    """Refuse a plan that would orphan or misread what an earlier one wrote.

    With `accept`, sources and states may come and go; what keeps its name has to stay what it was.
    Raises: PlanChangedError with the difference.
    """
    if old == new:
        return
    diff = [line for line in difflib.ndiff(old, new) if line[:2] in {"- ", "+ "}]
    if accept:
        before, after = ({tuple(line.split(" ")[:2]): line for line in lines} for lines in (old, new))
        if all(before[name] == after[name] for name in before.keys() & after.keys()):
            return
        raise PlanChangedError(
            f"application '{application}': a stored state or topic is written otherwise than before and would be "
            "misread, which cannot be accepted:\n"
            + "\n".join(f"    {line}" for line in diff)
            + "\nGive the changed step another name, or start anew from the input: eddy reset …"
        )
    raise PlanChangedError(
        f"application '{application}': the topology is not the one that wrote its state; states that went would be "
        "orphaned, and new ones would start empty behind input that was read before:\n"
        + "\n".join(f"    {line}" for line in diff)
        + f"\nStart anew from the input: eddy reset …, give a changed step another name, name the application "
        f"otherwise than '{application}', or accept the change as it is: eddy run … --accept-plan"
    )
