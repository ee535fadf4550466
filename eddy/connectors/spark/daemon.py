"""The daemon of Spark's Python workers.

It imports their modules before it forks them, so that workers start without delay.

Spark starts the daemon by the module name in its setting `spark.python.daemon.module`.
"""

import pandas  # noqa: F401
from pyspark import daemon, worker  # noqa: F401

import eddy.connectors.spark.backfilling
import eddy.connectors.spark.source.data_source
import eddy.connectors.spark.verification.verifying  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
