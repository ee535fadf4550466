"""The calls that came after those of `test_mutated_calls.py`: windows, what is kept of them, coroutines, processors.

Their values that do not fit are those of that page and spans of time, moments, windows and collections.
"""

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import eddy
from tests.bad_input.test_mutated_calls import (
    FLAG,
    POOL,
    SERDE,
    SERDES,
    STEP,
    At,
    Call,
    Fits,
    Place,
    S,
    dsl,
    five,
    function,
    is_number,
    is_whole,
    name,
    one_of,
)

__all__ = ["NEWER", "NEWER_POOL"]

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
TWO, THREE = (lambda a, b: (a, b)), (lambda a, b, c: (a, b))
NAME = ("n", name())


async def later(value: Any) -> Any:
    return value


def children_of(row: Any) -> eddy.Query:
    nodes = eddy.live_table("nodes", key="id", value="parent")
    return nodes.where(nodes.parent == row.id)


class Doing:
    """A processor that drops its records."""

    def init(self, context: eddy.ProcessorContext) -> None:
        """Begin."""

    def process(self, record: eddy.Record) -> None:
        """Drop it."""


def span(least: timedelta, optional: bool = False) -> Fits:
    return lambda v: (optional and v is None) or (isinstance(v, timedelta) and v >= least)


def coroutine(count: int) -> Fits:
    return lambda v: inspect.iscoroutinefunction(v) and function(count)(v)


def literal(*values: Any) -> Fits:
    return lambda v: v in values and not isinstance(v, list | tuple | dict)


def windowed(method: str, **arguments: tuple[Any, Fits]) -> Call:
    """A call on a stream's groups in windows."""
    found: Callable[[Place], Any] = lambda p: getattr(p.fresh["grouped"].windowed_by(eddy.TimeWindows(HOUR)), method)  # noqa: E731
    return Call(f"windowed.{method}", found, arguments)


ONE: dict[str, tuple[Any, Fits]] = {"by": (len, function(1, optional=True))}
OF: dict[str, tuple[Any, Fits]] = {"of": (len, function(1, optional=True))}
WINDOWS = one_of(
    eddy.TimeWindows, eddy.SessionWindows, eddy.SlidingWindows, eddy.CalendarWindows, eddy.UnlimitedWindows
)
GRACE = (MINUTE, span(timedelta(0)))
TUPLE = (None, SERDE)

NEWER = [
    Call(
        "TimeWindows",
        lambda p: eddy.TimeWindows,
        {"size": (HOUR, span(MINUTE)), "advance": (MINUTE, span(MINUTE, True)), "grace": GRACE},
    ),
    Call("SessionWindows", lambda p: eddy.SessionWindows, {"gap": (HOUR, span(MINUTE)), "grace": GRACE}),
    Call("SlidingWindows", lambda p: eddy.SlidingWindows, {"difference": (HOUR, span(timedelta(0))), "grace": GRACE}),
    Call(
        "CalendarWindows",
        lambda p: eddy.CalendarWindows,
        {"unit": ("day", literal("day", "week", "month")), "zone": ("UTC", literal("UTC")), "grace": GRACE},
    ),
    Call(
        "UnlimitedWindows",
        lambda p: eddy.UnlimitedWindows,
        {"start": (datetime(2026, 1, 1, tzinfo=UTC), one_of(datetime))},
    ),
    Call("JoinWindows", lambda p: eddy.JoinWindows, {"difference": (HOUR, span(timedelta(0))), "grace": GRACE}),
    Call("Retry", lambda p: eddy.Retry, {"after": (0.5, is_number(0))}),
    Call("Queries", lambda p: eddy.Queries, {"claims": (None, function(1, optional=True))}),
    Call(
        "query_from_json", lambda p: eddy.query_from_json, {"data": (At(lambda p: p.nodes.to_json()), lambda v: False)}
    ),
    Call("query.start", lambda p: p.nodes.start, {"row": ({"id": "a"}, one_of(dict)), "inclusive": (True, FLAG)}),
    Call(
        "query.nest",
        lambda p: p.nodes.nest,
        {"depth": (None, is_whole(1, True)), "children": (children_of, function(1))},
        True,
    ),
    dsl(
        "grouped",
        "windowed_by",
        windows=(eddy.TimeWindows(HOUR), WINDOWS),
        emit=("update", literal("update", "close")),
        retention=(MINUTE, span(timedelta(0))),
    ),
    dsl("grouped", "distinct_count", name=NAME, **OF, value=(None, SERDE)),
    dsl("grouped", "collect", name=NAME, **ONE, max=(3, is_whole(1)), value=TUPLE),
    dsl("grouped", "latest", name=NAME, **ONE),
    dsl("grouped", "avg", name=NAME, **OF, value=(None, SERDE)),
    dsl("grouped", "cogroup", aggregator=(THREE, function(3))),
    dsl("grouped_table", "collect", name=NAME, **ONE, max=(3, is_whole(1)), value=TUPLE),
    dsl("grouped_table", "distinct_count", name=NAME, **OF, value=(None, SERDE)),
    windowed("distinct_count", name=NAME, **OF, value=(None, SERDE)),
    windowed("collect", name=NAME, **ONE, max=(3, is_whole(1)), value=TUPLE),
    windowed("count", name=NAME),
    Call(
        "cogrouped.cogroup",
        lambda p: p.fresh["grouped"].cogroup(THREE).cogroup,
        {
            "grouped": (
                At(lambda p: p.fresh["grouped"]),
                one_of(eddy.KGroupedStream),
            ),
            "aggregator": (THREE, function(3)),
        },
    ),
    Call(
        "cogrouped.aggregate",
        lambda p: p.fresh["grouped"].cogroup(THREE).aggregate,
        {"initializer": (lambda: 0, function(0)), "name": NAME, "value": (S, SERDE)},
    ),
    Call(
        "cogrouped.windowed_by",
        lambda p: p.fresh["grouped"].cogroup(THREE).windowed_by,
        {
            "windows": (eddy.TimeWindows(HOUR), WINDOWS),
            "emit": ("update", literal("update", "close")),
            "retention": (MINUTE, span(timedelta(0))),
        },
    ),
    dsl(
        "stream",
        "deduplicate",
        by=(TWO, function(2, 3, optional=True)),
        within=(HOUR, span(MINUTE)),
        grace=GRACE,
        **STEP,
        key=(S, SERDE),
    ),
    dsl(
        "stream",
        "map_values_async",
        function=(later, coroutine(1)),
        **STEP,
        value=(S, SERDE),
        at_most=(5, is_whole(1)),
        order=("key", literal("key", "input", "none")),
        timeout=(MINUTE, span(MINUTE)),
        retries=(1, is_whole(0)),
    ),
    dsl(
        "stream",
        "process",
        factory=(Doing, callable),
        stores=((), one_of(list, tuple, dict)),
        **STEP,
        **SERDES,
        weights=(False, FLAG),
    ),
    dsl("stream", "process_values", factory=(Doing, callable), **STEP, value=(S, SERDE)),
    dsl("stream", "peek", function=(TWO, function(2, 3)), **STEP),
    dsl(
        "table",
        "suppress",
        name=("n", name(optional=True)),
        until_time_limit=(MINUTE, span(timedelta(0), True)),
        max_rows=(9, is_whole(1, True)),
        max_bytes=(99, is_whole(1, True)),
        full=("emit", literal("emit", "fail")),
    ),
    dsl(
        "table",
        "foreign_key_join",
        other=(At(lambda p: p.fresh["table"]), one_of(eddy.KTable)),
        foreign_key=(len, function(1, 2)),
        joiner=(TWO, function(2, 3)),
        **STEP,
        value=(S, SERDE),
    ),
    dsl(
        "table",
        "tree_totals",
        name=NAME,
        own=(TWO, function(2, optional=True)),
        parent=(TWO, function(2, optional=True)),
        include_self=(True, FLAG),
    ),
    dsl("topology", "global_table", topic=("g", name()), **SERDES, **STEP),
    dsl(
        "topology",
        "store",
        name=NAME,
        key=(S, one_of(eddy.Serde)),
        value=(S, one_of(eddy.Serde)),
        changelog=(True, FLAG),
        memory=(False, FLAG),
        kind=("key-value", literal("key-value")),
    ),
    dsl("relation", "minus", other=(At(lambda p: p.fresh["relation"]), one_of(eddy.Relation)), **STEP),
]

NEWER_POOL: list[Any] = [
    *POOL,
    *(timedelta(seconds=-1), timedelta(microseconds=1), datetime(2026, 1, 1), "1h", 3_600, later, Doing, five),
    *(eddy.TimeWindows(HOUR), eddy.TimeWindows, eddy.live_table("nodes"), eddy.open_log),
]
