"""The event times that close the windows of each partition, and the marks that carry them between workers.

    facts in their sources' partitions    the least event time of the same partition of these sources
    facts that exchanges have sent        the least event time of all partitions of the sources before them

A mark is the latest end of a window that such a time has passed.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from eddy.connectors.spark.cut_clocks import EventTimes
from eddy.connectors.spark.frames import Frames
from eddy.partitioner import Partitioner
from eddy.serde import Int64, Native
from eddy.topology.plan.frontiers import nearest, topics_sent
from eddy.topology.plan.placement import Placement
from eddy.topology.plan.plan import Node, Plan
from eddy.windows import Windows

__all__ = ["closing_times", "keys_in_partitions", "marks_of"]


def closing_times(times: EventTimes, facts: Node, count: int) -> list[int]:
    """Return, for each of `count` partitions of facts, the event time that closes its windows."""
    found = nearest(facts)
    sent = [time for topic in topics_sent(facts) for time in times[topic]]
    return [min([*(times[topic][home] for topic in found.topics), *sent]) for home in range(count)]


def marks_of(
    frames: Frames,
    times: EventTimes,
    windows: Windows,
    plan: Plan,
    exchange: Node,
    placements: Mapping[Node, Placement],
    partitioner: Partitioner,
) -> DataFrame:
    """Return the marks in each partition of an exchange: the latest end of a window that each sender has passed."""
    (source,) = exchange.inputs
    found = nearest(source)
    passed = {(topic, home): time for topic in found.topics for home, time in enumerate(times[topic])}
    for before in found.exchanges:
        topic, count = before.internal_topic(plan.name) or "", placements[before].partitions
        passed |= {(topic, home): time for home, time in enumerate(closing_times(times, before, count))}
    ends = {place: windows.last_end(time - windows.lag_ms) for place, time in passed.items()}
    rows = [
        (key, Native.encode((home, *place)), Int64.encode(end))
        for home, key in enumerate(keys_in_partitions(placements[exchange].partitions, partitioner))
        for place, end in ends.items()
        if end >= 0
    ]
    return frames.rows(rows, "k binary, key binary, value binary")


def keys_in_partitions(count: int, partitioner: Partitioner) -> list[bytes]:
    """Return, for each of `count` partitions, bytes of a key that the partitioner puts into this partition."""
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < count:
        key = str(number).encode()
        found.setdefault(partitioner(key, count) if count > 1 else 0, key)
        number += 1
    return [found[partition] for partition in range(count)]
