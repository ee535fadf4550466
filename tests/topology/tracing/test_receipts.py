"""A receipt adds up at each level: its parts are those of plain Python over the rows of the tables."""

import random
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pytest

import eddy
from eddy.errors import QueryError
from eddy.topology.plan.plan import Node
from eddy.topology.tracing.derivation import Derivation, derive
from eddy.topology.tracing.evaluation import Evaluation
from eddy.topology.tracing.receipts import Receipt, Receipts
from eddy.topology.tracing.text import text_of
from eddy.topology.tracing.ways import Ways
from tests.topology.programs import family

S = eddy.String
NAMES = [f"n{number}" for number in range(12)]
Tree = dict[str, Any]


def step_of(topology: eddy.Topology, name: str) -> Node:
    return next(node for node in topology.plan.nodes if node.name == name)


class Traced(NamedTuple):
    """A topology that is evaluated over the rows of its tables."""

    topology: eddy.Topology
    step: str
    tables: dict[str, dict[str, Any]]

    def trace(self, key: Any, *path: str) -> tuple[Derivation, Receipts]:
        rows = {source.topic: list(self.tables[source.topic].items()) for source in self.topology.plan.sources()}
        node = step_of(self.topology, self.step)
        evaluation = Evaluation(self.topology.plan, node, rows)
        ways = Ways(self.topology.plan, evaluation)
        receipts = Receipts(self.topology.plan, evaluation, ways, path)
        (row,) = (row for row, _ in evaluation.bags[node] if row[0] == key)
        return derive(evaluation, ways, node, row, receipts=receipts), receipts

    def receipt(self, key: Any, *path: str) -> Receipt:
        """The last receipt that the path opens."""
        made, receipts = self.trace(key, *path)
        assert receipts.opened
        return list(levels(made.sum))[-1]


def levels(receipt: Receipt | None) -> Iterator[Receipt]:
    while receipt is not None:
        yield receipt
        receipt = receipt.opened


def check(receipt: Receipt, expected: dict[Any, Any], direct: Any) -> None:
    """A receipt has the largest of these parts, the direct ones first, and its numbers add up."""
    assert receipt.number == sum(part.number for part in receipt.parts) + receipt.rest
    assert sum(part.number for part in receipt.parts if part.word) == direct
    shown = {part.key: part.number for part in receipt.parts if not part.word}
    wanted = {key: number for key, number in expected.items() if number}
    assert all(wanted[key] == number for key, number in shown.items())
    assert receipt.more == len(wanted) - len(shown)
    assert receipt.rest == sum(wanted.values()) - sum(shown.values())
    sizes = [abs(number) for number in shown.values()]
    assert sizes == sorted(sizes, reverse=True)
    assert all(abs(number) <= min(sizes) for key, number in wanted.items() if key not in shown)


# Trees, in plain Python


def below(tree: Tree, node: str) -> list[str]:
    """The children of a node: the rows with this parent."""
    return [child for child, row in tree.items() if (row if isinstance(row, str) else row["of"]) == node]


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
    assert made.sum is None
    assert len(made.of) == 2


def test_numbers_are_exact_before_they_are_rounded() -> None:
    topology = eddy.Topology("tenths")
    topology.table("n", key=S, value=eddy.Float64).to_relation().map(lambda k, v: ("all", v)).group_by_key().sum("sum")
    receipt = Traced(topology, "sum", {"n": {f"k{n}": 0.1 for n in range(20)}}).receipt("all")
    assert receipt.number == float(20 * Fraction(0.1))
    assert receipt.rest == float(12 * Fraction(0.1))


# Subtrees


def totals(include_self: bool) -> eddy.Topology:
    topology = eddy.Topology("totals")
    nodes = topology.table("nodes", key=S, value=eddy.Native)
    nodes.tree_totals("totals", own=lambda _, row: row[1], parent=lambda _, row: row[0], include_self=include_self)
    return topology


def in_topic(tree: Tree) -> dict[str, Any]:
    return {node: None if row is None else (row["of"], row["own"]) for node, row in tree.items()}


def on_cycle(tree: Tree, node: str) -> bool:
    """Whether the way up from a node comes back to it."""
    above, steps = node, 0
    while steps <= len(tree) and above in tree:
        above, steps = tree[above]["of"], steps + 1
        if above == node:
            return True
    return False


def total(tree: Tree, node: str) -> int:
    own = tree[node]["own"] if node in tree else 0
    return own + sum(total(tree, child) for child in below(tree, node))


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_tree_totals_are_the_own_number_and_the_subtrees_after_moves_and_cycles(seed: int, include_self: bool) -> None:
    draw = random.Random(f"{seed} {include_self}")
    tree: Tree = {}
    with eddy.TopologyTestDriver(totals(include_self), partitions=1 + seed % 3) as driver:
        for _ in range(6):
            epoch: Tree = {}
            for _ in range(draw.randrange(1, 7)):
                row = {"of": draw.choice(["root", None, *NAMES]), "own": draw.randrange(-3, 9)}
                epoch[draw.choice(NAMES)] = None if draw.random() < 0.2 else row
            driver.input("nodes").pipe_all(list(in_topic(epoch).items()))
            tree.update(epoch)
        made = driver.store("totals").all()
    tree = {node: row for node, row in tree.items() if row is not None}
    nodes = {*tree, *(row["of"] for row in tree.values() if row["of"] is not None)}
    well = {node for node in nodes if not on_cycle(tree, node)}
    left_out = 0 if include_self else 1
    assert made.keys() == {node for node in well if include_self or below(tree, node)}
    traced = Traced(totals(include_self), "totals", {"nodes": in_topic(tree)})
    for node, number in made.items():
        path: list[str] = []
        while True:
            at = [node, *path][-1]
            own = tree[at]["own"] if at in tree and not (left_out and not path) else 0
            parts = {child: total(tree, child) for child in below(tree, at)}
            receipt = traced.receipt(node, *path)
            assert (receipt.key, receipt.number) == (at, own + sum(parts.values()))
            assert path or receipt.number == number
            check(receipt, parts, own)
            opens = [child for child, each in parts.items() if each and below(tree, child)]
            assert {part.key for part in receipt.parts if part.opens} <= set(opens)
            if not opens:
                break
            path.append(draw.choice(opens))


def test_own_number_is_no_sum_and_the_text_says_which_it_is() -> None:
    tree = {"a": {"of": None, "own": 4}, "b": {"of": "a", "own": 2}, "c": {"of": "b", "own": 1}}
    traced = Traced(totals(True), "totals", {"nodes": in_topic(tree)})
    made, _ = traced.trace("a", "b")
    assert (
        text_of(made)
        == """\
"a" = 7   totals (upsert)
  a 7 = 4 own + b 3
    b 3 = 2 own + c 1
"""
    )
    with pytest.raises(QueryError, match="the part own is a row of step 'totals-nodes'"):
        traced.receipt("a", "own")


def test_table_that_was_a_stream_of_changes_has_the_receipt_of_its_sum() -> None:
    table = eddy.Topology("copied")
    nodes = table.table("nodes", key=S, value=S).to_relation()
    counted = nodes.map(lambda node, parent: (parent, node)).group_by_key().count("counted")
    counted.to_stream().to_table("copy")
    traced = Traced(table, "copy", {"nodes": {"a": "r", "b": "r", "c": "a"}})
    check(traced.receipt("r"), {"a": 1, "b": 1}, 0)


def reaching(**question: Any) -> eddy.Topology:
    """The number of nodes that each root reaches, and their rows."""
    topology = eddy.Topology("reaching")
    roots = topology.table("roots", key=S, value=S).to_relation()
    edges = topology.table("edges", key=S, value=eddy.Json()).to_relation().map(lambda _, row: (row["from"], row["to"]))
    found = topology.recursive_fixpoint(roots=roots, edges=edges, name="reached", node=S, **question)
    found.group_by_key().count("sizes")
    return topology


def nearest(edges: list[tuple[str, str]], root: str, most: int) -> dict[str, tuple[int, str | None]]:
    """By node its depth and the least of its parents at the depth before."""
    found: dict[str, tuple[int, str | None]] = {root: (0, None)}
    for depth in range(1, most + 1):
        for node in sorted({end for start, end in edges if start in found} - found.keys()):
            parents = [start for start, end in edges if end == node and start in found and found[start][0] == depth - 1]
            if parents:
                found[node] = depth, min(parents)
    return found


@pytest.mark.parametrize("max_depth", [None, 2])
@pytest.mark.parametrize("seed", range(8))
def test_reached_rows_are_the_workers_and_their_number_is_that_of_the_subtrees(
    seed: int, max_depth: int | None
) -> None:
    draw = random.Random(f"{seed} {max_depth}")
    edges = {str(n): {"from": draw.choice(NAMES), "to": draw.choice(NAMES)} for n in range(16)}
    roots = {"one": "n0", "two": "n1", "again": "n0"}
    topology = reaching(max_depth=max_depth)
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("roots").pipe_all(list(roots.items()))
        driver.input("edges").pipe_all([(key, edges[draw.choice([*edges])]) for key in edges])  # wrong at first
        driver.input("edges").pipe_all(draw.sample([*edges.items()], len(edges)))
        sizes = driver.store("sizes").all()
    traced = Traced(topology, "sizes", {"roots": roots, "edges": edges})
    links = [(row["from"], row["to"]) for row in edges.values()]
    for key, root in roots.items():
        tree = nearest(links, root, max_depth or 99)

        def under(node: str, tree: Any = tree) -> int:
            return 1 + sum(under(child) for child, (_, parent) in tree.items() if parent == node)

        assert sizes[key] == under(root)
        path, at = [], root
        while True:
            children = [child for child, (_, parent) in tree.items() if parent == at]
            receipt = traced.receipt(key, *path)
            check(receipt, {child: under(child) for child in children}, 1)
            opens = [child for child in children if under(child) > 1]
            if not opens:
                break
            at = draw.choice(opens)
            path.append(at)


def test_reached_row_is_made_of_the_row_of_its_parent_and_an_edge() -> None:
    edges = {"1": {"from": "a", "to": "b"}, "2": {"from": "b", "to": "c"}, "3": {"from": "c", "to": "a"}}
    traced = Traced(reaching(), "reached", {"roots": {"r": "a"}, "edges": edges})
    rows = {source.topic: list(traced.tables[source.topic].items()) for source in traced.topology.plan.sources()}
    node = step_of(traced.topology, "reached")
    evaluation = Evaluation(traced.topology.plan, node, rows)
    (row,) = (row for row, _ in evaluation.bags[node] if row[1].node == "c")
    text = text_of(derive(evaluation, Ways(traced.topology.plan, evaluation), node, row))
    assert text.count("row of topic edges") == 2
    assert text.count("row of topic roots") == 1


@pytest.mark.parametrize("question", [{"max_nodes": 2}, {"limit": 1}])
def test_roots_beyond_a_bound_have_no_rows(question: Any) -> None:
    edges = {"1": {"from": "a", "to": "b"}, "2": {"from": "b", "to": "c"}, "3": {"from": "x", "to": "y"}}
    roots = {"r": "a", "s": "x"}
    topology = reaching(**question)
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("edges").pipe_all(list(edges.items()))
        driver.input("roots").pipe_all(list(roots.items()))
        sizes = driver.store("sizes").all()
    rows = {"roots": list(roots.items()), "edges": list(edges.items())}
    node = step_of(topology, "sizes")
    assert dict(row for row, _ in Evaluation(topology.plan, node, rows).bags[node]) == sizes == {"s": 2}
