"""Numbered slots that connect operators, and serdes of values with a time, for all compilers of steps."""

from collections.abc import Callable
from typing import Any

from eddy.operators.operator import Operator, Step
from eddy.serde import Serde

__all__ = ["Slots", "swapped", "with_time"]

Node = Any


class Slots:
    """Operators that pass rows through numbered slots: of the whole circuit, or of the inside of one loop."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.slots: dict[Node, int] = {}
        self.received: dict[Node, int] = {}
        self.count = 0

    def slot(self) -> int:
        """Return a new slot."""
        self.count += 1
        return self.count - 1

    def emit(self, operator: Operator, *inputs: int) -> int:
        """Add an operator that reads the slots `inputs`; return the slot of its output."""
        output = self.slot()
        self.steps.append(Step(operator, inputs, output))
        return output

    def inputs_of(self, node: Node) -> list[int]:
        """Return the slots of a node's inputs."""
        return [self.slots[source] for source in node.inputs]


def swapped(merge: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Return `merge` as a function with its two sides swapped."""
    return lambda key, right, left: merge(key, left, right)


def with_time(value: Serde[Any], depth: int = 1) -> Serde[Any]:
    """Return the serde of pairs (time, value): four bytes for each of `depth` enclosing loops, then the value."""
    head = 4 * depth

    def time_of(data: bytes) -> Any:
        iterations = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(0, head, 4))
        return iterations[0] if depth == 1 else iterations

    def stamped(encode: Callable[[Any], bytes]) -> Callable[[tuple[Any, Any]], bytes]:
        if depth == 1:
            return lambda pair: pair[0].to_bytes(4, "big") + encode(pair[1])
        return lambda pair: b"".join(iteration.to_bytes(4, "big") for iteration in pair[0]) + encode(pair[1])

    def decode(data: bytes) -> tuple[Any, Any]:
        return time_of(data), value.decode(data[head:])

    identify = None if value.identify is None else stamped(value.identify)
    name = "level" if depth == 1 else f"level{depth}"
    recipe = (with_time, (value, depth))
    return Serde(f"{name}+{value.name}", stamped(value.encode), decode, identify=identify, recipe=recipe)
