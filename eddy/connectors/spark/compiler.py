"""From plan to DataFrames: the steps of `StepCompiler`, and loops.

Small loops run in one task. Other linear recursions are computed by `linear_loops`, all other loops by `nested_loops`.
"""

from eddy.connectors.spark.loops import linear_loops, nested_loops
from eddy.connectors.spark.one_task import OneTask
from eddy.connectors.spark.step_compiler import StepCompiler
from eddy.topology.plan.plan import Loop, Node, Recursion

__all__ = ["SparkCompiler"]


class SparkCompiler(StepCompiler):
    """Compiles a whole plan. A loop over relations with at most `one_task` rows is computed in one task."""

    def compile(self, node: Node) -> None:
        """Compile a step. On Spark's page the jobs that run meanwhile have the name of the outermost step."""
        if self.scope is not self.top:
            super().compile(node)
            return
        with self.frames.jobs.step(f"step '{node.name}'"):
            super().compile(node)

    def looped(self, loop: Loop) -> None:
        """Compute a recursion by nested time, or a block with its bindings. Raises: LoopLimitError."""
        if not self._compute_in_one_task(loop):
            nested_loops.run(self, loop)

    def waves(self, recursion: Recursion) -> None:
        """Compute a recursion by waves, unless it is inside another loop. Raises: LoopLimitError."""
        if recursion in self.scopes.around:
            nested_loops.run(self, recursion)
        elif not self._compute_in_one_task(recursion):
            linear_loops.run(self, recursion)

    def _compute_in_one_task(self, loop: Loop) -> bool:
        """Compute a loop in one task if the loop is small and reads only relations. Returns whether this was done."""
        if not self.small or loop.kind == "stream" or loop in self.scopes.around:
            return False
        reads = {source.name: source for source in self.scopes.reads(loop)}
        results = self.plan.made_by(loop)
        part = OneTask(
            self.plan,
            self.counts,
            loop,
            self.small,
            reads={name: self.serdes(source) for name, source in reads.items()},
            makes={result.name: self.serdes(result) for result in results},
            skips=(skips := self._looked_up(loop)),
        )
        made = part.of_rows(self.frames, {name: self.rows(source) for name, source in reads.items()})
        if made.outcome()[0]:
            return False
        for name in part.circuit().states.keys() - skips:
            self.scope.capture(name, "encoded", loop, made.state(name))
        for result in results:
            self.add_rows(result, self.frames.by_key(made.rows(result.name)))
        return True

    def _looked_up(self, loop: Node) -> set[str]:
        """Capture the states outside a loop that joins inside the loop look up, and return their names."""
        found = set()
        for step in self.scopes.deep([loop])[1:]:
            for side, name in step.looks_up:
                if side not in self.scopes.around:
                    self.look_up(side, name)
                    found.add(name)
        return found
