"""A verification as a Spark job: spark-submit verify_job.py family.py localhost:9092

The session is the cluster's, and settings are those of spark-submit. It ends with 0 where all is equal, 1 where
something differs, 2 where that could not be told.
"""

import functools
import sys

from pyspark.sql import SparkSession

from eddy.cli.load import MODULE_NAME, load
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.spark import verify


def main(program: str, bootstrap: str, spark: SparkSession) -> int:
    open_log = functools.partial(KafkaLog, KafkaSettings.of(bootstrap))
    log = open_log()
    try:
        verdict = verify(load(program).topology, spark, log, open_log, program=MODULE_NAME, mismatches="mismatches")
    finally:
        log.close()
    print("\n".join(verdict.lines()))
    return verdict.status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:], spark=SparkSession.builder.getOrCreate()))
