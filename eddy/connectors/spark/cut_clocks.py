"""Computes event times and ticks as a worker has them at given offsets, for tables whose rows expire.

    event times    by topic, one a partition: the greatest timestamp of the records read, without rejected records
    ticks          by number of partitions, one a partition: given, since only a worker or a backfill knows them

All are in milliseconds; -1 means that a clock has no value. A record of a file moves the clock of its key's partition;
a record without a key moves a clock only if the topic has a single partition.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.log import TopicPartition
from eddy.connectors.spark.arrow_functions import ROWS, arrow_schema, record_batch
from eddy.connectors.spark.frames import Frames, spark_errors
from eddy.partitioner import Partitioner
from eddy.runtime.quiescence import Counters, Cut
from eddy.state.calendar import MOST_MS

__all__ = ["DUE", "CutClocks", "EventTimes", "Living", "event_times_of", "homes_of", "latest_times", "with_deadlines"]

DUE = f"{ROWS}, due long"
"""Rows with their deadlines."""
_TIMES = "p int, t long"
EventTimes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class CutClocks:
    """The clocks of partitions at given offsets: event times by topic, and ticks by number of partitions."""

    event_times: EventTimes = field(default_factory=dict)
    ticks: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, cut: Cut, lossy: Collection[str]) -> "CutClocks":
        """Return a cut's ticks, and its event times for the topics `lossy`, which may have lost their last records."""
        return cls(
            {topic: times for topic, times in cut.event_times.items() if topic in lossy},
            {len(ticks): ticks for ticks in cut.ticks},
        )

    @property
    def different_ticks(self) -> set[int]:
        """The distinct ticks of all partitions; several workers may have different ticks."""
        return {tick for ticks in self.ticks.values() for tick in ticks if tick >= 0}

    def after(self, times: EventTimes) -> "CutClocks":
        """Return the clocks after records with these event times."""
        given = self.event_times
        both = {topic: list(map(max, times[topic], given.get(topic, times[topic]))) for topic in times}
        return replace(self, event_times={**given, **both})

    def at(self, source: str | None, partitions: int) -> Sequence[int]:
        """Return a clock for each partition of a table: event times of the topic `source`, or ticks if it is None."""
        return (self.event_times.get(source) if source else self.ticks.get(partitions)) or [-1] * partitions

    def counters(
        self, partitions: Iterable[TopicPartition], counts: Mapping[str, int]
    ) -> dict[TopicPartition, Counters]:
        """Return the counters that a worker would commit with the positions of these partitions."""
        return {
            tp: Counters(
                event_time=self.at(tp.topic, counts[tp.topic])[tp.partition],
                tick=self.at(None, counts[tp.topic])[tp.partition],
            )
            for tp in partitions
        }


def latest_times(
    places: Iterable[tuple[int, bytes | None, int]], count: int, partitioner: Partitioner
) -> dict[int, int]:
    """Return the latest time of the records of each partition.

    A record is given as (partition, or -1 if it is from a file; identity of the key; time).
    """
    latest: dict[int, int] = {}
    known = list(places)
    homes = homes_of(((partition, key) for partition, key, _ in known), count, partitioner)
    for home, (*_, time) in zip(homes, known, strict=True):
        if home >= 0:
            latest[home] = max(time, latest.get(home, -1))
    return latest


def homes_of(places: Iterable[tuple[int, bytes | None]], count: int, partitioner: Partitioner) -> list[int]:
    """Return, for each record, the partition whose clock it moves; -1 if it moves no clock.

    A record is given as (partition, or -1 if it is from a file; identity of the key). It moves no clock if it is from a
    file and has no key, and the topic has several partitions.
    """
    return [
        partition if partition >= 0 else 0 if count == 1 else -1 if key is None else partitioner(key, count)
        for partition, key in places
    ]


@dataclass(frozen=True)
class _LatestTimes:
    """Computes, from the columns `p k t` of `RECORDS`, the latest time of each partition in a task."""

    count: int
    partitioner: Partitioner

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        records = (zip(*(b.column(name).to_pylist() for name in ("p", "k", "t")), strict=True) for b in batches)
        latest = latest_times((place for batch in records for place in batch), self.count, self.partitioner)
        yield record_batch([list(latest), list(latest.values())], arrow_schema(_TIMES))


def event_times_of(frames: Frames, records: DataFrame, count: int, partitioner: Partitioner) -> list[int]:
    """Return the event time of each partition after these records. Raises: DataError; ConnectorError."""
    places = records.where("bad IS NULL").select("p", "k", "t")
    times = frames.through(places, _LatestTimes(count, partitioner), _TIMES)
    with spark_errors():
        latest = {row["p"]: row["t"] for row in times.groupBy("p").agg(f.max("t").alias("t")).collect()}
    return [latest.get(partition, -1) for partition in range(count)]


def with_deadlines(rows: DataFrame, after_ms: int) -> DataFrame:
    """Add to rows their deadlines, in the columns `DUE`: `after_ms` after their times `t`, see `Expiry.deadline`."""
    due = f.greatest(f.least(f.col("t"), f.lit(MOST_MS - after_ms)) + f.lit(after_ms), f.lit(0).cast("long"))
    return rows.withColumn("due", due).drop("t")


@dataclass(frozen=True)
class Living:
    """Selects the rows whose deadline the clock of their key's partition has not reached."""

    clocks: Sequence[int]
    partitioner: Partitioner

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the rows, in batches with the columns `DUE`, that have not expired."""
        count = len(self.clocks)
        for batch in batches:
            dues = batch.column("due").to_pylist()
            homes = [0] * len(dues)
            if count > 1:
                homes = [self.partitioner(key, count) for key in batch.column("k").to_pylist()]
            there = [due > self.clocks[home] for due, home in zip(dues, homes, strict=True)]
            yield batch.filter(pa.array(there, pa.bool_()))
