"""One Spark session for the tests of the group `spark`, which share a worker of pytest-xdist.

A session takes ten seconds of the processor to start, and as much again for each step that it runs for the first time.
Tests in the group `spark-jobs` have Spark in processes of their own.
"""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eddy.connectors.local import LocalLog
from eddy.connectors.spark import local_session, register
from tests.waiting import PATIENCE_S

# A JVM with these is ready sooner; what it would run for long would be slower.
QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


@pytest.fixture(scope="session")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder from which the Python workers take orders: see `tests/spark/daemon.py`."""
    return tmp_path_factory.mktemp("orders")


@pytest.fixture(scope="session")
def spark(orders: Path) -> Iterator[object]:
    os.environ["EDDY_SPARK_ORDERS"] = str(orders)
    session = local_session(
        "local[2]",
        "1g",
        {
            "spark.python.daemon.module": "tests.spark.daemon",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": QUICK_TO_START,
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.python.worker.idleTimeoutSeconds": "0",
        },
    )
    gateway = session.sparkContext._gateway  # private: PySpark leaves the JVM to the end of this process
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(PATIENCE_S)  # so that its time counts as that of the tests


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    """A log on disk."""
    with closing(LocalLog(tmp_path / "log")) as log:
        yield log


@pytest.fixture
def data(log: LocalLog, tmp_path: Path, spark: Any) -> dict[str, str]:
    """The options that name this log, for a session that knows the format `eddy`."""
    register(spark)
    return {"data": str(tmp_path / "log")}


@pytest.fixture
def finely_split(spark: Any) -> Iterator[None]:
    """Sessions that are made meanwhile split files into small pieces."""
    conf = spark.sparkContext._jsc.sc().conf()  # private: PySpark cannot set the options of a session that runs
    settings = {"spark.sql.files.maxPartitionBytes": "2000", "spark.sql.files.openCostInBytes": "1"}
    for name, value in settings.items():
        conf.set(name, value)
    yield
    for name in settings:
        conf.remove(name)
