"""The conformance cases of records that pass once. A value ends with its timestamp."""

from datetime import timedelta

import eddy
from tests.conformance.case import S, case, of

__all__ = ["TICKS"]

TEN = timedelta(milliseconds=10)
TICKS = [(topic, f"tick {n}", f"t{100 + n}") for n in range(40) for topic in ("one", "two")]
"""Enough records for all partitions of both topics to pass the first ones."""


def told(topic: str, t: eddy.Topology) -> eddy.KStream[str, str]:
    source = t.stream(topic, S, S, timestamp=lambda value: int(value[1:]))
    return source.filter(lambda key, value: not key.startswith("tick"))


@case([of("one", ("a", "x0"), ("b", "x3"), ("a", "y9"), ("a", "z12"), ("b", "y5"))], out={"a": 2, "b": 1})
def once_by_key(t: eddy.Topology) -> None:
    once = told("one", t).deduplicate(within=TEN)
    once.group_by_key().count("counts").to("out")


@case(
    [[*of("one", ("a", "x0"), ("a", "y1"), ("b", "x12")), *of("two", ("c", "x2"), ("d", "z11")), *TICKS]],
    out=[("x", "a"), ("x", "b"), ("y", "a"), ("z", "d")],
)
def once_by_new_keys_after_exchanges(t: eddy.Topology) -> None:
    streams = (
        told(topic, t).repartition(2, topic).map(lambda k, v: (v[0], k), key=S, value=S) for topic in ("one", "two")
    )
    one, two = (stream.repartition(3, f"again-{number}") for number, stream in enumerate(streams))
    one.merge(two).deduplicate(within=TEN, name="once").to("out")


@case(
    [[*of("one", ("a", "x0"), ("a", "y1"), ("b", "x12")), *of("two", ("c", "x2"), ("d", "z11")), *TICKS]],
    out=[("A", "x0"), ("A", "y1"), ("B", "x12"), ("D", "z11")],
)
def once_by_a_function_of_two_topics(t: eddy.Topology) -> None:
    both = told("one", t).merge(told("two", t))
    once = both.deduplicate(lambda key, value: value[0], within=TEN, key=S, name="once")
    once.map(lambda key, value: (key.upper(), value), key=S, value=S).to("out")
