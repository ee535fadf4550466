"""The programs in time that eddy and Kafka Streams both have, on Kafka.

tumbling    a count by key and window
sessions    a count by key and session
final       a count by key and window, passed on when the window closes
joined      the sums of the numbers of two streams that are near one another in time
processed   a count by key that a processor keeps in a store, and forwards with each record
"""

from datetime import timedelta

import eddy
from benchmarks.systems.processors import Counting

__all__ = ["APART", "GAP", "PROGRAMS", "SIZE", "topology_of"]

PROGRAMS = ("tumbling", "sessions", "final", "joined", "processed")
SIZE, GAP, APART = timedelta(seconds=100), timedelta(seconds=20), timedelta(seconds=5)
_GRACE = timedelta(hours=1)
"""Of joins: longer than all records, so that in neither system the pace of reading makes one late."""


def topology_of(program: str, application: str, left: str, right: str, out: str) -> eddy.Topology:
    """A program; `right` is read by joins alone."""
    topology = eddy.Topology(application)
    stream = topology.stream(left, eddy.String, eddy.String)
    if program == "joined":
        others = topology.stream(right, eddy.String, eddy.String)
        near = eddy.JoinWindows(APART, grace=_GRACE)
        stream.join(others, lambda one, other: int(one) + int(other), near, eddy.Int64).to(out)
        return topology
    if program == "processed":
        topology.store("counts", eddy.String, eddy.Int64)
        stream.process_values(Counting, ["counts"], "counting", eddy.Int64).to(out)
        return topology
    windows = eddy.SessionWindows(GAP) if program == "sessions" else eddy.TimeWindows(SIZE)
    grouped = stream.group_by_key().windowed_by(windows, emit="close" if program == "final" else "update")
    grouped.count("counts").to(out, value=eddy.Int64)
    return topology
