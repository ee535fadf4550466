"""The daemon of Spark's Python workers in tests: it plants errors in them, and notes which code of a worker they run.

In the folder EDDY_SPARK_ORDERS a file `mutants` names errors of `mutants.py`, a file `errors` asks for all of
`branches.py`, and to a file `watched` each line of eddy/operators that runs is appended.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

import pyspark.worker
from pyspark import daemon

import eddy.connectors.spark.daemon  # noqa: F401 - imports all modules before workers are forked
from tests.spark.branches import planted_errors
from tests.spark.mutants import planted
from tests.spark.watching import Watch

ORDERS = "EDDY_SPARK_ORDERS"
_main = pyspark.worker.main


def main(infile: Any, outfile: Any) -> None:
    folder = Path(os.environ[ORDERS])
    errors = planted_errors() if (folder / "errors").exists() else contextlib.nullcontext()
    with planted(folder / "mutants"), errors, Watch(folder / "watched"):
        _main(infile, outfile)


if __name__ == "__main__":
    pyspark.worker.main = main
    daemon.manager()
