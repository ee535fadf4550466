"""The steps of eddy's model, with what an epoch has made of each."""

from typing import NamedTuple

from tests.streams_oracle.case import Step
from tests.streams_oracle.functions import Key, Value
from tests.streams_oracle.meaning import JOINS

__all__ = ["NO_HEADERS", "Epoch", "Node", "Record"]


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
        self.cancelled = False
        self.event_times: dict[str, int] = {}
        self.sessions: dict[tuple[str, int, int], Value] = {}
        self.sums: dict[Key, int] = {}
        self.windows: dict[tuple[int, str], Value] = {}
        self.gone: set[tuple[int, str]] = set()
        self.slid: list[tuple[str, int, int, int]] = []
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
        joins_records = self.step["op"] in JOINS and not self.table
        return own.union(*(node.topics for node in (self.inputs[:1] if joins_records else self.inputs)))


class Epoch(NamedTuple):
    """A record of a topic; or, without a topic, the wall clock has advanced from one time to another."""

    topic: str | None
    records: list[Record]
    time: int
    before: int = 0
