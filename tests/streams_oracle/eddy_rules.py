"""What eddy makes of a case, as a model: the same meaning of each step, and its own rules, all of them here.

- *Epochs.* A record is an epoch, and each step takes all that the epoch has for it at once, after the steps before it.
  So a table is read as it is after the epoch, and shows each key once; a merge has one input after the other.
- *Unchanged values.* A table passes on the keys whose value is another one than before the epoch, deleted ones first.
- *Old values* are always known.
- *Times.* All results have the time of the epoch's record.
- *Headers* are those of the epoch's record.
- *Groups of tables.* A row whose new key is None is in no group; one whose new value is None is in its group. A group
  without rows is not in the table. A total of None is that of a new group to `aggregate`.
"""

from tests.streams_oracle.case import Answer, Case, Step, by_key, inputs_of, is_table
from tests.streams_oracle.functions import KEYS, Key, Value
from tests.streams_oracle.meaning import (
    AGGREGATES,
    FOREIGN,
    JOINS,
    before_left_joins,
    fold,
    group_key,
    pair_of,
    records_of,
    value_of,
)

__all__ = ["answer"]

Record = tuple[Key, Value]


class Node:
    """A step: of a table the rows, and in an epoch its records, or the keys that have changed with the old values."""

    def __init__(self, step: Step, inputs: "list[Node]", table: bool) -> None:
        self.step, self.inputs, self.table = step, inputs, table
        self.rows: dict[Key, Value] = {}
        self.sizes: dict[Key, int] = {}
        self.records: list[Record] = []
        self.olds: dict[Key, Value] = {}
        self.out: list[tuple[Key, Value, int, int]] = []

    def shown(self) -> list[Record]:
        """The records that the epoch has made: of a table one for each changed key, with None for a deleted one."""
        if not self.table:
            return self.records
        return [(key, self.rows.get(key)) for key in self.olds]

    def change(self, news: dict[Key, Value]) -> None:
        """Let a table have new values, and keep the old ones of the keys that have changed."""
        changed = {key: value for key, value in news.items() if self.rows.get(key) != value}
        self.olds = {}
        for key in sorted(changed, key=lambda key: changed[key] is not None):
            self.olds[key] = self.rows.pop(key, None)
            if changed[key] is not None:
                self.rows[key] = changed[key]


def answer(case: Case) -> Answer:
    """What eddy makes of a case, by its rules."""
    nodes: list[Node] = []
    for number, step in enumerate(case.steps):
        nodes.append(Node(step, [nodes[of] for of in inputs_of(step)], is_table(case.steps, number)))
    keyless = before_left_joins(case.steps)
    for number, (topic, key, value, time) in enumerate(case.records):
        for at, node in enumerate(nodes):
            records = [(key, value)] if node.step.get("topic") == topic else []
            if node.table:
                node.change(_table(node, records))
            else:
                node.records = _stream(node, records, at in keyless)
            node.out += [(key, value, time, number) for key, value in node.shown()]
    stores = {
        number: {str(key): value for key, value in node.rows.items()}
        for number, node in enumerate(nodes)
        if node.table and node.step["op"] in ("table", "to_table", *AGGREGATES)
    }
    return Answer([by_key(node.out) for node in nodes], stores)  # type: ignore[arg-type]


def _stream(node: Node, records: list[Record], keyless: bool) -> list[Record]:
    step, op = node.step, node.step["op"]
    if op == "stream":
        return records
    taken = node.inputs[0].shown()
    if op == "merge":
        return taken + node.inputs[1].shown()
    if op == "repartition":
        return [record for record in taken if keyless or record[0] is not None]
    if op not in JOINS:
        return [made for key, value in taken for made in records_of(step, key, value)]
    rows, left = node.inputs[1].rows, op == "left_join"
    return [
        (key, value_of({**step, "op": "left_join"}, key, [value, rows.get(key)]))
        for key, value in taken
        if value is not None and (left or (key is not None and key in rows))
    ]


def _table(node: Node, records: list[Record]) -> dict[Key, Value]:
    """The values of the keys that an epoch may change."""
    step, op, inputs = node.step, node.step["op"], node.inputs
    if op in ("table", "to_table"):
        return {key: value for key, value in (inputs[0].shown() if inputs else records) if key is not None}
    if op in AGGREGATES:
        return _groups(node) if inputs[0].table else _folded(node)
    if op in FOREIGN:
        return _by_foreign_key(node)
    touched = [key for table in inputs for key in table.olds]
    return {key: value_of(step, key, [table.rows.get(key) for table in inputs]) for key in touched}


def _folded(node: Node) -> dict[Key, Value]:
    """Groups of records."""
    step = node.step
    totals: dict[Key, Value] = {}
    for at, taken in enumerate(node.inputs):
        part = step["parts"][at] if step["op"] == "cogroup" else step
        for key, value in taken.shown():
            group = group_key(part, key, value)
            if group is not None and value is not None:
                totals[group] = fold(step, part, totals.get(group, node.rows.get(group)), value)
    return totals


def _groups(node: Node) -> dict[Key, Value]:
    """Groups of rows: the old rows are subtracted, then the new ones are added."""
    step, table = node.step, node.inputs[0]
    totals: dict[Key, Value] = {}
    olds = [(key, row, True) for key, row in table.olds.items()]
    for key, row, undo in [*olds, *((key, row, False) for key, row in table.shown())]:
        group, value = (None, None) if row is None else pair_of(step, key, row)
        if group is None:
            continue
        totals.setdefault(group, node.rows.get(group))
        if not (undo and totals[group] is None and step["op"] == "reduce"):
            totals[group] = fold(step, step, totals[group], value, undo=undo)
        node.sizes[group] = node.sizes.get(group, 0) + (-1 if undo else 1)
    return {group: total if node.sizes[group] else None for group, total in totals.items()}


def _by_foreign_key(node: Node) -> dict[Key, Value]:
    """Rows joined by a foreign key: those that have changed, and those whose other row has."""
    table, other = node.inputs
    find = KEYS[node.step["key"]]
    touched = [*table.olds, *(key for key, value in table.rows.items() if find(key, value) in other.olds)]
    found = {}
    for key in touched:
        value = table.rows.get(key)
        found[key] = value_of(node.step, key, [value, None if value is None else other.rows.get(find(key, value))])
    return found
