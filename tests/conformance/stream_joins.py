"""The conformance cases of joins of streams in time. A value ends with its timestamp."""

from datetime import timedelta

import eddy
from tests.conformance.case import Native, S, case, of

FOUR = timedelta(milliseconds=4)
TICKS = [(topic, f"tick {n}", f"t{100 + n}") for n in range(40) for topic in ("orders", "paid")]
"""Enough records for all partitions of both topics to pass the first windows."""
JOINED = [
    *of("orders", ("a", "o0"), ("b", "o1")),
    *of("paid", ("a", "p2"), ("c", "p3")),
    *of("orders", ("a", "o4"), ("a", "o5")),
    *of("paid", ("a", "p6"), ("b", "p7")),
    *TICKS,
]
PAIRS = [("a", ("o0", "p2")), ("a", ("o4", "p2")), ("a", ("o4", "p6")), ("a", ("o5", "p2")), ("a", ("o5", "p6"))]


def sides(t: eddy.Topology) -> list[eddy.KStream[str, str]]:
    streams = [t.stream(topic, S, S, timestamp=lambda value: int(value[1:])) for topic in ("orders", "paid")]
    return [stream.filter(lambda key, value: not key.startswith("tick")) for stream in streams]


@case([JOINED], out=PAIRS)
def join_of_streams(t: eddy.Topology) -> None:
    orders, paid = sides(t)
    orders.join(paid, lambda order, payment: (order, payment), eddy.JoinWindows(FOUR)).to("out", value=Native)


@case([JOINED], out=[*PAIRS, ("b", ("o1", None))])
def left_join_of_streams(t: eddy.Topology) -> None:
    orders, paid = sides(t)
    orders.left_join(paid, lambda order, payment: (order, payment), eddy.JoinWindows(FOUR)).to("out", value=Native)


@case([JOINED], out=[*PAIRS, ("b", ("o1", None)), ("b", (None, "p7")), ("c", (None, "p3"))])
def outer_join_of_streams_behind_exchanges(t: eddy.Topology) -> None:
    orders, paid = (side.map(lambda key, value: (key.upper(), value), key=S) for side in sides(t))
    windows = eddy.JoinWindows(FOUR, grace=FOUR)
    joined = orders.outer_join(paid, lambda order, payment: (order, payment), windows, name="near")
    joined.map(lambda key, value: (key.lower(), value), key=S).to("out", value=Native)


@case([JOINED], out=[("a", ("o4", "p2")), ("a", ("o5", "p2")), ("a", ("o0", None)), ("b", ("o1", None))])
def left_join_as_of_the_time_of_a_record(t: eddy.Topology) -> None:
    orders, paid = sides(t)
    orders.left_join(paid, lambda order, payment: (order, payment), eddy.AsOf(FOUR)).to("out", value=Native)


@case([JOINED], out=[("P2", "o4"), ("P2", "o5")])
def join_as_of_the_time_of_a_record_behind_an_exchange(t: eddy.Topology) -> None:
    orders, paid = sides(t)
    again = orders.map(lambda key, value: (key.lower(), value), key=S)
    joined = again.join(paid, lambda order, payment: (order, payment), eddy.AsOf(FOUR, grace=FOUR), name="rated")
    joined.map(lambda key, value: (value[1].upper(), value[0]), key=S, value=S).to("out")


@case([JOINED], out=[("a", ("o4", "p2")), ("a", ("o5", "p2")), ("a", ("o0", None)), ("b", ("o1", None))])
def left_join_as_of_a_time_with_values_of_new_keys(t: eddy.Topology) -> None:
    orders, paid = sides(t)
    again = paid.map(lambda key, value: (f"{value} {key}", value), key=S).repartition(3, "apart")
    again = again.map(lambda key, value: (key.split()[1], value), key=S)
    orders.left_join(again, lambda order, payment: (order, payment), eddy.AsOf(FOUR), name="rated").to(
        "out", value=Native
    )


@case([JOINED], out=[*PAIRS, ("b", ("o1", None)), ("b", (None, "p7")), ("c", (None, "p3"))])
def outer_join_of_streams_after_repartitions(t: eddy.Topology) -> None:
    orders, paid = (side.repartition(3, name) for side, name in zip(sides(t), ("orders", "paid"), strict=True))
    windows = eddy.JoinWindows(FOUR, grace=FOUR)
    orders.outer_join(paid, lambda order, payment: (order, payment), windows, name="near").to("out", value=Native)


@case([JOINED], out=[("a", ("o4", "p2")), ("a", ("o5", "p2")), ("a", ("o0", None)), ("b", ("o1", None))])
def left_join_as_of_the_time_of_a_record_after_a_repartition(t: eddy.Topology) -> None:
    orders, paid = sides(t)
    joined = orders.repartition(name="orders").left_join(paid, lambda order, payment: (order, payment), eddy.AsOf(FOUR))
    joined.to("out", value=Native)
