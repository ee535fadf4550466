"""Recursive programs over a graph that changes, one for each way in which a recursion can be hard.

    edges   id -> (from, to, weight): loops, parallel edges and cycles, unless the program is of `forward` edges
    roots   id -> node

A program returns the relations that are watched, by name. What is expected of it is what the naive
evaluator makes of its plan.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import eddy

__all__ = ["PROGRAMS", "Edit", "Graph", "Program"]

N = eddy.Native
Relation = eddy.Relation[Any, Any]
Watched = dict[str, Relation]
Edit = tuple[str, int, Any]
"""(topic, key, value or None)."""


class Graph:
    """The sources of a program, and names for its steps: the same program may be there twice."""

    def __init__(self, topology: eddy.Topology, prefix: str = "") -> None:
        self.topology, self.prefix = topology, prefix

    def __call__(self, name: str) -> str:
        """A step's name."""
        return self.prefix + name

    def _source(self, topic: str, function: Callable[[Any, Any], Any]) -> Relation:
        table = self.topology.table(self.prefix + topic, N, N)
        return table.to_relation().map(function)

    def roots(self) -> Relation:
        """Rows (node, 0)."""
        return self._source("roots", lambda _, node: (node, 0))

    def edges(self) -> Relation:
        """Rows (from, to)."""
        return self._source("edges", lambda _, edge: (edge[0], edge[1]))

    def weighted(self) -> Relation:
        """Rows (from, (to, weight))."""
        return self._source("edges", lambda _, edge: (edge[0], (edge[1], edge[2])))


@dataclass(frozen=True)
class Program:
    """`sources` are its source topics; `forward` edges lead to higher nodes only."""

    name: str
    build: Callable[[Graph], Watched]
    sources: tuple[str, ...] = ("edges", "roots")
    forward: bool = False
    nodes: int = 7
    tags: frozenset[str] = field(default_factory=frozenset)

    def topology(self, name: str | None = None) -> tuple[eddy.Topology, Watched]:
        """The program as a topology, and what is to be watched of it."""
        topology = eddy.Topology(name or self.name)
        return topology, self.build(Graph(topology))

    def edit(self, rng: random.Random, nodes: int, there: Mapping[str, Mapping[int, Any]], gone: float) -> Edit:
        """A row comes or moves, or goes, which is `gone` likely where there is one."""
        topic = rng.choices(self.sources, [4 if topic.endswith("edges") else 1 for topic in self.sources])[0]
        rows = there.get(topic, {})
        if rows and rng.random() < gone:
            return topic, rng.choice([*rows]), None
        if topic.endswith("roots"):
            return topic, rng.randrange(3), rng.randrange(nodes)
        a, b = sorted(rng.sample(range(nodes), 2)) if self.forward else (rng.randrange(nodes), rng.randrange(nodes))
        return topic, rng.randrange(3 * nodes), (a, b, rng.randrange(1, 4))


PROGRAMS: dict[str, Program] = {}


def program(
    *sources: str, forward: bool = False, nodes: int = 7, tags: str = ""
) -> Callable[[Callable[[Graph], Watched]], Callable[[Graph], Watched]]:
    """Make a program of a function; it is called like the function."""

    def add(build: Callable[[Graph], Watched]) -> Callable[[Graph], Watched]:
        name = build.__name__.replace("_", "-")
        PROGRAMS[name] = Program(name, build, sources or ("edges", "roots"), forward, nodes, frozenset(tags.split()))
        return build

    return add


def flip(key: Any, value: Any) -> tuple[Any, Any]:
    return value, key


def least(key: Any, values: Mapping[Any, int]) -> list[Any]:
    return [min(values)]


def two_least(key: Any, values: Mapping[Any, int]) -> list[Any]:
    return sorted(values)[:2]


def plus(total: int, n: int) -> int:
    return total + n


def less(total: int, n: int) -> int:
    return total - n


# By waves


@program(forward=True, tags="waves")
def ways_of_a_graph_without_cycles(g: Graph) -> Watched:
    edges = g.edges()
    return {"ways": g.roots().recursively(lambda x: x.join(edges, lambda a, one, b: (b, one), g("step")), g("ways"))}


@program(tags="waves")
def walks_of_at_most_three_steps(g: Graph) -> Watched:
    edges = g.edges()
    op = lambda x: x.join(edges, lambda a, one, b: (b, one), g("step"))  # noqa: E731
    return {"walks": g.roots().recursively(op, g("walks"), max_depth=3)}


# Reachability


def reached(g: Graph, roots: Relation, edges: Relation, name: str = "reach", **bound: Any) -> Relation:
    """The nodes that can be come to, each once for being a root and once for being reached."""
    return roots.recursively(
        lambda x: x.join(edges, lambda a, one, b: (b, one), g(f"{name}-step")).distinct(g(f"{name}-once")),
        g(name),
        **bound,
    )


@program()
def reachability(g: Graph) -> Watched:
    return {"reach": reached(g, g.roots(), g.edges())}


@program()
def reachability_of_distinct_inputs(g: Graph) -> Watched:
    found = reached(g, g.roots().distinct(g("root")), g.edges().distinct(g("edge")))
    return {"reach": found, "once": found.distinct(g("all"))}


@program("edges", "roots", "other-edges", "other-roots")
def two_identical_blocks(g: Graph) -> Watched:
    other = Graph(g.topology, "other-")
    return {"reach": reached(g, g.roots(), g.edges()), "other": reached(other, other.roots(), other.edges())}


@program()
def two_identical_blocks_over_the_same_graph(g: Graph) -> Watched:
    roots, edges = g.roots(), g.edges()
    return {name: reached(g, roots, edges, name) for name in ("one", "two")}


@program()
def a_block_behind_a_block(g: Graph) -> Watched:
    """What is reached backwards from what is reached."""
    roots, edges = g.roots(), g.edges()
    forth = reached(g, roots, edges, "forth")
    return {"forth": forth, "back": reached(g, forth, edges.map(flip), "back")}


@program()
def what_is_not_reached(g: Graph) -> Watched:
    edges = g.edges()
    nodes = edges.flat_map(lambda a, b: [(a, 0), (b, 0)]).distinct(g("nodes"))
    return {"left": nodes.minus(reached(g, g.roots(), edges).distinct(g("found")), g("left"))}


@program("edges")
def transitive_closure_as_x_joined_with_itself(g: Graph) -> Watched:
    op = lambda x: x.map(flip).join(x, lambda b, a, c: (a, c), g("two")).distinct(g("path"))  # noqa: E731
    return {"closure": g.edges().distinct(g("edge")).recursively(op, g("closure"))}


@program("edges")
def same_generation(g: Graph) -> Watched:
    children = g.edges()
    siblings = children.join(children, lambda parent, a, b: (a, b), g("siblings")).distinct(g("pairs"))
    return {
        "same": siblings.recursively(
            lambda x: (
                x.join(children, lambda a, b, c: (b, c), g("left"))
                .join(children, lambda b, c, d: (c, d), g("right"))
                .distinct(g("cousins"))
            ),
            g("same"),
        )
    }


# Depths and weights


@program()
def least_depth(g: Graph) -> Watched:
    edges = g.edges()
    op = lambda x: x.join(edges, lambda a, d, b: (b, d + 1), g("step")).reduce(least, g("least"))  # noqa: E731
    return {"depth": g.roots().recursively(op, g("depth"))}


@program()
def shortest_ways(g: Graph) -> Watched:
    edges = g.weighted()
    op = lambda x: x.join(edges, lambda a, d, to: (to[0], d + to[1]), g("step")).reduce(least, g("least"))  # noqa: E731
    found = g.roots().recursively(op, g("found"))
    return {"found": found, "shortest": found.reduce(least, g("shortest"))}


@program()
def the_two_shortest_ways(g: Graph) -> Watched:
    edges = g.weighted()
    op = lambda x: x.join(edges, lambda a, d, to: (to[0], d + to[1]), g("step")).reduce(two_least, g("two"))  # noqa: E731
    return {"found": g.roots().recursively(op, g("found"))}


# Tables inside


@program()
def a_table_that_is_walked(g: Graph) -> Watched:
    """From the roots on to where each node's one edge leads, looked up in the table itself."""
    table = g.topology.table(g("edges"), N, N)
    op = lambda x: x.join(table, lambda id, _, edge: (edge[1], edge[2]), g("step")).distinct(g("once"))  # noqa: E731
    return {"walk": g.roots().recursively(op, g("walk"))}


@program()
def counts_that_are_filtered_as_tables(g: Graph) -> Watched:
    """A node is reached from one that is reached, if its links from there are not two; from a root in any case."""
    roots, edges = g.roots(), g.edges()

    def op(x: Relation) -> Relation:
        links = x.join(edges, lambda a, _, b: (b, a), g("step")).distinct(g("links"))
        few = (
            links.group_by_key().count(g("few")).filter(lambda _, n: n != 3).map_values(lambda n: None if n == 2 else 0)
        )
        return few.to_relation()

    return {"x": roots.recursively(op, g("x"), limit=5, on_limit="return")}


@program(nodes=5)
def walks_inside_a_recursion(g: Graph) -> Watched:
    """The inner one is linear, the outer is not; and one that is linear goes before, with weights."""
    edges = g.edges()
    one_more = lambda name: lambda y: y.join(edges, lambda a, n, b: (b, n), g(name))  # noqa: E731
    before = g.roots().recursively(one_more("before-step"), g("before"), max_depth=1)

    def op(x: Relation) -> Relation:
        walks = x.map_values(lambda n: n + 1).recursively(one_more("inner-step"), g("inner"), max_depth=2)
        return walks.filter(lambda _, n: n < 4).reduce(two_least, g("two"))

    return {"before": before, "x": before.recursively(op, g("x"))}


# Aggregates inside


@program()
def reached_by_two(g: Graph) -> Watched:
    """A node is reached that is a root, or to which lead edges from two that are reached."""
    edges = g.edges()

    def op(x: Relation) -> Relation:
        links = x.join(edges, lambda a, _, b: (b, a), g("step")).distinct(g("links"))
        return (
            links.group_by_key().count(g("links-of")).to_relation().filter(lambda _, n: n > 1).map_values(lambda n: 0)
        )

    return {"reached": g.roots().recursively(op, g("reached"))}


@program("edges")
def who_controls_whom(g: Graph) -> Watched:
    """Rows (company, owner): more than half of its six shares are the owner's, or those of companies it controls."""
    shares = g.weighted()
    selves = shares.flat_map(lambda a, share: [(a, a), (share[0], share[0])]).distinct(g("selves"))

    def op(x: Relation) -> Relation:
        held = x.distinct(g("once")).join(shares, lambda c, owner, s: ((owner, s[0]), s[1]), g("held"))
        total = held.group_by_key().reduce(plus, less, g("sum")).to_relation()
        return total.filter(lambda _, n: n > 3).map(lambda pair, _: (pair[1], pair[0])).distinct(g("controlled"))

    return {"controls": selves.recursively(op, g("controls"))}


@program("edges", forward=True)
def bill_of_materials_with_sums(g: Graph) -> Watched:
    """What a node costs: one, and what all its parts cost, summed in every iteration."""
    uses = g.weighted()
    own = uses.flat_map(lambda a, use: [(a, 1), (use[0], 1)]).distinct(g("own"))
    used_in = uses.map(lambda whole, use: (use[0], (whole, use[1])))

    def op(x: Relation) -> Relation:
        parts = x.join(used_in, lambda part, cost, use: (use[0], cost * use[1]), g("parts"))
        return parts.group_by_key().aggregate(
            lambda: 0, lambda _, n, total: total + n, lambda _, n, total: total - n, g("sum"), N
        ).to_relation()  # fmt: skip

    return {"cost": own.recursively(op, g("cost"))}


@program()
def the_least_three_values_are_summed(g: Graph) -> Watched:
    """No group: what is made falls and rises with what comes in, bounded by its limit."""
    edges = g.edges()
    total = lambda key, values: [sum(sorted(values)[:3]) % 5]  # noqa: E731

    def op(x: Relation) -> Relation:
        return x.join(edges, lambda a, n, b: (b, n + 1), g("step")).reduce(total, g("total"))

    return {"sums": g.roots().recursively(op, g("sums"), limit=5, on_limit="return")}


# Not monotone


def win_move(g: Graph, limit: int) -> Watched:
    """Rows (position, 0) from which one can move to a position that is not won."""
    moves = g.edges().distinct(g("moves")).map(flip)

    def op(x: Relation) -> Relation:
        lost_for_us = moves.join(x, lambda b, a, _: (b, a), g("into-won"))
        return moves.minus(lost_for_us, g("good")).map(lambda b, a: (a, 0)).distinct(g("won"))

    nothing = g("nothing")
    return {"won": moves.filter(lambda a, b: False, nothing).recursively(op, g("win"), limit=limit, on_limit="return")}


@program("edges")
def win_move_in_an_even_number_of_rounds(g: Graph) -> Watched:
    return win_move(g, 4)


@program("edges")
def win_move_in_an_odd_number_of_rounds(g: Graph) -> Watched:
    return win_move(g, 7)


@program()
def x_used_twice(g: Graph) -> Watched:
    edges = g.edges()

    def op(x: Relation) -> Relation:
        forth = x.join(edges, lambda a, n, b: (b, n + 1), g("forth"))
        back = x.join(edges.map(flip), lambda b, n, a: (a, n + 2), g("back"))
        return forth.union(back, x.filter(lambda _, n: n < 3)).filter(lambda _, n: n < 7).distinct(g("once"))

    return {"x": g.roots().recursively(op, g("x"))}


# Without a loop


@program("edges")
def least_of_pairs(g: Graph) -> Watched:
    """A join whose rows cross to other owners with weights of both signs, more than one of each row."""
    edges = g.edges()
    pairs = edges.join(edges, lambda a, b, c: ((b + c) % 2, b % 2), g("pairs"))
    return {"least": pairs.reduce(least, g("least"))}


# Loops that keep their keys, and so stay where their partitions are


def by_id(g: Graph) -> tuple[Relation, Relation]:
    """The tables as relations under the keys that they have: rows (id, number), rows (id, node)."""
    edges = g.topology.table(g("edges"), N, N).to_relation().map_values(lambda edge: edge[0] + 10 * edge[1])
    return edges, g.topology.table(g("roots"), N, N).to_relation()


@program()
def a_loop_that_keeps_its_keys(g: Graph) -> Watched:
    """From each number down, by a half or by one where the other table has the id, until one was there before."""
    numbers, others = by_id(g)

    def op(x: Relation) -> Relation:
        less_one = x.join(others, lambda id, n, _: (id, n - 1), g("less"), keeps_key=True)
        return x.map_values(lambda n: n // 2).union(less_one).filter(lambda _, n: n > 0).distinct(g("once"))

    return {"down": numbers.recursively(op, g("down"))}


@program(nodes=4)
def a_block_that_keeps_its_keys(g: Graph) -> Watched:
    numbers, others = by_id(g)

    def step(low: Relation, high: Relation) -> tuple[Relation, ...]:
        low = numbers.union(high.map_values(lambda n: n // 2)).reduce(least, g("least"))
        high = low.join(others, lambda id, n, node: (id, n + node), g("both"), keeps_key=True).distinct(g("once"))
        return low, high.minus(others, g("minus"))

    block = g.topology.mutually_recursive(step, limit=5, on_limit="return", name=g("block"))
    return {"low": block.low, "high": block.high}


@program()
def a_loop_at_one_owner_behind_one_that_keeps_its_keys(g: Graph) -> Watched:
    numbers, others = by_id(g)
    down = numbers.recursively(
        lambda x: x.map_values(lambda n: n // 2).filter(lambda _, n: n > 0).distinct(g("halves")), g("down")
    )
    links = down.map(lambda id, n: (n % 7, id % 7))
    return {"down": down, "reach": reached(g, others.map(lambda id, node: (node, 0)), links)}


# Recursion in recursion


@program("edges", nodes=5)
def strongly_connected_components(g: Graph) -> Watched:
    """X is the edges that lead from one component into another: found by labels that spread over all others."""
    edges = g.edges().distinct(g("edge"))
    nodes = edges.flat_map(lambda a, b: [(a, a), (b, b)]).distinct(g("nodes"))

    def labels(inside: Relation, name: str) -> Relation:
        spread = nodes.recursively(
            lambda x: x.join(inside, lambda a, label, b: (b, label), g(f"{name}-step")).reduce(least, g(f"{name}-min")),
            g(name),
        )
        return spread.reduce(least, g(f"{name}-least"))

    def op(cut: Relation) -> Relation:
        inside = edges.minus(cut, g("inside"))
        forth, back = labels(inside, "forth"), labels(inside.map(flip), "back")
        both = forth.join(back, lambda node, f, b: (node, (f, b)), g("both"))
        ends = edges.join(both, lambda a, b, label: (b, (a, label)), g("from"))
        matched = ends.join(both, lambda b, one, label: ((one[0], b), (one[1], label)), g("to"))
        return matched.filter(lambda _, ends: ends[0] != ends[1]).map(lambda e, _: e).union(cut).distinct(g("cut"))

    cut = edges.filter(lambda a, b: False).recursively(op, g("cuts"))
    return {"cut": cut, "inner": edges.minus(cut, g("inner"))}


@program(nodes=6)
def a_new_root_while_a_node_is_not_reached(g: Graph) -> Watched:
    """Whatever is not reached from the roots so far: the least of it is a root, too."""
    edges = g.edges()
    nodes = edges.flat_map(lambda a, b: [(a, 0), (b, 0)]).distinct(g("nodes"))

    def op(roots: Relation) -> Relation:
        found = reached(g, roots.distinct(g("roots-once")), edges).distinct(g("found"))
        left = nodes.minus(found, g("left")).map(lambda node, _: (0, node)).reduce(least, g("first"))
        return roots.union(left.map(lambda _, node: (node, 0))).distinct(g("all-roots"))

    return {"roots": g.roots().distinct(g("root")).recursively(op, g("more-roots"))}


@program(nodes=5)
def three_levels_of_recursion(g: Graph) -> Watched:
    edges = g.edges()

    def within(x: Relation, level: int) -> Relation:
        name = g(f"level-{level}")
        if level == 2:
            return reached(g, x, edges, f"level-{level}").distinct(f"{name}-distinct")
        return x.recursively(
            lambda y: (
                within(y, level + 1)
                .map(lambda node, _: ((node + 1 + level) % 5, 0), f"{name}-on")
                .minus(y.filter(lambda node, _: node == level, f"{name}-some"), f"{name}-minus")
                .distinct(f"{name}-distinct")
            ),
            name,
            limit=4,
            on_limit="return",
        )

    return {"x": within(g.roots(), 0)}
