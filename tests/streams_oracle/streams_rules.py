"""What Kafka Streams makes of a case, as a model: the same meaning of each step, and its own rules, all of them here.

- *Paths.* Each change is passed to all steps below, to the first one with all that follows from it, before the next.
- *Topics.* What is sent through a topic of its own, to be grouped anew or for a foreign key, waits until the record
  that caused it is done. `streams_topics.py` has the order of several topics.
- *Unchanged values.* A table passes on each change, also an equal value and the deletion of a missing key. Only a
  filter that knows old values withholds that nothing became nothing.
- *Old values* are known where a step below asks for them: `streams_tables.py`. The first change of a group of a stream
  has the initial value in the place of the old one.
- *Times.* A group and a join have the latest time of all their records.
- *Groups of tables.* A row whose new key or value is None is in no group. A group that its last row has left remains,
  with the subtractor's result; while a total is None, no row is subtracted.
- *Clocks.* A punctuation by stream time is due after the first record, and after the record that reaches it. The stream
  time is the latest of all records of the task, also of those in topics between steps.
- *Windows.* A record is late, and a window closes, by the latest time of the records that the step has seen, of a
  cogroup for each stream by itself. A record
  without a value is in its windows. A session is late by its end, with the record in it; it is passed on again if it
  changes after it has closed. Aggregates that merge begin with the initial value.
- *Merge.* A stream that is merged with itself has each record once.
"""

from functools import partial
from typing import Any

from tests.streams_oracle.case import (
    GLOBAL,
    GLOBAL_JOINS,
    WINDOWED,
    Answer,
    Case,
    Step,
    by_key,
    inputs_of,
    is_table,
    routed,
)
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
    is_rekeyed,
    looked_up,
    pair_of,
    part_of,
    put,
    records_of,
    told_sum,
    transformed,
    value_of,
)
from tests.streams_oracle.streams_tables import Change, Node
from tests.streams_oracle.streams_topics import Schedules, Sent, Topics
from tests.streams_oracle.streams_windows import sessions, sliding, windows

__all__ = ["answer"]


def answer(case: Case) -> Answer:
    """What Kafka Streams makes of a case, by its rules."""
    model = Model(case.steps)
    for number, (topic, key, value, time) in enumerate(case.timed()):
        if topic == GLOBAL:
            put(model.shared, key, value)
        elif topic is None:
            model.advance(time)
        else:
            model.pipe(topic, key, value, time, number)
    stores = {
        number: {str(key): row[0] for key, row in (node.rows or {}).items()}
        for number, node in enumerate(model.nodes)
        if node.step.get("stored")
    }
    return Answer([by_key(routed(node.step, node.out)) for node in model.nodes], stores)  # type: ignore[arg-type]


class Model:
    """A topology that runs."""

    def __init__(self, steps: list[Step]) -> None:
        self.number = 0
        self.nodes: list[Node] = []
        self.sources: dict[str, Node] = {}
        self.shared: dict[str, int] = {}
        self.topics = Topics()
        self.stream_time, self.wall_clock = Schedules(), Schedules()
        self.rekeyed: list[bool] = []
        for number, step in enumerate(steps):
            self._add(steps, number, step)
        self.relaxed = {id(self.nodes[number]) for number in before_left_joins(steps)}

    def _add(self, steps: list[Step], number: int, step: Step) -> None:
        inputs = [self.nodes[of] for of in inputs_of(step)]
        node = Node(step, inputs, is_table(steps, number))
        for at, other in enumerate(inputs):
            looked_up = at and step["op"] in JOINS and not node.table
            if not looked_up and not (at and step["op"] == "merge" and other is inputs[0]):
                other.passes.append((node, at))
        if "shares" in step:
            node.rows = self.nodes[step["shares"]].rows
        self.nodes.append(node)
        self.rekeyed.append(is_rekeyed(steps, number))
        node.ask_inputs()
        if "every" in step:
            schedules = self.stream_time if step["by"] == "event time" else self.wall_clock
            first = 0 if step["by"] == "event time" else step["every"]
            schedules.add(step["every"], partial(self._flush, node), at=first)
        if "topic" in step:
            self.sources[step["topic"]] = node

    def pipe(self, topic: str, key: Key, value: Value, time: int, number: int) -> None:
        """Take a record, and all that it causes. The stream time is the latest of all records of the task."""
        self.number = number
        self._record(self.sources[topic], 0, key, value, time)
        self.stream_time.advance(time)
        self.topics.drain(self.stream_time.advance)

    def advance(self, by: int) -> None:
        """Let the wall clock advance."""
        self.wall_clock.advance(self.wall_clock.now + by)
        self.topics.drain(self.stream_time.advance)

    def _send(self, node: Node, name: str, take: Any, key: Key, data: Any, time: int) -> None:
        def taken(sent: Sent) -> None:
            self.number = sent.number
            take(sent.key, sent.data, sent.time)

        self.topics.send((id(node), name), taken, Sent(key, data, time, self.number))

    def _pass(self, node: Node, key: Key, value: Value, time: int, old: Value = None) -> None:
        """Write a record or a change, and let the steps below have it."""
        node.out.append((key, value, time, self.number))
        for below, at in node.passes:
            if node.table:
                self._change(below, at, key, Change(value, old), time)
            else:
                self._record(below, at, key, value, time)

    # Records of streams

    def _record(self, node: Node, at: int, key: Key, value: Value, time: int) -> None:
        step = node.step
        op = step["op"]
        if op in AGGREGATES:
            part = part_of(step, at)
            group = group_key(part, key, value)
            self._by_key(node, at, part["of"], group, value, time, "key" in part, self._fold)
        elif op in WINDOWED:
            group = group_key(step, key, value)
            self._by_key(node, at, inputs_of(step)[at], group, value, time, "key" in step, self._change_windows)
        elif op == "to_table":
            self._by_key(node, at, step["of"], key, value, time, False, self._put)
        elif op in JOINS:
            self._by_key(node, at, step["of"], key, value, time, False, self._join_record)
        elif op == "repartition":
            if key is not None or id(node) in self.relaxed:
                self._send(node, "", partial(self._pass, node), key, value, time)
        elif op == "table":
            self._put(node, at, key, value, time)
        elif op in PROCESSED:
            self._sum(node, key, value, time)
        elif op in GLOBAL_JOINS:
            for made in looked_up(step, key, value, self.shared):
                self._pass(node, key, made, time)
        else:
            for made in [(key, value)] if op in ("stream", "merge") else records_of(step, key, value):
                self._pass(node, *made, time)

    def _by_key(
        self, node: Node, at: int, of: int, key: Key, value: Value, time: int, regrouped: bool, then: Any
    ) -> None:
        """Call `then`; through a topic, if the keys are not those of the source."""
        if not regrouped and not self.rekeyed[of]:
            then(node, at, key, value, time)
        elif key is not None or (node.step["op"] == "left_join" and not node.table):
            self._send(node, str(at), partial(then, node, at), key, value, time)

    def _fold(self, node: Node, at: int, key: Key, value: Value, time: int) -> None:
        if key is None or value is None:
            return
        step = node.step
        part = part_of(step, at)
        row = node.look(key)
        total = row and row[0]
        if row:
            time = max(time, row[1])
        new = fold(step, part, total, value)
        node.put(key, new, time)
        start = {"count": 0, "reduce": None}.get(step["op"], step.get("start"))
        self._pass(node, key, new, time, (start if total is None else total) if node.old else None)

    def _sum(self, node: Node, key: Key, value: Value, time: int) -> None:
        if key is not None and value is not None:
            value += (node.look(key) or (0, 0))[0] or 0
            node.put(key, value, time)
            value = told_sum(node.step, key, value, self.shared)
        number, self.number = self.number, -1 if node.step.get("bare") else self.number
        if is_child(node.step, value):
            self._pass(node, key, value, time)
        self.number = number

    def _flush(self, node: Node, now: int) -> None:
        assert node.rows is not None
        if node.cancelled:
            return
        node.cancelled = node.step.get("once", False)
        self.number = -1
        sums = sorted((str(key), row[0]) for key, row in node.rows.items())
        node.rows.clear()
        for _, total in sums:
            self._pass(node, "sum", total, now)

    def _change_windows(self, node: Node, at: int, key: Key, value: Value, time: int) -> None:
        if key is not None:
            change = {"windowed": windows, "sessions": sessions, "sliding": sliding}[node.step["op"]]
            current = self.number
            for window, total, since, number in change(node, at, key, value, time, current):
                self.number = number
                self._pass(node, window, total, since)
            self.number = current

    def _put(self, node: Node, at: int, key: Key, value: Value, time: int) -> None:
        if key is None:
            return
        old = None
        if node.rows is not None:
            row = node.look(key)
            old = row[0] if row and node.old else None
            node.put(key, value, time)
        self._pass(node, key, value, time, old)

    def _join_record(self, node: Node, at: int, key: Key, value: Value, time: int) -> None:
        left = node.step["op"] == "left_join"
        if value is None or (key is None and not left):
            return
        row = None if key is None else node.inputs[1].look(key)
        if left or row:
            joined = value_of({**node.step, "op": "left_join"}, key, [value, row and row[0]])
            self._pass(node, key, joined, time)

    # Changes of tables

    def _change(self, node: Node, at: int, key: Key, change: Change, time: int) -> None:
        step = node.step
        op = step["op"]
        if op == "to_stream":
            self._pass(node, key, change.new, time)
        elif op in PROCESSED:
            self._sum(node, key, change.new, time)
        elif op == "transform_values":
            self._put(node, at, key, transformed(step, node.sums, key, change.new, self.shared), time)
        elif op in AGGREGATES:
            self._regroup(node, key, change, time)
        elif op in FOREIGN:
            (self._foreign if at else self._subscribe)(node, key, change, time)
        elif op in JOINS:
            self._join(node, at, key, change, time)
        else:
            self._derive(node, key, change, time)

    def _derive(self, node: Node, key: Key, change: Change, time: int) -> None:
        """A filter, or `map_values`."""
        new, old = value_of(node.step, key, [change.new]), None
        if node.old:
            row = node.look(key) if node.rows is not None else None
            old = value_of(node.step, key, [change.old]) if node.rows is None else row and row[0]
            if node.step["op"] != "map_values" and new is None and old is None:
                return
        if node.rows is not None:
            node.put(key, new, time)
        self._pass(node, key, new, time, old)

    def _join(self, node: Node, at: int, key: Key, change: Change, time: int) -> None:
        op = node.step["op"]
        row = node.inputs[1 - at].look(key)
        if row is None:
            if op == "join" or (op == "left_join" and at == 1) or change == (None, None):
                return
        else:
            time = max(time, row[1])

        def joined(value: Value) -> Value:
            other = row and row[0]
            return value_of(node.step, key, [other, value] if at else [value, other])

        new, old = joined(change.new), joined(change.old) if node.old else None
        if node.rows is not None:
            node.put(key, new, time)
        self._pass(node, key, new, time, old)

    def _regroup(self, node: Node, key: Key, change: Change, time: int) -> None:
        """Send a row to its group: one message, where the old row is in the same one."""
        old = None if change.old is None else pair_of(node.step, key, change.old)
        new = None if change.new is None else pair_of(node.step, key, change.new)
        old, new = (pair if pair and None not in pair else None for pair in (old, new))
        if old and new and old[0] == new[0]:
            messages = [(new[0], Change(new[1], old[1]))]
        else:
            messages = [(old[0], Change(None, old[1]))] if old else []
            messages += [(new[0], Change(new[1], None))] if new else []
        for group, row in messages:
            self._send(node, "", partial(self._fold_change, node), group, row, time)

    def _fold_change(self, node: Node, key: Key, change: Change, time: int) -> None:
        row, total, step = node.look(key), None, node.step
        if row:
            total = row[0]
            if change.old is not None:
                total = fold(step, step, total, change.old, undo=True)
            time = max(time, row[1])
        if change.new is not None:
            total = fold(step, step, total, change.new)
        node.put(key, total, time)
        self._pass(node, key, total, time, row[0] if row and node.old else None)

    # Joins by foreign key: a row asks for its other row through a topic, and is answered through another one. An answer
    # to a value that the row no longer has is dropped.

    def _subscribe(self, node: Node, key: Key, change: Change, time: int) -> None:
        find = KEYS[node.step["key"]]
        old, new = (None if value is None else find(key, value) for value in (change.old, change.new))

        def send(to: Key, kind: str) -> None:
            self._send(node, "ask", partial(self._ask_for, node), to, (key, change.new, kind), time)

        if node.step["op"] == "foreign_key_left_join":
            if change == (None, None):
                return
            if old is not None and old != new:
                send(old, "delete in silence")
            send(new, "answer")
        elif change.new is None or new is None:
            if old is not None:
                send(old, "delete")
        elif old is not None and old != new:
            send(old, "delete in silence")
            send(new, "answer")
        else:
            send(new, "answer if found")

    def _ask_for(self, node: Node, foreign: Key, message: tuple[Key, Value, str], time: int) -> None:
        key, value, kind = message
        if foreign is not None:
            node.subscribed.pop((foreign, key), None)
            if not kind.startswith("delete"):
                node.subscribed[foreign, key] = value
        row = None if foreign is None else node.inputs[1].look(foreign)
        time = max(time, row[1]) if row else time
        if kind == "delete":
            self._answer(node, key, (value, None), time)
        elif kind == "answer" or (kind == "answer if found" and row):
            self._answer(node, key, (value, row and row[0]), time)

    def _foreign(self, node: Node, foreign: Key, change: Change, time: int) -> None:
        for (wanted, key), value in sorted(node.subscribed.items()):
            if wanted == foreign:
                self._answer(node, key, (value, change.new), time)

    def _answer(self, node: Node, key: Key, values: tuple[Value, Value], time: int) -> None:
        self._send(node, "answer", partial(self._answered, node), key, values, time)

    def _answered(self, node: Node, key: Key, values: tuple[Value, Value], time: int) -> None:
        row = node.inputs[0].look(key)
        if (row and row[0]) == values[0]:
            self._put(node, 0, key, value_of(node.step, key, values), time)
