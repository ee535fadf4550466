"""Documented calls with one mistake in each: some thousand, over the public signatures.

A mistake is an argument of another kind, two neighbours in each other's place, or an argument under another name, so
that one is missing and one too many. Each is told at the call, by an error of eddy that names the argument or the
method, the value and what is needed; a name that the signature does not have, by Python's own TypeError.
"""

import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import eddy
from eddy.connectors.log import Log

S = eddy.String
LEAST = 4_000
"""So many mistakes are tried, at least: a change of the kinds that leaves most of them out would be seen."""

Fits = Callable[[Any], bool]


class Thing:
    """An object of the user's."""

    def __repr__(self) -> str:
        return "a thing"


class Row(msgspec.Struct, frozen=True):
    """A struct of the user's."""

    id: str


def five(a: int, b: int, c: int, d: int, e: int) -> int:
    return a


def every_node() -> eddy.Query:
    return eddy.live_table("nodes")


class Place:
    """All that the calls are made on: a driver, a worker's open tables, a log, collections of a topology."""

    def __init__(self, stack: ExitStack) -> None:
        self.log = eddy.open_log()
        stack.callback(self.log.close)
        self.topology = topology = eddy.Topology("app")
        table = topology.table("nodes", key=S, value=S)
        table.to_stream().to("copies")
        topology.stream("words", key=S, value=S).group_by_key().count("counts")
        eddy.create_topics(topology, self.log)
        self.second = eddy.Topology("second")
        self.second.table("nodes", key=S, value=S)
        self.driver = stack.enter_context(eddy.TopologyTestDriver(topology))
        self.worker = stack.enter_context(eddy.run(topology, self.log))
        self.tables = stack.enter_context(eddy.open_tables(topology, self.log))
        self.tables.wait()
        self.writer = self.log.writer("nodes")
        stack.callback(self.writer.close)
        self.nodes = eddy.live_table("nodes", key="id", value="parent")
        self.queries = eddy.Queries()

        self.fresh: dict[str, Any] = {}

    def begin(self) -> None:
        """Collections of a new topology, for the next call."""
        topology = eddy.Topology("fresh")
        stream, table = topology.stream("s", key=S, value=S), topology.table("t", key=S, value=S)
        self.fresh = {
            "topology": topology,
            "stream": stream,
            "table": table,
            "relation": table.to_relation(),
            "grouped": stream.group_by_key(),
            "grouped_table": table.to_relation().group_by_key(),
        }


def is_whole(least: int, optional: bool = False) -> Fits:
    return lambda v: (optional and v is None) or (type(v) is int and v >= least)


def is_number(least: float, optional: bool = False) -> Fits:
    return lambda v: (optional and v is None) or (type(v) in {int, float} and v >= least)


def one_of(*types: type, optional: bool = False) -> Fits:
    return lambda v: (optional and v is None) or isinstance(v, types)


def name(optional: bool = False) -> Fits:
    return lambda v: (optional and v is None) or (isinstance(v, str) and bool(re.fullmatch(r"[A-Za-z0-9._-]+", v)))


def function(*counts: int, optional: bool = False) -> Fits:
    def fits(value: Any) -> bool:
        if value is None:
            return optional
        if not callable(value):
            return False
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError):
            return True
        return any(_binds(signature, count) for count in counts)

    return fits


def _binds(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def is_pairs(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value)


TEXT, FLAG = one_of(str), one_of(bool)
KEY = one_of(str, optional=True)
SERDE = one_of(eddy.Serde, optional=True)
TOPOLOGY = one_of(eddy.Topology)
LOG: Fits = lambda v: isinstance(v, Log)  # noqa: E731
CONFIG = one_of(eddy.Config, optional=True)
FOLDER: Fits = lambda v: v is None or isinstance(v, Path) or (isinstance(v, str) and v != "")  # noqa: E731
HEADERS: Fits = lambda v: v in ((), [])  # noqa: E731
AT_LEAST: Fits = lambda v: v is None or v == {}  # noqa: E731
QUERY = one_of(eddy.Query)
ANY: Fits = lambda v: True  # noqa: E731


class At(NamedTuple):
    """A value that the place of the calls has."""

    found: Callable[[Place], Any]


class Call(NamedTuple):
    """A method, the arguments that fit, each with its kind, and whether it has keywords of the caller's own."""

    of: str
    method: Callable[[Place], Any]
    arguments: dict[str, tuple[Any, Fits]]
    any_keyword: bool = False


def of(place: str, method: str) -> Callable[[Place], Any]:
    return lambda found: getattr(found.fresh[place], method)


STEP: dict[str, tuple[Any, Fits]] = {"name": ("n", name(optional=True))}
SERDES: dict[str, tuple[Any, Fits]] = {"key": (S, SERDE), "value": (S, SERDE)}
TWO, THREE = (lambda a, b: (a, b)), (lambda a, b, c: (a, b))


def dsl(place: str, method: str, **arguments: tuple[Any, Fits]) -> Call:
    return Call(f"{place}.{method}", of(place, method), arguments)


CALLS = [
    Call("open_log", lambda p: eddy.open_log, {"path": (None, FOLDER)}),
    Call("kafka", lambda p: eddy.kafka, {"bootstrap": ("h:1", lambda v: isinstance(v, str) and ":" in v)}, True),
    Call(
        "create_topics",
        lambda p: eddy.create_topics,
        {
            "topology": (At(lambda p: p.topology), TOPOLOGY),
            "log": (At(lambda p: p.log), LOG),
            "partitions": (1, lambda v: is_whole(1)(v) or v == {}),
        },
    ),
    Call(
        "run",
        lambda p: eddy.run,
        {
            "topology": (At(lambda p: p.second), TOPOLOGY),
            "log": (At(lambda p: p.log), LOG),
            "config": (None, CONFIG),
            "member": ("0", lambda v: isinstance(v, str) and v != ""),
            "on_failure": (None, function(1, optional=True)),
        },
    ),
    Call(
        "open_tables",
        lambda p: eddy.open_tables,
        {
            "topology": (At(lambda p: p.topology), TOPOLOGY),
            "log": (At(lambda p: p.log), LOG),
            "state_dir": (None, FOLDER),
            "max_wait_s": (2.0, is_number(0)),
            "cache_bytes": (1 << 20, is_whole(1)),
            "queries": (None, one_of(eddy.Queries, optional=True)),
            "table_rows": (10, is_whole(0)),
        },
    ),
    Call(
        "TopologyTestDriver",
        lambda p: eddy.TopologyTestDriver,
        {
            "topology": (At(lambda p: p.topology), TOPOLOGY),
            "config": (None, CONFIG),
            "partitions": (1, is_whole(1)),
            "initial_wall_clock_ms": (0, is_whole(0)),
        },
    ),
    Call("driver.input", lambda p: p.driver.input, {"topic": ("nodes", lambda v: v in ("nodes", "words"))}),
    Call(
        "driver.output",
        lambda p: p.driver.output,
        {"topic": ("copies", lambda v: v == "copies"), "key": (S, SERDE), "value": (S, SERDE)},
    ),
    Call("driver.store", lambda p: p.driver.store, {"name": ("counts", lambda v: v == "counts")}),
    Call("driver.restart", lambda p: p.driver.restart, {"lose_state": (False, FLAG)}),
    Call("driver.advance_wall_clock_time", lambda p: p.driver.advance_wall_clock_time, {"by": (1, is_number(0))}),
    Call(
        "input.pipe",
        lambda p: p.driver.input("nodes").pipe,
        {"key": ("a", KEY), "value": ("b", KEY), "timestamp_ms": (5, is_whole(0, True)), "headers": ((), HEADERS)},
    ),
    Call(
        "input.pipe_all",
        lambda p: p.driver.input("nodes").pipe_all,
        {"records": ([("a", "b")], is_pairs), "timestamp_ms": (5, is_whole(0, True)), "headers": ((), HEADERS)},
    ),
    Call(
        "input.pipe_raw",
        lambda p: p.driver.input("nodes").pipe_raw,
        {
            "key": (b"a", one_of(bytes, optional=True)),
            "value": (b"b", one_of(bytes, optional=True)),
            "timestamp_ms": (5, is_whole(0, True)),
        },
    ),
    Call("output.with_serdes", lambda p: p.driver.output("copies").with_serdes, SERDES),
    Call("store.get", lambda p: p.driver.store("counts").get, {"key": ("a", KEY)}),
    Call("store.range", lambda p: p.driver.store("counts").range, {"first": ("a", KEY), "last": ("b", KEY)}),
    Call(
        "log.write",
        lambda p: p.log.write,
        {
            "topic": ("nodes", lambda v: v in ("nodes", "words", "copies")),
            "rows": ([("a", "b")], lambda v: is_pairs(v) or v == {} or v == {"a": 1}),
            "key": (S, SERDE),
            "value": (S, SERDE),
            "timestamp_ms": (5, is_whole(0, True)),
            "headers": ((), HEADERS),
        },
    ),
    Call(
        "log.writer",
        lambda p: p.log.writer,
        {
            "topic": ("nodes", lambda v: v in ("nodes", "words", "copies")),
            "key": (S, SERDE),
            "value": (S, SERDE),
            "max_records": (10, is_whole(1)),
        },
    ),
    Call(
        "writer.add",
        lambda p: p.writer.add,
        {
            "key": ("a", one_of(str, bytes, int, float, optional=True)),
            "value": ("b", one_of(str, bytes, int, float, optional=True)),
            "timestamp_ms": (5, is_whole(0, True)),
            "headers": ((), HEADERS),
        },
    ),
    Call("worker.wait_idle", lambda p: p.worker.wait_idle, {"timeout_s": (30.0, is_number(0))}),
    Call(
        "tables.wait",
        lambda p: p.tables.wait,
        {"at_least": (None, AT_LEAST), "exact": (False, FLAG), "timeout_s": (30.0, is_number(0))},
    ),
    Call(
        "tables.snapshot",
        lambda p: p.tables.snapshot,
        {"at_least": (None, AT_LEAST), "exact": (False, FLAG), "timeout_s": (30.0, is_number(0))},
    ),
    Call("tables[…]", lambda p: p.tables.__getitem__, {"table": ("nodes", lambda v: v in ("nodes", "counts"))}),
    Call("table.get", lambda p: p.tables["nodes"].get, {"key": ("a", TEXT), "default": (None, ANY)}),
    Call(
        "table.get_many",
        lambda p: p.tables["nodes"].get_many,
        {"keys": (["a"], lambda v: isinstance(v, list | tuple | dict) and all(isinstance(k, str) for k in v))},
    ),
    Call(
        "table.range",
        lambda p: p.tables["nodes"].range,
        {"start": ("a", KEY), "stop": ("b", KEY), "limit": (3, is_whole(0, True))},
    ),
    Call(
        "table.prefix",
        lambda p: p.tables["nodes"].prefix,
        {"prefix": ("a", TEXT), "limit": (3, is_whole(0, True)), "after": (None, KEY)},
    ),
    Call(
        "table.after",
        lambda p: p.tables["nodes"].after,
        {"key": ("a", TEXT), "stop": (None, KEY), "limit": (3, is_whole(0, True))},
    ),
    Call(
        "tables.live",
        lambda p: p.tables.live,
        {
            "query": (At(lambda p: p.nodes), QUERY),
            "max_rows": (10, is_whole(0)),
            "actions": (None, function(2, optional=True)),
            "check_every": (None, is_whole(1, True)),
        },
    ),
    Call(
        "tables.read", lambda p: p.tables.read, {"query": (At(lambda p: p.nodes), QUERY), "max_rows": (10, is_whole(0))}
    ),
    Call(
        "tables.explain",
        lambda p: p.tables.explain,
        {"query": (At(lambda p: p.nodes), QUERY), "max_rows": (10, is_whole(0))},
    ),
    Call(
        "live_table",
        lambda p: eddy.live_table,
        {
            "name": ("nodes", lambda v: isinstance(v, str) and v != ""),
            "key": ("id", lambda v: (isinstance(v, str) and v != "") or v == ("a",)),
            "value": ("parent", lambda v: v is None or (isinstance(v, str) and v != "")),
        },
    ),
    Call("query.order_by", lambda p: p.nodes.order_by, {"columns": ("id", lambda v: v in ("id", "parent"))}),
    Call("query.select", lambda p: p.nodes.select, {"columns": ("id", lambda v: v in ("id", "parent"))}),
    Call("query.group_by", lambda p: p.nodes.group_by, {"columns": ("id", lambda v: v in ("id", "parent"))}),
    Call("query.limit", lambda p: p.nodes.limit, {"rows": (1, is_whole(0, True))}),
    Call("query.skip", lambda p: p.nodes.skip, {"rows": (1, is_whole(0))}),
    Call("query.sum", lambda p: p.nodes.sum, {"column": ("parent", lambda v: v in ("id", "parent"))}),
    Call("query.pluck", lambda p: p.nodes.pluck, {"name": ("parent", lambda v: isinstance(v, str) and v != "")}),
    Call(
        "query.where",
        lambda p: p.nodes.where,
        {"conditions": (At(lambda p: p.nodes.id == "a"), lambda v: isinstance(v, bool))},
    ),
    Call("query.into", lambda p: p.nodes.into, {"kind": (dict[str, Any], lambda v: v is int)}),
    Call(
        "query",
        lambda p: eddy.query,
        {
            "text": ("SELECT 1 AS one", TEXT),
            "tables": (None, lambda v: v in (None, {})),
        },
    ),
    Call("queries.query", lambda p: p.queries.query, {"function": (every_node, lambda v: v in (None, five))}),
    Call("Topology", lambda p: eddy.Topology, {"name": ("app", name())}),
    Call("Json", lambda p: eddy.Json, {"type": (int, lambda v: v is None or v is int)}),
    Call("Struct", lambda p: eddy.Struct, {"type": (Row, lambda v: False), "format": ("json", lambda v: v == "json")}),
    dsl("topology", "stream", topic=("new", lambda v: name()(v) or v == ("a",)), **SERDES),
    dsl("topology", "table", topic=("new", name()), **SERDES, **STEP),
    dsl("topology", "constant", rows=([("a", "b")], is_pairs), name=("n", name()), **SERDES),
    dsl("stream", "filter", predicate=(TWO, function(2)), **STEP),
    dsl("stream", "map", function=(TWO, function(2)), **STEP, **SERDES),
    dsl("stream", "map_values", function=(lambda a: a, function(1)), **STEP, value=(S, SERDE)),
    dsl("stream", "flat_map", function=(TWO, function(2)), **STEP, **SERDES),
    dsl("stream", "select_key", function=(TWO, function(2)), **STEP, key=(S, SERDE)),
    dsl("stream", "group_by", function=(TWO, function(2)), **SERDES),
    dsl("stream", "repartition", partitions=(2, is_whole(1, True)), **STEP, **SERDES),
    dsl("stream", "to", topic=("out", name()), **SERDES),
    dsl("stream", "to_table", **STEP),
    dsl(
        "stream",
        "join",
        table=(At(lambda p: p.fresh["table"]), one_of(eddy.KTable)),
        joiner=(TWO, function(2)),
        **STEP,
        value=(S, SERDE),
    ),
    dsl("stream", "merge", others=(At(lambda p: p.fresh["stream"]), one_of(eddy.KStream))),
    dsl(
        "table",
        "join",
        other=(At(lambda p: p.fresh["table"]), one_of(eddy.KTable)),
        joiner=(TWO, function(2)),
        **STEP,
        value=(S, SERDE),
    ),
    dsl("table", "group_by", function=(TWO, function(2)), **SERDES),
    dsl("relation", "union", others=(At(lambda p: p.fresh["relation"]), one_of(eddy.Relation))),
    dsl(
        "relation",
        "join",
        other=(At(lambda p: p.fresh["table"]), one_of(eddy.KTable, eddy.Relation)),
        merge=(THREE, function(3)),
        **STEP,
        **SERDES,
        keeps_key=(False, FLAG),
    ),
    dsl("relation", "reduce", function=(TWO, function(2)), name=("n", name()), **SERDES),
    dsl("relation", "to_table", name=("n", name())),
    dsl(
        "relation",
        "recursively",
        op=(lambda rows: rows.filter(TWO), function(1)),
        name=("n", name()),
        max_depth=(3, is_whole(0, True)),
        limit=(9, is_whole(1)),
    ),
    dsl("grouped", "count", name=("n", name())),
    dsl("grouped", "reduce", reducer=(TWO, function(2)), name=("n", name())),
    dsl(
        "grouped",
        "aggregate",
        initializer=(lambda: 0, function(0)),
        aggregator=(THREE, function(3)),
        name=("n", name()),
    ),
    dsl("grouped", "top_k", n=(2, is_whole(1)), name=("n", name())),
    dsl(
        "grouped_table",
        "aggregate",
        initializer=(lambda: 0, function(0)),
        adder=(THREE, function(3)),
        subtractor=(THREE, function(3)),
        name=("n", name()),
    ),
    *(
        Call(
            f"Config({field})",
            lambda p: eddy.Config,
            {field: (getattr(eddy.Config(), field), fits)},
        )
        for field, fits in (
            ("state_dir", FOLDER),
            ("on_error", lambda v: v in ("fail", "skip", "dead-letter")),
            ("max_epoch_records", is_whole(1)),
            ("max_epoch_s", lambda v: is_number(0)(v) and v > 0),
            ("retry_s", is_number(0)),
            ("create_topics", FLAG),
            ("on_state", function(2, optional=True)),
            ("on_restore", function(3, optional=True)),
        )
    ),
]


POOL: list[Any] = [
    *(7, -1, 2.5, float("nan"), True, "", "two words", "word", b"word", None, [], [7], {}, {"a": 1}, ("a",)),
    *(Thing(), Thing, lambda: 0, five, S, Path("p"), int, eddy.Topology("other"), eddy.Config()),
]


class Mutation(NamedTuple):
    """A call with one mistake: some arguments have other values, one has another name, two have changed places."""

    call: Call
    what: str
    changed: dict[str, Any]
    renamed: str = ""
    swapped: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        return f"{self.call.of}({self.what})"

    def arguments(self, place: Place) -> dict[str, Any]:
        """The arguments with the mistake."""
        given = {name_: value_in(place, value) for name_, (value, _) in self.call.arguments.items()}
        one, other = self.swapped
        if one:
            given[one], given[other] = given[other], given[one]
        given |= {name_: value_in(place, value) for name_, value in self.changed.items()}
        return {f"{name_}_" if name_ == self.renamed else name_: value for name_, value in given.items()}

    def is_one(self, place: Place) -> bool:
        """Whether it is a mistake: swapped arguments may fit one another's places."""
        place.begin()
        given = self.arguments(place)
        return bool(self.renamed) or not all(fits(given[name_]) for name_, (_, fits) in self.call.arguments.items())


def value_in(place: Place, value: Any) -> Any:
    return value.found(place) if isinstance(value, At) else value


def mutations(calls: list[Call], pool: list[Any]) -> Iterator[Mutation]:
    """All mistakes in calls, with values of a pool."""
    for call in calls:
        given = list(call.arguments.items())
        for argument, (_, fits) in given:
            yield from (
                Mutation(call, f"{argument}={value!r:.40}", {argument: value}) for value in pool if not fits(value)
            )
            if not call.any_keyword:
                yield Mutation(call, f"{argument}_=", {}, argument)
        for (one, _), (other, _) in itertools.pairwise(given):
            yield Mutation(call, f"{one} and {other} swapped", {}, "", (one, other))


_SEVERAL = {"others", "columns", "conditions"}


def told(place: Place, mutation: Mutation) -> str:
    """What is wrong with the error of a call; empty if it is as it should be."""
    place.begin()
    arguments = mutation.arguments(place)
    method = mutation.call.method(place)
    several = [arguments.pop(name_) for name_ in [*arguments] if name_ in _SEVERAL]
    try:
        result = method(*several, **arguments)
    except eddy.EddyError as error:
        return fault(mutation, arguments, str(error))
    except TypeError as error:
        return "" if mutation.renamed and "argument" in str(error) else f"TypeError: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for ending in ("close", "stop"):
        if hasattr(type(result), ending):
            getattr(result, ending)()
    return f"no error, but {type(result).__name__}"


def fault(mutation: Mutation, arguments: dict[str, Any], said: str) -> str:
    """What a message lacks."""
    words = {*mutation.changed, *mutation.swapped} - {""}
    method = mutation.call.of.rpartition(".")[2].partition("(")[0]
    names = {
        *words,
        *(word.rstrip("s") for word in words),
        method,
        method.replace("_", "-"),
        mutation.call.of.partition(".")[0],
    }
    if not any(word in said for word in names):
        return f"names neither {' nor '.join(sorted(names))}: {said}"
    values = [arguments.get(word) for word in words if word in arguments] or [*mutation.changed.values()]
    if not any(shown in said for value in values for shown in shown_as(value)):
        return f"shows no value: {said}"
    if not re.search(r"need|Write|Make|Name|is no |has to|choose|one of", said):
        return f"tells no way out: {said}"
    return ""


def shown_as(value: Any) -> list[str]:
    name_ = getattr(value, "__name__", type(value).__name__)
    parts = (
        [repr(part) for part in value if not isinstance(part, bool)] if isinstance(value, list | tuple | dict) else []
    )
    return [*parts, repr(value)[:20], str(value)[:20] or "''", name_, type(value).__name__]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack)


def test_calls_that_fit_are_accepted(place: Place) -> None:
    for call in CALLS:
        result = told(place, Mutation(call, "", {}))
        assert result.startswith("no error"), f"{call.of}: {result}"


def test_a_mistake_is_told_at_the_call(place: Place) -> None:
    mistakes = [mutation for mutation in mutations(CALLS, POOL) if mutation.is_one(place)]
    assert len(mistakes) > LEAST
    assert [f"{mutation}: {found}" for mutation in mistakes if (found := told(place, mutation))] == []
