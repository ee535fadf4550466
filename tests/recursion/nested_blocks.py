"""Programs of blocks inside blocks, blocks inside recursions, and recursions inside those."""

from collections.abc import Mapping
from typing import Any

import eddy
from tests.recursion.blocks import onward
from tests.recursion.programs import PROGRAMS, Graph, Program, Watched, flip, least, program

__all__ = ["INNER_LIMITS"]

Relation = eddy.Relation[Any, Any]
INNER_LIMITS = range(1, 4)


@program("edges", nodes=5, tags="block nested")
def components_by_blocks_in_a_block(g: Graph) -> Watched:
    """The edges whose ends reach each other: labels spread forth and back, until no edge is cut."""
    edges = g.edges().distinct(g("edge"))
    nodes = edges.flat_map(lambda a, b: [(a, a), (b, b)]).distinct(g("nodes"))

    def labels(inside: Relation, name: str) -> Relation:
        def spread(label: Relation) -> tuple[Relation, ...]:
            moved = label.join(inside, lambda a, label, b: (b, label), f"{name}-step")
            return (nodes.union(moved).reduce(least, f"{name}-least"),)

        return g.topology.mutually_recursive(spread, name=name).label

    def step(inside: Relation, cut: Relation) -> tuple[Relation, ...]:
        inside = edges.minus(cut, g("inside"))
        forth = labels(inside, g("forth"))
        both = forth.join(labels(inside.map(flip), g("back")), lambda node, f, b: (node, (f, b)), g("both"))
        ends = edges.join(both, lambda a, b, label: (b, (a, label)), g("from"))
        matched = ends.join(both, lambda b, one, label: ((one[0], b), (one[1], label)), g("to"))
        return inside, matched.filter(lambda _, ends: ends[0] != ends[1]).map(lambda edge, _: edge).distinct(g("cuts"))

    block = g.topology.mutually_recursive(step, name=g("components"))
    return {"inside": block.inside, "cut": block.cut}


@program("edges", nodes=5, tags="block nested")
def a_block_that_keeps_its_keys_in_one_that_does(g: Graph) -> Watched:
    """Each owner its keys, in both: numbers that count up from each node, and those that are no node's."""
    start = g.edges().filter(lambda _, n: n < 3).distinct(g("start"))

    def step(seen: Relation, odd: Relation) -> tuple[Relation, ...]:
        def up(counted: Relation) -> tuple[Relation, ...]:
            further = counted.map_values(lambda n: n + 2).filter(lambda _, n: n < 9)
            return (seen.union(start, further).distinct(g("once")),)

        found = g.topology.mutually_recursive(up, name=g("up")).counted
        return found.reduce(lambda k, values: [min(values), k], g("few")), found.filter(lambda _, n: n % 2)

    block = g.topology.mutually_recursive(step, name=g("outer"))
    return {"seen": block.seen, "odd": block.odd}


@program(nodes=5, tags="block nested")
def a_block_inside_a_recursion(g: Graph) -> Watched:
    """A new root, the least node that is not reached, as long as there is one; what is reached is found by a block."""
    roots, edges = g.roots(), g.edges()
    nodes = edges.flat_map(lambda a, b: [(a, 0), (b, 0)]).distinct(g("nodes"))

    def op(x: Relation) -> Relation:
        def reach(there: Relation, left: Relation) -> tuple[Relation, ...]:
            there = x.union(onward(there, edges, g("step"))).distinct(g("there-once"))
            return there, nodes.minus(there, g("left"))

        left = g.topology.mutually_recursive(reach, name=g("reach")).left
        first = left.map(lambda node, _: (0, node)).reduce(least, g("first")).map(lambda _, node: (node, 0))
        return x.union(first).distinct(g("root-once"))

    return {"roots": roots.distinct(g("root")).recursively(op, g("roots-to-be"), limit=12, on_limit="return")}


@program(nodes=4, tags="block nested")
def a_block_in_a_recursion_in_a_block_that_flips(g: Graph) -> Watched:
    """Three deep, and not monotone: the outer binding is there every other iteration, and nothing comes to rest."""
    roots, edges = g.roots().distinct(g("root")), g.edges()

    def outer(off: Relation, reached: Relation) -> tuple[Relation, ...]:
        def op(x: Relation) -> Relation:
            def inner(one: Relation, two: Relation) -> tuple[Relation, ...]:
                one = x.union(onward(two, edges, g("to-one"))).distinct(g("ones"))
                return one, onward(one, edges, g("to-two")).minus(off, g("twos")).distinct(g("two-once"))

            return g.topology.mutually_recursive(inner, limit=3, on_limit="return", name=g("inner")).two.distinct(
                g("op")
            )

        found = roots.minus(off, g("on")).recursively(op, g("middle"), max_depth=2)
        return roots.minus(off, g("off")), found.distinct(g("found"))

    block = g.topology.mutually_recursive(outer, limit=3, on_limit="return", name=g("outer"))
    return {"off": block.off, "reached": block.reached}


@program(nodes=5, tags="block nested")
def errors_that_come_and_go(g: Graph) -> Watched:
    """A node that the first iteration takes in, and no later one, is where an inner block does not end."""
    roots, edges = g.roots().distinct(g("root")), g.edges()

    def step(taken: Relation, near: Relation) -> tuple[Relation, ...]:
        def inner(at: Relation) -> tuple[Relation, ...]:
            return (roots.minus(taken, g("new")).union(onward(at, edges, g("step"))).distinct(g("ats")),)

        near = g.topology.mutually_recursive(inner, limit=3, name=g("inner")).at
        return taken.union(roots).distinct(g("takens")), near

    block = g.topology.mutually_recursive(step, name=g("outer"))
    return {"taken": block.taken, "near": block.near, "errors": block.errors}


def within(g: Graph, limit: int, on_limit: str, iterations: int | None = None, then: str = "return") -> Any:
    """Nodes that are fewer steps away from a root than the inner block's limit; then from those, and so on."""
    roots, edges = g.roots(), g.edges()

    def step(found: Relation, far: Relation) -> tuple[Relation, ...]:
        def near(at: Relation, by: Relation) -> tuple[Relation, ...]:
            at = roots.union(found, onward(by, edges, g("step"))).distinct(g("ats"))
            return at, at.minus(found, g("bys")).distinct(g("by-once"))

        block = g.topology.mutually_recursive(near, limit=limit, on_limit=on_limit, name=g("near"))
        far = block.errors.map(lambda _, row: (row[0], 0)).distinct(g("fars"))
        return block.at.distinct(g("founds")), far

    return g.topology.mutually_recursive(step, limit=iterations, on_limit=then, name=g("outer"))


def stepwise(g: Graph, limit: int, on_limit: str, iterations: int | None = None, then: str = "return") -> Any:
    """The depth by the outer block's iterations; an inner one takes so many steps from where the last iteration was."""
    roots, edges = g.roots(), g.edges()

    def step(found: Relation, far: Relation) -> tuple[Relation, ...]:
        def near(at: Relation) -> tuple[Relation, ...]:
            further = at.join(edges, lambda a, d, b: (b, d + 1), g("step"))
            return (roots.union(found, further).reduce(first, g("least")),)

        block = g.topology.mutually_recursive(near, limit=limit, on_limit=on_limit, name=g("near"))
        return block.at, block.at.filter(lambda _, d: d > 1)

    return g.topology.mutually_recursive(step, limit=iterations, on_limit=then, name=g("outer"))


def first(key: Any, values: Mapping[Any, int]) -> list[Any]:
    return [min(values)]


def _add(name: str, build: Any, *limits: Any) -> None:
    def made(g: Graph) -> Watched:
        block = build(g, *limits)
        watched = {"found": block.found, "far": block.far}
        return {**watched, "errors": block.errors} if "hold" in limits else watched

    PROGRAMS[name] = Program(name, made, nodes=5, tags=frozenset({"block", "nested"}))


for _limit in INNER_LIMITS:
    for _on_limit in ("return", "hold") if _limit > 1 else ("return",):
        _add(f"within-{_on_limit}-at-{_limit}", within, _limit, _on_limit)
        _add(f"stepwise-{_on_limit}-at-{_limit}", stepwise, _limit, _on_limit)
for _rounds in (1, 2):
    _add(f"stepwise-hold-at-3-in-{_rounds}-rounds", stepwise, 3, "hold", _rounds)
    _add(f"stepwise-return-at-2-hold-in-{_rounds}-rounds", stepwise, 2, "return", _rounds, "hold")
    _add(f"stepwise-hold-at-3-hold-in-{_rounds}-rounds", stepwise, 3, "hold", _rounds, "hold")
