"""What eddy makes of a case, as a model: the same meaning of each step, and its own rules, all of them here.

- *Epochs.* A record is an epoch, and each step takes all that the epoch has for it at once, after the steps before it.
  So a table is read as it is after the epoch, and shows each key once; a merge has one input after the other.
- *Unchanged values.* A table passes on the keys whose value is another one than before the epoch, deleted ones first.
- *Old values* are always known.
- *Times.* All results have the time of the epoch's record.
- *Headers* are those of the epoch's record; of a group of its last row, of a join of the left one, if it has changed.
  Records of a punctuation have none.
- *Clocks.* A punctuation by event time is due before the record that reaches a moment, a multiple of its interval, also
  if the record does not reach the step; not before the first record. The event time is that of the source's topic.
- *Windows.* A record is late for a window by the event time of its own topic, with all its records up to this one. A
  window closes when all topics have passed its end and the grace; its row has the last time in the window, and no
  headers. A record without a value is in no window.
- *Null keys.* A processor gets a record without a key only in the partition that it was read from: not after a step
  that may give it another key or partition, nor from another processor.
- *Groups of tables.* A row whose new key is None is in no group; one whose new value is None is in its group. A group
  without rows is not in the table. A total of None is that of a new group to `aggregate`.
"""

from typing import NamedTuple

from tests.streams_oracle.case import Answer, Case, Step, by_key, inputs_of, is_table
from tests.streams_oracle.functions import KEYS, Key, Value
from tests.streams_oracle.meaning import (
    AGGREGATES,
    FOREIGN,
    JOINS,
    PROCESSED,
    before_left_joins,
    fold,
    group_key,
    pair_of,
    records_of,
    value_of,
    window_key,
    windows_of,
)

__all__ = ["answer"]


class Record(NamedTuple):
    """A record of a stream, or the change of a table.

    `headers` is the number of the input record whose headers it has, -1 without headers. `placed`: it is still in the
    partition that it was read from, and no processor has made it.
    """

    key: Key
    value: Value
    headers: int
    time: int
    placed: bool = True


NO_HEADERS = -1
REKEYS = ("map", "flat_map", "select_key")
KEEP_KEYS = ("filter", "filter_not", "map_values", "flat_map_values", "split", "merge")


class Node:
    """A step: of a table the rows, and in an epoch its records, or the keys that have changed with the old values."""

    def __init__(self, step: Step, inputs: "list[Node]", table: bool) -> None:
        self.step, self.inputs, self.table = step, inputs, table
        self.rows: dict[Key, Value] = {}
        self.sizes: dict[Key, int] = {}
        self.records: list[Record] = []
        self.olds: dict[Key, Value] = {}
        self.headers: dict[Key, int] = {}
        self.now = 0
        self.event_times: dict[str, int] = {}
        self.windows: dict[tuple[int, str], Value] = {}
        self.out: list[tuple[Key, Value, int, int]] = []

    def shown(self) -> list[Record]:
        """The records that the epoch has made: of a table one for each changed key, with None for a deleted one."""
        if not self.table:
            return self.records
        return [Record(key, self.rows.get(key), self.headers[key], self.now) for key in self.olds]

    def change(self, news: dict[Key, tuple[Value, int]]) -> None:
        """Let a table have new values, and keep the old ones of the keys that have changed."""
        changed = {key: new for key, new in news.items() if self.rows.get(key) != new[0]}
        self.olds, self.headers = {}, {}
        for key in sorted(changed, key=lambda key: changed[key][0] is not None):
            self.olds[key] = self.rows.pop(key, None)
            value, self.headers[key] = changed[key]
            if value is not None:
                self.rows[key] = value

    @property
    def topics(self) -> set[str]:
        """The topics whose records lead to the step."""
        own = {self.step["topic"]} if "topic" in self.step else set[str]()
        return own.union(*(node.topics for node in self.inputs))


class Epoch(NamedTuple):
    """A record of a topic; or, without a topic, the wall clock has advanced from one time to another."""

    topic: str | None
    records: list[Record]
    time: int
    before: int = 0


def answer(case: Case) -> Answer:
    """What eddy makes of a case, by its rules."""
    nodes: list[Node] = []
    for number, step in enumerate(case.steps):
        nodes.append(Node(step, [nodes[of] for of in inputs_of(step)], is_table(case.steps, number)))
    keyless = before_left_joins(case.steps)
    wall = 0
    for number, (topic, key, value, time) in enumerate(case.records):
        epoch = Epoch(topic, [Record(key, value, number, time)], time)
        if topic is None:
            epoch = Epoch(None, [], wall + time, wall)
            wall += time
        for at, node in enumerate(nodes):
            node.now = epoch.time
            if node.table:
                node.change(_table(node, epoch))
            else:
                node.records = _stream(node, epoch, at in keyless)
            node.out += [(record.key, record.value, record.time, record.headers) for record in node.shown()]
    stores = {
        number: {str(key): value for key, value in node.rows.items()}
        for number, node in enumerate(nodes)
        if node.step["op"] in ("table", "to_table", *AGGREGATES, *PROCESSED)
    }
    return Answer([by_key(node.out) for node in nodes], stores)  # type: ignore[arg-type]


def _stream(node: Node, epoch: Epoch, keyless: bool) -> list[Record]:
    step, op = node.step, node.step["op"]
    if op == "stream":
        return epoch.records if step["topic"] == epoch.topic else []
    taken = node.inputs[0].shown()
    if op == "merge":
        return taken + node.inputs[1].shown()
    if op == "repartition":
        return [record._replace(placed=False) for record in taken if keyless or record.key is not None]
    if op == "windowed":
        return _windows(node, epoch)
    if op in PROCESSED:
        return _punctuation(node, epoch) + _sums(node, taken)
    if op not in JOINS:
        rekeys = op in REKEYS
        return [
            record._replace(key=key, value=value, placed=record.placed and not rekeys)
            for record in taken
            for key, value in records_of(step, record.key, record.value)
        ]
    rows, left = node.inputs[1].rows, op == "left_join"
    return [
        record._replace(value=value_of({**step, "op": "left_join"}, record.key, [record.value, rows.get(record.key)]))
        for record in taken
        if record.value is not None and (left or (record.key is not None and record.key in rows))
    ]


def _punctuation(node: Node, epoch: Epoch) -> list[Record]:
    """The records of a punctuation, if one is due."""
    step = node.step
    if step.get("by") == "wall clock":
        before, now = (epoch.before, epoch.time) if epoch.topic is None else (0, 0)
    elif step.get("by") == "event time" and epoch.topic in node.topics:
        before = node.event_times.get(epoch.topic, epoch.time)
        now = node.event_times[epoch.topic] = max(before, epoch.time)
    else:
        return []
    if now // step["every"] <= before // step["every"]:
        return []
    sums = sorted((str(key), total) for key, total in node.rows.items())
    node.rows.clear()
    return [Record("sum", total, NO_HEADERS, epoch.time) for _, total in sums]


def _sums(node: Node, taken: list[Record]) -> list[Record]:
    made = []
    for record in taken:
        key, total = record.key, record.value
        if key is None and (not record.placed or _is_rekeyed(node.inputs[0])):
            continue
        if key is not None and total is not None:
            total = node.rows[key] = (node.rows.get(key) or 0) + total
        made.append(record._replace(value=total, placed=False))
    return made


def _is_rekeyed(node: Node) -> bool:
    op = node.step["op"]
    if op in KEEP_KEYS:
        return any(map(_is_rekeyed, node.inputs))
    return op in (*REKEYS, "process", "windowed")


def _windows(node: Node, epoch: Epoch) -> list[Record]:
    """The changes of windows, or the windows that close."""
    step, size = node.step, node.step["size"]
    if epoch.topic in node.topics:
        node.event_times[epoch.topic] = max(node.event_times.get(epoch.topic, -1), epoch.time)
    found: dict[tuple[int, str], Record] = {}
    for record in node.inputs[0].shown():
        group = group_key(step, record.key, record.value)
        if group is None or record.value is None:
            continue
        for start in windows_of(step, record.time):
            if start + size > node.event_times[str(epoch.topic)] - step["grace"]:
                window = start, group
                total = found[window].value if window in found else node.windows.get(window)
                total = fold(step, step, total, record.value)
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


def _table(node: Node, epoch: Epoch) -> dict[Key, tuple[Value, int]]:
    """The values of the keys that an epoch may change, with headers."""
    step, op, inputs = node.step, node.step["op"], node.inputs
    if op in ("table", "to_table"):
        records = epoch.records if step.get("topic") == epoch.topic else []
        taken = inputs[0].shown() if inputs else records
        return {key: (value, headers) for key, value, headers, *_ in taken if key is not None}
    if op in AGGREGATES:
        return _groups(node) if inputs[0].table else _folded(node)
    if op in FOREIGN:
        return _by_foreign_key(node)
    headers = {key: number for table in reversed(inputs) for key, number in table.headers.items()}
    touched = [key for table in inputs for key in table.olds]
    return {key: (value_of(step, key, [table.rows.get(key) for table in inputs]), headers[key]) for key in touched}


def _folded(node: Node) -> dict[Key, tuple[Value, int]]:
    """Groups of records."""
    step = node.step
    found: dict[Key, tuple[Value, int]] = {}
    for at, taken in enumerate(node.inputs):
        part = step["parts"][at] if step["op"] == "cogroup" else step
        for key, value, headers, *_ in taken.shown():
            group = group_key(part, key, value)
            if group is not None and value is not None:
                total = found[group][0] if group in found else node.rows.get(group)
                found[group] = fold(step, part, total, value), headers
    return found


def _groups(node: Node) -> dict[Key, tuple[Value, int]]:
    """Groups of rows: the old rows are subtracted, then the new ones are added."""
    step, table = node.step, node.inputs[0]
    found: dict[Key, tuple[Value, int]] = {}
    olds = [(key, value, True) for key, value in table.olds.items()]
    for key, row, undo in [*olds, *((key, value, False) for key, value, *_ in table.shown())]:
        group, value = (None, None) if row is None else pair_of(step, key, row)
        if group is None:
            continue
        total = found[group][0] if group in found else node.rows.get(group)
        if not (undo and total is None and step["op"] == "reduce"):
            total = fold(step, step, total, value, undo=undo)
        node.sizes[group] = node.sizes.get(group, 0) + (-1 if undo else 1)
        found[group] = total, table.headers[key]
    return {group: (total if node.sizes[group] else None, headers) for group, (total, headers) in found.items()}


def _by_foreign_key(node: Node) -> dict[Key, tuple[Value, int]]:
    """Rows joined by a foreign key: those that have changed, and those whose other row has."""
    table, other = node.inputs
    find = KEYS[node.step["key"]]
    found = {}
    for key in [*table.olds, *(key for key, value in table.rows.items() if find(key, value) in other.olds)]:
        value = table.rows.get(key)
        at = None if value is None else find(key, value)
        headers = table.headers[key] if key in table.headers else other.headers[at]
        found[key] = value_of(node.step, key, [value, other.rows.get(at)]), headers
    return found
