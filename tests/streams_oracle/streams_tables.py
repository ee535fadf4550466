"""The tables of Kafka Streams: which of them have a store, and which know the old value of a change.

A table without a store computes a row from those that it is made of, when a join looks it up.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.streams_oracle.case import Step
from tests.streams_oracle.functions import Key, Value
from tests.streams_oracle.meaning import AGGREGATES, FOREIGN, JOINS, value_of

__all__ = ["Change", "Node"]


class Change(NamedTuple):
    """Of a table."""

    new: Value
    old: Value


Found = tuple[Value, int]
"""A row of a table: value and time."""


class Node:
    """A step. `passes` are the steps below, each with the number of the input that this step is to it."""

    def __init__(self, step: Step, inputs: list[Node], table: bool) -> None:
        self.step, self.inputs, self.table = step, inputs, table
        self.passes: list[tuple[Node, int]] = []
        self.out: list[tuple[Key, Value, int, int]] = []
        self.old = self.asked = self.cancelled = False
        self.rows: dict[Key, Found] | None = {} if step.get("stored") or step["op"] in AGGREGATES else None
        self.sums: dict[Key, int] = {}
        self.windows: dict[tuple[int, str], tuple[Value, int]] = {}
        self.emitted: set[tuple[int, str]] = set()
        self.suppressed: dict[tuple[int, str], tuple[Value, int, int]] = {}
        self.sessions: dict[tuple[int, str, int], Value] = {}
        self.held: dict[tuple[int, str, int], Value] = {}
        self.latest: dict[int, int] = {}
        self.latest_change = self.closed = -1
        self.subscribed: dict[tuple[Key, Key], Value] = {}

    @property
    def is_source(self) -> bool:
        """Whether it is a table of records as they are."""
        return self.step["op"] in ("table", "to_table", *FOREIGN)

    def ask_inputs(self) -> None:
        """Let the inputs have stores and old values where the step needs them."""
        op, inputs = self.step["op"], self.inputs
        if not self.table:
            if op in JOINS:
                inputs[1].keep()
            return
        if not inputs or not inputs[0].table:
            return
        if op in ("filter", "filter_not"):
            self.old = inputs[0].ask_for_old(False)
        elif op in JOINS:
            if op != "join":
                inputs[0].ask_for_old(True)
            if op == "outer_join":
                inputs[1].ask_for_old(True)
            for table in inputs:
                table.keep()
        elif op in FOREIGN:
            inputs[1].ask_for_old(True)
            inputs[0].ask_for_old(True)
        elif op in AGGREGATES:
            inputs[0].ask_for_old(True)

    def ask_for_old(self, force: bool) -> bool:
        """Let it have old values in its changes, if it may; `force` lets a source have a store for them."""
        if self.asked:
            return True
        op = self.step["op"]
        if self.is_source:
            if not force and self.rows is None:
                return False
            self.keep()
        elif op in JOINS:
            for node in self.inputs:
                node.ask_for_old(True)
        elif op not in AGGREGATES and self.rows is None and not self.inputs[0].ask_for_old(force):
            return self.old
        self.old = self.asked = True
        return True

    def keep(self) -> None:
        """Let a source be looked into."""
        if self.is_source:
            if self.rows is None:
                self.rows = {}
        elif self.rows is None:
            for node in self.inputs:
                node.keep()

    def look(self, key: Key) -> Found | None:
        """The row of a key."""
        if self.rows is not None:
            return self.rows.get(key)
        found = [node.look(key) for node in self.inputs]
        value = value_of(self.step, key, [row and row[0] for row in found])
        return None if value is None else (value, max(row[1] for row in found if row))

    def put(self, key: Key, value: Value, time: int) -> None:
        assert self.rows is not None
        self.rows.pop(key, None)
        if value is not None:
            self.rows[key] = value, time
