"""What each step computes, by either engine's rules: these differ only in when a change is passed on, and what it says.

A table's value is a function of the values of its key in the tables that it is made of. A stream's step is a function
of one record. A fold adds a value to a group's total, or takes it away.
"""

from collections.abc import Mapping, Sequence

from tests.streams_oracle.case import GLOBAL_JOINS, WINDOWED, Step, inputs_of, is_even, is_table
from tests.streams_oracle.functions import KEYS, PAIRS, TESTS, VALUES, Key, Value

__all__ = [
    "AGGREGATES",
    "FOREIGN",
    "JOINS",
    "PROCESSED",
    "before_left_joins",
    "fold",
    "group_key",
    "is_child",
    "is_rekeyed",
    "joined",
    "looked_up",
    "merged",
    "pair_of",
    "part_of",
    "put",
    "records_of",
    "session_key",
    "told_sum",
    "transformed",
    "value_of",
    "window_key",
    "windows_of",
]

AGGREGATES = ("count", "reduce", "aggregate", "cogroup")
JOINS = ("join", "left_join", "outer_join")
PROCESSED = ("process", "process_values")
FOREIGN = ("foreign_key_join", "foreign_key_left_join")


def records_of(step: Step, key: Key, value: Value) -> list[tuple[Key, Value]]:
    """The records that a stream's step without state makes of a record."""
    match step["op"]:
        case "filter":
            return [(key, value)] if TESTS[step["f"]](key, value) else []
        case "filter_not":
            return [] if TESTS[step["f"]](key, value) else [(key, value)]
        case "map_values":
            return [(key, VALUES[step["f"]](key, value))]
        case "map":
            return [pair_of(step, key, value)]
        case "select_key":
            return [(KEYS[step["key"]](key, value), value)]
        case "flat_map":
            return [pair_of(part, key, value) for part in step["parts"] if TESTS[part["f"]](key, value)]
        case "flat_map_values":
            made = [pair_of(part, key, value) for part in step["parts"] if TESTS[part["f"]](key, value)]
            return [(key, value) for _, value in made]
        case "split":
            default = len(step["tests"])
            taken = [number for number, test in enumerate(step["tests"]) if TESTS[test](key, value)]
            return [(key, value)] if min([*taken, default]) == step["take"] else []
    return [(key, value)]


def looked_up(step: Step, key: Key, value: Value, table: Mapping[str, int]) -> list[Value]:
    """The values that a join with a global table makes of a record: one or none."""
    at = KEYS[step["key"]](key, value)
    other = None if at is None else table.get(at)
    if value is None or (other is None and step["op"] == "global_join"):
        return []
    return [joined(step, key, value, other)]


def joined(step: Step, key: Key, one: Value, other: Value) -> Value:
    """The value of a join, by a joiner that may have the key."""
    value = PAIRS[step["f"]](one, other)
    return VALUES["plus_key"](key, value) if step.get("keyed") else value


def told_sum(step: Step, key: Key, total: Value, table: Mapping[str, int]) -> Value:
    """A sum as a processor forwards it."""
    if not step.get("looks") or key is None or total is None:
        return total
    return total + table.get(key, 0)


def transformed(step: Step, sums: dict[Key, int], key: Key, value: Value, table: Mapping[str, int]) -> Value:
    """The value that a table's transformer makes of a row, or of None, and adds to its sums."""
    if value is None:
        return None
    sums[key] = sums.get(key, 0) + value
    return told_sum(step, key, sums[key], table)


def is_child(step: Step, value: Value) -> bool:
    """Whether a processor passes a sum on to the child that the step is."""
    return "child" not in step or is_even(value) is (step["child"] == 0)


def value_of(step: Step, key: Key, values: Sequence[Value]) -> Value:
    """The value of a key in a table without groups, from its values in the tables that it is made of."""
    value = values[0]
    match step["op"]:
        case "filter" | "filter_not":
            kept = value is not None and TESTS[step["f"]](key, value) is (step["op"] == "filter")
            return value if kept else None
        case "map_values":
            return None if value is None else VALUES[step["f"]](key, value)
        case "join" | "foreign_key_join":
            missing = None in values
        case "left_join" | "foreign_key_left_join":
            missing = value is None
        case _:
            missing = value is None and values[1] is None
    return None if missing else joined(step, key, *values)


def put(table: dict[str, int], key: Key, value: Value) -> None:
    """A record of a global table's topic."""
    if key is not None and value is not None:
        table[key] = value
    elif key is not None:
        table.pop(key, None)


def pair_of(step: Step, key: Key, value: Value) -> tuple[Key, Value]:
    """A key and a value of `map`, `flat_map` and a table's `group_by`."""
    return KEYS[step["key"]](key, value), VALUES[step["value"]](key, value)


def part_of(step: Step, at: int) -> Step:
    """The part of a step that folds the records of its input with this number."""
    if step["op"] == "cogroup":
        return step["parts"][at]  # type: ignore[no-any-return]
    return {**step, "f": step["g"]} if at else step


def group_key(part: Step, key: Key, value: Value) -> Key:
    """The group of a stream's record."""
    return KEYS[part["key"]](key, value) if "key" in part else key


def fold(step: Step, part: Step, total: Value, value: Value, *, undo: bool = False) -> Value:
    """The next total of a group; None is the total of a new one. `part` is the step, or its part in a cogroup."""
    op = step.get("fold", step["op"])
    if op == "count":
        return (total or 0) + (-1 if undo else 1)
    if op == "reduce" and total is None:
        return value
    return PAIRS[part["undo" if undo else "f"]](step["start"] if total is None else total, value)


def windows_of(step: Step, time: int) -> list[int]:
    """The starts of the windows that a time is in: the multiples of `advance` from 0 on."""
    size, advance = step["size"], step["advance"]
    first = max(0, time - size + advance) // advance * advance
    return [*range(first, time + 1, advance)]


def window_key(step: Step, key: str, start: int) -> str:
    """A key and a window as one key: as text, or the bytes of both in a topic, in hexadecimal."""
    if step.get("bytes"):
        return (key.encode() + start.to_bytes(8, "big")).hex()
    return f"{key}@{start}-{start + step['size']}"


def merged(step: Step, total: Value, later: Value) -> Value:
    """The total of two sessions that are one."""
    if step["fold"] == "count":
        return (total or 0) + (later or 0)
    if step["fold"] == "reduce" and total is None:
        return later
    return PAIRS[step["f" if step["fold"] == "reduce" else "merge"]](total, later)


def session_key(step: Step, key: str, start: int, end: int) -> str:
    """A key and a session as one key: as text, or the bytes of both in a topic, in hexadecimal."""
    if step.get("bytes"):
        return (key.encode() + end.to_bytes(8, "big") + start.to_bytes(8, "big")).hex()
    return f"{key}@{start}-{end}"


def before_left_joins(steps: list[Step]) -> set[int]:
    """The steps whose records a left join with a table takes later: a repartition there keeps null keys (KIP-962)."""
    found: set[int] = set()
    for number, step in reversed([*enumerate(steps)]):
        joins_records = step["op"] in JOINS and not is_table(steps, number)
        if number in found or (joins_records and step["op"] == "left_join") or step["op"] == "global_left_join":
            found.update(inputs_of(step)[:1] if joins_records else inputs_of(step))
    return found


def is_rekeyed(steps: list[Step], number: int) -> bool:
    """Whether records may have other keys than in the topic that they were read from."""
    op = steps[number]["op"]
    if op in ("map", "flat_map", "select_key", "process", *WINDOWED):
        return True
    keeps = ("filter", "filter_not", "map_values", "flat_map_values", "split", "merge", "process_values", *GLOBAL_JOINS)
    return op in keeps and any(is_rekeyed(steps, of) for of in inputs_of(steps[number]))
