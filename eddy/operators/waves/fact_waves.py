"""Recursion of a KStream by waves: each record that `op` makes is emitted and fed back (KIP-857).

Facts are never retracted, so there is no arrangement. Between two waves equal records are merged: their weights are
added. The parts that are common to facts and relations are in `operators/waves/recursion.py`.

Source: KIP-857.
"""

from operator import attrgetter
from typing import Any

from eddy.operators.batch import EMPTY, Batch, Row, concat, consolidate
from eddy.operators.bound import FIRST_LOOK, Bound
from eddy.operators.context import Context
from eddy.operators.errors.row_sizes import RowSizes
from eddy.operators.exchange import Budget, Gate, by_iteration
from eddy.operators.waves.body import Body
from eddy.operators.waves.recursion import LinearRecursion

__all__ = ["FactWaves", "merged"]

_ROWS = attrgetter("rows")
_LARGEST_WEIGHT = 2**63 - 1
"""The largest weight. A record is written as many times as its weight, so larger ones cannot be written."""


class FactWaves(LinearRecursion):
    """Input: records. Output: all results of op, and, with `include_seeds`, the records themselves."""

    def __init__(
        self, name: str, body: Body, gate: Gate, bound: Bound, budget: Budget, sizes: RowSizes, include_seeds: bool
    ) -> None:
        super().__init__(name, body, gate, bound, budget, sizes)
        self._include_seeds = include_seeds

    def step(self, context: Context, *inputs: Batch) -> Batch:
        """Run waves, merging equal records of one wave, until none is left or the budget is spent.

        Records from the loop's topic are processed first. If they have no end, they are cut at the limit and reported.
        They cannot be rejected, because the records from which they derive are committed, and only this step can remove
        them from the topic.

        Raises: LoopLimitError if the epoch's own records have no end, so that the failing record is found.
        """
        seed, received, *externals = inputs
        emitted: list[Batch] = []
        self.body.open(externals)
        if received.rows or any(map(_ROWS, externals)):
            frontiers = by_iteration(received)
            emitted += [batch for iteration, batch in frontiers.items() if iteration or self._include_seeds]
            self._run(frontiers, emitted, has_received=True)
        own = self.gate.own(seed)
        if own.rows:
            emitted += [own] if self._include_seeds else []
            self._run({0: own}, emitted, has_received=False)
        self.body.settle()
        return concat(emitted)

    def _run(self, frontiers: dict[int, Batch], emitted: list[Batch], has_received: bool) -> None:
        bound, before = self.bound, self.rows
        looks = not (bound.by_depth or has_received)
        watched = min(FIRST_LOOK, bound.limit) if looks else bound.depth
        while frontiers or self.body.waiting():
            iteration = min((*frontiers, *self.body.waiting()))
            frontier = merged(frontiers.pop(iteration, EMPTY), self.name)
            self.waves += 1
            self.rows += len(frontier)
            made = self.body.run(frontier, iteration)
            if not made.rows:
                continue
            if iteration >= bound.depth:
                if not (bound.by_depth or has_received):
                    raise self._over_limit(made.rows[0])
                self._cut(made)
                continue
            if looks and iteration >= watched:
                watched = self._search_ahead(made, iteration, self.rows - before)
            elif has_received:
                made = self._light(made)
            rest = self.gate.own(made, iteration + 1)
            if rest.rows and self.budget.spend(len(rest)):
                self.gate.spill(merged(rest, self.name), iteration + 1)
            elif rest.rows:
                emitted.append(rest)
                frontiers[iteration + 1] = concat((frontiers.get(iteration + 1, EMPTY), rest))

    def _light(self, made: Batch) -> Batch:
        """Return the rows whose weights can be written, and cut the other rows."""
        if max(made.weights) <= _LARGEST_WEIGHT:
            return made
        light = [weight <= _LARGEST_WEIGHT for weight in made.weights]
        self._cut(made.select([not one for one in light]))
        return made.select(light)


def merged(batch: Batch, where: str) -> Batch:
    """Merge equal facts, in the order of their first occurrence.

    Their weights are added. The merged fact has the latest time, and the headers of the fact with this time.
    """
    zset = consolidate(batch.rows, batch.weights, where)
    if len(zset) == len(batch.rows):
        return batch
    stamps = list(zip(batch.times_of_rows(), batch.headers_of_rows(), strict=True))
    latest: dict[Row, tuple[int, Any]] = {}
    for row, stamp in zip(batch.rows, stamps, strict=True):
        if row not in latest or latest[row][0] <= stamp[0]:
            latest[row] = stamp
    kept = [latest[row] for row in zset]
    return Batch(
        list(zset),
        list(zset.values()),
        batch.time,
        None if batch.times is None else [time for time, _ in kept],
        None if batch.headers is None else [headers for _, headers in kept],
    )
