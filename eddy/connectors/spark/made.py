"""The results of a part of a plan that one task has computed: rows of steps, states and records in one frame.

The column `what` has the kind of each row: `rows` of a step, rows of a `state`, records `sent` to a sink, `bad`
records, the latest `time`, the `clock` of a partition, or `too many` rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eddy.connectors.spark.arrow_functions import FACTS, RECORDS, ROWS, arrow_schema
from eddy.connectors.spark.frames import names, spark_errors
from eddy.topology.plan.plan import Sink

__all__ = ["GAVE_UP", "MADE", "Made", "batches_of", "rows_where"]

MADE = f"what string, name string, {FACTS}, key binary, value binary, p int, o long, bad string"
GAVE_UP = "too many"
_ROWS_A_BATCH = 10_000


def rows_where(arrived: Any, column: str, name: str) -> dict[str, list[Any]]:
    """Select the rows of an Arrow batch that have the value `name` in the column `column`; return their columns."""
    rows = arrived.filter(pyarrow.compute.equal(arrived.column(column), name))
    return dict(zip(rows.schema.names, (values.to_pylist() for values in rows.columns), strict=True))


def batches_of(what: str, name: str, count: int, **columns: list[Any]) -> Iterator[Any]:
    """Yield `count` results as Arrow batches; columns that are not given are null."""
    schema = arrow_schema(MADE)
    for at in range(0, count, _ROWS_A_BATCH):
        size = min(_ROWS_A_BATCH, count - at)
        given = {key: column[at : at + size] for key, column in columns.items()}
        given |= {"what": [what] * size, "name": [name] * size}
        arrays = [
            pa.array(given[column.name], column.type) if column.name in given else pa.nulls(size, column.type)
            for column in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class Made:
    """Reads the results of a task from the frame that has all of them, one kind of result at a time."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def rows(self, step: str) -> DataFrame:
        """Return the rows of a step."""
        return self._of("rows", step).select(*names(ROWS))

    def state(self, name: str) -> DataFrame:
        """Return the rows of a state as in its changelog, and `k`, the key that is hashed for the partition."""
        return self._of("state", name).select("k", "key", "value")

    def sent(self, sink: Sink) -> DataFrame:
        """Return the records of a sink."""
        return self._of("sent", sink.name).select(f.col("key").alias("k"), f.col("value").alias("v"), "t", "s", "h")

    def bad(self) -> DataFrame:
        """Return the rejected records, with their topics."""
        return self._frame.where("what = 'bad'").select(*names(RECORDS), f.col("name").alias("topic"))

    def event_times(self, topics: Iterable[str], counts: Mapping[str, int]) -> dict[str, list[int]]:
        """Return the event times of the partitions of these topics."""
        found = {topic: [-1] * counts[topic] for topic in topics}
        with spark_errors():
            rows = self._frame.where("what = 'clock'").select("name", "p", "t").collect() if found else ()
        for row in rows:
            found[row["name"]][row["p"]] = row["t"]
        return found

    def outcome(self) -> tuple[bool, int, int]:
        """Run the task. Returns whether the part was too large, the number of rejected records, and the latest time.

        Raises: DataError; LoopLimitError; ConnectorError.
        """
        what = f.col("what")
        totals = f.count_if(what == GAVE_UP), f.count_if(what == "bad"), f.max(f.when(what == "time", f.col("t")))
        with spark_errors():
            row = self._frame.agg(*totals).first()
        assert row is not None
        return bool(row[0]), row[1], row[2] or 0

    def _of(self, what: str, name: str) -> DataFrame:
        return self._frame.where((f.col("what") == what) & (f.col("name") == name))
