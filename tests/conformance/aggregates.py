"""Conformance cases of sums, means, latest values, collected values, numbers of different values and first rows."""

import eddy
from tests.conformance.case import N, Native, S, case, of

__all__ = ["PAID"]

PAID = [
    of("paid", ("1", ("ann", 0.1)), ("2", ("ann", 0.2)), ("3", ("ben", 7)), ("4", ("ann", 0.3)), ("5", ("cid", None))),
    of("paid", ("3", ("ben", 2**60)), ("6", ("ben", 1)), ("2", ("ann", None)), ("7", ("dan", 5)), ("8", ("dan", 5))),
    of("paid", ("7", None), ("1", ("ben", 1)), ("9", ("eve", 1e300)), ("10", ("eve", 0.5)), ("11", ("eve", -1e300))),
]
"""Who has paid how much, by the number of the payment."""


@case(
    PAID,
    sums={"ann": 0.3, "ben": 2**60 + 2, "dan": 5, "eve": 0.5},
    means={"ann": 0.3, "ben": (2**60 + 2) / 3, "dan": 5.0, "eve": 0.5 / 3},
    kinds={"ann": 1, "ben": 2, "dan": 1, "eve": 3},
    halves={"ann": 0.15, "ben": 2.0**59 + 1, "dan": 2.5, "eve": 0.25},
)
def sums_and_means_of_a_table_that_moves(t: eddy.Topology) -> None:
    payers = t.table("paid", S, Native).group_by(lambda _, payment: payment, key=S)
    payers.sum("sums").to("sums", value=Native)
    payers.avg("means").to("means")
    payers.distinct_count("kinds").to("kinds")
    payers.sum("halves", of=lambda paid: paid / 2, value=eddy.Float64).to("halves")


@case(
    PAID,
    least={"ann None": 1, "eve -1e+300": 1, "ann 0.3": 1, "eve 0.5": 1, "ben 1.0": 2},
    last={"eve 1e+300": 1, "eve 0.5": 1, "eve -1e+300": 1, "dan 5.0": 1},
)
def first_rows_of_views_by_an_order(t: eddy.Topology) -> None:
    tables = {"paid": (t.table("paid", S, Native), {"id": "text", "payer": "text", "paid": "double"})}
    for name, order in {
        "least": "paid NULLS FIRST, payer DESC LIMIT 6 OFFSET 1",
        "last": "payer DESC, paid DESC NULLS LAST LIMIT 4",
    }.items():
        rows = t.sql(f"SELECT payer, paid FROM paid ORDER BY {order}", tables, name=f"{name}-rows")
        rows.map(lambda _, row: (f"{row[0]} {row[1]}", 1), key=S, value=N).group_by_key().count(name).to(name)


@case(
    [
        of("paid", ("ann", (0.1, 1)), ("ben", (2**70, 1)), ("ann", (0.2, 3)), ("cid", (None, 9)), ("dan", None)),
        of("paid", ("ann", (0.3, 2)), ("ben", (-1, 1)), ("ann", (None, 1)), (None, (4, 1))),
    ],
    sums={"ann": 0.6, "ben": 2**70 - 1},
    means={"ann": 0.2, "ben": float(2**69)},
    kinds={"ann": 3, "ben": 2},
    newest={"ann": [0.2, 3], "ben": [2**70, 1], "cid": [None, 9]},
)
def sums_and_means_of_a_stream(t: eddy.Topology) -> None:
    """Values are lists, which cannot be hashed, and ints of more than 64 bits."""
    paid = t.stream("paid", S, eddy.Json()).group_by_key()
    paid.sum("sums", of=lambda payment: payment[0], value=eddy.Json()).to("sums")
    paid.avg("means", of=lambda payment: payment[0]).to("means")
    paid.distinct_count("kinds", of=lambda payment: payment[0], value=eddy.Json()).to("kinds")
    paid.latest("newest", by=lambda payment: (payment[1], payment[0] or 0)).to("newest")


SEEN = [
    of("seen", ("1", ("ann", (3, "c"))), ("2", ("ann", (1, "a"))), ("3", ("ben", (2, "x"))), ("4", ("ann", (2, "b")))),
    of("seen", ("5", ("ann", (1, "z"))), ("6", ("ben", (2, "x"))), ("7", ("cid", None)), ("8", ("dan", (5, "e")))),
    of("seen", ("1", ("ben", (1, "c"))), ("8", None), ("9", ("eve", (1, "f")))),
]


@case(
    SEEN,
    all={
        "ann": ((1, "a"), (1, "z"), (2, "b")),
        "ben": ((1, "c"), (2, "x"), (2, "x")),
        "eve": ((1, "f"),),
    },
    two={"eve": ((1, "f"),)},
    many={"ann": "3", "ben": "3"},
    latest={"ann": (2, "b"), "ben": (2, "x"), "eve": (1, "f")},
    times={"ann": 2, "ben": 2, "eve": 1},
)
def values_collected_of_a_table_that_moves(t: eddy.Topology) -> None:
    people = t.table("seen", S, Native).group_by(lambda _, seen: seen, key=S)
    people.collect("all", by=lambda seen: seen[0], max=3).to("all", value=Native)
    two = people.collect("two", max=2)
    two.to("two", value=Native)
    two.errors.map_values(lambda message: message.split()[5], value=S).to("many")
    people.latest("latest", by=lambda seen: seen[0]).to("latest", value=Native)
    people.distinct_count("times", of=lambda seen: seen[0], value=N).to("times")


@case(
    [of("in", ("a", 3), ("b", 9), ("a", 1)), of("in", ("a", 3), ("b", 9), ("c", None), (None, 1))],
    all={"a": (1, 3, 3), "b": (9, 9)},
    two={"b": (9, 9)},
    errors=[("a", "3")],
    kinds={"a": 2, "b": 1},
)
def values_collected_of_a_stream(t: eddy.Topology) -> None:
    records = t.stream("in", S, N).group_by_key()
    records.collect("all", max=3).to("all")
    two = records.collect("two", max=2)
    two.to("two")
    two.errors.map_values(lambda message: message.split()[5], value=S).to("errors")
    records.distinct_count("kinds").to("kinds")


@case(
    [
        of("links", ("1", ("a", "b")), ("2", ("b", "c")), ("3", ("c", "a")), ("4", ("x", "y"))),
        of("links", ("5", ("b", "d")), ("4", ("d", "b"))),
        of("links", ("3", None)),
    ],
    reached={"a": 3, "b": 2, "c": 0, "d": 2},
)
def aggregates_inside_a_recursion(t: eddy.Topology) -> None:
    """The nodes that a node reaches: in each iteration those of its neighbours are collected, counted and added up."""
    links = t.table("links", S, Native).to_relation().map(lambda _, link: (link[1], link[0]), key=S, value=S)
    nodes = links.flat_map(lambda to, at: [(to, to), (at, at)], key=S, value=S).distinct("nodes")

    def step(reached: eddy.Relation[str, str]) -> eddy.Relation[str, str]:
        found = reached.join(links, lambda at, far, before: (before, far), "found", S, S)
        once = found.group_by_key().collect("once", max=100).to_relation()
        spread = once.flat_map(lambda at, many: [(at, far) for far in many], key=S, value=S)
        ones = spread.distinct("each").group_by(lambda at, far: ((at, far), 1), key=Native, value=N)
        sums, kinds = ones.sum("some").to_relation(), ones.distinct_count("kinds")
        both = sums.join(kinds.to_relation(), lambda pair, a, b: (pair, a + b), "both", Native, N)
        same = both.join(ones.avg("means").to_relation(), lambda pair, two, mean: (pair, two * mean), "same", Native)
        return same.filter(lambda _, two: two == 2).map(lambda pair, _: pair, key=S, value=S)

    reached = nodes.recursively(step, "reached").distinct("all")
    reached.group_by(lambda at, far: (at, int(at != far)), key=S, value=N).sum("sizes").to("reached")
