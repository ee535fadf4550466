"""Ends the waves of a recursion at rows that `quarantine.py` has chosen, the *stops*; `withheld.py` stores them.

a row arrives at a stop    its weight waits there, in P (`withheld.py`), and op is not applied to it
a row becomes a stop       its weight in X waits there, X gets the retraction, and op's results are retracted
"""

from collections.abc import Callable, Iterable
from typing import Any

from eddy.errors import LoopLimitError
from eddy.operators.batch import EMPTY, Batch, Row, ZSet, concat
from eddy.operators.bound import Bound
from eddy.operators.errors.row_sizes import RowSizes
from eddy.operators.exchange import Gate
from eddy.operators.waves.body import Body
from eddy.operators.waves.explorer import Explorer
from eddy.operators.waves.held_message import ADVICE
from eddy.operators.waves.total import Total
from eddy.operators.waves.wave_watch import Wave
from eddy.operators.waves.withheld import Withheld
from eddy.state.arrangement import Arrangement, weight_in

__all__ = ["Stopping"]


class Stopping:
    """Makes rows of one recursion stops, and ends the waves there. `x` is the arrangement of X."""

    def __init__(
        self,
        name: str,
        body: Body,
        gate: Gate,
        bound: Bound,
        x: Arrangement[Any, Any],
        withheld: Withheld,
        sizes: RowSizes,
    ) -> None:
        self._name, self._body, self._gate, self._bound, self._x = name, body, gate, bound, x
        self._withheld, self._sizes = withheld, sizes

    def admit(self, made: Batch) -> Batch:
        """Return the rows that are not stops.

        The weights of rows that are stops are added to the weights that wait there.
        """
        stops = self._withheld.stops
        if not stops or stops.keys().isdisjoint(made.rows):
            return made
        for row, weight in zip(made.rows, made.weights, strict=True):
            if row in stops:
                self._withheld.add(row, weight)
        return made.select([row not in stops for row in made.rows])

    def stop(self, rows: Iterable[Row], total: Total) -> Batch:
        """Make rows stops. Their weight in X waits at them from now on. Returns the retractions from X."""
        weight_of, withheld = self.weights(total), self._withheld
        backs: ZSet = {}
        for row in rows:
            if row[0] is None:
                raise self._keyless(row)
            if row not in withheld.stops:
                withheld.stop(row, weight := weight_of(row))
                if weight:
                    backs[row] = -weight
        return Batch.of(backs, 0)

    def stop_each(self, batch: Batch, total: Total) -> Batch:
        """Make all rows of a batch stops. Their weights wait at them from now on. Returns the retractions from X."""
        backs = self.stop(batch.rows, total)
        for row, weight in zip(batch.rows, batch.weights, strict=True):
            self._withheld.add(row, weight)
        return backs

    def stop_in(self, rows: Iterable[Row], wave: Wave, total: Total) -> Batch:
        """Make rows stops, and retract the rows that op made of them. Returns the rows of the wave that continue."""
        backs = self.stop(rows, total)
        for other, batch in list(wave.waiting.items()):
            wave.waiting[other] = self.admit(batch)
        return self.admit(self._taken_back(backs, wave, total))

    def stop_all(self, wave: Wave, total: Total, explore: Explorer) -> Batch:
        """Make every row of the wave a stop, and every row that waits for its iteration."""
        if any(self._sizes.refused(row) for batch in (wave.made, *wave.waiting.values()) for row in batch.rows):
            wave = wave._replace(made=self._without_refused(wave, total, explore))
        made = self._gate.own(wave.made, wave.iteration + 1)
        backs = [self.stop_each(batch, total) for batch in (made, *wave.waiting.values())]
        wave.waiting.clear()
        return self.admit(self._taken_back(concat(backs), wave._replace(made=EMPTY), total))

    def weights(self, total: Total) -> Callable[[Row], int]:
        """Return a function that returns the current weight of a row in X."""
        before, come = self._x.get, total.sum
        return lambda row: weight_in(before(row[0]), row[1]) + come().get(row, 0)

    def _taken_back(self, backs: Batch, wave: Wave, total: Total) -> Batch:
        if not backs.rows:
            return wave.made
        total.add(wave.iteration, backs)
        return concat((wave.made, self._body.run(backs, wave.iteration))).consolidated(self._name)

    def _without_refused(self, wave: Wave, total: Total, explore: Explorer) -> Batch:
        """Return the rows of a wave that can be written.

        Rows from which op makes a row that cannot be written become stops.
        """

        def makes_one(row: Row) -> bool:
            return any(map(self._sizes.refused, explore(row).rows))

        makers = [row for row in wave.frontier.rows if makes_one(row)]
        if not makers:  # op made the rows in earlier waves, or makes them from earlier rows since it has changed
            weight = self.weights(total)
            rows = dict.fromkeys((*total.sum(), *(row for row, _ in self._x.items())))
            makers = [row for row in rows if weight(row) and makes_one(row)]
        made = self.stop_in(makers, wave, total)
        for other, batch in wave.waiting.items():
            wave.waiting[other] = self._written(batch)
        return self._written(made)

    def _written(self, batch: Batch) -> Batch:
        return batch.select([not self._sizes.refused(row) for row in batch.rows])

    def _keyless(self, row: Row) -> LoopLimitError:
        return LoopLimitError(
            f"{self._bound.subject(self._name, row)}: its rows do not end, and it has no key to be held under; a key "
            f"is needed. {self._bound.advice(ADVICE)}"
        )
