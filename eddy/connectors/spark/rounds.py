"""Recursion by nested time on Spark: rounds from empty until nothing changes.

    X(0) = ∅      X(n+1) = op(X(n))

Each round computes what the definitions hold from what the bindings held before it, and compares. What a worker
keeps by round, its traces, are the differences between the rounds: as many as the answer determines, however the
worker came to it. Those of loops inside loops are told apart by two rounds, and are not computed.

A block whose limit is an error keeps back what it makes while there is one, for those behind it the last answer
that was right, which the present input does not tell; so it is an error here.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.compiler import Compiler
from eddy.connectors.spark.frames import Frames, told
from eddy.connectors.spark.passes import ROWS, RowsEntry
from eddy.connectors.spark.scope import Pipe, Scope
from eddy.errors import LoopLimitError
from eddy.serde import Native, String
from eddy.topology.plan import Binding, Block, Node, Recursion
from eddy.topology.scopes import Loop

__all__ = ["run"]

_INSIDE = "rounds of a loop inside a loop are told apart by two numbers, which is not computed on Spark"
_NOT_ASKED = "what a loop keeps by round was not asked for"


class _Traces:
    """The differences of what the body remembers, round by round."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self.round = 0
        self._last: dict[str, DataFrame] = {}
        self._differences: dict[str, list[DataFrame]] = {}

    def capture(self, name: str, kind: str, node: Node, frame: DataFrame) -> None:
        """Take in the rows of one round."""
        frames = self._frames
        before = self._last.get(name)
        difference = frame if before is None else frames.settled(frames.difference(frame, before))
        self._last[name] = frame
        self._differences.setdefault(name, []).append(difference.withColumn("time", f.lit(self.round)))

    def give(self, compiler: Compiler) -> None:
        """Hand them over as states."""
        for name, differences in self._differences.items():
            compiler.top.capture(name, "trace", compiler.plan.nodes[0], self._frames.union(differences, ROWS))


def run(compiler: Compiler, loop: Loop) -> None:
    """Compute a loop and leave the pipes of its results. Raises: LoopLimitError."""
    frames, outer = compiler.frames, compiler.scope
    inside = loop in compiler.scopes.around
    traces = _Traces(frames)
    captures = compiler.traced and not inside
    bindings = [frames.settled(frames.empty()) for _ in loop.variables]
    rounds = _rounds(loop)
    for number in range(rounds):
        traces.round = number
        compiler.scope = scope = Scope(traces.capture, nested=True, captures=captures, around=outer)
        for variable, rows in zip(loop.variables, bindings, strict=True):
            scope[variable] = Pipe(rows, RowsEntry(*compiler.serdes(variable)))
            scope.rows[variable] = rows
        for step in compiler.scopes.body[loop]:
            compiler.compile(step)
        made = [frames.settled(_result(compiler, loop, index)) for index in range(len(loop.variables))]
        compiler.scope = outer
        differences = [frames.settled(frames.difference(*pair)) for pair in zip(made, bindings, strict=True)]
        changed = [index for index, difference in enumerate(differences) if frames.mark(difference)[0]]
        bindings = made
        if not changed:
            break
        if number + 1 >= rounds and (not loop.bound.leveled or loop.bound.on_limit == "rows"):
            raise _limit_error(compiler, loop, changed[0], differences[changed[0]])
    if captures:
        traces.give(compiler)
    else:
        _note_untold(compiler, loop, _INSIDE if inside else _NOT_ASKED)
    _leave(compiler, loop, bindings)


def _rounds(loop: Loop) -> int:
    if isinstance(loop, Block):
        return loop.rounds
    return loop.bound.depth + 1 if loop.bound.leveled else loop.bound.limit


def _result(compiler: Compiler, loop: Loop, index: int) -> DataFrame:
    """What a binding holds after the round: its definition, and of a recursion the seed as well."""
    frames = compiler.frames
    key, value = compiler.serdes(loop.variables[index])
    parts = [compiler.scope[loop.results[index]].under(frames, key, value, loop.label)]
    if isinstance(loop, Recursion):
        parts.append(compiler.scope[loop.inputs[0]].under(frames, key, value, loop.label))
    return frames.consolidated(frames.union(parts, ROWS))


def _note_untold(compiler: Compiler, loop: Loop, why: str) -> None:
    """Name the states that were not computed."""
    for node in compiler.scopes.deep(compiler.scopes.body[loop]):
        for name in (node.name, *(f"{node.name}-{suffix}" for suffix in node.derived)):
            compiler.untold[name] = why


def _leave(compiler: Compiler, loop: Loop, bindings: list[DataFrame]) -> None:
    scope, frames = compiler.scope, compiler.frames
    if isinstance(loop, Recursion):
        compiler.known(loop, bindings[0]) if scope is compiler.top else _put(compiler, loop, bindings[0])
        return
    errors = frames.empty()
    for node in compiler.plan.nodes:
        if isinstance(node, Binding) and node.inputs == (loop,):
            last = node.index == len(bindings)
            rows = errors if last else bindings[node.index]
            serdes = (String, Native) if last else compiler.serdes(loop.variables[node.index])
            scope[node] = Pipe(rows, RowsEntry(*serdes))
    if loop.bound.on_limit == "rows":
        for suffix in ("errors", "held"):
            compiler.top.capture(f"{loop.name}-{suffix}", "arrangement", loop, frames.empty())


def _put(compiler: Compiler, node: Node, rows: DataFrame) -> None:
    """A loop inside a loop: its result is a step of the round around."""
    compiler.scope[node] = Pipe(rows, RowsEntry(*compiler.serdes(node)))


def _limit_error(compiler: Compiler, loop: Loop, index: int, changed: DataFrame) -> LoopLimitError:
    with told():
        row = changed.where("w > 0").first() or changed.first()
    assert row is not None
    key, value = compiler.serdes(loop.variables[index])
    shown = (key.decode(bytes(row["kc"] or row["k"])), value.decode(bytes(row["vc"] or row["v"])))
    what = f"binding '{loop.variables[index].label}' still changed in its last round, e.g. by row {shown!r}"
    fix = "Mend the data, bound it (max_depth=, or limit= with on_limit='return'), or raise limit="
    if loop.bound.on_limit == "rows":
        fix = "Behind it a worker keeps the last answer that was right, which the input does not tell. Mend the data"
    return LoopLimitError(f"recursively '{loop.name}': {what}; a state at rest is needed. {fix}")
