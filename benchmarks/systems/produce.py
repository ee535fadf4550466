"""Writes a tree's records into the embedded log, 1,000 a transaction, while a worker in another process reads.

Prints when it began and when it was done, by the clock that all processes of a machine share.
"""

import sys
from pathlib import Path
from time import perf_counter

from benchmarks.embedded import NODES, produce
from benchmarks.systems.process import read_rows
from eddy.connectors.local import LocalLog

if __name__ == "__main__":
    folder, tree = sys.argv[1:]
    rows, log = read_rows(tree), LocalLog(Path(folder), busy_timeout_s=60)
    partitions = log.topics([NODES])[NODES].partitions
    print(perf_counter(), flush=True)
    produce(log, rows, partitions, 1_000)
    print(perf_counter(), flush=True)
    log.close()
