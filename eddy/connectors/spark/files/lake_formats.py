"""Formats of files in a lake, and a check that this session of Spark has them.

Parquet, ORC, JSON and CSV are Spark's own. Avro, Delta and Iceberg need packages, which a session has or lacks.
"""

from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from eddy.errors import ConfigurationError

__all__ = ["check_format"]

_PACKAGES = {
    "avro": "org.apache.spark:spark-avro_2.13:{spark}",
    "delta": "io.delta:delta-spark_2.13:VERSION",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-{release}_2.13:VERSION",
}
"""The Maven coordinates of formats' packages, with places for Spark's version, or its first two numbers."""


def check_format(spark: SparkSession, form: str, where: str) -> None:
    """Check that the session has the package of a format. Raises: ConfigurationError if it has none."""
    session: Any = spark._jsparkSession
    sources: Any = spark._jvm.org.apache.spark.sql.execution.datasources  # type: ignore[union-attr]
    try:
        sources.DataSource.lookupDataSource(form, session.sessionState().conf())
    except (Py4JJavaError, PySparkException) as error:
        package = _PACKAGES[form].format(spark=spark.version, release=".".join(spark.version.split(".")[:2]))
        raise ConfigurationError(
            f"{where}: this session of Spark has no package for the format {form}; the one for Spark {spark.version} "
            f"is needed. Name it: --spark-conf spark.jars.packages={package}"
        ) from error
