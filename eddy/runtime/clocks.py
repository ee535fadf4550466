"""The clocks of a worker's epochs: the event time of each source partition, and ticks of the wall clock.

    event time    max of the timestamps of the records before the position, without rejected records
                  if a partition is idle, at least the wall clock minus `idle_after`
    tick          max of now and of all ticks committed on the partitions owned

Event times and ticks are committed with the positions, but only if an operator reads them. So they never decrease,
even if another worker takes the partitions over. All records of a poll have the same tick, even if they are retried in
parts.
"""

from collections.abc import Callable, Collection
from itertools import compress
from typing import Any

from eddy.connectors.log import Records, TopicPartition
from eddy.operators.circuit import Circuit
from eddy.operators.context import Context, TimesRead
from eddy.runtime.decoding import Rejected
from eddy.runtime.idle_partitions import IdlePartitions
from eddy.runtime.isolation import Part
from eddy.runtime.positions import Positions

__all__ = ["Clocks"]

_NO_OFFSET = -1


class Clocks:
    """The event times and the tick of one worker's epochs; `wall` returns the seconds since 1970."""

    def __init__(
        self, circuit: Circuit, positions: Positions, wall: Callable[[], float], idle: IdlePartitions | None = None
    ) -> None:
        self._circuit, self._positions, self._wall, self._idle = circuit, positions, wall, idle
        self._sources, self._reads_wall = circuit.reads
        self._tick: int | None = None
        self._moved: dict[TopicPartition, int] | None = None
        self._to_ms = -1
        self.read = bool(self._sources) or self._reads_wall

    def polled(self) -> None:
        """Note that the log was polled: the next epoch gets a new tick."""
        self._tick = self._moved = None

    def advance(self, to_ms: int) -> None:
        """Let the next epoch move all event times to at least `to_ms`."""
        self._to_ms = to_ms

    def committed(self, records: Collection[Records]) -> None:
        """Note that an epoch with these records was committed."""
        if self._idle is not None:
            now = self.wall_ms()
            self._idle.read(now, records)
            self._idle.seen(now, self._moved or ())
        if self._moved:
            self._moved, self._to_ms = {}, -1

    def context(self, part: Part, rejected: Collection[Rejected] = (), **others: Any) -> Context:
        """Return the context in which an epoch computes `part`: its event times and its tick.

        The event times include the records of `part`, without the rejected records. `others` are further fields of the
        context."""
        if not self.read:
            return Context(**others)
        if self._reads_wall and self._tick is None:
            self._tick = self.now()
        times = self._positions.entry.event_time
        gone = {record.place for record in rejected}
        read: dict[tuple[str, int], TimesRead] = {}
        for records in part.records:
            if records.topic in self._sources:
                place = (records.topic, records.partition)
                offsets, stamps = records.offsets, records.timestamps
                if gone:
                    kept = [(*place, offset) not in gone for offset in offsets]
                    offsets, stamps = list(compress(offsets, kept)), list(compress(stamps, kept))
                if place in read:
                    offsets, stamps = [*read[place].offsets, *offsets], [*read[place].timestamps, *stamps]
                before = read[place].before if place in read else times.get(place, -1)
                read[place] = TimesRead(before, offsets, stamps)
                times[place] = max(before, max(stamps, default=-1))
        for place, time in self._idle_times().items():
            if place not in read:
                read[place] = TimesRead(times.get(place, -1), [_NO_OFFSET], [time])
                times[place] = time
        return Context(event_time=times, tick=self._tick, read=read, **others)

    def due(self) -> bool:
        """Whether the next epoch has work even without records: rows expire, windows close, or a partition is idle."""
        if not self.read:
            return self._circuit.due()
        if self._idle_times():
            return True
        tick = self.now() if self._reads_wall else None
        return self._circuit.due(Context(event_time=self._positions.entry.event_time, tick=tick))

    def left(self) -> bool:
        """Whether work is due that epochs since the last poll have not done, because no epoch has used the tick."""
        return self._tick is None and self.due()

    def wait_s(self, timeout_s: float) -> float:
        """Return the seconds that a poll may wait for records: `timeout_s`, or less if work becomes due earlier."""
        if not self.read or not self._positions.entry.positions:
            return timeout_s
        if self.due():
            return 0.0
        ticks = [self._circuit.next_tick]
        if self._idle is not None:
            ticks.append(self._idle.next_ms(self.wall_ms(), self._positions.entry.positions))
        tick = min((tick for tick in ticks if tick is not None), default=None)
        return timeout_s if tick is None else min(timeout_s, max(0.0, tick / 1000 - self._wall()) + 0.001)

    def _idle_times(self) -> dict[TopicPartition, int]:
        """Return the event times, in milliseconds, to which this poll moves idle partitions, or all after `advance`."""
        if self._idle is None and self._to_ms < 0:
            return {}
        if self._moved is None:
            positions, times = self._positions.entry.positions, self._positions.entry.event_time
            self._moved = {} if self._idle is None else self._idle.due(self.wall_ms(), positions, times)
            sources = [tp for tp in positions if tp.topic in self._sources and times.get(tp, -1) < self._to_ms]
            self._moved |= dict.fromkeys(sources, self._to_ms)
        return self._moved

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970."""
        return round(self._wall() * 1000)

    def now(self) -> int:
        """Return the milliseconds since 1970, at least the last committed tick, so that ticks never decrease."""
        return max(self.wall_ms(), self._positions.entry.tick)
