"""The nesting of steps in loops.

A step lies inside a loop if it depends on one of the loop's variables; an inner loop lies inside as a whole, with its
inputs. The steps outside a loop that it reads are its *externals*.
"""

from collections.abc import Collection, Iterable

from eddy.topology.plan.plan import Node, Plan
from eddy.topology.plan.recursions import Loop

__all__ = ["Scopes"]


class Scopes:
    """The loops of a plan: `around` gives the innermost loop of a step; `body` the steps inside a loop, `externals` the
    steps outside that the loop reads.
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
        """The steps that depend on the variables of `loop`, in topological order. The loop need not be closed yet."""
        found: set[Node] = set(variables)
        for node in self._plan.nodes:
            if node is loop:
                break
            if node not in self.around and any(source in found for source in self.reads(node)):
                found.add(node)
        return [node for node in self._plan.nodes if node in found and node not in variables]

    def deep(self, nodes: Iterable[Node]) -> list[Node]:
        """The given steps, and all steps inside loops among them."""
        found: list[Node] = []
        for node in nodes:
            found += [node, *self.deep(self.body.get(node, ()))]
        return found

    def reads(self, node: Node) -> Iterable[Node]:
        """The inputs of a step; for a loop also the steps outside that its body reads."""
        return (*node.inputs, *self.externals.get(node, ()))

    def limits(self, loop: Loop) -> list[Node]:
        """The blocks inside a loop, at any depth, whose limit is an error."""
        return [node for node in self.deep(self.body[loop]) if node.error_limit is not None]

    def withheld(self, loop: Loop) -> list[tuple[str, Node]]:
        """The names in the errors of an outermost loop: its bindings, then those in `limits`, with their labels."""
        inside = [(f"{block.label}.{v.label}", v) for block in self.limits(loop) for v in block.variables]
        return [*((variable.label, variable) for variable in loop.variables), *inside]

    def stopping(self) -> frozenset[str]:
        """The steps that stop a worker, by name. A loop inside others is replaced by the outermost loop."""
        stopping = {node for node in self._plan.nodes if node.stops}
        while inside := stopping & self.around.keys():
            stopping = (stopping - inside) | {self.around[node] for node in inside}
        return frozenset(node.name for node in stopping)

    def depth(self, node: Node) -> int:
        """The number of loops around a step."""
        depth = 0
        while node in self.around:
            node, depth = self.around[node], depth + 1
        return depth

    def _externals(self, loop: Loop) -> list[Node]:
        inside = {*loop.variables, *self.body[loop]}
        read = [*loop.inputs, *(source for node in self.body[loop] for source in self.reads(node)), *loop.results]
        return [source for source in dict.fromkeys(read) if source not in inside]
