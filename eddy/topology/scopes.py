"""Which steps lie inside which loop.

A step lies inside a loop if it depends on one of the loop's variables; a loop inside another as a whole,
with what it reads. What a loop reads of the steps that are not inside it are its *externals*.
"""

from collections.abc import Iterable

from eddy.topology.plan import Block, Node, Plan, Recursion, Variable

__all__ = ["Loop", "Scopes"]

Loop = Recursion | Block


class Scopes:
    """The loops of a plan: `around` gives the innermost loop of a step, `body` and `externals` those of a loop."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.around: dict[Node, Loop] = {}
        self.body: dict[Loop, list[Node]] = {}
        self.externals: dict[Loop, list[Node]] = {}
        for loop in plan.loops():
            self.body[loop] = self.inside(loop.variables, loop)
            self.around.update(dict.fromkeys((*loop.variables, *self.body[loop]), loop))
            self.externals[loop] = self._externals(loop)

    def inside(self, variables: Iterable[Variable], loop: Loop | None = None) -> list[Node]:
        """The steps, before `loop` is closed, that depend on its variables, in topological order."""
        found: set[Node] = set(variables)
        for node in self._plan.nodes:
            if node is loop:
                break
            if node not in self.around and any(source in found for source in self.reads(node)):
                found.add(node)
        return [node for node in self._plan.nodes if node in found and not isinstance(node, Variable)]

    def deep(self, nodes: Iterable[Node]) -> list[Node]:
        """Steps, with those inside the loops among them."""
        found: list[Node] = []
        for node in nodes:
            found.append(node)
            if isinstance(node, Recursion | Block):
                found += self.deep(self.body[node])
        return found

    def reads(self, node: Node) -> Iterable[Node]:
        """What a step depends on, a loop with all that is inside it."""
        return (*node.inputs, *self.externals.get(node, ())) if isinstance(node, Recursion | Block) else node.inputs

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
