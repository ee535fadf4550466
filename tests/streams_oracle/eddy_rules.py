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
- *Sessions.* A record is late by itself. A change has the time of the epoch, no headers. A session closes a gap later
  than a window with its end, so that it is passed on once.
- *Null keys.* A processor gets a record without a key only in the partition that it was read from: not after a step
  that may give it another key or partition, nor from another processor.
- *Groups of tables.* A row whose new key is None is in no group; one whose new value is None is in its group. A group
  without rows is not in the table. A total of None is that of a new group to `aggregate`.
"""

from collections.abc import Mapping

from tests.streams_oracle.case import GLOBAL, GLOBAL_JOINS, WINDOWED, Answer, Case, by_key, inputs_of, is_table, routed
from tests.streams_oracle.eddy_nodes import NO_HEADERS, Epoch, Node, Record
from tests.streams_oracle.eddy_windows import sessions, sliding, windows
from tests.streams_oracle.functions import KEYS, Key, Value
from tests.streams_oracle.meaning import (
    AGGREGATES,
    FOREIGN,
    JOINS,
    PROCESSED,
    before_left_joins,
    fold,
    group_key,
    is_child,
    looked_up,
    pair_of,
    part_of,
    put,
    records_of,
    told_sum,
    transformed,
    value_of,
)

__all__ = ["answer"]

REKEYS = ("map", "flat_map", "select_key")
KEEP_KEYS = ("filter", "filter_not", "map_values", "flat_map_values", "split", "merge", *GLOBAL_JOINS)


def answer(case: Case) -> Answer:
    """What eddy makes of a case, by its rules."""
    nodes: list[Node] = []
    for number, step in enumerate(case.steps):
        nodes.append(Node(step, [nodes[of] for of in inputs_of(step)], is_table(case.steps, number)))
        if "shares" in step:
            nodes[-1].rows = nodes[step["shares"]].rows
    keyless = before_left_joins(case.steps)
    wall, shared = 0, dict[str, int]()
    for number, (topic, key, value, time) in enumerate(case.timed()):
        epoch = Epoch(topic, [Record(key, value, number, time)], time)
        if topic == GLOBAL:
            put(shared, key, value)
            continue
        if topic is None:
            epoch = Epoch(None, [], wall + time, wall)
            wall += time
        for at, node in enumerate(nodes):
            node.now = epoch.time
            if node.table:
                node.change(_table(node, epoch, shared))
            else:
                node.records = _stream(node, epoch, at in keyless, shared)
            node.out += [(record.key, record.value, record.time, record.headers) for record in node.shown()]
    out = [by_key(routed(node.step, node.out)) for node in nodes]
    stores = {
        number: {str(key): value for key, value in node.rows.items()}
        for number, node in enumerate(nodes)
        if node.step["op"] in ("table", "to_table", "transform_values", *AGGREGATES, *PROCESSED)
        and "shares" not in node.step
    }
    return Answer(out, stores)  # type: ignore[arg-type]


def _stream(node: Node, epoch: Epoch, keyless: bool, shared: Mapping[str, int]) -> list[Record]:
    step, op = node.step, node.step["op"]
    if op == "stream":
        return epoch.records if step["topic"] == epoch.topic else []
    taken = node.inputs[0].shown()
    if op == "merge":
        return taken + node.inputs[1].shown()
    if op == "repartition":
        return [record._replace(placed=False) for record in taken if keyless or record.key is not None]
    if op in WINDOWED:
        return {"windowed": windows, "sessions": sessions, "sliding": sliding}[op](node, epoch)
    if op in PROCESSED:
        return _punctuation(node, epoch) + _sums(node, taken, shared)
    if op in GLOBAL_JOINS:
        return [
            record._replace(value=value)
            for record in taken
            for value in looked_up(step, record.key, record.value, shared)
        ]
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
    if node.cancelled or now // step["every"] <= before // step["every"]:
        return []
    node.cancelled = step.get("once", False)
    sums = sorted((str(key), total) for key, total in node.rows.items())
    node.rows.clear()
    return [Record("sum", total, NO_HEADERS, epoch.time) for _, total in sums]


def _sums(node: Node, taken: list[Record], shared: Mapping[str, int]) -> list[Record]:
    made = []
    for record in taken:
        key, total = record.key, record.value
        if key is None and (not record.placed or _is_rekeyed(node.inputs[0])):
            continue
        if key is not None and total is not None:
            total = node.rows[key] = (node.rows.get(key) or 0) + total
        headers = NO_HEADERS if node.step.get("bare") else record.headers
        total = told_sum(node.step, key, total, shared)
        if is_child(node.step, total):
            made.append(record._replace(value=total, placed=False, headers=headers))
    return made


def _is_rekeyed(node: Node) -> bool:
    op = node.step["op"]
    if op in KEEP_KEYS:
        return any(map(_is_rekeyed, node.inputs))
    return op in (*REKEYS, "process", *WINDOWED)


def _table(node: Node, epoch: Epoch, shared: Mapping[str, int]) -> dict[Key, tuple[Value, int]]:
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
    if op == "transform_values":
        return {
            key: (transformed(step, node.sums, key, value, shared), headers)
            for key, value, headers, *_ in inputs[0].shown()
        }
    headers = {key: number for table in reversed(inputs) for key, number in table.headers.items()}
    touched = [key for table in inputs for key in table.olds]
    return {key: (value_of(step, key, [table.rows.get(key) for table in inputs]), headers[key]) for key in touched}


def _folded(node: Node) -> dict[Key, tuple[Value, int]]:
    """Groups of records."""
    step = node.step
    found: dict[Key, tuple[Value, int]] = {}
    for at, taken in enumerate(node.inputs):
        part = part_of(step, at)
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
