"""Recursion by waves on Spark: semi-naive, from the whole input at once.

    F(0) = seed      F(n+1) = op(F(n))      X = Σ F(n)      until a frontier is empty

Each frontier is merged and settled, so that a round's plan is that round's alone. What op joins from outside
lies by key already, and what is merged lies by key as well: a round moves rows once.

A frontier that is exactly an earlier one never ends, since op is a function of it alone: without a bound that is
an error as soon as it is seen, not after `limit` rounds.

Where a frontier is small, several rounds are one job: those behind the end have nothing to do.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.compiler import Compiler
from eddy.connectors.spark.frames import Frames, Piles, names, told
from eddy.connectors.spark.passes import FACTS, ROWS, RowsEntry
from eddy.connectors.spark.scope import Pipe, Scope
from eddy.errors import LoopLimitError
from eddy.operators.recursion import Bound
from eddy.topology.plan import Node, Recursion

__all__ = ["run"]

_FEW, _AHEAD = 20_000, 4
"""From a frontier of so few rows on, so many rounds go into one job: a job costs more than they do."""


class _Remembered:
    """What the body remembers: rows summed over the waves, by depth where the bound needs it."""

    def __init__(self, frames: Frames, leveled: bool) -> None:
        self._frames, self._leveled = frames, leveled
        self.wave = 0
        self._piles: dict[str, tuple[Node, str, dict[int, Piles]]] = {}

    def capture(self, name: str, kind: str, node: Node, frame: DataFrame) -> None:
        """Take in the rows of one wave."""
        _, _, piles = self._piles.setdefault(name, (node, kind, {}))
        level = self.wave if self._leveled else 0
        piles.setdefault(level, Piles(self._frames)).add(frame)

    def give(self, compiler: Compiler) -> None:
        """Hand the sums over as states."""
        for name, (node, kind, piles) in self._piles.items():
            parts = []
            for level, pile in piles.items():
                rows = self._frames.consolidated(pile.sum())
                parts.append(rows.withColumn("time", f.lit(level)) if self._leveled else rows)
            whole = self._frames.union(parts, ROWS)
            compiler.top.capture(name, kind, node, self._frames.kept(whole))


def run(compiler: Compiler, node: Recursion) -> None:
    """Compute a recursion that is linear. Raises: LoopLimitError naming a key that does not come to rest."""
    frames, facts = compiler.frames, node.kind == "stream"
    key, value = compiler.serdes(node)
    body = compiler.scopes.body[node]
    remembered = _Remembered(frames, node.bound.leveled)
    outer = compiler.scope
    seed = outer[node.inputs[0]].under(frames, key, value, node.label)
    total, emitted = Piles(frames), []
    seen: dict[tuple[int, int], int] = {}
    wave, deep = 0, False

    def onward(frontier: DataFrame, number: int) -> DataFrame:
        """What op makes of a frontier; what it remembers is captured."""
        remembered.wave = number
        compiler.scope = scope = Scope(remembered.capture, nested=False, around=outer)
        scope[node.variable] = Pipe(frontier, RowsEntry(key, value, facts))
        if not facts:
            scope.rows[node.variable] = frontier
        for step in body:
            compiler.compile(step)
        made = scope[node.result].under(frames, key, value, node.label)
        compiler.scope = outer
        return _merged(frames, made) if facts else frames.consolidated(made)

    frontiers = [frames.lazy(seed if facts else frames.consolidated(seed))]
    while frontiers:
        marks = frames.marks(frontiers)
        for frontier, mark in zip(frontiers, marks, strict=True):
            if not mark[0]:
                break
            if _endless(node.bound, wave, mark, seen):
                raise _limit_error(compiler, node, frontier, wave, mark in seen)
            if facts:
                emitted += [frontier] if wave or node.include_seeds else []
            else:
                total.add(frontier)
            wave += 1
        if not marks[-1][0] or deep:
            break
        last, frontiers = frontiers[-1], []
        for number in range(wave - 1, wave - 1 + (_AHEAD if marks[-1][0] < _FEW else 1)):
            made = onward(last, number)
            if deep := node.bound.leveled and number >= node.bound.depth:
                break
            last = frames.lazy(made)
            frontiers.append(last)
    remembered.give(compiler)
    if facts:
        schema = seed.schema
        outer[node] = Pipe(frames.union(emitted, schema), RowsEntry(key, value, True))
        return
    compiler.known(node, frames.consolidated(total.sum()))


def _merged(frames: Frames, made: DataFrame) -> DataFrame:
    """Equal facts of one wave as one, with their weights added."""
    others = [f.max(name).alias(name) for name in ("kc", "vc", "t", "s", "h")]
    merged = made.repartition(frames.partitions, "k").groupBy("k", "v").agg(*others, f.sum("w").alias("w"))
    return merged.select(*names(FACTS))


def _endless(bound: Bound, wave: int, mark: tuple[int, int], seen: dict[tuple[int, int], int]) -> bool:
    """Whether a frontier is one too many, or an earlier one again."""
    if bound.leveled:
        return False
    if mark in seen or wave > bound.limit:
        return True
    seen[mark] = wave
    return False


def _limit_error(compiler: Compiler, node: Recursion, frontier: DataFrame, wave: int, again: bool) -> LoopLimitError:
    with told():
        row = frontier.where("w > 0").first() or frontier.first()
    serde = compiler.serdes(node)[0]
    key = None if row is None or row["k"] is None else serde.decode(bytes(row["kc"] or row["k"]))
    what = "its rows of this wave are those of an earlier one" if again else "its path does not end"
    return LoopLimitError(
        f"recursively '{node.name}': key {key!r} was not at rest after {wave} waves: {what}; a cycle in the data has "
        "no finite answer. Mend the data and start again, or bound the recursion: recursively(..., max_depth=16), or "
        "raise limit= if the data is that deep"
    )
