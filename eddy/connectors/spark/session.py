"""A Spark session on this machine, for the command line; on a cluster `spark-submit` makes the session.

Spark takes its Python workers' path and interpreter from the environment of the process that starts it.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from eddy.errors import ConfigurationError, ConnectorError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ONE_TASK", "TOLERANCE", "check_one_task", "driver_errors", "local_session", "require_spark"]

ONE_TASK = 2_000_000
"""The most records and rows that one task computes."""

BYTES_A_ROW = 1_000
"""The memory that one task needs for each row, in bytes."""

TOLERANCE = 1e-9
"""The tolerance, absolute and relative, for floats added in an order that the input does not determine."""

_SHUT_DOWN = "SparkContext was shut down"
_INSTALL = "pip install 'eddy-streams[spark]'"
_LATE = (
    "InvocationThreshold=50000",
    "MinInvocationThreshold=6000",
    "CompileThreshold=150000",
    "BackEdgeThreshold=400000",
)
"""Java's settings for the number of calls after which it optimizes a method, ten times the defaults.

Most methods of Spark's planner are called so seldom that optimizing them costs more than it saves. Loops over many rows
reach any number at once.
"""
_SETTINGS = {
    "spark.python.daemon.module": "eddy.connectors.spark.daemon",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.defaultJavaOptions": " ".join(f"-XX:Tier4{name}" for name in _LATE),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def require_spark() -> None:
    """Check that PySpark, pyarrow and pandas are installed. Raises: ConfigurationError."""
    for package in ("pyspark", "pyarrow", "pandas"):
        try:
            __import__(package)
        except ImportError as error:
            raise ConfigurationError(f"spark: the package {package} is not installed; {error}. {_INSTALL}") from error


def check_one_task(spark: "SparkSession", rows: int) -> None:
    """Refuse more rows than the default if one task has no memory for them.

    The memory is `spark.executor.pyspark.memory`, or this machine's memory if Spark runs here; otherwise it is unknown.
    Raises: ConfigurationError.
    """
    jvm: Any = spark._jvm
    limit = spark.sparkContext.getConf().get("spark.executor.pyspark.memory")
    if limit is not None:
        there = int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsMb(limit)) * 2**20
    elif str(spark.sparkContext.master).startswith("local["):
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    else:
        return
    if rows > ONE_TASK and rows * BYTES_A_ROW > there:
        raise ConfigurationError(
            f"spark: one task with up to {rows:,} rows takes some {rows * BYTES_A_ROW / 2**30:,.1f} GiB, and has "
            f"{there / 2**30:,.1f} GiB; fewer rows are needed. Write --one-task {there // BYTES_A_ROW}, or less"
        )


def local_session(
    master: str = "local[*]", memory: str = "2g", settings: Mapping[str, str] | None = None
) -> "SparkSession":
    """Start a session in this process. `settings` are Spark's, and override the settings that eddy gives.

    Raises: ConfigurationError if PySpark is not installed, or Java does not start.
    """
    require_spark()
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    builder = SparkSession.builder.master(master).appName("eddy").config("spark.driver.memory", memory)
    cores = master.removeprefix("local[").rstrip("]") if master.startswith("local[") else ""
    if cores:
        partitions = int(cores) if cores.isdecimal() else os.cpu_count() or 1
        builder = builder.config("spark.sql.shuffle.partitions", str(partitions))
    for name, value in (_SETTINGS | dict(settings or {})).items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError, Py4JError) as error:
        why = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
        raise ConfigurationError(
            f"spark: it does not start: {why}; Java 17 or later is needed. Install one: apt-get install "
            "openjdk-17-jre-headless; or name its folder: JAVA_HOME=DIR; or, where "
            f"{memory} of memory is said to be too little or too much, write --memory 2g"
        ) from error


@contextlib.contextmanager
def driver_errors() -> Iterator[None]:
    """Turn errors of Spark's driver in the block into a ConnectorError, even if the driver has ended."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from eddy.connectors.spark.frames import error_of

    try:
        yield
    except PySparkException as error:
        # A driver that ends may still answer that it cancels its jobs.
        raise _driver_ended(error) if _SHUT_DOWN in str(error) else error_of(str(error)) from error
    except (Py4JError, ConnectionError) as error:  # str(error) may call the driver, and fail
        raise _driver_ended(error) from error


def _driver_ended(error: Exception) -> ConnectorError:
    return ConnectorError(
        f"spark: its driver has ended, or does not answer ({type(error).__name__}); the job has failed. Its own "
        "lines say why. Where they say OutOfMemory, give it more: --memory 8g, or spark-submit's --driver-memory"
    )
