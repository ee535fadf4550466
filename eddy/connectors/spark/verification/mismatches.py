"""The folder of all differences, as Parquet. It exists if and only if the last comparison found differences."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from eddy.connectors.spark.frames import names, spark_errors
from eddy.errors import ConfigurationError

__all__ = ["MISMATCHES", "Mismatches"]

MISMATCHES = (
    "part string, name string, key binary, expected binary, found binary, times_expected long, times_found long, "
    "partition int"
)
"""The columns of the mismatches of a sink or a store, as bytes; `partition` is the partition of a misplaced record."""


class Mismatches:
    """The folder of the rows that differ, on any file system that Spark knows."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        jvm: Any = spark._jvm
        jsc: Any = spark.sparkContext._jsc
        self._folder = jvm.org.apache.hadoop.fs.Path(path)
        self._files = self._folder.getFileSystem(jsc.hadoopConfiguration())

    def check(self) -> None:
        """Check that the folder has only mismatches, because it will be replaced. Raises: ConfigurationError."""
        with spark_errors():
            there = self._files.exists(self._folder)
            found = [status.getPath().getName() for status in self._files.listStatus(self._folder)] if there else []
        other = sorted(name for name in found if not name.startswith((".", "_")) and not name.endswith(".parquet"))
        if other:
            raise ConfigurationError(
                f"mismatches in {self.path}: the folder holds '{other[0]}', and would be replaced; an empty or a new "
                "folder is needed. Name another one"
            )

    def replace(self, differing: DataFrame | None) -> None:
        """Replace earlier mismatches by the rows that differ; for None, remove the folder. Raises: ConnectorError."""
        with spark_errors():
            if differing is not None:
                differing.select(*names(MISMATCHES)).write.mode("overwrite").parquet(self.path)
            else:
                self._files.delete(self._folder, True)
