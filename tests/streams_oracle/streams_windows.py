"""Windows and sessions by the rules of Kafka Streams: late, and closed, by the records that the step has seen."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.streams_oracle.functions import Value
from tests.streams_oracle.meaning import fold, merged, part_of, session_key, window_key, windows_of
from tests.streams_oracle.streams_tables import Node

__all__ = ["sessions", "sliding", "windows"]

NO_HEADERS = -1
Change = tuple[str, Value, int, int]
"""The key with its window, the total, the time, and the number of the input record whose headers it has."""


def windows(node: Node, at: int, key: str, value: Value, time: int, number: int) -> Iterator[Change]:
    """Add a record of input `at` to its windows; what is passed on. A record without a value counts."""
    step, rows = node.step, node.windows
    closed = _latest(node, at, time) - step["grace"]
    for start in windows_of(step, time):
        if start + step["size"] > closed:
            total, since = rows.pop((start, key), (None, time))
            total, since = fold(step, part_of(step, at), total, value), max(since, time)
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


def _latest(node: Node, at: int, time: int) -> int:
    """The latest time of the records of an input, with this one."""
    node.latest[at] = max(node.latest.get(at, -1), time)
    return node.latest[at]


def sliding(node: Node, at: int, key: str, value: Value, time: int, number: int) -> Iterator[Change]:
    """Add a record to the windows with its time; make the one behind the record before it, its own, and the one behind
    it.

    A window that is over is not kept, so that a later window behind its record is not made.
    """
    step, rows, size = node.step, node.windows, node.step["size"]
    if value is None:
        return
    closed = _latest(node, at, time) - step["grace"]
    if time + size < closed:
        return
    own = max(0, time - size)
    near = _near(node, key, time)
    before, behind = near.before, near.behind
    made = []
    if before is not None and before + 1 not in near.there and before + 1 + size >= time:
        made.append(before + 1)
    if own not in near.there:
        made.append(own)
    for start in [*near.changed, *made]:
        total, latest = rows.get((start, key), (None, time))
        if start == own and start in made and near.left is not None and near.left[1] >= own:
            total, latest = near.left
        if start + size >= closed:
            rows[start, key] = fold(step, part_of(step, at), total, value), max(latest, time)
            yield from _of_sliding(node, key, start, number)
    if behind is not None and behind[1] > time and time + 1 not in near.there:
        rows[time + 1, key] = behind
        yield from _of_sliding(node, key, time + 1, number)
    if step["emit"] == "close":
        for start, group in sorted(row for row in rows.keys() - node.emitted if row[0] + size < closed):
            node.emitted.add((start, group))
            yield window_key(step, group, start), *rows[start, group], number


class _Near(NamedTuple):
    """The windows near a record, which are all that the step knows of earlier records.

    `there` has the starts of all, `changed` of those with its time, `before` the time of the record before it; `left`
    and `behind` the totals and latest times of windows with the records before it, and with those after it.
    """

    there: list[int]
    changed: list[int]
    before: int | None
    left: tuple[Value, int] | None
    behind: tuple[Value, int] | None


def _near(node: Node, key: str, time: int) -> _Near:
    rows, size = node.windows, node.step["size"]
    early = time < size
    first = 0 if early else max(0, time - 2 * size)
    there = sorted(start for start, of in rows if of == key and first <= start <= time + 1)
    changed = [start for start in reversed(there) if start <= time and (early or start + size >= time)]
    behind = next((rows[start, key] for start in changed if start + size > time), None)
    at_end = rows.get((0 if early else time - size, key))
    if at_end is not None:
        if early or at_end[1] < time:
            return _Near(there, changed, at_end[1] if at_end[1] < time else None, None, behind)
        return _Near([*there, time + 1], changed, None, None, behind)  # a record of this time has made all windows
    left = next((rows[start, key] for start in reversed(there) if start + size < time), None)
    return _Near(there, changed, left and left[1], left, behind)


def _of_sliding(node: Node, key: str, start: int, number: int) -> Iterator[Change]:
    total, latest = node.windows[start, key]
    if node.step["emit"] == "update":
        yield window_key(node.step, key, start), total, latest, number
    elif node.step["emit"] == "suppress":
        yield from _suppressed(node, (start, key), total, latest, number)


def _suppressed(node: Node, window: tuple[int, str], total: Value, time: int, number: int) -> Iterator[Change]:
    """Keep the last change of each window until the time of a change has passed the window's end and the grace."""
    step, kept = node.step, node.suppressed
    node.latest_change = max(node.latest_change, time)
    kept[window] = total, time, number
    for start, key in sorted(row for row in kept if row[0] + step["size"] <= node.latest_change - step["grace"]):
        value, since, of = kept.pop((start, key))
        if value is not None:
            yield window_key(step, key, start), value, since, of


def sessions(node: Node, at: int, key: str, value: Value, time: int, number: int) -> Iterator[Change]:
    """Merge a record with the sessions near it. A change has the time of the end of its session, and no headers."""
    step, rows, gap = node.step, node.sessions, node.step["gap"]
    closed = _latest(node, at, time) - step["grace"] - gap
    near = sorted(row for row in rows if row[1] == key and row[0] >= time - gap and row[2] <= time + gap)
    total: Value = {"count": 0, "reduce": None}.get(step["fold"], step["start"])
    for row in near:
        total = merged(step, total, rows[row])
    start, end = min([time, *(row[2] for row in near)]), max([time, *(row[0] for row in near)])
    if end >= closed:
        for row in near if (start, end) != (time, time) else []:
            del rows[row]
            yield from _changed(node, row, None)
        total = fold(step, part_of(step, at), total, value)
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
