"""Rows that are true for a while, on Spark: from their definition, without the worker's operator.

true       of a row: from ≤ clock of the partition < until
moment     the time of a row's next change: from, if this is after the clock; else until, if this is after the clock
states     the rows that have a moment, the first moment of each key, and the keys in the order of these moments
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.arrow_functions import ROWS, RowsEntry, arrow_schema, columns_of, record_batch
from eddy.connectors.spark.decoded_rows import calling
from eddy.connectors.spark.frames import Frames, be64, names, without_tail
from eddy.connectors.spark.sql_expressions import own
from eddy.errors import DataError
from eddy.partitioner import Partitioner
from eddy.serde import Serde
from eddy.topology.plan.valid_relations import CALENDAR, KEPT, MOMENTS, ValidRows

__all__ = ["ValidFrames"]

_SPANS = f"{ROWS}, starts long, ends long, clock long"
_END_OF_9999 = 253_402_300_799_999
_Bound = Callable[[Any, Any], Any] | None


@dataclass(frozen=True)
class _Spans:
    """Adds to each row the two moments between which it is true, null for no bound, and its partition's clock.

    The input has the columns `ROWS`, and the bytes that decide a key's partition.
    """

    name: str
    entry: RowsEntry
    bounds: tuple[_Bound, _Bound]
    clocks: Sequence[int]
    partitioner: Partitioner

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        count, schema = len(self.clocks), arrow_schema(_SPANS)
        for batch in batches:
            columns = columns_of(batch)
            rows = self.entry.rows(columns).rows
            spans = [[self._moment(bound, row) for row in rows] for bound in self.bounds]
            homes = columns["home"]
            clocks = [self.clocks[self.partitioner(home, count) if count > 1 else 0] for home in homes]
            yield record_batch([*(columns[name] for name in names(ROWS)), *spans, clocks], schema)

    def _moment(self, bound: _Bound, row: Any) -> int | None:
        if bound is None:
            return None
        with calling(self.name):
            moment = bound(*row)
        if moment is None:
            return None
        if isinstance(moment, bool) or not isinstance(moment, int) or moment < 0 or moment > _END_OF_9999:
            raise DataError(
                f"valid '{self.name}': {moment!r} of row {row!r} is not a number of milliseconds since 1970"
            )
        return moment


class ValidFrames:
    """Computes the rows that are true at the clocks of the partitions, and the states of the step."""

    def __init__(
        self,
        frames: Frames,
        node: ValidRows,
        rows: DataFrame,
        serdes: tuple[Serde[Any], Serde[Any]],
        clocks: Sequence[int],
        partitioner: Partitioner,
    ) -> None:
        self._frames, self._name = frames, node.name
        spans = _Spans(
            node.name,
            RowsEntry(*serdes),
            tuple(None if bound is None else own(bound) for bound in (node.from_, node.until)),  # type: ignore[arg-type]
            clocks,
            partitioner,
        )
        homes = rows.withColumn("home", without_tail(f.col("k"), serdes[0].tail))
        self._spans = frames.kept(frames.by_key(frames.through(homes, spans, _SPANS)))

    def there(self) -> DataFrame:
        """Return the rows that are true, partitioned by key."""
        return self._spans.where("coalesce(starts <= clock, true) AND coalesce(clock < ends, true)").select(
            *names(ROWS)
        )

    def states(self) -> dict[str, tuple[str, DataFrame]]:
        """Return the kind and the rows of each state, by name."""
        kept = self._spans.where("coalesce(starts < ends, true) AND (clock < starts OR clock < ends)")
        moments = kept.withColumn(
            "moment", f.when(f.col("clock") < f.col("starts"), f.col("starts")).otherwise(f.col("ends"))
        )
        firsts = self._frames.kept(moments.groupBy("k").agg(f.min("moment").alias("moment"), f.max("kc").alias("kc")))
        at, none, one = be64(f.col("moment")), f.lit(None).cast("binary"), f.lit(1).cast("long")
        entry = f.concat(at, f.col("k")).alias("key"), f.lit(b"\x01").alias("value")
        return {
            KEPT.name_of(self._name): ("arrangement", kept.select(*names(ROWS))),
            MOMENTS.name_of(self._name): (
                "table",
                firsts.select("k", "kc", at.alias("v"), none.alias("vc"), one.alias("w")),
            ),
            CALENDAR.name_of(self._name): ("encoded", firsts.select("k", *entry)),
        }
