"""A case in eddy: each step of it by the method of the DSL of that name. `Interpreter.java` does so in Kafka Streams.

The result of step n is written to the topic `out<n>`, its table is called `s<n>`.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import eddy
from tests.streams_oracle.case import GLOBAL, GLOBAL_JOINS, ROUTES, Answer, Case, Step, by_key, is_even
from tests.streams_oracle.functions import KEYS, PAIRS, TESTS, VALUES, Key, Value, event_time
from tests.streams_oracle.meaning import joined
from tests.streams_oracle.processors import Sums
from tests.streams_oracle.store_operations import StoreOperations

__all__ = ["answer"]

SERDES: dict[str, Any] = {"key": eddy.String, "value": eddy.Int64}
Pairs = list[tuple[Key, Value]]


def answer(case: Case) -> Answer:
    """The records that eddy writes, each record of the input in an epoch of its own, and its tables at the end."""
    topology, named = build(case.steps)
    with eddy.TopologyTestDriver(topology) as driver:
        for number, (topic, key, value, time) in enumerate(case.records):
            if topic is None:
                driver.advance_wall_clock_time(timedelta(milliseconds=time))
            else:
                driver.input(topic).pipe(key, value, time, (("n", b"%d" % number),))
        out = []
        for number, step in enumerate(case.steps):
            topics = [f"{route}{number}" for route in (ROUTES if step.get("routed") else ROUTES[:1])]
            records = [record for topic in topics for record in driver.output(topic).read_records()]
            out.append(by_key((r.key, r.value, r.timestamp_ms, int(dict(r.headers).get("n", b"-1"))) for r in records))
        return Answer(out, {number: dict(driver.store(f"s{number}").all()) for number in named})


def build(steps: list[Step]) -> tuple[eddy.Topology, list[int]]:
    """The topology, and the numbers of the steps whose table has a store."""
    topology = eddy.Topology("case")
    made: list[Any] = []
    named = []
    for number, step in enumerate(steps):
        result = _make(topology, made, step, number)
        if step.get("routed"):
            topics = [f"{route}{number}" for route in ROUTES]
            result.to(_route(topics), **SERDES, topics=topics)
        else:
            result.to(f"out{number}", **SERDES)
        made.append(result)
        if step["op"] in STORED and "shares" not in step:
            named.append(number)
    return topology, named


def _route(topics: list[str]) -> Callable[[Key, Value], str]:
    return lambda key, value: topics[not is_even(value)]


STORED = (
    *("table", "to_table", "count", "reduce", "aggregate", "cogroup"),
    *("process", "process_values", "transform_values"),
)


def _make(topology: eddy.Topology, made: list[Any], step: Step, number: int) -> Any:
    match step["op"]:
        case "stream":
            return topology.stream(step["topic"], **SERDES, timestamp=event_time if step.get("timed") else None)
        case "table":
            timestamp = event_time if step.get("timed") else None
            return topology.table(step["topic"], **SERDES, name=f"s{number}", timestamp=timestamp)
        case "cogroup":
            return _cogroup(made, step, f"s{number}")
    of = made[step["of"]]
    if step["op"] in GLOBAL_JOINS:
        return _looked_up(topology, of, step, f"s{number}")
    if step["op"] == "operations":
        return _operating(topology, of, step, f"s{number}")
    if step["op"] == "transform_values":
        return _transformed(topology, of, step, f"s{number}")
    if step["op"].startswith("process"):
        return _processed(topology, of, step, f"s{number}")
    return (_of_table if isinstance(of, eddy.KTable) else _of_stream)(made, of, step, f"s{number}")


def _processed(topology: eddy.Topology, of: Any, step: Step, name: str) -> Any:
    store = f"s{step['shares']}" if "shares" in step else name
    if store == name:
        topology.store(name, **SERDES)
    stores = [store]
    if step.get("looks"):
        _global_table(topology)
        stores.append(GLOBAL)
    children = ["c0", "c1"] if "child" in step else None
    factory = lambda: Sums(store, step, children)  # noqa: E731
    if step["op"] == "process":
        made = of.process(factory, stores, f"p{name}", **SERDES, children=children)
    else:
        made = of.process_values(factory, stores, f"p{name}", value=eddy.Int64, children=children)
    return made if children is None else made[children[step["child"]]]


def _transformed(topology: eddy.Topology, of: Any, step: Step, name: str) -> Any:
    """A table's transformer is a processor, whose records are a table again."""
    topology.store(f"q{name}", **SERDES)
    stores = [f"q{name}"]
    if step.get("looks"):
        _global_table(topology)
        stores.append(GLOBAL)
    factory = lambda: Sums(f"q{name}", step, None)  # noqa: E731
    return of.process_values(factory, stores, f"p{name}", value=eddy.Int64).to_table(name)


def _operating(topology: eddy.Topology, of: Any, step: Step, name: str) -> Any:
    size, retention = (timedelta(milliseconds=step[part]) for part in ("size", "retention"))
    sized = {"size": size} if step["kind"] == "window" else {}
    topology.store(name, **SERDES, kind=step["kind"], retention=retention, **sized)
    topology.store(f"{name}-calls", **SERDES)
    factory = lambda: StoreOperations(name, step["kind"], step["every"])  # noqa: E731
    return of.process(factory, [name, f"{name}-calls"], f"p{name}", **SERDES)


def _looked_up(topology: eddy.Topology, of: Any, step: Step, name: str) -> Any:
    table = _global_table(topology)
    join = of.join if step["op"] == "global_join" else of.left_join
    return join(table, _joiner(step), name=name, value=eddy.Int64, select=KEYS[step["key"]])


def _global_table(topology: eddy.Topology) -> Any:
    """One table for all steps."""
    node = next(topology.plan.global_tables(), None)
    builder = topology._builder  # private: the table of an earlier step
    return topology.global_table(GLOBAL, **SERDES) if node is None else eddy.GlobalKTable(builder, node)


def _joiner(step: Step) -> Any:
    if not step.get("keyed"):
        return PAIRS[step["f"]]
    return lambda key, one, other: joined(step, key, one, other)


def _of_stream(made: list[Any], of: Any, step: Step, name: str) -> Any:
    match step["op"]:
        case "merge":
            return of.merge(made[step["with"]])
        case "windowed" | "sessions" | "sliding":
            return _windowed(made, of, step, name)
        case "repartition":
            return of.repartition(name=name)
        case "to_table":
            return of.to_table(name)
        case "join" | "left_join":
            return getattr(of, step["op"])(made[step["with"]], _joiner(step), name=name, value=eddy.Int64)
        case "near" | "left_near" | "outer_near":
            return _near(made, of, step, name)
        case "as_of" | "left_as_of":
            join = of.join if step["op"] == "as_of" else of.left_join
            span = {part: timedelta(milliseconds=step.get(part, 0)) for part in ("history", "grace")}
            return join(made[step["with"]], PAIRS[step["f"]], eddy.AsOf(**span), eddy.Int64, name=name)
        case "count" | "reduce" | "aggregate":
            return _fold(_group(of, step), step["op"], step, name)
    return _without_state(of, step)


def _near(made: list[Any], of: Any, step: Step, name: str) -> Any:
    """A join of two streams in time."""
    span = {part: timedelta(milliseconds=step[part]) for part in ("before", "after", "grace")}
    join = {"near": of.join, "left_near": of.left_join, "outer_near": of.outer_join}[step["op"]]
    return join(made[step["with"]], PAIRS[step["f"]], eddy.JoinWindows(**span), eddy.Int64, name=name)


def _without_state(of: Any, step: Step) -> Any:
    match step["op"]:
        case "filter" | "filter_not":
            return getattr(of, step["op"])(TESTS[step["f"]])
        case "map_values":
            return of.map_values(VALUES[step["f"]], value=eddy.Int64)
        case "map":
            return of.map(_pair(step), **SERDES)
        case "select_key":
            return of.select_key(KEYS[step["key"]], key=eddy.String)
        case "flat_map":
            return of.flat_map(_pairs(step), **SERDES)
        case "flat_map_values":
            pairs = _pairs(step)
            return of.flat_map_values(lambda key, value: [v for _, v in pairs(key, value)], value=eddy.Int64)
    branches = {f"b{number}": TESTS[test] for number, test in enumerate(step["tests"])}
    branches[f"b{len(branches)}"] = lambda key, value: True
    return of.split(**branches)[f"b{step['take']}"]


def _windowed(made: list[Any], of: Any, step: Step, name: str) -> Any:
    """A stream of the changes of a windowed fold: a key "k" and its window are the key "k@start-end", or its bytes."""
    span = {part: timedelta(milliseconds=step[part]) for part in ("size", "advance", "gap", "grace") if part in step}
    if step["op"] == "windowed":
        windows: Any = eddy.TimeWindows(span["size"], span["advance"], span["grace"])
        encode = eddy.TimeWindowed(eddy.String, span["size"]).encode
    elif step["op"] == "sliding":
        windows = eddy.SlidingWindows(span["size"], span["grace"])
        encode = eddy.TimeWindowed(eddy.String, span["size"]).encode
    else:
        windows = eddy.SessionWindows(span["gap"], span["grace"])
        encode = eddy.SessionWindowed(eddy.String).encode
    groups = _group(of, step)
    if step["fold"] == "cogroup":
        groups = groups.cogroup(_aggregator(PAIRS[step["f"]]))
        if "with" in step:
            groups = groups.cogroup(_group(made[step["with"]], step), _aggregator(PAIRS[step["g"]]))
    groups = groups.windowed_by(windows, emit="close" if step["emit"] == "close" else "update")
    table = _fold(groups, step["fold"], step, name)
    changes = (table.suppress() if step["emit"] == "suppress" else table).to_stream()

    def text(key: "eddy.Windowed[str]", value: Value) -> str:
        return encode(key).hex() if step.get("bytes") else f"{key.key}@{key.start_ms}-{key.end_ms}"

    return changes.select_key(text, key=eddy.String)


def _of_table(made: list[Any], of: Any, step: Step, name: str) -> Any:
    match step["op"]:
        case "filter" | "filter_not":
            return getattr(of, step["op"])(TESTS[step["f"]])
        case "map_values":
            return of.map_values(VALUES[step["f"]], value=eddy.Int64)
        case "to_stream":
            return of.to_stream()
        case "join" | "left_join" | "outer_join":
            return getattr(of, step["op"])(made[step["with"]], PAIRS[step["f"]], name=name, value=eddy.Int64)
        case "foreign_key_join" | "foreign_key_left_join":
            join = getattr(of, step["op"])
            return join(made[step["with"]], KEYS[step["key"]], PAIRS[step["f"]], name=name, value=eddy.Int64)
        case op:
            return _fold(of.group_by(_pair(step), **SERDES), op, step, name, of_table=True)


def _fold(group: Any, op: str, step: Step, name: str, *, of_table: bool = False) -> Any:
    if op == "count":
        return group.count(name)
    functions = [PAIRS[step["f"]], *([PAIRS[step["undo"]]] if of_table else [])]
    if op == "reduce":
        return group.reduce(*functions, name)
    merger = {"merger": lambda key, one, later: PAIRS[step["merge"]](one, later)} if step["op"] == "sessions" else {}
    if op == "cogroup":
        return group.aggregate(lambda: step["start"], name, eddy.Int64, **merger)
    return group.aggregate(lambda: step["start"], *map(_aggregator, functions), name, eddy.Int64, **merger)


def _cogroup(made: list[Any], step: Step, name: str) -> Any:
    first, *others = step["parts"]
    cogrouped = _group(made[first["of"]], first).cogroup(_aggregator(PAIRS[first["f"]]))
    for part in others:
        cogrouped = cogrouped.cogroup(_group(made[part["of"]], part), _aggregator(PAIRS[part["f"]]))
    return cogrouped.aggregate(lambda: step["start"], name, eddy.Int64)


def _group(of: Any, step: Step) -> Any:
    if "key" in step:
        return of.group_by(KEYS[step["key"]], **SERDES)
    return of.group_by_key(**SERDES)


def _aggregator(pair: Callable[[Value, Value], Value]) -> Callable[[Key, Value, Value], Value]:
    return lambda key, value, total: pair(total, value)


def _pair(step: Step) -> Callable[[Key, Value], tuple[Key, Value]]:
    make_key, make_value = KEYS[step["key"]], VALUES[step["value"]]
    return lambda key, value: (make_key(key, value), make_value(key, value))


def _pairs(step: Step) -> Callable[[Key, Value], Pairs]:
    parts = [(TESTS[part["f"]], _pair(part)) for part in step["parts"]]
    return lambda key, value: [make(key, value) for test, make in parts if test(key, value)]
