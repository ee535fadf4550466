"""The rows of a loop's bindings as of the last input that was processed, summed over all iterations.

Most bindings' rows are in a trace inside the loop: that of the reduction that makes the binding, or of a step that
reads it. The rows of other bindings are stored in an arrangement of the loop, with the number of the binding.

In an application that first ran without this arrangement, it has only later rows. If the loop meets a bound there, its
older rows stay downstream, and they are correct again when the data is mended.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from eddy.operators.batch import Row, ZSet
from eddy.operators.operator import State
from eddy.state.arrangement import Arrangement, pairs_of, weight_in
from eddy.state.trace import Trace

__all__ = ["Given"]


class Given:
    """`traces` holds a trace for each binding, None where the arrangement has its rows."""

    def __init__(self, traces: Sequence[Trace[Any, Any] | None], arrangement: Arrangement[Any, Any] | None) -> None:
        self._traces, self._arrangement = traces, arrangement
        self.kept = [index for index, trace in enumerate(traces) if trace is None]

    def states(self) -> list[State]:
        """The loop's own state, if it needs one."""
        return [] if self._arrangement is None else [self._arrangement]

    def take(self, totals: Sequence[ZSet]) -> None:
        """Apply the deltas of the bindings that have no trace."""
        if self._arrangement is not None:
            delta = {
                ((index, key), (index, value)): weight
                for index in self.kept
                for (key, value), weight in totals[index].items()
            }
            if delta:
                self._arrangement.integrate(delta)

    def known(self, index: int, rows: Sequence[Row]) -> list[bool]:
        """Which of some rows one binding has; those of the current epoch count if they are in a trace."""
        trace = self._traces[index]
        if trace is not None:
            cells = trace.get_many([key for key, _ in rows])
            histories = [(cell or {}).get(row[1], ()) for row, cell in zip(rows, cells, strict=True)]
            return [sum(weight for _, weight in history) > 0 for history in histories]
        if self._arrangement is None:
            return [False] * len(rows)
        bags = self._arrangement.get_many([(index, key) for key, _ in rows])
        return [weight_in(bag, (index, value)) > 0 for (_, value), bag in zip(rows, bags, strict=True)]

    def rows(self, keys: Iterable[Any] | None) -> list[ZSet]:
        """The rows of each binding, of these keys or of all. Cost: proportional to the traces' rows of these keys."""
        chosen = None if keys is None else list(keys)
        made = [self._traced(trace, chosen) if trace is not None else {} for trace in self._traces]
        if self._arrangement is not None:
            if chosen is None:
                for ((index, key), (_, value)), weight in self._arrangement.items():
                    made[index][key, value] = weight
            else:
                for index in self.kept:
                    bags = self._arrangement.get_many([(index, key) for key in chosen])
                    for key, bag in zip(chosen, bags, strict=True):
                        made[index].update({(key, value): weight for (_, value), weight in pairs_of(bag)})
        return made

    def _traced(self, trace: Trace[Any, Any], keys: list[Any] | None) -> ZSet:
        zset: ZSet = {}
        if keys is None:
            for (key, _, value), weight in trace.items():
                zset[key, value] = zset.get((key, value), 0) + weight
        else:
            for key, cell in zip(keys, trace.get_many(keys), strict=True):
                for value, history in (cell or {}).items():
                    zset[key, value] = sum(weight for _, weight in history)
        return {row: weight for row, weight in zset.items() if weight}
