"""The nesting of steps in loops.

A step is inside a loop if it depends on one of the loop's bindings. If any step of an inner loop is inside, all its
steps and inputs are inside, too. The steps outside a loop whose rows the loop reads are its *externals*.
"""

from collections.abc import Collection, Iterable

from eddy.topology.plan.plan import Node, Plan
from eddy.topology.plan.recursions import Loop

__all__ = ["Scopes"]


class Scopes:
    """The loops of a plan, and the steps inside them.

    `around` has the innermost loop of each step, `body` the steps inside each loop, and `externals` the steps outside
    whose rows the loop reads.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.around: dict[Node, Loop] = {}
        self.body: dict[Node, list[Node]] = {}
        self.externals: dict[Node, list[Node]] = {}
        for loop in plan.loops():
            self.body[loop] = self.inside(loop.variables, loop)
            self.around.update(dict.fromkeys((*loop.variables, *self.body[loop]), loop))
            self.externals[loop] = self._externals(loop)

    def inside(self, variables: Collection[Node], loop: Loop | None = None) -> list[Node]:
        """Return the steps that depend on the variables of `loop`, which may be unfinished, in topological order."""
        found: set[Node] = set(variables)
        for node in self._plan.nodes:
            if node is loop:
                break
            if node not in self.around and any(source in found for source in self.reads(node)):
                found.add(node)
        return [node for node in self._plan.nodes if node in found and node not in variables]

    def deep(self, nodes: Iterable[Node]) -> list[Node]:
        """Return the given steps; for each loop among them also all steps inside the loop, at any depth."""
        found: list[Node] = []
        for node in nodes:
            found += [node, *self.deep(self.body.get(node, ()))]
        return found

    def reads(self, node: Node) -> Iterable[Node]:
        """Return the inputs of a step; for a loop also the steps outside the loop that steps inside it read."""
        return (*node.inputs, *self.externals.get(node, ()))

    def limits(self, loop: Loop) -> list[Node]:
        """Return the blocks inside a loop, at any depth, whose limit makes rows of errors."""
        return [node for node in self.deep(self.body[loop]) if node.error_limit is not None]

    def withheld(self, loop: Loop) -> list[tuple[str, Node]]:
        """Return (name in errors, variable) for the bindings of an outermost loop, and of the blocks in `limits`."""
        inside = [(f"{block.label}.{v.label}", v) for block in self.limits(loop) for v in block.variables]
        return [*((variable.label, variable) for variable in loop.variables), *inside]

    def stopping(self) -> frozenset[str]:
        """Return the names of the steps that stop a worker; for a loop inside others, the outermost loop's name."""
        stopping = {node for node in self._plan.nodes if node.stops}
        while inside := stopping & self.around.keys():
            stopping = (stopping - inside) | {self.around[node] for node in inside}
        return frozenset(node.name for node in stopping)

    def depth(self, node: Node) -> int:
        """Return the number of loops around a step."""
        depth = 0
        while node in self.around:
            node, depth = self.around[node], depth + 1
        return depth

    def _externals(self, loop: Loop) -> list[Node]:
        inside = {*loop.variables, *self.body[loop]}
        read = [*loop.inputs, *(source for node in self.body[loop] for source in self.reads(node)), *loop.results]
        return [source for source in dict.fromkeys(read) if source not in inside]
