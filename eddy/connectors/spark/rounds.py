"""Recursion by nested time on Spark: rounds until nothing changes.

    bindings     X(0) = ∅       X(n+1) = op(X(n))
    recursion    X(0) = seed    X(n+1) = seed + op(X(n))

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
    """What the body remembers, round by round: how its rows differ from those of the round before."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self.round = 0
        self._signed: dict[str, list[DataFrame]] = {}
        self._last: dict[str, DataFrame] = {}

    def capture(self, name: str, kind: str, node: Node, frame: DataFrame) -> None:
        """Take in the rows of one round."""
        signed = self._signed.setdefault(name, [])
        if name in self._last:
            before = self._last[name]
            signed.append(before.withColumn("w", -f.col("w")).withColumn("time", f.lit(self.round)))
        signed.append(frame.withColumn("time", f.lit(self.round)))
        self._last[name] = frame

    def give(self, compiler: Compiler, loop: Loop) -> None:
        """Hand the differences over as states."""
        came = (f.max("kc").alias("kc"), f.max("vc").alias("vc"), f.sum("w").alias("w"))
        for name, signed in self._signed.items():
            whole = self._frames.union(signed, ROWS).groupBy("k", "v", "time").agg(*came).where("w <> 0")
            compiler.top.capture(name, "trace", loop, self._frames.kept(whole))


def run(compiler: Compiler, loop: Loop) -> None:
    """Compute a loop and leave the pipes of its results. Raises: LoopLimitError."""
    frames, outer = compiler.frames, compiler.scope
    inside = loop in compiler.scopes.around
    traces = _Traces(frames)
    captures = compiler.traced and not inside
    bindings, marks = frames.marked(_start(compiler, loop))
    rounds, seeded = _rounds(loop), isinstance(loop, Recursion)
    for number in range(rounds + seeded):  # a seed has needed no round
        traces.round = number
        compiler.scope = scope = Scope(traces.capture, nested=True, captures=captures, around=outer)
        for variable, rows in zip(loop.variables, bindings, strict=True):
            scope[variable] = Pipe(rows, RowsEntry(*compiler.serdes(variable)))
            scope.rows[variable] = rows
        for step in compiler.scopes.body[loop]:
            compiler.compile(step)
        before, old = bindings, marks
        bindings, marks = frames.marked([_result(compiler, loop, index) for index in range(len(loop.variables))])
        compiler.scope = outer
        changed = [index for index, mark in enumerate(marks) if mark != old[index]]
        if not changed:
            break
        if number + 1 >= rounds + seeded:
            if not loop.bound.leveled or loop.bound.on_limit == "rows":
                at = changed[0]
                raise _limit_error(compiler, loop, at, frames.difference(bindings[at], before[at]))
            bindings = before if seeded else bindings
    if captures:
        traces.give(compiler, loop)
    else:
        _note_untold(compiler, loop, _INSIDE if inside else _NOT_ASKED)
    _leave(compiler, loop, bindings)


def _rounds(loop: Loop) -> int:
    if isinstance(loop, Block):
        return loop.rounds
    return loop.bound.depth if loop.bound.leveled else loop.bound.limit


def _start(compiler: Compiler, loop: Loop) -> list[DataFrame]:
    """What the bindings hold before the first round: the seed of a recursion, nothing in a block."""
    frames = compiler.frames
    if not isinstance(loop, Recursion):
        return [frames.empty() for _ in loop.variables]
    key, value = compiler.serdes(loop.variable)
    return [frames.consolidated(compiler.scope[loop.inputs[0]].under(frames, key, value, loop.label))]


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
