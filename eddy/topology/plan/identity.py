"""The identity of a plan: the parts that stored state depends on. Two identities are compared at a start.

Functions are not part of it, so the author is responsible for their changes. A confirmation is needed for changes of
the set of states, of the encoding and partitioning of their rows, of the sources and of the loops.
"""

import difflib
import zlib
from collections.abc import Collection, Iterable, Iterator

from eddy.errors import PlanChangedError
from eddy.operators.circuit import Circuit
from eddy.operators.constant import Constant
from eddy.topology.plan.plan import Plan

__all__ = ["check_identity", "identity", "optional_states", "retired_states", "states_of", "topics_of"]

_WITHOUT = " without changelog"
"""The end of the line of a state that has no changelog, whose rows are lost with its disk."""


def identity(plan: Plan, circuit: Circuit) -> list[str]:
    """Return one line for each source, topic pattern, loop and state, in the order of names."""
    sources = [f"source {node.topic} as {node.kind}" for node in plan.sources() if not node.pattern]
    sources += [f"pattern {node.pattern.pattern.replace(' ', '[ ]')} as {node.kind}" for node in plan.patterns()]
    gates = [
        f"topic {gate.topic} partitions={gate.partitions} key={gate.key.name} value={gate.value.name}"
        for gate in circuit.gates
    ]
    states = []
    for state in circuit.states.values():
        spec = state.spec
        restored = f" restored from {spec.source}" if spec.source else "" if spec.changelog else _WITHOUT
        states.append(
            f"state {spec.name} {spec.kind} partitions={spec.partitions} key={spec.key.name} "
            f"value={spec.value.name}{restored}"
        )
    constants = [f"constant {constant.name}:{_digest(constant):08x}" for constant in circuit.constants]
    return sorted({*sources, *gates, *states, *constants})


def optional_states(circuit: Circuit) -> frozenset[str]:
    """Return the states that may be added to an application of an earlier release; see `StateSpec.optional`."""
    return frozenset(name for name, state in circuit.states.items() if state.spec.optional)


def retired_states(plan: Plan) -> frozenset[str]:
    """Return the states that earlier releases had for this plan, and that it need not have any more."""
    return frozenset(name for node in plan.nodes for name in node.retired)


def _digest(constant: Constant) -> int:
    spec = constant.sent.spec
    rows = [(*spec.key.identify_many([key]), *spec.value.identify_many([value])) for key, value in constant.rows]
    return zlib.crc32(repr(sorted(rows)).encode())


def topics_of(application: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the loop, repartition and changelog topics of the plan with this identity."""
    for line in lines:
        what, name, *_ = line.split(" ")
        if what == "topic":
            yield name
        elif what == "state" and " restored from " not in line and not line.endswith(_WITHOUT):
            yield f"{application}-{name}-changelog"


def _is_state(line: str, names: Collection[str]) -> bool:
    what, name, *_ = line.split(" ")
    return what == "state" and name in names


def states_of(lines: Iterable[str]) -> Iterator[str]:
    """Yield the names of the states of the plan with this identity."""
    return (line.split(" ")[1] for line in lines if line.startswith("state "))


def check_identity(
    application: str,
    old: list[str],
    new: list[str],
    accept: bool = False,
    optional: Collection[str] = (),
    retired: Collection[str] = (),
) -> None:
    """Refuse a plan that would not use, or would misread, the states of an earlier plan.

    With `accept`, sources and states may be added and removed; but sources and states in both plans have to be equal.
    States in `optional` may be new, and states in `retired` may be missing, without `accept`.
    Raises: PlanChangedError with the difference.
    """
    new = [line for line in new if line in old or not _is_state(line, optional)]
    old = [line for line in old if line in new or not _is_state(line, retired)]
    if old == new:
        return
    diff = [line for line in difflib.ndiff(old, new) if line[:2] in {"- ", "+ "}]
    if accept:
        before, after = ({tuple(line.split(" ")[:2]): line for line in lines} for lines in (old, new))
        if all(before[name] == after[name] for name in before.keys() & after.keys()):
            return
        raise PlanChangedError(
            f"application '{application}': a stored state or topic is written in another form than before and "
            f"would be misread, which cannot be accepted:\n"
            + "\n".join(f"    {line}" for line in diff)
            + "\nGive the changed step another name, or start anew from the input: eddy reset …"
        )
    raise PlanChangedError(
        f"application '{application}': the topology is not the one that wrote its state; removed states would "
        f"be orphaned, and new ones would start empty after input that was read before:\n"
        + "\n".join(f"    {line}" for line in diff)
        + f"\nStart anew from the input: eddy reset …, give a changed step another name, give the application "
        f"another name than '{application}', or accept the change as it is: eddy run … --accept-plan"
    )
