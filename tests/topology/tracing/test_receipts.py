"""A receipt adds up at each level: its parts are those of plain Python over the rows of the tables."""

import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import eddy
from eddy.errors import QueryError
from eddy.topology.tracing.text import text_of
from tests.topology.programs import family
from tests.topology.tracing.traced import NAMES, Traced, Tree, below, check

S = eddy.String


def size(tree: Tree, node: str, depth: int = 99) -> int:
    """The number of nodes below a node, at most so far."""
    return 0 if not depth else sum(1 + size(tree, child, depth - 1) for child in below(tree, node))


def changed(draw: random.Random, tree: Tree, driver: eddy.TopologyTestDriver) -> None:
    """Move, delete and add nodes in any order, children before their parents too, and cut into epochs by chance."""
    moves: list[tuple[str, str | None]] = []
    for _ in range(25):
        at = draw.randrange(len(NAMES))
        parent = draw.choice(["root", "elsewhere", *NAMES[:at]])
        moves.append((NAMES[at], None if draw.random() < 0.2 else parent))
    while moves:
        epoch = [moves.pop() for _ in range(min(len(moves), draw.randrange(1, 9)))]
        driver.input("nodes").pipe_all(epoch)
        tree.update(epoch)
    for node in [node for node, parent in tree.items() if parent is None]:
        del tree[node]


@pytest.mark.parametrize("depth", [None, 1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_parts_of_a_count_are_the_children_of_a_random_tree_after_moves(seed: int, depth: int | None) -> None:
    draw = random.Random(f"{seed} {depth}")
    topology = family() if depth is None else family(max_depth=depth)
    tree: Tree = {}
    with eddy.TopologyTestDriver(topology) as driver:
        changed(draw, tree, driver)
        counts = driver.store("descendants").all()
    most = 99 if depth is None else depth + 1
    assert counts == {node: size(tree, node, most) for node in {*tree.values()}}
    traced = Traced(topology, "descendants", {"nodes": tree})
    for node in counts:
        path: list[str] = []
        left = most
        while left:
            at = [node, *path][-1]
            children = below(tree, at)
            receipt = traced.receipt(node, *path)
            assert (receipt.key, receipt.number) == (at, size(tree, at, left))
            parts = {child: size(tree, child, left - 1) for child in children}
            check(receipt, parts, len(children))
            assert all(part.opens for part in receipt.parts)
            check(traced.receipt(node, *path, "direct"), dict.fromkeys(children, 1), 0)
            if not any(parts.values()):
                break
            path.append(draw.choice([child for child in children if parts[child]]))
            left -= 1


def bill() -> eddy.Topology:
    """What each assembly costs: the parts in it, as often as they are needed, with the parts in those."""
    topology = eddy.Topology("bill")
    parts = topology.table("parts", key=S, value=eddy.Json()).to_relation()
    used = parts.map(lambda part, row: (row["of"], row["cost"] * row["times"]))
    costs = used.recursively(
        lambda rows: rows.join(parts, lambda _, cost, row: (row["of"], cost * row["times"])), name="uses"
    )
    costs.group_by_key().sum("costs")
    return topology


def cost(tree: Tree, node: str) -> Any:
    return sum(row["times"] * (row["cost"] + cost(tree, part)) for part, row in tree.items() if row["of"] == node)


@pytest.mark.parametrize("of", [int, float, Decimal])
@pytest.mark.parametrize("seed", range(6))
def test_parts_of_a_sum_are_multiplied_on_the_way(seed: int, of: type) -> None:
    draw = random.Random(f"{seed} {of}")
    tree: Tree = {}
    for at, name in enumerate(NAMES):
        number = draw.randrange(-8, 36) if of is int else of(draw.randrange(-8, 36)) / 4
        tree[name] = {"of": draw.choice(["top", *NAMES[:at]]), "cost": number, "times": draw.randrange(1, 4)}
    traced = Traced(bill(), "costs", {"parts": tree})
    path: list[str] = []
    times = 1
    while children := below(tree, ["top", *path][-1]):
        receipt = traced.receipt("top", *path)
        parts = {child: times * tree[child]["times"] * cost(tree, child) for child in children}
        own = {child: times * tree[child]["times"] * tree[child]["cost"] for child in children}
        assert all(type(part.number) is of for part in receipt.parts)
        check(receipt, parts, sum(own.values()))
        if any(own.values()):
            check(traced.receipt("top", *path, "direct"), own, 0)
        openable = [child for child in children if parts[child]]
        if not openable:
            break
        path.append(draw.choice(openable))
        times *= tree[path[-1]]["times"]


def paths() -> eddy.Topology:
    """The number of paths to each node of a graph in which two edges may lead to one node, and of loose nodes."""
    topology = eddy.Topology("paths")
    edges = topology.table("edges", key=S, value=eddy.Json()).to_relation().map(lambda _, row: (row["from"], row["to"]))
    loose = topology.table("loose", key=S, value=S).to_relation()
    to = edges.map(lambda start, end: (end, ""))
    found = to.recursively(
        lambda rows: rows.join(edges, lambda _, one, end: (end, "")).union(loose.map(lambda key, _: (key, ""))),
        name="paths",
    )
    found.group_by_key().count("counts")
    return topology


@pytest.mark.parametrize("seed", range(8))
def test_parts_of_a_count_of_paths_are_what_led_there(seed: int) -> None:
    draw = random.Random(seed)
    edges = [{"from": NAMES[a := draw.randrange(11)], "to": NAMES[draw.randrange(a + 1, 12)]} for _ in range(20)]
    loose = {name: "" for name in NAMES if draw.random() < 0.3}
    traced = Traced(paths(), "counts", {"edges": dict(zip(map(str, range(20)), edges, strict=True)), "loose": loose})

    def number(node: str) -> int:
        return (node in loose) + sum(1 + number(edge["from"]) for edge in edges if edge["to"] == node)

    for node in NAMES:
        if not number(node):
            continue
        before = [edge["from"] for edge in edges if edge["to"] == node]
        parts = {each: number(each) * before.count(each) for each in before}
        check(traced.receipt(node), parts, len(before) + (node in loose))


def test_parts_of_a_sum_without_a_recursion_are_the_rows_of_tables() -> None:
    topology = eddy.Topology("orders")
    customers = topology.table("customers", key=S, value=S)
    placed = topology.table("placed", key=S, value=eddy.Json())
    orders = placed.to_relation().map(lambda _, order: (order["by"], order["sum"]))
    orders.join(customers, lambda _, total, city: (city, total)).group_by_key().sum("totals")
    draw = random.Random(5)
    cities = {name: draw.choice(["rome", "oslo"]) for name in NAMES}
    rows = {f"o{n}": {"by": draw.choice(NAMES), "sum": draw.randrange(9) / 8} for n in range(40)}
    traced = Traced(topology, "totals", {"customers": cities, "placed": rows})
    for city in ("rome", "oslo"):
        check(traced.receipt(city), {n: row["sum"] for n, row in rows.items() if cities[row["by"]] == city}, 0)


def test_sum_of_counts_opens_into_the_counts() -> None:
    topology = eddy.Topology("visits")
    visits = topology.table("visits", key=S, value=S).to_relation()
    by_guest = visits.map(lambda visit, guest: (guest, visit)).group_by_key().count("by_guest")
    by_guest.to_relation().map(lambda guest, n: (guest[0], n)).group_by_key().sum("by_letter")
    rows = {"v1": "ann", "v2": "ann", "v3": "abe", "v4": "bob", "v5": "ann"}
    traced = Traced(topology, "by_letter", {"visits": rows})
    check(traced.receipt("a"), {"ann": 3, "abe": 1}, 0)
    check(traced.receipt("a", "ann"), {"v1": 1, "v2": 1, "v5": 1}, 0)
    with pytest.raises(QueryError, match=r"the part v1 is a row of step 'visits' .* no sum"):
        traced.receipt("a", "ann", "v1")


def test_parts_of_one_key_are_told_apart_by_their_values() -> None:
    topology = eddy.Topology("tags")
    tags = topology.table("tags", key=S, value=S).to_relation()
    tags.map(lambda _, text: ("all", text)).distinct().group_by_key().count("kinds")
    traced = Traced(topology, "kinds", {"tags": {"1": "red", "2": "blue", "3": "red"}})
    check(traced.receipt("all"), {"red": 1, "blue": 1}, 0)


def test_numbers_through_a_cycle_are_sums_of_the_rows_of_the_recursion() -> None:
    topology = eddy.Topology("reach")
    links = topology.table("links", key=S, value=S).to_relation()
    reached = links.map(lambda node, target: (target, node)).distinct()
    reached = reached.recursively(
        lambda rows: rows.join(links, lambda _, start, target: (target, start)).distinct(), name="reached"
    )
    reached.map(lambda node, start: (start, node)).group_by_key().count("sizes")
    traced = Traced(topology, "sizes", {"links": {"a": "b", "b": "c", "c": "a", "d": "a"}})
    check(traced.receipt("d"), {"a": 2, "b": 1, "c": 1}, 0)  # a: from the seed, and around
    assert not any(part.opens for part in traced.receipt("d").parts)


def test_names_of_rows_are_shown_with_the_keys_that_open_them() -> None:
    topology = eddy.Topology("named")
    nodes = topology.table("nodes", key=S, value=eddy.Json())
    found = nodes.to_relation().filter(lambda _, row: row["of"] is not None).map(lambda _, row: (row["of"], 1))
    found = found.recursively(
        lambda rows: rows.join(nodes, lambda _, one, row: (row["of"], one)).filter(lambda key, _: key), name="above"
    )
    found.group_by_key().count("sizes").join(nodes, lambda count, row: f"{row['name']}: {count}").to("named")
    tree = {
        "1": {"name": "animal", "of": None},
        "2": {"name": "chordate", "of": "1"},
        "3": {"name": "fish", "of": "2"},
        "4": {"name": "bird", "of": "2"},
        "direct": {"name": "sponge", "of": "1"},
        "5": {"name": "calcarea", "of": "direct"},
    }
    traced = Traced(topology, "named", {"nodes": tree})
    traced = Traced(topology, next(sink.name for sink in topology.plan.sinks()), traced.tables)
    assert (
        text_of(traced.trace("1", "2", "direct")[0])
        == """\
"1" = "animal: 5"   sink
  "1" = "animal: 5"   sizes-nodes-join (join)
    "1" = 5   sizes (count)
      animal (1) 5 = 2 direct + chordate (2) 2 + sponge (direct) 1
        chordate (2) 2 = 2 direct
          direct 2 = bird (4) 1 + fish (3) 1
    ⋈ "1" = {"name": "animal", "of": null}   nodes (row of topic nodes)
"""
    )
    named = Traced(topology, "sizes", traced.tables)
    assert [part.opens for part in named.receipt("1").parts] == ["direct", "2", '"direct"']
    check(named.receipt("1", '"direct"'), {}, 1)


@pytest.mark.slow
def test_lines_are_bounded_whatever_the_fan_out() -> None:
    tree = {f"{number:05}" + "long" * 30: "top" for number in range(3_000)} | {
        f"under {number}": f"{number:05}" + "long" * 30 for number in range(3_000)
    }
    traced = Traced(family(), "descendants", {"nodes": tree})
    made, _ = traced.trace("top")
    lines = text_of(made).splitlines()
    assert len(lines) == 2
    assert len(lines[1]) < 2_000
    assert "… 2,993 (2,993 more)" in lines[1]
    assert traced.receipt("top", f"{2_999:05}" + "long" * 30).number == 1  # a part that is not shown


def test_part_that_is_not_there_is_refused_with_those_that_are() -> None:
    traced = Traced(family(), "descendants", {"nodes": {"leaf": "twig", "twig": "tree"}})
    with pytest.raises(QueryError, match="twig has no part with the key 'tree'; it has direct"):
        traced.receipt("tree", "twig", "tree")
    assert not traced.trace("tree", "trig")[1].opened


def test_sum_that_is_not_finite_is_made_of_its_rows() -> None:
    topology = eddy.Topology("inf")
    topology.table("n", key=S, value=eddy.Float64).to_relation().map(lambda k, v: ("all", v)).group_by_key().sum("sum")
    made, _ = Traced(topology, "sum", {"n": {"a": float("inf"), "b": 1.0}}).trace("all")
    assert not made.sums
    assert len(made.of) == 2


def test_numbers_are_exact_before_they_are_rounded() -> None:
    topology = eddy.Topology("tenths")
    topology.table("n", key=S, value=eddy.Float64).to_relation().map(lambda k, v: ("all", v)).group_by_key().sum("sum")
    receipt = Traced(topology, "sum", {"n": {f"k{n}": 0.1 for n in range(20)}}).receipt("all")
    assert receipt.number == float(20 * Fraction(0.1))
    assert receipt.rest == float(12 * Fraction(0.1))
