"""Linear recursion on Spark: semi-naive evaluation over the whole input.

    F(0) = seed      F(n+1) = op(F(n))      X = Σ F(n)      until a frontier is empty

Each frontier is merged and checkpointed, so that an iteration's query plan contains that iteration only. The outer side
of a join inside the loop is already partitioned by key, and so is a merged frontier: an iteration shuffles once.

A frontier equal to an earlier one repeats for ever, since op is a function of the frontier alone. Then, and at those of
the iterations 16, 32, 64, … whose frontier has a row of an earlier one, the rows that cycles reach are looked for
(`linear_cycles.py`). The recursion runs again, and op is not applied to these rows: their keys have no row downstream,
as in a worker (docs/adr/0027-held.md). An endless sequence of new rows is an error, and so is a cycle in a stream.

If each key leads to one other key, the sum is made by doubling (`pointer_doubling.py`), without frontiers.

If a frontier is small, several iterations run in one job; iterations after the end of the recursion have no rows.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.arrow_functions import FACTS, ROWS, RowsEntry
from eddy.connectors.spark.frames import Frames, RunningUnion, names, spark_errors
from eddy.connectors.spark.loops.linear_cycles import TakenBackError, reached_by_cycles, without
from eddy.connectors.spark.loops.loop_bounds import last_depth
from eddy.connectors.spark.loops.pointer_doubling import doubled
from eddy.connectors.spark.step_compiler import StepCompiler
from eddy.connectors.spark.step_frames import Capture, PendingRows
from eddy.errors import LoopLimitError
from eddy.operators.waves.held_message import ADVICE
from eddy.operators.waves.survey import MOST_REACHED
from eddy.topology.plan.plan import Node, Recursion

__all__ = ["run"]

_FEW, _AHEAD = 20_000, 4
"""If a frontier has fewer rows than the first number, as many iterations as the second number run in one job, which
costs less than several jobs.
"""
_FIRST_LOOK = 16
_FEWEST_ITERATIONS = 32
"""A search for cycles considers rows endless after this many iterations, or after `limit` if that is greater."""
_AGAIN = "its rows of this wave equal the rows of an earlier one"
_ENDLESS = "its path does not end"
_TAKEN_BACK = (
    "rows with negative weights lead to a cycle, and whether they cancel there is not known where the recursion is "
    "computed step by step"
)
_NO_KEY = "a cycle leads to a row without a key, which cannot be held"
_MANY = f"cycles lead to more than {MOST_REACHED:,} rows"


class _Remembered:
    """Collects the states of op's steps: their rows, added up over the iterations, by depth if depths are bounded."""

    def __init__(self, frames: Frames, by_depth: bool) -> None:
        self._frames, self._by_depth = frames, by_depth
        self.iteration = 0
        self._unions: dict[str, tuple[Node, str, dict[int, RunningUnion]]] = {}

    def capture(self, name: str, kind: str, node: Node, frame: DataFrame) -> None:
        """Add the rows of one iteration."""
        _, _, unions = self._unions.setdefault(name, (node, kind, {}))
        iteration = self.iteration if self._by_depth else 0
        unions.setdefault(iteration, RunningUnion(self._frames)).add(frame)

    def __contains__(self, name: str) -> bool:
        return name in self._unions

    def give(self, compiler: StepCompiler) -> None:
        """Hand the sums to the compiler, as states of the plan's steps."""
        for name, (node, kind, unions) in self._unions.items():
            parts = []
            for iteration, union in unions.items():
                rows = self._frames.consolidated(union.sum())
                parts.append(rows.withColumn("time", f.lit(iteration)) if self._by_depth else rows)
            whole = self._frames.union(parts, ROWS)
            compiler.top.capture(name, kind, node, self._frames.kept(whole))


def run(compiler: StepCompiler, node: Recursion) -> None:
    """Compute a linear recursion. Raises: LoopLimitError naming a key whose rows do not end."""
    loop = _Loop(compiler, node)
    if not loop.waves(None):
        again = _Loop(compiler, node)
        again.waves(loop.reached)
        loop = again
    loop.give()


class _Loop:
    """One run of a recursion by waves; for another run another object is made.

    `reached` are the rows that cycles reach. Op is not applied to them. If `waves` is called without them, it finds
    them when the waves cannot end.
    """

    def __init__(self, compiler: StepCompiler, node: Recursion) -> None:
        self._compiler, self._node, self._frames = compiler, node, compiler.frames
        self._facts, self._outer = node.kind == "stream", compiler.scope
        self._serdes = compiler.serdes(node)
        self._last = last_depth(node.bound)
        self._by_depth = self._last is not None
        self._remembered = _Remembered(self._frames, self._by_depth)
        self._total = RunningUnion(self._frames)
        self._emitted: list[DataFrame] = []
        self._seen: set[tuple[int, int]] = set()
        self._look_at: float = min(_FIRST_LOOK, node.bound.limit + 1)
        self.reached: DataFrame | None = None

    def waves(self, reached: DataFrame | None) -> bool:
        """Run all iterations; op is not applied to the rows of `reached`.

        Returns whether the iterations ended. If not, the attribute `reached` has the rows that cycles reach.
        Raises: LoopLimitError.
        """
        frames, node, facts = self._frames, self._node, self._facts
        self.reached = reached
        seed = self._outer[node.inputs[0]].under(frames, *self._serdes, node.label)
        wholes = [frames.lazy(seed if facts else frames.consolidated(seed))]
        if reached is None and self._doubled(wholes[0]):
            return True
        frontiers, iteration, deep = list(map(self._going_on, wholes)), 0, False
        while frontiers:
            with frames.jobs.step(f"iteration {iteration}"):
                marks = frames.marks(frontiers)
            for whole, frontier, mark in zip(wholes, frontiers, marks, strict=True):
                self._add(whole, frontier, iteration)
                if not mark[0]:
                    return True
                if not self._by_depth and self._cycles_reach(frontier, iteration, mark):
                    return False
                iteration += 1
            if deep:
                return True
            last, wholes, frontiers = frontiers[-1], [], []
            for number in range(iteration - 1, iteration - 1 + (_AHEAD if marks[-1][0] < _FEW else 1)):
                self._remembered.iteration = number
                made = self._op(last, self._remembered.capture, True)
                if deep := self._last is not None and number >= self._last:
                    break
                wholes.append(frames.lazy(_merged(frames, made) if facts else frames.consolidated(made)))
                frontiers.append(last := self._going_on(wholes[-1]))
        return True

    def _doubled(self, seed: DataFrame) -> bool:
        """Compute the sum of all waves by pointer doubling. Returns whether that is possible."""
        if self._facts or self._by_depth:
            return False
        rows = doubled(self._compiler, self._node, seed)
        if rows is None:
            return False
        self._op(rows, self._remembered.capture, True)  # op is linear, so the states of its steps are sums, too
        self._total.add(rows)
        return True

    def _op(self, frontier: DataFrame, capture: Capture, captures: bool) -> DataFrame:
        """Return the rows that op makes of a frontier, not merged.

        With `captures` the states of op's steps are captured.
        """
        compiler, node = self._compiler, self._node
        with compiler.inner_scope(capture, nested=False, captures=captures) as scope:
            scope[node.variable] = PendingRows(frontier, RowsEntry(*self._serdes, self._facts))
            if not self._facts:
                scope.rows[node.variable] = frontier
            compiler.compile_body(node)
            return scope[node.result].under(self._frames, *self._serdes, node.label)

    def _going_on(self, whole: DataFrame) -> DataFrame:
        """Return the rows of a frontier to which op is applied: all rows but the rows of `reached`."""
        return whole if self.reached is None else self._frames.lazy(without(whole, self.reached, "k", "v"))

    def _add(self, whole: DataFrame, frontier: DataFrame, iteration: int) -> None:
        if not self._facts:
            self._total.add(whole)
        elif iteration or self._node.include_seeds:
            self._emitted.append(frontier)

    def _cycles_reach(self, frontier: DataFrame, iteration: int, mark: tuple[int, int]) -> bool:
        """Whether the waves cannot end, because cycles reach the rows `reached`. Raises: LoopLimitError."""
        limit, again = self._node.bound.limit, mark in self._seen
        self._seen.add(mark)
        if self._facts or self.reached is not None:
            if again or (self._facts and iteration > limit):
                raise self._limit_error(frontier, iteration, _AGAIN if again else _ENDLESS)
            return False
        if not again and iteration < self._look_at:
            return False
        last = again or iteration > limit
        if not last and not self._repeats(frontier, mark[0]):
            self._look_at = min(2 * iteration, limit + 1)
            return False
        most = max(limit, _FEWEST_ITERATIONS) if last else iteration
        try:
            with self._frames.jobs.step("search for cycles"):
                found = reached_by_cycles(self._frames, frontier, lambda rows: self._op(rows, _forget, False), most)
        except TakenBackError:
            raise self._limit_error(frontier, iteration, _TAKEN_BACK) from None
        if found is None:
            if last:
                raise self._limit_error(frontier, iteration, _ENDLESS)
            self._look_at = min(2 * iteration, limit + 1)
            return False
        self._look_at = float("inf")
        reached, count = found
        if not count:
            return False
        self.reached = self._frames.kept(reached)
        self._check(frontier, iteration, count)
        return True

    def _repeats(self, frontier: DataFrame, count: int) -> bool:
        """Whether one of the `count` rows of the last frontier is also in an earlier one.

        When waves have gone around a cycle once, their rows repeat. Only negative weights can cancel such rows; then
        the search after `limit` iterations finds the cycle.
        """
        met = without(self._total.sum(), frontier, "k", "v", keep=True, few=count < _FEW)
        with self._frames.jobs.step("rows that repeat"), spark_errors():
            return met.count() > count  # the sum has the last frontier, too

    def _check(self, frontier: DataFrame, iteration: int, count: int) -> None:
        """Check that a worker would hold the rows that cycles reach. Raises: LoopLimitError if it might not."""
        assert self.reached is not None
        with spark_errors():
            taken_back = self._total.sum().where("w < 0").first() is not None
            no_key = count != self._compiler.with_key(self._node, self.reached).count()
        for wrong, what in ((taken_back, _TAKEN_BACK), (no_key, _NO_KEY), (count > MOST_REACHED, _MANY)):
            if wrong:
                raise self._limit_error(frontier, iteration, what)

    def give(self) -> None:
        """Store the rows of the recursion, and its states."""
        compiler, node, frames = self._compiler, self._node, self._frames
        self._remembered.give(compiler)
        if self._facts:
            seed = self._outer[node.inputs[0]].under(frames, *self._serdes, node.label)
            whole = frames.union(self._emitted, seed.schema)
            self._outer[node] = PendingRows(whole, RowsEntry(*self._serdes, True))
            return
        rows = frames.consolidated(self._total.sum())
        held = empty = frames.empty()
        if self.reached is not None:
            rows = frames.kept(rows)
            held, rows = without(rows, self.reached, "k", "v", keep=True), without(rows, self.reached, "k", "v")
        if not self._by_depth:
            if node.name not in self._remembered:
                self._capture(node.name, compiler.with_key(node, rows))
            self._capture(f"{node.name}-held", held)
            self._capture(f"{node.name}-reached", empty if self.reached is None else self.reached)
        if self.reached is not None:
            rows = frames.consolidated(without(rows, self.reached, "k"))
        compiler.add_rows(node, rows)

    def _capture(self, name: str, rows: DataFrame) -> None:
        self._compiler.top.capture(name, "arrangement", self._node, self._frames.kept(rows))

    def _limit_error(self, frontier: DataFrame, iteration: int, what: str) -> LoopLimitError:
        node = self._node
        with spark_errors():
            row = frontier.where("w > 0").first() or frontier.first()
        key, value = (
            None if row is None or row[name] is None else serde.decode(bytes(row[f"{name}c"] or row[name]))
            for name, serde in zip("kv", self._serdes, strict=True)
        )
        return LoopLimitError(
            f"{node.bound.subject(node.name, (key, value))} was not at rest after {iteration} waves: {what}; a cycle "
            f"in the data has no finite answer. {node.bound.advice(ADVICE)}"
        )


def _forget(name: str, kind: str, node: Node, frame: DataFrame) -> None:
    """Ignore a state: a search for cycles is not a wave, so its states are not compared."""


def _merged(frames: Frames, made: DataFrame) -> DataFrame:
    """Merge equal facts of one iteration, and add their weights."""
    others = [f.max(name).alias(name) for name in ("kc", "vc", "t", "s", "h")]
    merged = frames.partitioned(made).groupBy("k", "v").agg(*others, f.sum("w").alias("w"))
    return merged.select(*names(FACTS))
