"""Chooses the steps that set rows aside: exchanges, and steps downstream of an exchange, loop, constant or expiry.

A row at these steps may be made from many records, from records of another worker, or from none. So no single record
can be rejected for it, and the row is set aside. Upstream of these steps the record of a row is rejected
(docs/adr/0006-isolation.md).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from eddy.operators.errors.guarded import Guarded
from eddy.operators.errors.set_aside import Aside, Care
from eddy.operators.exchange import Ownership
from eddy.operators.operator import Operator, Step
from eddy.partitioner import Partitioner, partitions_of
from eddy.serde import Native
from eddy.topology.plan.placement import Placement
from eddy.topology.plan.plan import Node, Plan

__all__ = ["Guarding", "after_exchange", "unmerged"]


def after_exchange(plan: Plan) -> set[Node]:
    """Return the steps whose rows may be made from no record of the epoch, such as exchanges, and all later steps."""
    after: set[Node] = set()
    for node in plan.nodes:
        if node.crosses or not after.isdisjoint(node.inputs):
            after.add(node)
    return after


def unmerged(plan: Plan) -> frozenset[str]:
    """Return the names of exchanges whose rows are each made from one record of a stream, and have its timestamp."""
    single: set[Node] = set()
    for node in plan.nodes:
        passes = node.keeps_records and single.issuperset(node.inputs)
        if node.kind == "stream" and (node.role == "source" or passes):
            single.add(node)
    return frozenset(node.name for node in single if node.role == "exchange")


class Guarding:
    """Gives steps the memory for the rows that they set aside."""

    def __init__(
        self,
        plan: Plan,
        placements: Mapping[Node, Placement],
        ownership: Ownership,
        partitioner: Partitioner,
    ) -> None:
        self._after, self._placements = after_exchange(plan), placements
        self._ownership, self._partitioner = ownership, partitioner
        self.care = Care()

    def guard(self, node: Node, steps: list[Step], start: int, nested: bool = False) -> None:
        """Wrap the operators of a step, which are in `steps` from index `start` on, so that they can set rows aside.

        `nested`: the step is inside a loop by nested time.
        """
        if node not in self._after or not node.inputs:
            return
        for index, step in enumerate(steps[start:], start):
            if type(step.operator).step_setting_aside is not Operator.step_setting_aside:
                guarded = self._guarded(step.operator, node.inputs, nested)
                steps[index] = step._replace(operator=guarded)

    def loop(self, operator: Operator, inputs: Sequence[Node]) -> Operator:
        """Wrap a loop by nested time in `Guarded`, if rows of its `inputs` may be made from no record of the epoch."""
        return operator if self._after.isdisjoint(inputs) else self._guarded(operator, inputs)

    def sink(self, node: Node) -> Aside | None:
        """Return the memory for rows that a sink sets aside; None for a sink that sets no rows aside.

        A sink sets rows aside if it is a table's, or after an exchange.
        """
        return self._aside(node.inputs[0], node.name) if node.kind == "table" or node in self._after else None

    def _guarded(self, operator: Operator, inputs: Sequence[Node], nested: bool = False) -> Guarded:
        apart = inputs if operator.inputs_apart else inputs[:1]
        aside, *others = (self._aside(source, operator.name, index) for index, source in enumerate(apart))
        aside.others = others
        return Guarded(operator, aside, nested)

    def _aside(self, source: Node, step: str, index: int = 0) -> Aside:
        """Return the memory of a step for rows of `source`, its input with this index."""
        place = self._placements[source]
        count, facts, value = place.partitions, source.kind == "stream", source.value or Native
        aside = Aside(step, count, self._home(count, place.key.tail), place.key, value, self.care, facts)
        return replace(aside, rows=b"i" + index.to_bytes(2, "big")) if index else aside

    def _home(self, count: int, tail: int) -> Callable[[bytes], int]:
        owners, partitioner = self._ownership, self._partitioner

        def home(key: bytes) -> int:
            (partition,) = partitions_of([key], count, partitioner, tail)
            if owners.owns(partition, count):
                return partition
            first = owners.first_of(count)
            return partition if first < 0 else first

        return home
