"""Reads the clock of a partition, by which the partition's rows become valid or expire.

    event time    the greatest timestamp of the records read from the source's partition with the same number
    wall clock    the tick of the epoch

Neither clock decreases. Both are committed with the positions, so rows are a function of the input and of the clocks.
"""

from collections.abc import Collection, Mapping
from typing import Any, Literal

from eddy.operators.context import Context, Tick, Watermark
from eddy.operators.errors.set_aside import refused
from eddy.operators.operator import ClocksRead
from eddy.state.spec import StateSpec

__all__ = ["ExpiryClock", "RowClock", "homes_of"]

ExpiryClock = Literal["event time", "wall clock"]


class RowClock:
    """The clock of each partition: the event time of the topic `source`, or the wall clock if `source` is empty.

    The clock can be used as a `Frontier`.
    """

    def __init__(self, source: str) -> None:
        self._source = source

    @property
    def reads(self) -> ClocksRead:
        """Either the event time of the source or the wall clock."""
        return ClocksRead(frozenset({self._source})) if self._source else ClocksRead(wall=True)

    def at(self, context: Context, partition: int) -> int:
        """Return the time of a partition's clock in milliseconds; -1 if the clock has no time yet."""
        if self._source:
            return context.event_time.get((self._source, partition), -1)
        return -1 if context.tick is None else context.tick

    def passes(self, firsts: Mapping[int, int]) -> Tick | Watermark:
        """Return the moment at which the clock of one of the partitions reaches its time in `firsts`."""
        return Watermark((self._source,), firsts) if self._source else Tick(min(firsts.values()))

    def slowest(self, context: Context, partition: int) -> tuple[str, int]:
        """Return the topic and partition of the source whose event time is this partition's clock."""
        return self._source, partition


def homes_of(spec: StateSpec, keys: Collection[Any]) -> list[int]:
    """The partition of each key. Raises: DataError for a key that does not fit its serde."""
    try:
        return spec.partitions_of(spec.key.identify_many(list(keys)))
    except Exception:
        for key in keys:
            if error := refused(spec, (key, None)):
                raise error from None
        raise
