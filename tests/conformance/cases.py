"""The conformance cases: what every engine has to give. Those of nested recursions are in `fixpoints`, those
of records without a key or a value in `nulls`, those of processors in `processors`, of windows in `windows`, of joins
of streams in `stream_joins`, of records that pass once in `deduplicates`, of rows that are true for a while in
`valid_rows`, of sums, collected values and first rows in `aggregates`.
"""

from datetime import timedelta
from typing import Any

import eddy
from tests.conformance.aggregates import PAID
from tests.conformance.case import CASES, Case, N, Native, Record, S, case, less, of, plus
from tests.conformance.deduplicates import TICKS
from tests.conformance.fixpoints import CYCLE
from tests.conformance.nulls import RECORDS
from tests.conformance.processors import PROCESSED
from tests.conformance.stream_joins import JOINED
from tests.conformance.valid_rows import SEEN
from tests.conformance.windows import LATER

__all__ = ["CASES", "Case", "Record"]
assert CYCLE  # importing them has added their cases
assert TICKS
assert RECORDS
assert PROCESSED
assert LATER
assert SEEN
assert JOINED
assert PAID

# Streams


@case([of("in", ("a", "x"), ("b", ""), ("c", "yz"))], out=[("a", "X"), ("c", "YZ")])
def stateless_steps_of_a_stream(t: eddy.Topology) -> None:
    t.stream("in", S, S).filter(lambda k, v: bool(v)).map_values(str.upper, value=S).to("out")


@case(
    [of("in", ("a", "1 2"), ("b", "3"))],
    words=[("1", "a"), ("2", "a"), ("3", "b")],
    keys=[("A", "1 2"), ("B", "3")],
)
def flat_map_and_select_key(t: eddy.Topology) -> None:
    stream = t.stream("in", S, S)
    stream.flat_map(lambda k, v: [(word, k) for word in v.split()], key=S, value=S).to("words")
    stream.select_key(lambda k, v: k.upper(), key=S).to("keys")


@case(
    [of("one", ("a", "1"), ("b", "22")) + of("two", ("c", "3"))],
    short=[("a", "1"), ("c", "3")],
    long=[("b", "22")],
)
def merge_and_split(t: eddy.Topology) -> None:
    both = t.stream("one", S, S).merge(t.stream("two", S, S))
    branches = both.split(short=lambda k, v: len(v) == 1, rest=lambda k, v: True)
    branches["short"].to("short")
    branches["rest"].to("long")


@case(
    [of("one", ("a", "x1"), ("b", "y2")) + of("two", ("c", "x3"))],
    x=[("a", "x1"), ("c", "x3")],
    y=[("b", "y2")],
)
def several_topics_in_and_a_topic_by_function_out(t: eddy.Topology) -> None:
    t.stream(["one", "two"], S, S).to(lambda key, value: value[0], topics=["x", "y"])


@case(
    [of("lines", ("1", "to be or"), ("2", "not to be")), of("lines", ("3", "be"))],
    counts={"to": 2, "be": 3, "or": 1, "not": 1},
)
def word_count(t: eddy.Topology) -> None:
    words = t.stream("lines", S, S).flat_map_values(str.split, value=S)
    words.group_by(lambda _, word: word, key=S).count("counts").to("counts")


@case(
    [of("in", ("a", 1), ("b", 5)), of("in", ("a", 2), ("a", 3))], sums={"a": 6, "b": 5}, last={"a": "1,2,3", "b": "5"}
)
def reduce_and_aggregate_of_a_stream(t: eddy.Topology) -> None:
    grouped = t.stream("in", S, N).group_by_key()
    grouped.reduce(plus, "sums").to("sums")
    grouped.aggregate(str, lambda k, v, seen: f"{seen},{v}".lstrip(","), "last", value=S).to("last")


@case(
    [of("users", ("ann", "Ann")), of("clicks", ("ann", "1"), ("bob", "2")), of("users", ("bob", "Bob")),
     of("clicks", ("bob", "3"))],
    inner=[("ann", "Ann 1"), ("bob", "Bob 3")],
    left=[("ann", "Ann 1"), ("bob", "None 2"), ("bob", "Bob 3")],
)  # fmt: skip
def stream_table_joins(t: eddy.Topology) -> None:
    clicks, users = t.stream("clicks", S, S), t.table("users", S, S)
    clicks.join(users, lambda click, user: f"{user} {click}", value=S).to("inner")
    clicks.left_join(users, lambda click, user: f"{user} {click}", value=S).to("left")


@case(
    [of("users", ("ann", "Ann")), of("clicks", ("ann", "1"), ("bob", "2"))],
    values=[("ann", "ann:1"), ("bob", "bob:2")],
    spread=[("ann", "ann"), ("ann", "1"), ("bob", "bob"), ("bob", "2")],
    inner=[("ann", "ann: Ann 1")],
    left=[("ann", "ann: Ann 1"), ("bob", "bob: None 2")],
    table={"ann": "ann=Ann"},
    outer={"ann": "ann: Ann 3", "bob": "bob: None 4"},
)
def functions_that_take_the_key(t: eddy.Topology) -> None:
    clicks, users = t.stream("clicks", S, S), t.table("users", S, S)
    clicks.map_values(lambda key, value: f"{key}:{value}", value=S).to("values")
    clicks.flat_map_values(lambda key, value: [key, value], value=S).to("spread")
    clicks.join(users, lambda key, click, user: f"{key}: {user} {click}", value=S).to("inner")
    clicks.left_join(users, lambda key, click, user: f"{key}: {user} {click}", value=S).to("left")
    users.map_values(lambda key, value: f"{key}={value}", value=S).to("table")
    counts = clicks.map_values(lambda value: int(value) + 2, value=N).group_by_key().reduce(plus, "sums")
    users.outer_join(counts, lambda key, user, sum: f"{key}: {user} {sum}", "o", S).to("outer")


@case(
    [of("paid", ("a", 5), ("b", 1)) + of("refunds", ("x", "a2")), of("refunds", ("y", "b1"), ("z", None)),
     of("paid", ("a", 1))],
    balance={"a": 4, "b": 0},
)  # fmt: skip
def cogroup_of_two_streams(t: eddy.Topology) -> None:
    paid = t.stream("paid", S, N).group_by_key()
    refunds = t.stream("refunds", S, S).filter(lambda key, value: value is not None)
    by_payer = refunds.group_by(lambda key, value: value[0], key=S)
    both = paid.cogroup(lambda key, amount, total: total + amount)
    both.cogroup(by_payer, lambda key, refund, total: total - int(refund[1:])).aggregate(int, "sums", N).to("balance")


@case([of("in", ("a", "1"), ("b", "1")), of("in", ("a", "2"), ("b", None))], out={"a": "2"})
def stream_to_table(t: eddy.Topology) -> None:
    t.stream("in", S, S).to_table("latest").to("out")


# Tables


@case(
    [of("in", ("a", 1), ("b", 20), ("c", 3)), of("in", ("a", 30), ("b", 2), ("c", None))],
    out={"b": 20},
)
def filter_and_map_values_of_a_table(t: eddy.Topology) -> None:
    t.table("in", S, N).filter(lambda k, v: v < 10).map_values(lambda v: v * 10, value=N).to("out")


JOIN = [
    of("left", ("a", "1"), ("b", "2"), ("c", "3")) + of("right", ("b", "x"), ("d", "y")),
    of("left", ("b", "5"), ("c", None)) + of("right", ("a", "z"), ("d", None), ("e", "w")),
]


@case(
    JOIN,
    inner_join={"a": "1z", "b": "5x"},
    left_join={"a": "1z", "b": "5x"},
    outer_join={"a": "1z", "b": "5x", "e": "Nonew"},
)
def table_table_joins(t: eddy.Topology) -> None:
    left, right = t.table("left", S, S), t.table("right", S, S)
    left.join(right, lambda one, other: f"{one}{other}", "i", S).to("inner_join")
    left.left_join(right, lambda one, other: f"{one}{other}", "l", S).to("left_join")
    left.outer_join(right, lambda one, other: f"{one}{other}", "o", S).to("outer_join")


@case(
    [
        of("orders", ("1", "ann"), ("2", "bob"), ("3", ""), ("4", "ann")) + of("customers", ("ann", "Ann")),
        of("orders", ("1", "bob"), ("4", None)) + of("customers", ("bob", "Bob"), ("cid", "Cid")),
        of("customers", ("ann", None), ("bob", "Bobby")) + of("orders", ("5", "cid"), ("6", "ann")),
    ],
    named={"1": "bob Bobby", "2": "bob Bobby", "5": "cid Cid"},
    all={"1": "1 Bobby", "2": "2 Bobby", "3": "3 None", "5": "5 Cid", "6": "6 None"},
)
def joins_by_a_foreign_key(t: eddy.Topology) -> None:
    orders, customers = t.table("orders", S, S), t.table("customers", S, S)
    orders.foreign_key_join(customers, lambda by: by or None, "{} {}".format, "named", S).to("named")
    found = orders.foreign_key_left_join(
        customers, lambda key, by: by or None, lambda key, by, customer: f"{key} {customer}", "all", S
    )
    found.to("all")


@case(
    [of("people", ("ann", "red"), ("bob", "red"), ("cid", "blue")), of("people", ("bob", "blue"), ("ann", None))],
    sizes={"blue": 2},
)
def count_of_a_table_that_moves(t: eddy.Topology) -> None:
    t.table("people", S, S).group_by(lambda person, team: (team, person), key=S, value=S).count("sizes").to("sizes")


@case(
    [of("people", ("ann", ("red", 1)), ("bob", ("red", 2))), of("people", ("bob", ("blue", 3)), ("cid", ("red", 5)))],
    sums={"red": 6, "blue": 3},
    product={"red": 106, "blue": 103},
)
def sums_of_a_table_that_moves(t: eddy.Topology) -> None:
    teams = t.table("people", S, Native).group_by(lambda person, v: v, key=S, value=N)
    teams.reduce(plus, less, "sums").to("sums")
    teams.aggregate(lambda: 100, lambda k, v, a: a + v, lambda k, v, a: a - v, "product", value=N).to("product")


# Relations


@case(
    [of("visits", ("1", ("fr", "ann")), ("2", ("fr", "ann")), ("3", ("fr", "bob"))),
     of("visits", ("1", None), ("3", None))],
    visitors={"fr": 1},
)  # fmt: skip
def distinct_visitors(t: eddy.Topology) -> None:
    visits = t.table("visits", S, Native).to_relation().map(lambda _, visit: visit, key=S, value=S)
    visits.distinct("once").group_by_key().count("visitors").to("visitors")


@case(
    [of("ordered", ("1", "tea"), ("2", "tea"), ("3", "rum")) + of("shipped", ("8", "tea")),
     of("shipped", ("9", "rum"))],
    missing={"tea": 1},
)  # fmt: skip
def minus_as_a_bag(t: eddy.Topology) -> None:
    ordered, shipped = (
        t.table(name, S, S).to_relation().map(lambda _, item: (item, 1), key=S) for name in ("ordered", "shipped")
    )
    ordered.minus(shipped, "open").group_by_key().count("missing").to("missing")


@case(
    [of("a", ("1", "x")) + of("b", ("1", "x"), ("2", "y")), of("a", ("1", "y"))],
    counts={"x": 1, "y": 2},
)
def union_as_a_bag(t: eddy.Topology) -> None:
    a, b = (t.table(name, S, S).to_relation() for name in "ab")
    a.union(b).group_by(lambda _, value: (value, 1), key=S).count("counts").to("counts")


PEOPLE = [
    of("people", ("ann", ("red", 3)), ("bob", ("red", 1)), ("cid", ("red", 2)), ("dan", ("blue", 2))),
    of("people", ("ann", ("blue", 7)), ("eve", ("red", 2)), ("fay", ("blue", 1))),
    of("people", ("cid", None), ("dan", ("green", 4))),
]


@case(
    PEOPLE,
    best={"red": (2, 1), "blue": (7, 1), "green": (4,)},
    least={"red": 1, "blue": 1, "green": 4},
    greatest={"red": 1, "blue": 1, "green": 4},
)
def first_values_of_a_table_that_moves(t: eddy.Topology) -> None:
    teams = t.table("people", S, Native).group_by(lambda _, person: person, key=S, value=N)
    teams.top_k(2, "best").to("best")
    teams.min("least").to("least")
    teams.max("greatest", by=lambda n: 10 - n if n < 3 else n).to("greatest")


@case(
    [of("scores", ("a", 3), ("b", 1), ("a", 9)), of("scores", ("a", 5), ("a", 9), ("b", 2))],
    best={"a": (9, 9), "b": (2, 1)},
    least={"a": 3, "b": 1},
)
def first_values_of_a_stream(t: eddy.Topology) -> None:
    scores = t.stream("scores", S, N).group_by_key()
    scores.top_k(2, "best").to("best")
    scores.min("least").to("least")


@case(PEOPLE, teams={"green": "dan"}, several={"red": "2", "blue": "2"})
def rows_of_a_relation_to_a_table(t: eddy.Topology) -> None:
    people = t.table("people", S, Native).to_relation()
    teams = people.map(lambda name, person: (person[0], name), key=S, value=S).to_table("teams")
    teams.to("teams")
    teams.errors.map_values(lambda message: message.split()[2], value=S).to("several")


@case(
    [of("orders", ("o1", ("ann", "tea", 2)), ("o2", ("ann", "rum", 1)), ("o3", ("bob", "tea", 1))),
     of("prices", ("tea", 3), ("rum", 20)), of("prices", ("tea", 4)), of("orders", ("o2", None))],
    revenue={"ann": 8, "bob": 4},
)  # fmt: skip
def join_of_relations_on_another_key(t: eddy.Topology) -> None:
    orders, prices = t.table("orders", S, Native), t.table("prices", S, N)
    lines = orders.to_relation().map(lambda id, order: (order[1], (id, order[0], order[2])), key=S)
    sold = lines.join(prices, lambda item, line, price: (line[1], line[2] * price), "sold", S, N)
    sold.group_by_key().reduce(plus, less, "revenue").to("revenue")


@case(
    [of("parents", ("a", "p"), ("b", "p"), ("c", "q")), of("parents", ("c", "p"), ("b", None))],
    siblings={"a": 1, "c": 1},
)
def self_join(t: eddy.Topology) -> None:
    by_parent = t.table("parents", S, S).to_relation().map(lambda node, parent: (parent, node), key=S, value=S)
    pairs = by_parent.join(by_parent, lambda parent, one, other: (one, other), "pairs", S, S)
    pairs.filter(lambda one, other: one != other).group_by_key().count("siblings").to("siblings")


# Recursion


def descendants(t: eddy.Topology, **bound: Any) -> None:
    parents = t.table("nodes", S, S)
    above = (
        parents.to_relation()
        .map(lambda node, parent: (parent, 1))
        .recursively(lambda rows: rows.join(parents, lambda _, one, parent: (parent, 1)), "ancestors", **bound)
    )
    above.group_by_key().count("descendants").to("descendants")


TREE = [("e", "d"), ("c", "b"), ("f", "a"), ("d", "b"), ("b", "a")]


@case([of("nodes", *TREE)], descendants={"a": 5, "b": 3, "d": 1})
def descendants_in_one_batch(t: eddy.Topology) -> None:
    descendants(t)


@case([of("nodes", node) for node in TREE], descendants={"a": 5, "b": 3, "d": 1})
def descendants_one_by_one_children_first(t: eddy.Topology) -> None:
    descendants(t)


@case(
    [of("nodes", *TREE), of("nodes", ("b", "f")), of("nodes", ("d", "a"), ("e", None), ("g", "c"))],
    descendants={"a": 5, "f": 3, "b": 2, "c": 1},
)
def descendants_after_moves_and_deletes(t: eddy.Topology) -> None:
    descendants(t)


@case(
    [of("nodes", ("a", "b"), ("b", "c")), of("nodes", ("c", "d"), ("b", None)), of("nodes", ("d", "a"))],
    descendants={"b": 3, "a": 2, "d": 1},
)
def descendants_where_a_cycle_is_avoided_by_order(t: eddy.Topology) -> None:
    descendants(t)


@case(
    [of("nodes", *((str(n), str(n + 1)) for n in range(6)))],
    descendants={"1": 1, "2": 2, "3": 3, "4": 3, "5": 3, "6": 3},
)
def descendants_of_three_generations(t: eddy.Topology) -> None:
    descendants(t, max_depth=2)


@case(
    [of("nodes", ("a", "b"), ("b", "a"))],
    descendants={"a": 3, "b": 3},
)
def a_cycle_cut_at_its_limit(t: eddy.Topology) -> None:
    descendants(t, limit=2, on_limit="return")


@case(
    [of("links", *((f"{node}{side}", (str(node), str(node + 1))) for node in range(70) for side in "ab")),
     of("roots", ("r", "0"), ("q", "60")), of("roots", ("r", None))],
    reached={str(node): 1 for node in range(60, 71)},
)  # fmt: skip
def weights_beyond_64_bits(t: eddy.Topology) -> None:
    """70 nodes with two links each to the next: 2 ** 70 walks to the last one, until the root is taken back."""
    links = t.table("links", S, Native).to_relation().map(lambda _, link: (link[0], link[1]), key=S, value=S)
    roots = t.table("roots", S, S).to_relation().map(lambda _, root: (root, ""), key=S, value=S)
    walks = roots.recursively(lambda at: at.join(links, lambda _, way, to: (to, way), "step", S, S), "walks")
    walks.distinct("once").group_by_key().count("reached").to("reached")


@case(
    [of("uses", ("1", ("car", "wheel", 4)), ("2", ("wheel", "bolt", 5)), ("3", ("car", "bolt", 10))),
     of("uses", ("4", ("truck", "car", 1)), ("5", ("truck", "wheel", 2))),
     of("uses", ("2", ("wheel", "bolt", 6)), ("3", None))],
    totals={
        ("car", "wheel"): 4, ("car", "bolt"): 24, ("wheel", "bolt"): 6,
        ("truck", "car"): 1, ("truck", "wheel"): 6, ("truck", "bolt"): 36,
    },
)  # fmt: skip
def bill_of_materials(t: eddy.Topology) -> None:
    """Quantities are multiplied along a way and added over all ways."""
    lines = t.table("uses", S, Native).to_relation().map(lambda _, use: (use[0], (use[1], use[2])), key=S)
    needs = lines.map(lambda product, line: (line[0], (product, line[1])), key=S).recursively(
        lambda rows: rows.join(lines, lambda part, need, use: (use[0], (need[0], need[1] * use[1])), "explode", S),
        "needs",
    )
    totals = needs.group_by(lambda part, need: ((need[0], part), need[1]), key=Native, value=N)
    totals.reduce(plus, less, "totals").to("totals")


@case(
    [of("folders", ("docs", "root"), ("plans", "docs"), ("old", "plans"), ("older", "old")),
     of("grants", ("g1", ("docs", "ann")), ("g2", ("root", "bob"))),
     of("folders", ("pics", "root")), of("grants", ("g1", ("plans", "ann")))],
    access={"root": 1, "docs": 1, "plans": 2, "old": 1, "older": 1, "pics": 1},
)  # fmt: skip
def permissions_inherited_two_levels_down(t: eddy.Topology) -> None:
    folders, grants = t.table("folders", S, S), t.table("grants", S, Native)
    children = folders.to_relation().map(lambda folder, parent: (parent, folder), key=S, value=S)
    granted = grants.to_relation().map(lambda _, grant: grant, key=S, value=S)
    inherited = granted.recursively(
        lambda rows: rows.join(children, lambda folder, user, child: (child, user), "down", S, S), "access", max_depth=2
    )
    inherited.distinct("users").group_by_key().count("users-by-folder").to("access")


@case(
    [of("edges", ("1", ("a", "b")), ("2", ("a", "c")), ("3", ("b", "d")), ("4", ("c", "d")), ("5", ("d", "e"))),
     of("edges", ("6", ("a", "d"))), of("edges", ("3", None))],
    ways={"b": 1, "c": 1, "d": 2, "e": 2},
)  # fmt: skip
def ways_through_a_graph_are_counted(t: eddy.Topology) -> None:
    edges = t.table("edges", S, Native).to_relation().map(lambda _, edge: edge, key=S, value=S)
    starts = edges.filter(lambda source, to: source == "a").map(lambda source, to: (to, source), key=S, value=S)
    ways = starts.recursively(lambda rows: rows.join(edges, lambda at, start, to: (to, start), "step", S, S), "ways")
    ways.group_by_key().count("ways-to").to("ways")


@case(
    [of("numbers", ("x", 27), ("y", 6)), of("numbers", ("y", None))],
    steps={"x": 112},
)
def a_recursion_without_a_join(t: eddy.Topology) -> None:
    """How many steps to 1, by Collatz: a flat_map that ends by itself."""

    def onward(name: str, n: int) -> list[tuple[str, int]]:
        return [] if n == 1 else [(name, n // 2 if n % 2 == 0 else 3 * n + 1)]

    rows = t.table("numbers", S, N).to_relation()
    rows.recursively(lambda x: x.flat_map(onward, key=S, value=N), "collatz").group_by_key().count("n").to("steps")


@case(
    [of("links", ("a", "B"), ("b", "C"), ("c", "D"))],
    reached={"B": 1, "C": 2, "D": 3},
)
def a_recursion_that_moves_rows_inside(t: eddy.Topology) -> None:
    links = t.table("links", S, S)
    reached = (
        links.to_relation()
        .map(lambda _, to: (to, 1), key=S)
        .recursively(
            lambda rows: rows.select_key(lambda k, v: k.lower(), key=S).join(
                links, lambda _, one, to: (to, one), "follow", S
            ),
            "reached",
        )
    )
    reached.group_by_key().count("reached-by").to("reached")


def kip(t: eddy.Topology, include_seeds: bool) -> None:
    nodes = t.stream("nodes", S, S)
    parents = nodes.to_table()
    nodes.map(lambda child, parent: (parent, 1), key=S, value=N).recursively(
        lambda updates: updates.join(parents, lambda count, parent: parent, value=S).map(
            lambda child, parent: (parent, 1), key=S, value=N
        ),
        "updates",
        include_seeds=include_seeds,
    ).group_by_key().count("counts").to("counts")


IN_ORDER = [of("nodes", node) for node in [("b", "a"), ("c", "b"), ("d", "b"), ("e", "d"), ("f", "a")]]


@case(IN_ORDER, counts={"a": 5, "b": 3, "d": 1})
def the_example_of_kip_857(t: eddy.Topology) -> None:
    kip(t, include_seeds=True)


@case(IN_ORDER, counts={"a": 3, "b": 1})
def the_example_of_kip_857_to_the_letter(t: eddy.Topology) -> None:
    kip(t, include_seeds=False)


@case([of("in", ("a", "xyz"), ("b", "q"))], out=[("a", "xyz"), ("a", "xy"), ("a", "x"), ("b", "q")])
def a_stream_that_feeds_itself(t: eddy.Topology) -> None:
    t.stream("in", S, S).recursively(
        lambda rows: rows.filter(lambda k, v: len(v) > 1).map_values(lambda v: v[:-1], value=S), "shorter"
    ).to("out")


# Reachability and totals


def depths_of(rows: eddy.Relation[Any, eddy.Reached]) -> None:
    """The sum of the depths at which each node is reached, by key and node."""
    found = rows.filter_not(lambda key, row: row.cycle)
    depths = found.group_by(lambda key, row: (f"{key}/{row.node}", int(row.depth)), key=S, value=N)
    depths.reduce(plus, less, "depths").to("depths", value=N)


GRAPH = of("edges", ("1", "a b"), ("2", "b c"), ("3", "c b"), ("4", "a c"), ("5", "d e"))


def edges_of(t: eddy.Topology) -> eddy.Relation[str, str]:
    return t.table("edges", S, S).to_relation().map(lambda _, edge: tuple(edge.split()), key=S, value=S)  # type: ignore[arg-type, return-value]


@case(
    [of("roots", ("ann", "a"), ("bob", "d")), GRAPH, of("edges", ("4", None), ("6", "e c"))],
    depths={"ann/a": 0, "ann/b": 1, "ann/c": 2, "bob/d": 0, "bob/e": 1, "bob/c": 2, "bob/b": 3},
)
def fixpoint_of_a_graph_with_a_cycle(t: eddy.Topology) -> None:
    roots = t.table("roots", S, S).to_relation()
    depths_of(t.recursive_fixpoint(roots=roots, edges=edges_of(t), name="reach", deletion_mode="support-counts"))


@case(
    [of("roots", ("ann", "a"), ("bob", "a")), GRAPH, of("edges", ("3", None), ("7", "c a")), of("roots", ("bob", "b"))],
    depths={"ann/a": 0, "ann/b": 1, "ann/c": 1, "bob/b": 0, "bob/c": 1, "bob/a": 2},
    cycles={"ann": "a b c a", "bob": "b c a b"},
)
def fixpoint_that_names_a_cycle(t: eddy.Topology) -> None:
    roots = t.table("roots", S, S).to_relation()
    rows = t.recursive_fixpoint(roots=roots, edges=edges_of(t), name="reach", cycle_policy="error")
    depths_of(rows)
    cycles = rows.filter(lambda key, row: row.cycle).group_by(
        lambda key, row: (key, " ".join(row.cycle)), key=S, value=S
    )
    cycles.reduce(lambda _, way: way, lambda way, _: way, "cycles").to("cycles")


@case(
    [of("roots", ("ann", "a")), GRAPH, of("edges", ("2", None))],
    depths={"ann/a": 0, "ann/b": 1 + 2, "ann/c": 1},
)
def fixpoint_of_simple_paths(t: eddy.Topology) -> None:
    roots = t.table("roots", S, S).to_relation()
    depths_of(t.recursive_fixpoint(roots=roots, edges=edges_of(t), name="reach", cycle_policy="allow-paths"))


@case(
    [
        of("nodes", ("c", "b"), ("d", "c"), ("b", "a")),
        of("nodes", ("c", "a"), ("e", "d"), ("b", "e")),
        of("nodes", ("a", "e")),
        of("nodes", ("d", "f")),
    ],
    totals={"a": 2, "b": 1, "c": 1, "d": 5, "e": 4, "f": 5},
)
def totals_of_a_tree_that_moves_and_goes_round(t: eddy.Topology) -> None:
    t.table("nodes", S, S).tree_totals("totals", value=N).to("totals")


@case(
    [
        of("signs", ("ann", "here"), ("ann", "there"), ("ann", "tick")),
        of("signs", *[("ann", "tick")] * 9, ("bob", "here"), ("bob", "tick")),
    ],
    live={"bob": "here"},
    users={"here": 1},
)
def rows_that_expire(t: eddy.Topology) -> None:
    signs = t.stream("signs", S, S).filter(lambda user, sign: sign != "tick")
    live = signs.to_table("live", timedelta(milliseconds=7), "event time")
    live.to("live")
    live.group_by(lambda user, sign: (sign, user), key=S).count("users").to("users", value=N)


@case(
    [of("in-a", ("a", "x"), ("b", "x")), of("in-b", ("a", "y")) + of("in-a", ("c", "y"))],
    counts={"a": 2, "b": 1, "c": 1},
)
def topics_by_a_pattern(t: eddy.Topology) -> None:
    t.stream(pattern="in-[ab]", key=S, value=S).group_by_key().count("n").to("counts")


@case(
    [
        of("parcels", *((name, number) for number, name in enumerate("abcabca"))),
        of("parcels", ("d", 7), ("a", 8), ("b", 12)),
    ],
    rooms={"0": 1, "1": 1, "2": 1},
    routed=[*((name, number) for number, name in enumerate("abcabca")), ("d", 7), ("a", 8), ("b", 12)],
)
def partitions_that_a_function_chooses(t: eddy.Topology) -> None:
    """Numbers with equal remainders are in one partition, of one or of three; by their keys they would not be."""
    t.stream("parcels", S, N).to("routed", partitioner=lambda name, number, partitions: number % partitions)
    there = t.stream("routed", S, N).map(
        lambda name, number, record: (f"{number % 3}", record.partition), key=S, value=N
    )
    seen = there.group_by_key().aggregate(
        tuple, lambda _, partition, seen: tuple(sorted({*seen, partition})), "seen", Native
    )
    seen.map_values(len, value=N).to("rooms")
