"""Linear recursion along chains on Spark, by pointer doubling: as many rounds as the depth has binary digits.

    M(1)     for each key, the key and the value of the row that op makes of a row with this key
    S(1)     the seed
    M(2n)    M(n) applied twice
    S(2n)    S(n) + M(n) of S(n), which are the waves 0 to 2n - 1

until no key has n steps. Doubling applies if

- op is one join with at most one row for each key,
- the next key depends only on the key and the joined row, and
- the next value depends only on these, too, or is the value itself.

Whether this is true of the author's function is tried and then proved. M(1) is computed by calls with a token in place
of the value. In the end op is applied to each row of the sum, and has to return the row that M(1) predicts. Then each
wave of op is a wave of M(1), because seeds have no negative weights, so that no row cancels in the sum. If doubling
does not apply, waves are computed one by one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.arrow_functions import (
    JoinedEntry,
    RowsEntry,
    arrow_schema,
    columns_of,
    identified,
    record_batch,
)
from eddy.connectors.spark.decoded_rows import pair
from eddy.connectors.spark.frames import Frames, spark_errors, with_suffix
from eddy.connectors.spark.step_compiler import StepCompiler
from eddy.connectors.spark.step_frames import PendingRows
from eddy.serde import Serde
from eddy.topology.plan.plan import Node, Recursion

__all__ = ["doubled"]

_MOVES = "k binary, to binary, toc binary, mv binary, mvc binary, keeps boolean"
"""A key, the next key, and the next value. `keeps`: the value does not change. A null key: the function has failed."""
_WRONG = "wrong long"


def doubled(compiler: StepCompiler, node: Recursion, seed: DataFrame) -> DataFrame | None:
    """Return the sum of all waves, merged; None if doubling does not apply, or a path is a cycle or too long."""
    join = _only_join(compiler, node)
    return None if join is None else _Doubling(compiler, node, join).sum(seed)


def _only_join(compiler: StepCompiler, node: Recursion) -> Node | None:
    """Return the join if op is one join whose sides have one key serde; otherwise None."""
    join = node.result
    if not join.bilinear or compiler.scopes.body[node] != [join] or node.variable not in join.inputs:
        return None
    left, right = (compiler.serdes(side)[0].name for side in join.inputs)
    return join if left == right else None


class _Doubling:
    def __init__(self, compiler: StepCompiler, node: Recursion, join: Node) -> None:
        self._compiler, self._node, self._frames = compiler, node, compiler.frames
        self._left = join.inputs[0] is node.variable
        self._other = join.inputs[1 if self._left else 0]
        self._serdes = compiler.serdes(node)

    def sum(self, seed: DataFrame) -> DataFrame | None:
        """Return the sum of all waves; None if it is not proved."""
        frames, limit = self._frames, self._node.bound.limit
        others = self._compiler.keyed(self._other)
        if self._other.kind != "table" and _some(others.groupBy("k").agg(f.sum("w").alias("n")).where("n <> 1")):
            return None
        first = moves = frames.lazy(self._asked(others))
        rows, steps, before = seed, 1, float("inf")
        told = frames.union(
            [
                moves.select(f.isnull("k").alias("wrong"), f.lit(1).alias("moves")),
                rows.select((f.col("w") < 0).alias("wrong"), f.lit(0).alias("moves")),
            ],
            "",
        )
        with frames.jobs.step("where each key leads"), spark_errors():
            wrong, count = told.agg(f.count_if("wrong"), f.coalesce(f.sum("moves"), f.lit(0))).collect()[0]
        if wrong:
            return None
        while count:
            # Each time fewer keys have paths of so many steps. If not, all these paths lead to a cycle.
            if steps > limit or count >= before:
                return None
            before = count
            rows = frames.lazy(frames.consolidated(rows.unionByName(_moved(rows, moves))))
            moves = frames.lazy(_twice(frames, moves))
            steps *= 2
            with frames.jobs.step(f"iterations up to {steps - 1}"):
                _, (count, _) = frames.marks([rows, moves.select("k", f.col("to").alias("v"), f.lit(1).alias("w"))])
        return rows if self._proved(rows, first) else None

    def _asked(self, others: DataFrame) -> DataFrame:
        """Return M(1), a row for each key of the join's other side, by calls of the author's function with a token."""
        nothing = f.lit(None).cast("binary")
        probes = others.select("k", "kc", nothing.alias("v"), nothing.alias("vc"), f.lit(1).cast("long").alias("w"))
        frame, entry = self._applied(probes)
        moves = self._frames.through(frame, _AskingMoves(entry, self._left, *self._serdes), _MOVES)
        return self._frames.partitioned(moves)

    def _proved(self, rows: DataFrame, moves: DataFrame) -> bool:
        """Whether op makes of each row the row that M(1) predicts."""
        frame, entry = self._applied(rows)
        expected = frame.join(moves.withColumnRenamed("k", "mk"), f.col("k") == f.col("mk"), "left")
        wrong = self._frames.through(expected, _ComparingMoves(entry, self._left, *self._serdes), _WRONG)
        with self._frames.jobs.step("proof of the sum"):
            return not _some(wrong)

    def _applied(self, rows: DataFrame) -> tuple[DataFrame, JoinedEntry]:
        """Apply op to rows: return their matches in the join, and the entry that makes joined rows of the matches."""
        compiler, node = self._compiler, self._node
        with compiler.inner_scope(_forget, nested=False, captures=False) as scope:
            scope[node.variable] = PendingRows(rows, RowsEntry(*self._serdes))
            scope.rows[node.variable] = rows
            compiler.compile_body(node)
            made = scope[node.result]
        assert isinstance(made.entry, JoinedEntry)
        assert not made.steps
        return made.frame, made.entry


def _forget(name: str, kind: str, node: Node, frame: DataFrame) -> None:
    """Ignore a state of a step in op, because the caller computes the states from the sum."""


def _some(frame: DataFrame) -> bool:
    with spark_errors():
        return frame.first() is not None


def _moved(rows: DataFrame, moves: DataFrame) -> DataFrame:
    """Move rows: return the next row of each row whose key has a move."""
    return rows.join(moves, "k").select(
        f.col("to").alias("k"),
        f.col("toc").alias("kc"),
        *(f.when(f.col("keeps"), f.col(name)).otherwise(f.col(f"m{name}")).alias(name) for name in ("v", "vc")),
        "w",
    )


def _twice(frames: Frames, moves: DataFrame) -> DataFrame:
    """Join each move with the move that begins where the first one ends, so that each result moves twice as far.

    The result has the second move's value, or the first move's value if the second move keeps the value.
    """
    values = {"to": "to2", "toc": "toc2", "mv": "mv2", "mvc": "mvc2", "keeps": "keeps2"}
    second = with_suffix(moves, {"k": "k2", **values})
    both = frames.partitioned(moves, "to").join(second, f.col("to") == f.col("k2"))
    twice = both.select(
        "k",
        f.col("to2").alias("to"),
        f.col("toc2").alias("toc"),
        *(f.when(f.col("keeps2"), f.col(name)).otherwise(f.col(f"{name}2")).alias(name) for name in ("mv", "mvc")),
        (f.col("keeps") & f.col("keeps2")).alias("keeps"),
    )
    return frames.partitioned(twice)


@dataclass(frozen=True)
class _AskingMoves:
    """Finds the moves: the row that op makes for each row of the other side, whatever the value of a row of X."""

    entry: JoinedEntry
    left: bool
    key: Serde[Any]
    value: Serde[Any]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Call the author's function with a token, which equals no other object, in place of a value of X."""
        schema = arrow_schema(_MOVES)
        for arrived in batches:
            columns = columns_of(arrived)
            try:
                yield record_batch([columns["k"], *self._moves(columns)], schema)
            except Exception:  # a function that uses the token as a value may raise anything: doubling does not apply
                yield record_batch([[None]] * len(schema), schema)

    def _moves(self, columns: dict[str, list[Any]]) -> list[list[Any]]:
        token, merge = object(), self.entry.merge
        keys, lefts, rights = self.entry.sides(columns)
        if self.left:
            lefts = [token] * len(keys)
        else:
            rights = [token] * len(keys)
        made = [pair(row, self.entry.name) for row in map(merge, keys, lefts, rights)]
        to, toc = identified([key for key, _ in made], self.key, self.entry.name)
        keeps = [value is token for _, value in made]
        values = identified([value for _, value in made if value is not token], self.value, self.entry.name)
        own = iter(zip(*values, strict=True))
        mv = [(None, None) if kept else next(own) for kept in keeps]
        return [to, toc, [value for value, _ in mv], [value for _, value in mv], keeps]


@dataclass(frozen=True)
class _ComparingMoves:
    """Compares the rows that op really makes with the rows that moves predict, to prove that doubling is right.

    Yields a row, the number of differences, for each batch with differences.
    """

    entry: JoinedEntry
    left: bool
    key: Serde[Any]
    value: Serde[Any]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the number of differences in each batch with differences; calls the author's function for each row."""
        schema = arrow_schema(_WRONG)
        for arrived in batches:
            wrong = self._wrong(columns_of(arrived))
            if wrong:
                yield record_batch([[wrong]], schema)

    def _wrong(self, columns: dict[str, list[Any]]) -> int:
        try:
            made = self.entry.rows(columns).rows
            keys, _ = identified([key for key, _ in made], self.key, self.entry.name)
            values, _ = identified([value for _, value in made], self.value, self.entry.name)
        except Exception:  # when the waves are computed one by one, it is raised again, with its step
            return len(columns["k"])
        came = columns["v" if self.left else "r"]
        expected = zip(columns["to"], columns["keeps"], came, columns["mv"], strict=True)
        return sum(
            (key, value) != (to, before if keeps else own)
            for key, value, (to, keeps, before, own) in zip(keys, values, expected, strict=True)
        )
