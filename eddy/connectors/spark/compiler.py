"""From plan to DataFrames: the steps of `StepCompiler`, and loops.

Small loops run in one task. Other linear recursions are computed by `linear_loops`, all other loops by `nested_loops`.
"""

from eddy.connectors.spark import linear_loops, nested_loops
from eddy.connectors.spark.step_compiler import StepCompiler
from eddy.topology.plan.plan import Loop, Recursion

__all__ = ["SparkCompiler"]


class SparkCompiler(StepCompiler):
    """Compiles a whole plan. A loop over relations with at most `one_task` rows is computed in one task."""

    def looped(self, loop: Loop) -> None:
        """A recursion by nested time, or a block with its bindings. Raises: LoopLimitError."""
        if not self._fits(loop):
            nested_loops.run(self, loop)

    def waves(self, recursion: Recursion) -> None:
        """A recursion by waves, unless it is inside another loop. Raises: LoopLimitError."""
        if recursion in self.scopes.around:
            nested_loops.run(self, recursion)
        elif not self._fits(recursion):
            linear_loops.run(self, recursion)

    def _fits(self, loop: Loop) -> bool:
        """Compute a loop in one task if it is small and reads only relations. Returns whether it did."""
        fits = self.small and loop.kind != "stream" and loop not in self.scopes.around
        return bool(fits) and self.in_one_task(loop, self.small)
