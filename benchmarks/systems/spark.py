"""Backfill of the example's history on the embedded log, or its verification, on Spark in this process.

backfill|verify LOG CORES     the session's start is not counted
"""

import functools
import logging
import sys
from pathlib import Path

from benchmarks.embedded import family
from benchmarks.systems.process import report, settle
from eddy.connectors.local import LocalLog
from eddy.connectors.spark import backfill, local_session, verify


def main() -> None:
    """Run as `python -m benchmarks.systems.spark`."""
    what, folder, cores = sys.argv[1:]
    logging.getLogger("py4j").setLevel(logging.ERROR)
    open_log = functools.partial(LocalLog, Path(folder), busy_timeout_s=60.0)
    spark = local_session(f"local[{cores}]", "4g")
    spark.range(10).count()
    log = open_log()
    start = settle()
    if what == "backfill":
        done = backfill(family(), spark, log, open_log, replace=True)
        report(start, records=sum(map(sum, done.cut.inputs.values())), written=sum(done.written.values()))
    else:
        verdict = verify(family(), spark, log, open_log)
        report(start, status=verdict.status, keys=sum(part.keys for part in verdict.compared))
    log.close()
    spark.stop()


if __name__ == "__main__":
    main()
