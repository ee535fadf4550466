"""Whatever a method of the DSL is given that cannot work is refused when the topology is built.

The law goes over every parameter of every public method: in place of an argument that fits, each one that does not
fit its kind raises TopologyError, and nothing else.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pytest

import eddy
from eddy import TopologyError
from tests.topology.programs import S

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine"),
    pytest.mark.filterwarnings("ignore:KStream.branch is called split:DeprecationWarning"),
]


def arguments(count: int) -> Callable[..., Any]:
    """A function of so many positional arguments."""
    return {0: lambda: 0, 1: lambda a: a, 2: lambda a, b: (a, b), 3: lambda a, b, c: (a, b), 4: lambda a, b, c, d: a}[
        count
    ]


async def later(*anything: Any) -> None:
    """A coroutine function, which returns before it has done anything."""


async def one_later(one: Any) -> Any:
    """A coroutine function of one argument."""


async def two_later(one: Any, two: Any) -> Any:
    """A coroutine function of two arguments."""


async def many_later(*anything: Any) -> Any:
    """An asynchronous generator function."""
    yield anything


class Function(NamedTuple):
    """A parameter that takes a function called with so many arguments."""

    count: int

    def wrong(self) -> list[Any]:
        others = [arguments(count) for count in range(5) if count != self.count]
        return [7, "function", [len], later, *others]


WRONG: dict[str, list[Any]] = {
    "name": [7, ["name"], "two words", "", lambda: "name", b"name"],
    "topic": [7, ["topic"], "two words", "", lambda key: "topic", b"topic", None],
    "topic or list": [
        7,
        [],
        ["one", "one"],
        ["two words"],
        {"topic"},
        "two words",
        "",
        lambda key: "topic",
        b"topic",
        None,
    ],
    "names": [7, "one", b"one", [], ["one", "one"], ["two words"], [7], None],
    "names or none": [7, "one", b"one", [], ["one", "one"], ["two words"], [7]],
    "serde": [str, 7, "string", eddy.Json, eddy.Struct, lambda data: data],
    "whole": [-1, 1.5, "4", True, [1]],
    "whole from 1": [0, -1, 1.5, "4", True, [1]],
    "number": [-1, "4", True, float("nan")],
    "flag": [0, 1, None, "yes"],
    "choice": ["perhaps", 7, None, ["error"]],
    "collection": [7, None, "rows", lambda: None, eddy.Topology("other")],
    "rows": [7, "rows", [7], [("a", 1, 2)], [["a", 1]], {"a": 1}, [("a", [1])]],
    "span": [7, None, "1 h", timedelta(0), timedelta(microseconds=999), timedelta(-1), timedelta.max],
    "span or none": [7, "1 h", timedelta(0), timedelta(microseconds=999), timedelta(-1), timedelta.max],
    "windows": [7, None, "1 h", timedelta(hours=1), eddy.TimeWindows],
    "time after": [7, None, "1 h", timedelta(-1), timedelta(microseconds=999), timedelta.max],
    "text": [7, None, b"SELECT 1", ["SELECT 1"]],
    "tables": [7, ["t"], {7: 7}],
    "columns": [7, "nowhere", [7]],
    "stores": [7, "declared", b"declared", ["nowhere"], [7], [None], ["declared", "declared"]],
    "coroutine function of two": [7, None, "f", lambda key, value: (key, value), one_later, many_later],
    "coroutine function of one": [7, None, "f", lambda value: value, two_later, many_later],
    "kind": ["window", "session", "versioned", 7, None],
    "pattern": [7, "", "(", b"in", ["in"]],
    "serdes": [7, {"x": S}, {"x": (str, str)}, {"nobody": (S, S)}],
}

STREAM = {"name": "name", "key": "serde", "value": "serde"}
RECURSION = {"name": "name", "max_depth": "whole", "limit": "whole", "on_limit": "choice"}
F0, F1, F2, F3 = map(Function, range(4))
SOURCE = {"key": "serde", "value": "serde", "timestamp": F1}
OP = (lambda rows: rows.filter(lambda key, value: False), F1)


class Call(NamedTuple):
    """A method with arguments that fit, and the kinds of those that are left out."""

    of: str
    method: str
    given: Mapping[str, tuple[Any, Any]] = MappingProxyType({})
    others: Mapping[str, Any] = MappingProxyType({})


def transforms(of: str, *, rekey: bool) -> list[Call]:
    pair = (arguments(2), F2)
    found = [Call(of, verb, {"predicate": pair}, {"name": "name"}) for verb in ("filter", "filter_not")]
    found.append(Call(of, "map_values", {"function": (arguments(1), F1)}, {"name": "name", "value": "serde"}))
    if rekey:
        found += [Call(of, verb, {"function": pair}, STREAM) for verb in ("map", "flat_map")]
        found.append(Call(of, "flat_map_values", {"function": (arguments(1), F1)}, {"name": "name", "value": "serde"}))
        found.append(Call(of, "select_key", {"function": pair}, {"name": "name", "key": "serde"}))
        found.append(Call(of, "peek", {"function": pair}, {"name": "name"}))
    return found


def calls(of: str) -> list[Call]:
    limits = {"at_most": "whole", "order": "choice", "timeout": "span", "retries": "whole"}
    pair, value = (two_later, "coroutine function of two"), (one_later, "coroutine function of one")
    return [
        Call(of, "map_async", {"function": pair}, {**STREAM, **limits}),
        Call(of, "map_values_async", {"function": value}, {"name": "name", "value": "serde", **limits}),
    ]


class Processor:
    """One that does nothing."""

    def process(self, record: eddy.Record[str, str]) -> None:
        """Take a record."""


def processors(of: str) -> list[Call]:
    given, others = (
        {"factory": (Processor, F0)},
        {"stores": "stores", "name": "name", "value": "serde", "weights": "flag", "children": "names or none"},
    )
    return [Call(of, "process", given, {**others, "key": "serde"}), Call(of, "process_values", given, others)]


HOUR = timedelta(hours=1)
TABLE, JOINER = ("table", "collection"), (arguments(2), F2)
FOLD = {"initializer": (arguments(0), F0), "name": ("n", "name")}
CALLS = [
    Call(
        "topology", "stream", {"topic": (["new", "other"], "topic or list")}, {**SOURCE, "idle_after": "span or none"}
    ),
    Call("topology", "stream", {"topic": ("new", "topic or list")}, {**SOURCE, "idle_after": "span or none"}),
    Call("topology", "stream", {"pattern": ("new-.*", "pattern")}, {**SOURCE, "idle_after": "span or none"}),
    Call("topology", "table", {"topic": ("new", "topic")}, {**SOURCE, "name": "name"}),
    Call("topology", "global_table", {"topic": ("new", "topic")}, {"key": "serde", "value": "serde", "name": "name"}),
    Call(
        "topology",
        "store",
        {"name": ("new", "name"), "key": (S, "serde"), "value": (S, "serde")},
        {"changelog": "flag", "memory": "flag", "kind": "kind"},
    ),
    Call(
        "topology",
        "store",
        {
            "name": ("new", "name"),
            "key": (S, "serde"),
            "value": (S, "serde"),
            "kind": ("window", "choice"),
            "size": (HOUR, "span"),
            "retention": (2 * HOUR, "span"),
        },
    ),
    *(
        Call(
            "topology",
            "store",
            {
                "name": ("new", "name"),
                "key": (S, "serde"),
                "value": (S, "serde"),
                "kind": (kind, "choice"),
                "retention": (HOUR, "span"),
            },
            {"changelog": "flag", "memory": "flag"},
        )
        for kind in ("session", "versioned")
    ),
    Call(
        "topology",
        "constant",
        {"rows": ([("a", 1)], "rows"), "name": ("n", "name")},
        {"key": "serde", "value": "serde"},
    ),
    Call(
        "topology",
        "recursive_fixpoint",
        {"roots": ("relation", "collection"), "edges": TABLE, "name": ("n", "name")},
        {
            "expand": F2,
            "max_depth": "number",
            "max_nodes": "whole",
            "limit": "whole",
            "cycle_policy": "choice",
            "deletion_mode": "choice",
            "on_limit": "choice",
            "weight": F2,
            "node": "serde",
        },
    ),
    Call(
        "topology",
        "mutually_recursive",
        {"step": (lambda x: (x.filter(lambda key, value: False),), "collection"), "name": ("n", "name")},
        {"limit": "whole", "on_limit": "choice", "serdes": "serdes"},
    ),
    Call(
        "topology", "sql", {"text": ("SELECT 1 AS one", "text")}, {"tables": "tables", "name": "name", "key": "columns"}
    ),
    *transforms("stream", rekey=True),
    Call("stream", "foreach", {"function": (arguments(2), F2)}, {"name": "name"}),
    Call("stream", "merge", {"others": ("stream", "collection")}, {"name": "name"}),
    Call("stream", "split", {"branch": (arguments(2), F2)}),
    Call("stream", "branch", {"branch": (arguments(2), F2)}),
    Call("stream", "repartition", {}, {"partitions": "whole", **STREAM}),
    Call("stream", "to", {"topic": ("out", "topic")}, {"key": "serde", "value": "serde"}),
    Call("stream", "to", {"topic": ("out", "topic"), "partitioner": (arguments(3), F3)}, {"key": "serde"}),
    Call(
        "stream",
        "to",
        {"topic": (lambda key, value: "one", F2), "topics": (["one", "two"], "names")},
        {"key": "serde", "value": "serde"},
    ),
    Call("stream", "to_table", {}, {"name": "name"}),
    Call(
        "stream",
        "to_table",
        {"expire_after": (timedelta(hours=1), "span"), "expire_by": ("wall clock", "choice")},
        {"name": "name"},
    ),
    Call("stream", "deduplicate", {"within": (HOUR, "span")}, {"grace": "time after", "name": "name"}),
    Call(
        "stream",
        "deduplicate",
        {"by": (arguments(2), F2), "within": (HOUR, "span")},
        {"grace": "time after", "key": "serde"},
    ),
    Call("stream", "group_by_key", {}, {"key": "serde", "value": "serde"}),
    Call("stream", "group_by", {"function": (arguments(2), F2)}, {"key": "serde", "value": "serde"}),
    Call("stream", "join", {"table": TABLE, "joiner": JOINER}, {"name": "name", "value": "serde"}),
    *(
        Call(
            "stream",
            verb,
            {"table": ("global", "collection"), "joiner": JOINER, "select": (arguments(1), F1)},
            {"name": "name", "value": "serde"},
        )
        for verb in ("join", "left_join")
    ),
    Call("stream", "left_join", {"table": TABLE, "joiner": JOINER}, {"name": "name", "value": "serde"}),
    *(
        Call(
            "stream",
            verb,
            {parameter: ("stream", "collection"), "joiner": JOINER, "windows": (eddy.JoinWindows(HOUR), "windows")},
            {"name": "name", "value": "serde"},
        )
        for verb, parameter in (("join", "table"), ("left_join", "table"), ("outer_join", "other"))
    ),
    *(
        Call(
            "stream",
            verb,
            {"table": ("stream", "collection"), "joiner": JOINER, "windows": (eddy.AsOf(HOUR), "windows")},
            {"name": "name", "value": "serde"},
        )
        for verb in ("join", "left_join")
    ),
    Call("stream", "recursively", {"op": OP}, {**RECURSION, "include_seeds": "flag"}),
    *calls("stream"),
    *processors("stream"),
    *processors("table"),
    *transforms("table", rekey=False),
    Call("table", "to_stream", {}, {"name": "name"}),
    Call("table", "to_relation"),
    Call("table", "to", {"topic": ("out", "topic")}, {"key": "serde", "value": "serde"}),
    Call("table", "group_by", {"function": (arguments(2), F2)}, {"key": "serde", "value": "serde"}),
    *(
        Call("table", verb, {"other": TABLE, "joiner": JOINER}, {"name": "name", "value": "serde"})
        for verb in ("join", "left_join", "outer_join")
    ),
    *(
        Call(
            "table",
            verb,
            {"other": TABLE, "foreign_key": (arguments(1), F1), "joiner": JOINER},
            {"name": "name", "value": "serde"},
        )
        for verb in ("foreign_key_join", "foreign_key_left_join")
    ),
    Call(
        "table",
        "tree_totals",
        {"name": ("n", "name")},
        {"own": F2, "parent": F2, "include_self": "flag", "value": "serde"},
    ),
    *transforms("relation", rekey=True),
    Call("relation", "union", {"others": ("relation", "collection")}, {"name": "name"}),
    Call("relation", "join", {"other": TABLE, "merge": (arguments(3), F3)}, {**STREAM, "keeps_key": "flag"}),
    Call("relation", "distinct", {}, {"name": "name"}),
    Call(
        "relation",
        "valid",
        {"clock": ("wall clock", "choice"), "until": (arguments(2), F2)},
        {"from_": F2, "name": "name"},
    ),
    Call("relation", "minus", {"other": ("relation", "collection")}, {"name": "name"}),
    Call("relation", "group_by_key", {}, {"key": "serde", "value": "serde"}),
    Call("relation", "group_by", {"function": (arguments(2), F2)}, {"key": "serde", "value": "serde"}),
    Call("relation", "recursively", {"op": OP, "name": ("n", "name")}, {**RECURSION}),
    Call(
        "relation",
        "reduce",
        {"function": (arguments(2), F2), "name": ("n", "name")},
        {"key": "serde", "value": "serde"},
    ),
    Call("relation", "at_one_owner", {"name": ("n", "name")}),
    Call("grouped_stream", "count", {"name": ("n", "name")}),
    *(
        Call(grouped, verb, {"name": ("n", "name")}, {"by": F1})
        for grouped in ("grouped_stream", "grouped_table")
        for verb in ("min", "max")
    ),
    *(
        Call(grouped, "top_k", {"n": (2, "whole"), "name": ("n", "name")}, {"by": F1, "value": "serde"})
        for grouped in ("grouped_stream", "grouped_table")
    ),
    *(
        Call(grouped, verb, {"name": ("n", "name"), "of": (arguments(1), F1)}, {"value": "serde"})
        for grouped in ("grouped_stream", "grouped_table")
        for verb in ("sum", "avg", "distinct_count")
    ),
    *(
        call
        for grouped in ("grouped_stream", "grouped_table")
        for call in (
            Call(grouped, "latest", {"name": ("n", "name"), "by": (arguments(1), F1)}),
            Call(grouped, "collect", {"name": ("n", "name"), "max": (2, "whole")}, {"by": F1, "value": "serde"}),
        )
    ),
    Call("relation", "to_table", {"name": ("n", "name")}),
    Call("grouped_stream", "reduce", {"reducer": (arguments(2), F2), "name": ("n", "name")}),
    Call("grouped_stream", "aggregate", {**FOLD, "aggregator": (arguments(3), F3)}, {"value": "serde"}),
    Call("sessions", "aggregate", {**FOLD, "aggregator": (arguments(3), F3), "merger": (arguments(3), F3)}),
    Call(
        "grouped_stream",
        "windowed_by",
        {"windows": (eddy.TimeWindows(timedelta(hours=1)), "windows")},
        {"emit": "choice", "retention": "time after"},
    ),
    Call("windowed", "suppress", {}, {"name": "name"}),
    Call(
        "table",
        "suppress",
        {"until_time_limit": (HOUR, "span"), "max_rows": (9, "whole from 1"), "max_bytes": (9, "whole from 1")},
        {"name": "name", "full": "choice"},
    ),
    Call("grouped_stream", "cogroup", {"aggregator": (arguments(3), F3)}),
    Call("cogrouped", "cogroup", {"grouped": ("grouped_stream", "collection"), "aggregator": (arguments(3), F3)}),
    Call("cogrouped", "aggregate", FOLD, {"value": "serde"}),
    Call(
        "cogrouped",
        "windowed_by",
        {"windows": (eddy.TimeWindows(timedelta(hours=1)), "windows")},
        {"emit": "choice", "retention": "time after"},
    ),
    Call("windowed_cogrouped", "aggregate", FOLD, {"value": "serde"}),
    Call("merged_cogrouped", "aggregate", {**FOLD, "merger": (arguments(3), F3)}),
    Call("grouped_table", "count", {"name": ("n", "name")}),
    Call(
        "grouped_table",
        "reduce",
        {"adder": (arguments(2), F2), "subtractor": (arguments(2), F2), "name": ("n", "name")},
    ),
    Call(
        "grouped_table",
        "aggregate",
        {**FOLD, "adder": (arguments(3), F3), "subtractor": (arguments(3), F3)},
        {"value": "serde"},
    ),
    Call("view", "to_table", {}, {"name": "name"}),
]
ALSO = {"windowed": "table", "sessions": "grouped_stream", "merged_cogrouped": "windowed_cogrouped"}
"""Collections that have methods which others of their class have not."""
CLASSES = {
    "topology": eddy.Topology,
    "stream": eddy.KStream,
    "table": eddy.KTable,
    "relation": eddy.Relation,
    "grouped_stream": eddy.KGroupedStream,
    "grouped_table": eddy.KGroupedTable,
    "cogrouped": eddy.CogroupedKStream,
    "windowed_cogrouped": eddy.WindowedCogroupedKStream,
}


def collections(names: set[str]) -> dict[str, Any]:
    """One of each that is named, of one topology."""
    topology = eddy.Topology("app")
    stream, table = topology.stream("s", key=S, value=S), topology.table("t", key=S, value=S)
    topology.store("declared", S, S)
    grouped = stream.group_by_key
    cogrouped = lambda: grouped().cogroup(lambda key, value, total: total)  # noqa: E731
    hours, sessions = eddy.TimeWindows(timedelta(hours=1)), eddy.SessionWindows(timedelta(hours=1))
    made: dict[str, Callable[[], Any]] = {
        "topology": lambda: topology,
        "stream": lambda: stream,
        "table": lambda: table,
        "relation": table.to_relation,
        "global": lambda: topology.global_table("g", key=S, value=S),
        "grouped_stream": grouped,
        "grouped_table": lambda: table.to_relation().group_by_key(),
        "windowed": lambda: grouped().windowed_by(hours).count("windowed"),
        "sessions": lambda: grouped().windowed_by(sessions),
        "cogrouped": cogrouped,
        "windowed_cogrouped": lambda: cogrouped().windowed_by(hours),
        "merged_cogrouped": lambda: cogrouped().windowed_by(sessions),
        "view": lambda: topology.sql("SELECT value FROM t", {"t": table}, name="view", key="value"),
    }
    return {name: made[name]() for name in sorted(names)}


def call(one: Call, replaced: dict[str, Any]) -> None:
    """Call the method with the arguments that fit, but for those replaced."""
    others = {
        parameter: value
        for parameter, (value, kind) in one.given.items()
        if isinstance(value, str) and kind == "collection"
    }
    found = collections({one.of, *others.values()})
    given: dict[str, Any] = {
        parameter: found[value] if parameter in others else value for parameter, (value, _) in one.given.items()
    }
    given |= replaced
    method = getattr(found[one.of], one.method)
    several = [given.pop("others")] if "others" in given else []
    method(*several, **given)


def wrong_calls() -> Iterator[Any]:
    """Each parameter of each call, with all values that do not fit it: to try one takes less time than a test does."""
    for one in CALLS:
        kinds = {parameter: kind for parameter, (_, kind) in one.given.items()} | one.others
        for parameter, kind in kinds.items():
            values = kind.wrong() if isinstance(kind, Function) else WRONG[kind]
            yield pytest.param(one, parameter, values, id=f"{one.of}.{one.method}-{parameter}")


@pytest.mark.parametrize("one", CALLS, ids=lambda one: f"{one.of}.{one.method}")
def test_what_fits_is_accepted(one: Call) -> None:
    call(one, {})


@pytest.mark.parametrize(("one", "parameter", "values"), list(wrong_calls()))
def test_what_does_not_fit_is_refused(one: Call, parameter: str, values: list[Any]) -> None:
    said = [(value, answer(one, {parameter: value})) for value in values]
    assert [(value, text) for value, text in said if ": " not in text or text[-1] in " ;"] == []


def answer(one: Call, replaced: dict[str, Any]) -> str:
    """What the TopologyError says; any other end of the call has no colon."""
    try:
        call(one, replaced)
    except TopologyError as error:
        return str(error)
    except Exception as error:
        return f"raised {type(error).__name__}"
    return "accepted"


@pytest.mark.parametrize("of", CLASSES)
def test_every_parameter_of_every_method_is_tried(of: str) -> None:
    tried: dict[str, set[str]] = {}
    for one in CALLS:
        if ALSO.get(one.of, one.of) == of:
            tried.setdefault(one.method, set()).update(one.given, one.others)
    without = {"topology": {"describe", "mermaid", "picture"}}.get(of, set())
    for name, method in inspect.getmembers(CLASSES[of], inspect.isfunction):
        if name.startswith("_") or name in without:
            continue
        parameters = set(inspect.signature(method).parameters) - {"self", "branches"}
        assert parameters <= tried[name], f"{of}.{name}: {parameters - tried[name]}"


class TestArity:
    """The error says which function it is, where it is written, and with what it is called."""

    def stream(self) -> eddy.KStream[str, str]:
        return eddy.Topology("app").stream("in", key=S, value=S)

    def test_the_message_names_file_and_line(self) -> None:
        wrong: Any = lambda one, value: value  # noqa: E731
        line = wrong.__code__.co_firstlineno
        said = (
            rf"map_values after 'in': <lambda> of \S*test_arguments\.py:{line} takes \(one, value\) and is called with "
            r"\(value\); a function of 1 argument is needed\. Write: lambda value: …, or lambda key, value: …"
        )
        with pytest.raises(TopologyError, match=said):
            self.stream().map_values(wrong)

    def test_a_method_and_a_callable_object_are_named_too(self) -> None:
        class Rules:
            def check(self, value: str) -> bool:
                return True

            def __call__(self, value: str) -> bool:
                return True

        for function in (Rules().check, Rules(), functools.partial(Rules().check)):
            wrong: Any = function
            with pytest.raises(TopologyError, match=r"of \S*test_arguments\.py:\d+ takes \(value\)"):
                self.stream().filter(wrong)

    def test_what_is_cached_is_looked_into(self) -> None:
        wrong: Any = functools.cache(lambda value: value)
        with pytest.raises(TopologyError, match=r"takes \(value\) and is called with \(key, value\)"):
            self.stream().filter(wrong)

    @pytest.mark.parametrize(
        "function",
        [
            lambda *row: True,
            lambda key, value, limit=7: True,
            lambda key, *rest: True,
            lambda key, value, *, limit=7: True,
            lambda key=None, value=None: True,
            functools.partial(lambda limit, key, value: True, 7),
            functools.partial(lambda key, value, limit: True, limit=7),
            functools.cache(lambda key, value: True),
            max,
            print,
            dict.get,
            "".join and str.startswith,
        ],
    )
    def test_what_can_be_called_so_is_accepted(self, function: Any) -> None:
        self.stream().filter(function)

    @pytest.mark.parametrize(
        "function", [lambda key, value, limit: True, lambda key: True, lambda key, *, value: True, str.upper, len]
    )
    def test_what_cannot_be_called_so_is_refused(self, function: Any) -> None:
        with pytest.raises(TopologyError, match="is called with \\(key, value\\)"):
            self.stream().filter(function)

    def test_what_a_decorator_takes_counts_not_what_it_wraps(self) -> None:
        def on_value(function: Any) -> Any:
            @functools.wraps(function)
            def with_key(key: Any, value: Any) -> Any:
                return function(value)

            return with_key

        self.stream().filter(on_value(lambda value: True))

    def test_a_class_is_a_function_of_its_fields(self) -> None:
        class Pair(msgspec.Struct, frozen=True):
            left: str
            right: str

        class Single(msgspec.Struct, frozen=True):
            left: str

        topology = eddy.Topology("app")
        stream, table = topology.stream("s", key=S, value=S), topology.table("t", key=S, value=S)
        stream.join(table, Pair)
        wrong: Any = Single
        with pytest.raises(TopologyError, match=r"Single takes \(left\) and is called with \(value, other\)"):
            stream.join(table, wrong, name="other")


class TestSerdes:
    @pytest.mark.parametrize(
        ("given", "meant"),
        [
            (str, "eddy.String"),
            (int, "eddy.Int64"),
            (dict, "eddy.Json()"),
            (eddy.Json, "eddy.Json()"),
            (eddy.Struct, "eddy.Struct(MyStruct)"),
        ],
    )
    def test_the_serde_that_was_meant_is_named(self, given: Any, meant: str) -> None:
        with pytest.raises(TopologyError) as caught:
            eddy.Topology("app").stream("in", key=S, value=given)
        assert f"Write value={meant}" in str(caught.value)

    def test_rows_of_a_constant_fit_their_serdes(self) -> None:
        with pytest.raises(
            TopologyError, match=r"constant 'c': the value 'x' is not a valid int64: .*name the serde that fits"
        ):
            eddy.Topology("app").constant([("a", 1), ("b", "x")], "c", key=S, value=eddy.Int64)  # type: ignore[list-item]

    @pytest.mark.parametrize(
        ("make", "said"),
        [
            (lambda: eddy.Json(7), "Json: 7 is not a type: "),
            (lambda: eddy.Struct(dict), "Struct: <class 'dict'> with format 'json' is not a serde"),
            (lambda: eddy.Serde("x", 1, 2), "Serde: name='x', encode=1, decode=2; a name and two functions are needed"),
        ],
    )
    def test_what_makes_no_serde_is_refused(self, make: Any, said: str) -> None:
        with pytest.raises(TopologyError) as caught:
            make()
        assert str(caught.value).startswith(said)


@pytest.mark.parametrize("field", dataclasses.fields(eddy.Config), ids=lambda field: field.name)
@pytest.mark.parametrize("value", ["7", [7], {}, "no"])
def test_a_setting_of_another_type_is_refused(field: Any, value: Any) -> None:
    if field.name == "state_dir" and isinstance(value, str):
        value = ""  # other text names a folder
    with pytest.raises(TopologyError, match=f"config: {field.name}="):
        eddy.Config(**{field.name: value})


def test_a_function_that_fits_is_not_asked_for_its_text() -> None:
    """It may be long, or not there yet: that of an object with a model in it, of a partial with a table."""

    class Unconnected:
        def __call__(self, value: Any) -> Any:
            return value

        def __repr__(self) -> str:
            raise RuntimeError("not connected yet")

    numbers = eddy.Topology("app").stream("in", key=S, value=S)
    numbers.map_values(Unconnected()).map_values(functools.partial(Unconnected()))
