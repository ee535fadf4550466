"""Random cases: topologies of the steps that both engines have; records that are late, repeated and without parts."""

import random
from typing import Any

from tests.streams_oracle.case import (
    GLOBAL,
    GLOBAL_JOINS,
    WINDOWED,
    Case,
    Input,
    Step,
    inputs_of,
    is_table,
    reads_global_table,
)
from tests.streams_oracle.functions import KEYS, TESTS, VALUES
from tests.streams_oracle.meaning import PROCESSED, is_rekeyed

__all__ = ["case"]

JOINERS = ("first", "last", "plus", "mix", "none_if_equal")
FOLDS = ("last", "plus", "mix", "none_if_equal")
INVERSE = {"plus": "minus", "plus_or_none": "minus_or_none", "xor_or_none": "xor_or_none"}
TOPICS = "abc"

OF_STREAM = (
    "filter", "filter_not", "map", "map_values", "flat_map", "flat_map_values", "select_key", "merge", "split",
    "process", "process_values", "repartition", "count", "reduce", "aggregate", "cogroup", "to_table",
    "join", "left_join", "windowed", "windowed", "sessions", "sessions", "sliding", "sliding",
    "global_join", "global_left_join",
)  # fmt: skip
WITHOUT_STATE = ("filter", "filter_not", "map", "map_values", "flat_map", "flat_map_values", "select_key", "split")
OF_TABLE = (
    "filter", "filter_not", "map_values", "to_stream", "count", "reduce", "aggregate", "join", "left_join",
    "outer_join", "foreign_key_join", "foreign_key_left_join", "process", "process_values", "transform_values",
)  # fmt: skip


def case(seed: int) -> Case:
    """The case of a seed."""
    dice = random.Random(seed)
    steps: list[Step] = []
    for topic in TOPICS[: dice.randint(1, 3)]:
        table = dice.random() < 0.5
        source: Step = {"op": "table", "stored": dice.random() < 0.5} if table else {"op": "stream"}
        steps.append({**source, "topic": topic, "timed": dice.random() < 0.3})
    topics = [step["topic"] for step in steps]
    for _ in range(dice.randint(1, 6)):
        steps.append(_step(dice, steps))
    for number, step in enumerate(steps):
        if dice.random() < 0.2 and not is_table(steps, number):
            step["routed"] = True
    reading = [step for step in steps if reads_global_table(step)]
    if reading:
        topics.append(GLOBAL)
        if dice.random() < 0.5 and not any(step["op"] in GLOBAL_JOINS for step in reading):
            for step in reading:
                step["maintained"] = True
    clock = any(step.get("by") == "wall clock" for step in steps)
    return Case(steps, [_record(dice, topics, clock) for _ in range(dice.randint(1, 16))])


def _record(dice: random.Random, topics: list[str], clock: bool) -> Input:
    if clock and dice.random() < 0.3:
        return None, None, None, dice.randrange(0, 60, 10)
    key = None if dice.random() < 0.1 else dice.choice("aabbc")
    value = None if dice.random() < 0.2 else dice.choice((0, 1, 2, 3, 4, 7))
    return dice.choice(topics), key, value, dice.randrange(0, 100, 10)


def _step(dice: random.Random, steps: list[Step]) -> Step:
    """A step after those that there are."""
    of = dice.randrange(len(steps))
    tables = [number for number in range(len(steps)) if is_table(steps, number)]
    streams = [number for number in range(len(steps)) if not is_table(steps, number)]
    if of in tables:
        return _of_table(dice, steps, of, tables)
    return _of_stream(dice, steps, of, streams, tables)


def _of_stream(dice: random.Random, steps: list[Step], of: int, streams: list[int], tables: list[int]) -> Step:
    ops = [op for op in OF_STREAM if tables or op not in ("join", "left_join")]
    if not are_records_of_sources(steps, of):
        ops = [op for op in ops if op not in WINDOWED]
    if has_closing_windows(steps, of):
        ops = [op for op in ops if op in WITHOUT_STATE]
    op = dice.choice(ops)
    streams = [number for number in streams if not has_closing_windows(steps, number)]
    step: Step = {"op": op, "of": of}
    match op:
        case "merge":
            step["with"] = dice.choice(streams)
        case "windowed" | "sliding" | "sessions":
            step |= _windows(dice, op)
            others = [number for number in streams if are_records_of_sources(steps, number)]
            if step["fold"] == "cogroup" and dice.random() < 0.7:
                step |= {"with": dice.choice(others), "g": "plus" if op == "sliding" else dice.choice(FOLDS)}
        case "global_join" | "global_left_join":
            step |= {"f": dice.choice(JOINERS), "key": dice.choice([*KEYS]), "keyed": dice.random() < 0.3}
        case "process" | "process_values":
            step |= _processor(dice, steps, of, op)
        case "to_table":
            step["stored"] = dice.random() < 0.5
        case "join" | "left_join":
            step |= {"with": dice.choice(tables), "f": dice.choice(JOINERS), "keyed": dice.random() < 0.3}
        case "cogroup":
            step = {"op": op, "stored": True, "start": dice.randrange(2)}
            groups = dice.sample(streams, min(len(streams), dice.randint(1, 2)))
            step["parts"] = [{"of": group, "f": dice.choice(FOLDS), **_maybe_key(dice)} for group in groups]
        case "count" | "reduce" | "aggregate":
            step |= {"f": dice.choice(FOLDS), "start": dice.randrange(2), "stored": True, **_maybe_key(dice)}
        case _:
            step |= _without_state(dice, op)
    return step


def _without_state(dice: random.Random, op: str) -> dict[str, Any]:
    match op:
        case "filter" | "filter_not":
            return {"f": dice.choice([*TESTS])}
        case "map_values":
            return {"f": dice.choice([*VALUES])}
        case "map":
            return _pair(dice)
        case "select_key":
            return {"key": dice.choice([*KEYS])}
        case "flat_map" | "flat_map_values":
            return {"parts": [{"f": dice.choice([*TESTS]), **_pair(dice)} for _ in range(dice.randint(1, 3))]}
        case "split":
            return {"tests": dice.sample([*TESTS], 2), "take": dice.randrange(3)}
    return {}


def _of_table(dice: random.Random, steps: list[Step], of: int, tables: list[int]) -> Step:
    mixed = any(has_mixed_headers(steps, number) for number in tables)
    op = dice.choice([op for op in OF_TABLE if not (mixed and op.startswith("foreign"))])
    step: Step = {"op": op, "of": of}
    match op:
        case "filter" | "filter_not":
            step |= {"f": dice.choice([*TESTS]), "stored": dice.random() < 0.5}
        case "map_values":
            step |= {"f": dice.choice([*VALUES]), "stored": dice.random() < 0.5}
        case "join" | "left_join" | "outer_join":
            step |= {"with": dice.choice(tables), "f": dice.choice(JOINERS), "stored": dice.random() < 0.5}
        case "process" | "process_values":
            step |= _processor(dice, steps, of, op)
        case "transform_values":
            step |= {"looks": dice.random() < 0.3, "stored": True}
        case "foreign_key_join" | "foreign_key_left_join":
            step |= {
                "with": dice.choice(tables),
                "f": dice.choice(JOINERS),
                "key": dice.choice([*KEYS]),
                "stored": True,
            }
        case "count" | "reduce" | "aggregate":
            # A total of None is begun anew by a row that is the same again, which the rules of eddy do not follow.
            adder = "plus" if op == "reduce" else dice.choice([*INVERSE])
            step |= {"f": adder, "undo": INVERSE[adder], "start": 0, "stored": True, **_pair(dice)}
    return step


def _windows(dice: random.Random, op: str) -> dict[str, Any]:
    size = dice.choice((10, 20, 30))
    kind: dict[str, Any] = {}
    if op == "sessions":
        kind = {"gap": dice.choice((5, 10, 20)), "merge": dice.choice(("plus", "mix", "last"))}
    elif op == "sliding":
        kind["f"] = "plus"  # a window that is made later has the records before it in the order of time
    fold = dice.choice(("count", "reduce", "aggregate", "cogroup"))
    return {
        "size": size,
        "advance": dice.choice((size, 10, 15)) if size > 10 else size,
        "grace": dice.choice((0, 10, 40)),
        "emit": dice.choice(("update", "suppress") if fold == "cogroup" else ("update", "close", "suppress")),
        "fold": fold,
        "f": dice.choice(FOLDS),
        "start": dice.randrange(2),
        "bytes": dice.random() < 0.2,
        **_maybe_key(dice),
        **kind,
    }


def _processor(dice: random.Random, steps: list[Step], of: int, op: str) -> dict[str, Any]:
    """A processor with a store of its own, or with that of another one; perhaps with two children."""
    own = [number for number, step in enumerate(steps) if step["op"] in PROCESSED and "shares" not in step]
    store = {"shares": dice.choice(own)} if own and dice.random() < 0.4 else {"stored": True}
    child = {"child": dice.randrange(2)} if dice.random() < 0.3 else {}
    schedule = _schedule(dice, steps, of) if op == "process" else {}
    return {"bare": dice.random() < 0.3, "looks": dice.random() < 0.3, **store, **child, **schedule}


def _schedule(dice: random.Random, steps: list[Step], of: int) -> dict[str, Any]:
    """No schedule, or one by a clock that there is: event time needs the records of a source's topic."""
    clocks = ["", "wall clock", *(["event time"] if _is_of_a_source(steps, of) else [])]
    clock = dice.choice(clocks)
    return {"every": dice.choice((10, 25)), "by": clock, "once": dice.random() < 0.3} if clock else {}


def _is_of_a_source(steps: list[Step], of: int) -> bool:
    op = steps[of]["op"]
    if op in ("filter", "filter_not", "map_values", "flat_map_values", "split"):
        return _is_of_a_source(steps, steps[of]["of"])
    return bool(op == "stream")


def has_mixed_headers(steps: list[Step], of: int) -> bool:
    """Whether records with and without headers may be in one epoch: of a punctuation, or of a processor."""
    step = steps[of]
    mixed = step.get("by", "") == "event time" or step.get("bare", False)
    return mixed or any(has_mixed_headers(steps, number) for number in inputs_of(step))


def are_records_of_sources(steps: list[Step], of: int) -> bool:
    """Whether a stream has nothing but records of sources, in their partitions: windows need these."""
    op = steps[of]["op"]
    if op == "merge" or op in (*WITHOUT_STATE, *GLOBAL_JOINS):
        return all(are_records_of_sources(steps, number) for number in inputs_of(steps[of]))
    if op in ("join", "left_join") and not is_table(steps, of):
        return not is_rekeyed(steps, steps[of]["of"]) and are_records_of_sources(steps, steps[of]["of"])
    return bool(op == "stream")


def has_closing_windows(steps: list[Step], of: int) -> bool:
    """Whether records may have the times of windows that close: one epoch may have several then."""
    made = inputs_of(steps[of])
    return steps[of].get("emit", "update") != "update" or any(has_closing_windows(steps, number) for number in made)


def _pair(dice: random.Random) -> dict[str, str]:
    return {"key": dice.choice([*KEYS]), "value": dice.choice([*VALUES])}


def _maybe_key(dice: random.Random) -> dict[str, str]:
    return {"key": dice.choice([*KEYS])} if dice.random() < 0.5 else {}
