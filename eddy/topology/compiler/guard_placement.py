"""Which steps set rows aside: exchanges, and those after an exchange, a loop, a constant or rows that expire.

A row there may be made of many records, of another worker's, or of none, so that no record can be left out in its
place. Between a source and these steps the record is left out instead (docs/adr/0006).
"""

from collections.abc import Callable, Mapping

from eddy.operators.errors.guarded import Guarded
from eddy.operators.errors.set_aside import Aside, Care
from eddy.operators.exchange import Ownership
from eddy.operators.operator import Operator, Step
from eddy.serde import Native
from eddy.topology.plan.placement import Placement
from eddy.topology.plan.plan import Node, Plan

__all__ = ["Guarding", "after_exchange", "unmerged"]


def after_exchange(plan: Plan) -> set[Node]:
    """The exchanges and others that make rows of no record of the epoch, and the steps that rows reach through one."""
    after: set[Node] = set()
    for node in plan.nodes:
        if node.crosses or not after.isdisjoint(node.inputs):
            after.add(node)
    return after


def unmerged(plan: Plan) -> frozenset[str]:
    """The exchanges whose rows are each made of one record of a stream, and have its timestamp: by name."""
    single: set[Node] = set()
    for node in plan.nodes:
        passes = node.keeps_records and single.issuperset(node.inputs)
        if node.kind == "stream" and (node.reads or passes):
            single.add(node)
    return frozenset(node.name for node in single if node.sends)


class Guarding:
    """Gives steps their memory of rows set aside."""

    def __init__(
        self,
        plan: Plan,
        placements: Mapping[Node, Placement],
        ownership: Ownership,
        partitioner: Callable[[bytes, int], int],
    ) -> None:
        self._after, self._placements = after_exchange(plan), placements
        self._ownership, self._partitioner = ownership, partitioner
        self.care = Care()

    def guard(self, node: Node, steps: list[Step], start: int) -> None:
        """Guard the operators of a step, which are those from `start` on."""
        if node not in self._after or not node.inputs:
            return
        for index, step in enumerate(steps[start:], start):
            if type(step.operator).step_apart is not Operator.step_apart:
                guarded = Guarded(step.operator, self._aside(node, step.operator.name))
                steps[index] = step._replace(operator=guarded)

    def sink(self, node: Node) -> Aside | None:
        """The memory of a table's sink, or of one after an exchange."""
        return self._aside(node, node.name) if node.kind == "table" or node in self._after else None

    def _aside(self, node: Node, name: str) -> Aside:
        source = node.inputs[0]
        place = self._placements[source]
        count, facts = place.partitions, source.kind == "stream"
        return Aside(name, count, self._home(count), place.key, source.value or Native, self.care, facts)

    def _home(self, count: int) -> Callable[[bytes], int]:
        owners, partitioner = self._ownership, self._partitioner

        def home(key: bytes) -> int:
            partition = partitioner(key, count) if count > 1 else 0
            if owners.owns(partition, count):
                return partition
            first = owners.first_of(count)
            return partition if first < 0 else first

        return home
