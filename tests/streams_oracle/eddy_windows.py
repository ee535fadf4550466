"""Windows and sessions by eddy's rules: late by the record's own topic, closed when all topics have passed them."""

from collections.abc import Collection

from tests.streams_oracle.case import Step
from tests.streams_oracle.eddy_nodes import NO_HEADERS, Epoch, Node, Record
from tests.streams_oracle.functions import Value
from tests.streams_oracle.meaning import fold, group_key, merged, part_of, session_key, window_key, windows_of

__all__ = ["sessions", "sliding", "windows"]


def windows(node: Node, epoch: Epoch) -> list[Record]:
    """The changes of windows, or the windows that close."""
    step, size = node.step, node.step["size"]
    if epoch.topic in node.topics:
        node.event_times[epoch.topic] = max(node.event_times.get(epoch.topic, -1), epoch.time)
    found: dict[tuple[int, str], Record] = {}
    for part, record in _records(node):
        group = group_key(step, record.key, record.value)
        if group is None or record.value is None:
            continue
        for start in windows_of(step, record.time):
            if start + size > node.event_times[str(epoch.topic)] - step["grace"]:
                window = start, group
                total = found[window].value if window in found else node.windows.get(window)
                total = fold(step, part, total, record.value)
                found[window] = record._replace(key=window_key(step, group, start), value=total, placed=False)
    changed = [(window, record) for window, record in found.items() if node.windows.get(window) != record.value]
    changed.sort(key=lambda change: change[1].value is not None)
    for window, record in changed:
        node.windows[window] = record.value
    closed = min(node.event_times.get(topic, -1) for topic in node.topics) - step["grace"]
    over = sorted((start + size, group) for start, group in node.windows if start + size <= closed)
    rows = [(group, end, node.windows.pop((end - size, group))) for end, group in over]
    if step["emit"] == "update":
        return [record for _, record in changed]
    return [
        Record(window_key(step, group, end - size), value, NO_HEADERS, end - 1, placed=False)
        for group, end, value in rows
        if value is not None
    ]


def _records(node: Node) -> list[tuple[Step, Record]]:
    """The records of all inputs, with the part of the step that folds them."""
    return [(part_of(node.step, at), record) for at, taken in enumerate(node.inputs) for record in taken.shown()]


def sliding(node: Node, epoch: Epoch) -> list[Record]:
    """As `windows`: those that records have made, each with all records of its time; none is late for its window."""
    step, size = node.step, node.step["size"]
    if epoch.topic in node.topics:
        node.event_times[epoch.topic] = max(node.event_times.get(epoch.topic, -1), epoch.time)
    touched: dict[str, Record] = {}
    for _, record in _records(node):
        group, over = group_key(step, record.key, record.value), node.event_times[str(epoch.topic)] - step["grace"]
        if group is not None and record.value is not None and record.time + size >= over:
            node.slid.append((group, record.time, record.value, over))
            touched[group] = record
    found = _slid(node, touched)
    least = min(node.event_times.get(topic, -1) for topic in node.topics) - step["grace"]
    changed = {
        window: value
        for window, value in found.items()
        if window not in node.gone and node.windows.get(window) != value
    }
    node.windows |= changed
    over_now = sorted((start + size, group) for start, group in node.windows if start + size < least)
    rows = [(group, end, node.windows.pop((end - size, group))) for end, group in over_now]
    node.gone |= {(end - size, group) for group, end, _ in rows}
    if step["emit"] == "update":
        return [
            touched[group]._replace(key=window_key(step, group, start), value=value, placed=False)
            for (start, group), value in sorted(changed.items())
        ]
    return [
        Record(window_key(step, group, end - size), value, NO_HEADERS, end, placed=False) for group, end, value in rows
    ]


def _slid(node: Node, groups: Collection[str]) -> dict[tuple[int, str], Value]:
    """The windows of some groups, with the totals of their records."""
    step, size = node.step, node.step["size"]
    made = {
        (start, group)
        for group, time, _, over in node.slid
        for start in (max(0, time - size), time + 1)
        if start + size >= over and group in groups
    }
    found: dict[tuple[int, str], Value] = {}
    for start, group in made:
        for of, time, value, over in node.slid:
            if of == group and start <= time <= start + size and over <= start + size:
                found[start, group] = fold(step, step, found.get((start, group)), value)
    return found


def sessions(node: Node, epoch: Epoch) -> list[Record]:
    """The changes of sessions, or the sessions that close."""
    step, gap = node.step, node.step["gap"]
    lag = gap + step["grace"]
    if epoch.topic in node.topics:
        node.event_times[epoch.topic] = max(node.event_times.get(epoch.topic, -1), epoch.time)
    before = dict(node.sessions)
    touched: dict[tuple[str, int, int], None] = {}
    for part, record in _records(node):
        key, time = group_key(step, record.key, record.value), record.time
        if key is None or record.value is None or time < node.event_times[str(epoch.topic)] - lag:
            continue
        near = sorted(row for row in node.sessions if row[0] == key and row[1] <= time + gap and row[2] >= time - gap)
        total: Value = None
        for number, row in enumerate(near):
            total = merged(step, total, node.sessions[row]) if number else node.sessions[row]
            del node.sessions[row]
        total = fold(step, part, total, record.value)
        session = key, min([time, *(row[1] for row in near)]), max([time, *(row[2] for row in near)])
        touched |= dict.fromkeys([*near, session])
        if total is not None:
            node.sessions[session] = total
    changed = [(row, node.sessions.get(row)) for row in touched if node.sessions.get(row) != before.get(row)]
    changed.sort(key=lambda change: change[1] is not None)
    closed = min(node.event_times.get(topic, -1) for topic in node.topics) - lag - gap
    rows, time = changed, epoch.time
    over = sorted(
        ((key, start, end) for key, start, end in node.sessions if end < closed), key=lambda row: (row[2], row[0])
    )
    if step["emit"] != "update":
        rows = [(row, node.sessions[row]) for row in over]
    for row in over:
        del node.sessions[row]
    return [
        Record(session_key(step, *row), value, NO_HEADERS, time if step["emit"] == "update" else row[2], placed=False)
        for row, value in rows
    ]
