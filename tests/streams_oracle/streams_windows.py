"""Windows and sessions by the rules of Kafka Streams: late, and closed, by the records that the step has seen."""

from collections.abc import Iterator

from tests.streams_oracle.functions import Value
from tests.streams_oracle.meaning import fold, merged, session_key, window_key, windows_of
from tests.streams_oracle.streams_tables import Node

__all__ = ["sessions", "windows"]

NO_HEADERS = -1
Change = tuple[str, Value, int, int]
"""The key with its window, the total, the time, and the number of the input record whose headers it has."""


def windows(node: Node, key: str, value: Value, time: int, number: int) -> Iterator[Change]:
    """Add a record to its windows; what is passed on. A record without a value counts."""
    step, rows = node.step, node.windows
    node.latest = max(node.latest, time)
    closed = node.latest - step["grace"]
    for start in windows_of(step, time):
        if start + step["size"] > closed:
            total, since = rows.pop((start, key), (None, time))
            total, since = fold(step, step, total, value), max(since, time)
            if total is not None:
                rows[start, key] = total, since
            if step["emit"] == "update":
                yield window_key(step, key, start), total, since, number
            elif step["emit"] == "suppress":
                yield from _suppressed(node, (start, key), total, since, number)
    if step["emit"] == "close":
        for start, group in sorted(row for row in rows.keys() - node.emitted if row[0] + step["size"] <= closed):
            node.emitted.add((start, group))
            total, since = rows[start, group]
            yield window_key(step, group, start), total, since, number


def _suppressed(node: Node, window: tuple[int, str], total: Value, time: int, number: int) -> Iterator[Change]:
    """Keep the last change of each window until the time of a change has passed the window's end and the grace."""
    step, kept = node.step, node.suppressed
    node.latest_change = max(node.latest_change, time)
    kept[window] = total, time, number
    for start, key in sorted(row for row in kept if row[0] + step["size"] <= node.latest_change - step["grace"]):
        value, since, of = kept.pop((start, key))
        if value is not None:
            yield window_key(step, key, start), value, since, of


def sessions(node: Node, key: str, value: Value, time: int, number: int) -> Iterator[Change]:
    """Merge a record with the sessions near it. A change has the time of the end of its session, and no headers."""
    step, rows, gap = node.step, node.sessions, node.step["gap"]
    node.latest = max(node.latest, time)
    closed = node.latest - step["grace"] - gap
    near = sorted(row for row in rows if row[1] == key and row[0] >= time - gap and row[2] <= time + gap)
    total: Value = {"count": 0, "reduce": None}.get(step["fold"], step["start"])
    for row in near:
        total = merged(step, total, rows[row])
    start, end = min([time, *(row[2] for row in near)]), max([time, *(row[0] for row in near)])
    if end >= closed:
        for row in near if (start, end) != (time, time) else []:
            del rows[row]
            yield from _changed(node, row, None)
        total = fold(step, step, total, value)
        rows.pop((end, key, start), None)
        if total is not None:
            rows[end, key, start] = total
        yield from _changed(node, (end, key, start), total)
    if step["emit"] == "close" and closed > max(node.closed, 0):
        for row in sorted(row for row in rows if max(node.closed, 0) <= row[0] < closed):
            yield session_key(step, row[1], row[2], row[0]), rows[row], row[0], number
        node.closed = closed


def _changed(node: Node, session: tuple[int, str, int], total: Value) -> Iterator[Change]:
    end, key, start = session
    step, kept = node.step, node.held
    if step["emit"] == "update":
        yield session_key(step, key, start, end), total, end, NO_HEADERS
    elif step["emit"] == "suppress":
        node.latest_change = max(node.latest_change, end)
        kept[session] = total
        for row in sorted(row for row in kept if row[0] <= node.latest_change - step["grace"] - step["gap"]):
            if (value := kept.pop(row)) is not None:
                yield session_key(step, row[1], row[2], row[0]), value, row[0], NO_HEADERS
