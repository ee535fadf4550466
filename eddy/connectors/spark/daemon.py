"""The daemon of Spark's Python workers. It imports their modules before it forks them, so that each starts at once.

Spark starts it by its module's name: `spark.python.daemon.module`.
"""

import pandas  # noqa: F401
from pyspark import daemon, worker  # noqa: F401

import eddy.connectors.spark.backfilling
import eddy.connectors.spark.verification  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
