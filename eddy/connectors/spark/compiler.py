"""From plan to DataFrames: the steps of `StepCompiler`, and loops.

Small loops run in one task. Of the others, linear recursions run by `linear_loops`, all else by `nested_loops`.
"""

from eddy.connectors.spark import linear_loops, nested_loops
from eddy.connectors.spark.step_compiler import StepCompiler
from eddy.topology.plan import Block, Node, Recursion
from eddy.topology.scopes import Loop

__all__ = ["SparkCompiler"]


class SparkCompiler(StepCompiler):
    """Compiles a whole plan. A loop over relations with at most `one_task` rows is computed in one task."""

    def compile(self, node: Node) -> None:
        """Compile a step or a loop in the current scope. Raises: LoopLimitError."""
        if not isinstance(node, Recursion | Block):
            super().compile(node)
        elif self._fits(node):
            return
        elif isinstance(node, Block) or node.nested or node in self.scopes.around:
            nested_loops.run(self, node)
        else:
            linear_loops.run(self, node)

    def _fits(self, loop: Loop) -> bool:
        """Compute a loop in one task if it is small and reads only relations. Returns whether it did."""
        fits = self.one_task and loop.kind != "stream" and loop not in self.scopes.around
        return bool(fits) and self.in_one_task(loop, self.one_task)
