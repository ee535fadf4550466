"""Recursion by nested time on Spark: iterations until nothing changes.

    bindings     X(0) = ∅       X(n+1) = op(X(n))
    recursion    X(0) = seed    X(n+1) = seed + op(X(n))

Each iteration computes the definitions from the rows of the previous iteration, and compares the results with these
rows. A worker's traces are the differences between iterations, however the worker computed them. Traces of loops inside
loops are indexed by two iterations, and are not computed.

If a loop exceeds a bound, a worker withholds the loop's rows (in a loop that keeps all keys only the rows of some
keys), and queues its input (docs/adr/0029-bounds.md). Spark cannot know whether a worker's limits of rows and seconds
would suffice, so here an exceeded bound is an error, in any iteration of an enclosing loop. In one task the worker's
own circuit withholds the rows.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.arrow_functions import ROWS, RowsEntry
from eddy.connectors.spark.frames import Frames, spark_errors
from eddy.connectors.spark.loops.loop_bounds import last_depth
from eddy.connectors.spark.step_compiler import StepCompiler
from eddy.connectors.spark.step_frames import PendingRows, StepFrames
from eddy.errors import LoopLimitError
from eddy.serde import Native, String
from eddy.topology.plan.plan import Loop, Node

__all__ = ["run"]

_MERGED = 16
"""The number of iterations whose rows are in memory at once."""
_INSIDE = "the trace of a loop inside a loop is indexed by two iterations, which Spark does not compute"
_NOT_ASKED = "traces of loops were not requested"


class _Traces:
    """The traces of a loop's steps: the differences of their rows between consecutive iterations.

    From time to time the differences are merged, and the rows of all iterations before the last one are dropped.
    """

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self.iteration = 0
        self._past: list[StepFrames] = []
        self._signed: dict[str, list[DataFrame]] = {}
        self._last: dict[str, DataFrame] = {}

    def capture(self, name: str, kind: str, node: Node, frame: DataFrame) -> None:
        """Add the rows of one iteration."""
        signed = self._signed.setdefault(name, [])
        if name in self._last:
            before = self._last[name]
            signed.append(before.withColumn("w", -f.col("w")).withColumn("time", f.lit(self.iteration)))
        signed.append(frame.withColumn("time", f.lit(self.iteration)))
        self._last[name] = frame

    def end(self, iteration: StepFrames) -> None:
        """Note that the rows of an iteration are computed."""
        self._past.append(iteration)
        if len(self._past) <= _MERGED:
            return
        for name, signed in self._signed.items():
            self._signed[name] = [self._frames.settled(self._merged(signed))]
        *past, last = self._past
        self._frames.drop([rows for scope in past for rows in scope.rows.values()])
        self._past = [last]

    def give(self, compiler: StepCompiler, loop: Loop) -> None:
        """Store the differences as states."""
        for name, signed in self._signed.items():
            compiler.top.capture(name, "trace", loop, self._frames.kept(self._merged(signed)))

    def _merged(self, signed: Sequence[DataFrame]) -> DataFrame:
        came = (f.max("kc").alias("kc"), f.max("vc").alias("vc"), f.sum("w").alias("w"))
        whole = self._frames.partitioned(self._frames.union(signed, ROWS))
        return whole.groupBy("k", "v", "time").agg(*came).where("w <> 0")


def run(compiler: StepCompiler, loop: Loop) -> None:
    """Compute a loop and set the rows of its results. Raises: LoopLimitError."""
    frames = compiler.frames
    inside = loop in compiler.scopes.around
    traces = _Traces(frames)
    captures = compiler.traced and not inside
    bindings, marks = frames.marked(_start(compiler, loop))
    last, seeded = last_depth(loop.bound), loop.seeded
    iterations = last if seeded and last is not None else loop.iterations
    for number in range(iterations + seeded):  # the seed needs no iteration
        traces.iteration = number
        before, old = bindings, marks
        with compiler.inner_scope(traces.capture, nested=True, captures=captures) as scope:
            for variable, rows in zip(loop.variables, bindings, strict=True):
                scope[variable] = PendingRows(rows, RowsEntry(*compiler.serdes(variable)))
                scope.rows[variable] = rows
            compiler.compile_body(loop)
            made = [_result(compiler, loop, index) for index in range(len(loop.variables))]
            with frames.jobs.step(f"iteration {number}"):
                bindings, marks = frames.marked(made)
        if captures:
            traces.end(scope)
        changed = [index for index, mark in enumerate(marks) if mark != old[index]]
        if not changed:
            break
        if number + 1 >= iterations + seeded:
            if last is None or loop.error_limit is not None:
                at = changed[0]
                raise _limit_error(compiler, loop, at, frames.difference(bindings[at], before[at]))
            bindings = before if seeded else bindings
    if captures:
        traces.give(compiler, loop)
    else:
        _note_undetermined(compiler, loop, _INSIDE if inside else _NOT_ASKED)
    _leave(compiler, loop, bindings)


def _start(compiler: StepCompiler, loop: Loop) -> list[DataFrame]:
    """Return the bindings before the first iteration: the seed of a recursion, or empty frames in a block."""
    frames = compiler.frames
    if not loop.seeded:
        return [frames.empty() for _ in loop.variables]
    key, value = compiler.serdes(loop.variables[0])
    return [frames.consolidated(compiler.scope[loop.inputs[0]].under(frames, key, value, loop.label))]


def _result(compiler: StepCompiler, loop: Loop, index: int) -> DataFrame:
    """Return a binding after the iteration: the rows of its definition, and in a recursion also of the seed."""
    frames = compiler.frames
    key, value = compiler.serdes(loop.variables[index])
    parts = [compiler.scope[loop.results[index]].under(frames, key, value, loop.label)]
    if loop.seeded:
        parts.append(compiler.scope[loop.inputs[0]].under(frames, key, value, loop.label))
    return frames.consolidated(frames.union(parts, ROWS))


def _note_undetermined(compiler: StepCompiler, loop: Loop, why: str) -> None:
    """Record the states that were not computed, with the reason."""
    for node in compiler.scopes.deep(compiler.scopes.body[loop]):
        for name in (node.name, *(f"{node.name}-{suffix}" for suffix in node.derived)):
            compiler.undetermined[name] = why


def _leave(compiler: StepCompiler, loop: Loop, bindings: list[DataFrame]) -> None:
    scope, frames = compiler.scope, compiler.frames
    if scope is compiler.top:
        compiler.top.capture(f"{loop.name}-queued", "arrangement", loop, frames.empty())
        if kept := compiler.kept_bindings(loop):
            numbered = [_numbered(bindings[index], index) for index in kept]
            compiler.top.capture(f"{loop.name}-given", "arrangement", loop, frames.kept(frames.union(numbered, ROWS)))
    if loop.seeded:
        compiler.add_rows(loop, bindings[0]) if scope is compiler.top else _put(compiler, loop, bindings[0])
        return
    errors = frames.empty()
    for index, node in enumerate(compiler.plan.made_by(loop)):
        last = index == len(bindings)
        rows = errors if last else bindings[index]
        serdes = (String, Native) if last else compiler.serdes(loop.variables[index])
        scope[node] = PendingRows(rows, RowsEntry(*serdes))
    is_error = loop.error_limit is not None
    if scope is not compiler.top:
        if is_error:
            compiler.undetermined |= {f"{loop.name}-{suffix}": _INSIDE for suffix in ("limit", "errors")}
    elif is_error or compiler.scopes.limits(loop):
        for suffix in ("errors", "held"):
            compiler.top.capture(f"{loop.name}-{suffix}", "arrangement", loop, frames.empty())


def _numbered(rows: DataFrame, index: int) -> DataFrame:
    """Put a binding's number before the keys and values of its rows, as in states of several bindings."""
    number = f.lit(bytes([index]))
    columns = {name: f.concat(number, f.col(name)) for name in ("k", "kc", "v", "vc")}  # `concat` keeps null
    return rows.withColumns(columns)


def _put(compiler: StepCompiler, node: Node, rows: DataFrame) -> None:
    """Set the rows of a loop inside a loop, whose result is a step of the enclosing iteration."""
    compiler.scope[node] = PendingRows(rows, RowsEntry(*compiler.serdes(node)))


def _limit_error(compiler: StepCompiler, loop: Loop, index: int, changed: DataFrame) -> LoopLimitError:
    with spark_errors():
        row = changed.where("w > 0").first() or changed.first()
    assert row is not None
    key, value = compiler.serdes(loop.variables[index])
    shown = (key.decode(bytes(row["kc"] or row["k"])), value.decode(bytes(row["vc"] or row["v"])))
    label = loop.variables[index].label
    binding = f"{loop.label}.{label}" if loop in compiler.scopes.around else label
    what = f"binding '{binding}' still changed in its last iteration, e.g. by row {shown!r}"
    fix = loop.bound.advice("Mend the data, bound it (max_depth=, or limit= with on_limit='return'), or raise limit=")
    return LoopLimitError(f"{loop.bound.where(loop.name)}: {what}; a recursion that ends is needed. {fix}")
