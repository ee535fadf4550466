"""A case: a topology as data, and records. An answer: the records of each step by key, and the rows of its stores.

A step is a dict: `op` is the name of a method of the DSL, `of` and `with` are the numbers of earlier steps, `f`, `key`,
`value` and `undo` the names of functions. `stored` says that Kafka Streams keeps the table in a store; eddy decides
that by itself. `timed` sources have a function of event times. A processor that is `bare` forwards no headers, one that
`shares` has the store of that step, one with a `child` forwards even sums to its child 0 and others to its child 1, of
which it is the one; `once`: it cancels its schedule when it is called. A `keyed` joiner has the key. A windowed cogroup
may have a second stream, `with`, whose records are folded by `g`. The records of a `routed` step are written to a topic
of even values and to one of others, by a function. An input record is (topic, key, value, time in ms); without a topic
the wall clock advances by the time. The topic `GLOBAL` is that of a global table, which all steps of `GLOBAL_JOINS`
look up, and processors that do: they add its value to a sum that they forward. If they are `maintained`, the table's
rows are those that a processor of its own puts into a store.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.streams_oracle.functions import Key, Value, event_time

__all__ = [
    "Answer",
    "Case",
    "Input",
    "Output",
    "Step",
    "by_key",
    "inputs_of",
    "is_even",
    "is_table",
    "reads_global_table",
    "routed",
]

Step = dict[str, Any]
Input = tuple[str | None, Key, Value, int]
Output = tuple[Value, int, int]
"""Value, time, and the number of the input record whose headers it has; -1 without headers."""

GLOBAL = "g"
GLOBAL_JOINS = ("global_join", "global_left_join")
WINDOWED = ("windowed", "sessions", "sliding")
ROUTES = ("out", "odd")
MAKE_STREAMS = ("stream", "to_stream", "process", "process_values", *WINDOWED)
MAKE_TABLES = ("table", "to_table", "count", "reduce", "aggregate", "cogroup", "transform_values")


class Case(NamedTuple):
    """A topology and its input."""

    steps: list[Step]
    records: list[Input]

    def timed(self) -> list[Input]:
        """The records with their event times: of a source's own function, where it has one."""
        own = {step["topic"] for step in self.steps if step.get("timed")}
        return [
            (topic, key, value, event_time(key, value) if topic in own and value is not None else time)
            for topic, key, value, time in self.records
        ]


class Answer(NamedTuple):
    """What an engine makes of a case: of each step the records by key, in their order; rows of stores by step."""

    out: list[dict[Key, list[Output]]]
    stores: dict[int, dict[str, int]]


def routed(step: Step, records: list[tuple[Key, Value, int, int]]) -> list[tuple[Key, Value, int, int]]:
    """The records of a step as they are read from its topics, one topic after the other."""
    return sorted(records, key=lambda record: not is_even(record[1])) if step.get("routed") else records


def is_even(value: Value) -> bool:
    """Whether a value goes to the first of two topics or children."""
    return value is not None and value % 2 == 0


def by_key(records: Iterable[tuple[Key, Value, int, int]]) -> dict[Key, list[Output]]:
    """The records of each key in their order."""
    found: dict[Key, list[Output]] = {}
    for key, value, time, number in records:
        found.setdefault(key, []).append((value, time, number))
    return found


def is_table(steps: list[Step], number: int) -> bool:
    """Whether the result of a step is a table."""
    op = steps[number]["op"]
    if op in MAKE_TABLES or op in MAKE_STREAMS:
        return op in MAKE_TABLES
    return is_table(steps, steps[number]["of"])


def reads_global_table(step: Step) -> bool:
    """Whether a step looks rows of the global table up."""
    return step["op"] in GLOBAL_JOINS or step.get("looks", False)


def inputs_of(step: Step) -> list[int]:
    """The numbers of the steps that a step reads."""
    if step["op"] == "cogroup":
        return [part["of"] for part in step["parts"]]
    return [step[side] for side in ("of", "with") if side in step]
