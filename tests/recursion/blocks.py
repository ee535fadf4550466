"""Programs of several bindings that recur mutually: `Topology.mutually_recursive`."""

from collections.abc import Mapping
from typing import Any

import eddy
from tests.recursion.programs import PROGRAMS, Graph, Program, Watched, flip, least, program, reached

__all__ = ["LIMITS", "limited"]

Relation = eddy.Relation[Any, Any]
LIMITS = range(1, 7)


def onward(x: Relation, edges: Relation, name: str) -> Relation:
    """One step along the edges."""
    return x.join(edges, lambda a, value, b: (b, value), name)


@program(tags="block")
def even_and_odd(g: Graph) -> Watched:
    """Nodes at an even and at an odd number of steps; odd sees the new even, even the odd of the last iteration."""
    roots, edges = g.roots(), g.edges()

    def step(even: Relation, odd: Relation) -> tuple[Relation, ...]:
        even = roots.union(onward(odd, edges, g("to-even"))).distinct(g("evens"))
        odd = onward(even, edges, g("to-odd")).distinct(g("odds"))
        return even, odd

    found = g.topology.mutually_recursive(step, name=g("parity"))
    return {"even": found.even, "odd": found.odd}


@program(tags="block")
def even_and_odd_of_the_last_iteration(g: Graph) -> Watched:
    """The same where both see the last iteration."""
    roots, edges = g.roots(), g.edges()

    def step(even: Relation, odd: Relation) -> tuple[Relation, ...]:
        return (
            roots.union(onward(odd, edges, g("to-even"))).distinct(g("evens")),
            onward(even, edges, g("to-odd")).distinct(g("odds")),
        )

    found = g.topology.mutually_recursive(step, name=g("parity"))
    return {"even": found.even, "odd": found.odd}


@program(tags="block")
def one_binding(g: Graph) -> Watched:
    roots, edges = g.roots(), g.edges()

    def step(found: Relation) -> tuple[Relation, ...]:
        return (roots.union(onward(found, edges, g("step"))).distinct(g("once")),)

    return {"found": g.topology.mutually_recursive(step, name=g("block")).found}


@program(tags="block")
def a_binding_that_nothing_recurs_in(g: Graph) -> Watched:
    """`doubled` is not fed back: a shorthand for what comes after it."""
    roots, edges = g.roots(), g.edges()

    def step(doubled: Relation, found: Relation) -> tuple[Relation, ...]:
        doubled = edges.union(edges.map(flip))
        return doubled, roots.union(onward(found, doubled, g("step"))).distinct(g("once"))

    block = g.topology.mutually_recursive(step, name=g("block"))
    return {"doubled": block.doubled, "found": block.found}


@program(tags="block")
def two_blocks_one_behind_the_other(g: Graph) -> Watched:
    roots, edges = g.roots(), g.edges()

    def forth(there: Relation) -> tuple[Relation, ...]:
        return (roots.union(onward(there, edges, g("there-step"))).distinct(g("there-once")),)

    first = g.topology.mutually_recursive(forth, name=g("first")).there

    def back(again: Relation) -> tuple[Relation, ...]:
        return (first.union(onward(again, edges.map(flip), g("again-step"))).distinct(g("again-once")),)

    return {"there": first, "again": g.topology.mutually_recursive(back, name=g("second")).again}


@program(tags="block")
def two_blocks_side_by_side(g: Graph) -> Watched:
    roots, edges = g.roots(), g.edges()

    def step(name: str) -> Any:
        return lambda x: (roots.union(onward(x, edges, f"{name}-step")).distinct(f"{name}-once"),)

    return {name: g.topology.mutually_recursive(step(name), name=name).x for name in ("left", "right")}


@program(nodes=5, tags="block")
def a_recursion_inside_a_block(g: Graph) -> Watched:
    """`found` grows by the least node that is not reached from it, which `left` tells."""
    roots, edges = g.roots(), g.edges()
    nodes = edges.flat_map(lambda a, b: [(a, 0), (b, 0)]).distinct(g("nodes"))

    def step(found: Relation, left: Relation) -> tuple[Relation, ...]:
        first = left.map(lambda node, _: (0, node)).reduce(least, g("first")).map(lambda _, node: (node, 0))
        found = roots.union(found, first).distinct(g("once"))
        left = nodes.minus(reached(g, found, edges).distinct(g("seen")), g("not-seen"))
        return found, left

    block = g.topology.mutually_recursive(step, name=g("block"))
    return {"found": block.found, "left": block.left}


@program("edges", tags="block")
def counts_and_constants_in_a_block(g: Graph) -> Watched:
    """Node 0 is always there; a node is found that two are linked to, or one with a loop."""
    edges = g.edges()
    zero = g.topology.constant([(0, 0)], g("zero"))

    def step(found: Relation, links: Relation) -> tuple[Relation, ...]:
        links = found.join(edges, lambda a, _, b: (b, a), g("step")).distinct(g("links"))
        many = links.group_by_key().count(g("many")).to_relation().filter(lambda _, n: n > 1)
        loops = edges.filter(lambda a, b: a == b)
        found = zero.union(many.map_values(lambda _: 0), loops.map_values(lambda _: 0)).distinct(g("found"))
        return found, links

    block = g.topology.mutually_recursive(step, name=g("block"))
    return {"found": block.found, "links": block.links}


def flip_flop(g: Graph, limit: int, on_limit: str) -> Any:
    """A row that is there every other iteration, for each root."""
    roots = g.roots().distinct(g("root"))

    def step(flip: Relation, flop: Relation) -> tuple[Relation, ...]:
        flip = roots.minus(flip, g("flip"))
        flop = roots.minus(flip, g("flop"))
        return flip, flop

    return g.topology.mutually_recursive(step, limit=limit, on_limit=on_limit, name=g("block"))


def limited(g: Graph, limit: int, on_limit: str) -> Any:
    """Depths by iteration: one more step in each, as long as there is one."""
    roots, edges = g.roots(), g.edges()

    def step(depth: Relation, seen: Relation) -> tuple[Relation, ...]:
        further = depth.join(edges, lambda a, d, b: (b, d + 1), g("step"))
        depth = roots.union(further).reduce(first, g("least"))
        seen = depth.map(lambda node, _: (node, 0)).distinct(g("once"))
        return depth, seen

    return g.topology.mutually_recursive(step, limit=limit, on_limit=on_limit, name=g("block"))


def first(key: Any, values: Mapping[Any, int]) -> list[Any]:
    return [min(values)]


def _add(name: str, build: Any, bindings: str, limit: int, on_limit: str, *sources: str) -> None:
    def made(g: Graph) -> Watched:
        block = build(g, limit, on_limit)
        watched = {binding: getattr(block, binding) for binding in bindings.split()}
        return watched if on_limit == "return" else {**watched, "errors": block.errors}

    PROGRAMS[name] = Program(name, made, sources or ("edges", "roots"), tags=frozenset({"block", on_limit}))


for _limit in LIMITS:
    for _on_limit in ("return", "hold"):
        _add(f"depths-{_on_limit}-at-{_limit}", limited, "depth seen", _limit, _on_limit)
for _limit in (1, 4, 5):
    _add(f"flip-flop-return-at-{_limit}", flip_flop, "flip flop", _limit, "return", "roots")
_add("flip-flop-hold-at-4", flip_flop, "flip flop", 4, "hold", "roots")
