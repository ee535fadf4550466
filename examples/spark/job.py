"""`eddy backfill` and `eddy verify` as jobs of a Spark cluster; the session is that of spark-submit.

    spark-submit job.py backfill family.py --bootstrap broker:9092
    spark-submit job.py verify family.py --bootstrap broker:9092 --mismatches s3a://checks/family

Arguments and exit statuses are those of the commands: `spark-submit job.py verify --help`.
"""

from pyspark.sql import SparkSession

from eddy.cli import main

if __name__ == "__main__":
    main(prog_name="job.py", obj=SparkSession.builder.getOrCreate())
