"""Writes a tree's records into a topic of Kafka as fast as they go, while an application reads.

BOOTSTRAP TOPIC TREE as-is|in-order

Prints when it began, by the clock that all processes of a machine share.
"""

import sys
from time import perf_counter

from benchmarks.cluster import Feed
from benchmarks.systems.process import read_rows

if __name__ == "__main__":
    bootstrap, topic, tree, order = sys.argv[1:]
    rows = read_rows(tree)
    feed = Feed(bootstrap, topic)
    print(perf_counter(), flush=True)
    feed.send(sorted(rows) if order == "in-order" else rows)
    feed.close()
