"""Conformance cases of recursions that are not linear: sets, least values, sums and differences that go round."""

from typing import Any

import eddy
from tests.conformance.case import N, Native, S, case, less, of, plus

__all__ = ["CYCLE"]


def edges_of(t: eddy.Topology) -> eddy.Relation[str, str]:
    """Rows (from, to) of the table "edges": id -> (from, to)."""
    return t.table("edges", S, Native).to_relation().map(lambda _, edge: edge, key=S, value=S)


CYCLE = of("edges", ("1", ("r", "a")), ("2", ("a", "b")), ("3", ("b", "c")), ("4", ("c", "a")), ("5", ("c", "d")))


def reachability(t: eddy.Topology) -> None:
    edges = edges_of(t)
    roots = t.table("roots", S, S).to_relation().map(lambda _, node: (node, 0), key=S, value=N)
    reached = roots.recursively(
        lambda x: x.join(edges, lambda a, _, b: (b, 0), "step", S, N).distinct("once"), "reached"
    )
    reached.distinct("all").group_by_key().count("nodes").to("nodes")


@case([of("roots", ("1", "r")) + CYCLE, of("edges", ("6", ("d", "r")))], nodes=dict.fromkeys("rabcd", 1))
def reachability_through_cycles(t: eddy.Topology) -> None:
    reachability(t)


@case(
    [of("roots", ("1", "r")) + CYCLE, of("edges", ("1", None)), of("edges", ("7", ("r", "d")))],
    nodes={"r": 1, "d": 1},
)
def a_cycle_that_is_cut_off_does_not_hold_itself_up(t: eddy.Topology) -> None:
    reachability(t)


@case(
    [CYCLE + of("roots", ("1", "r"), ("2", "c")), of("roots", ("1", None)), of("edges", ("3", ("b", "e")))],
    nodes=dict.fromkeys("abcde", 1),
)
def reachability_after_moves_of_roots_and_edges(t: eddy.Topology) -> None:
    reachability(t)


@case(
    [of("roads", ("1", ("a", "b", 7)), ("2", ("a", "c", 3)), ("3", ("c", "b", 1)), ("4", ("b", "a", 2))),
     of("roads", ("5", ("b", "d", 5)), ("6", ("c", "d", 9))),
     of("roads", ("3", ("c", "b", 2)), ("4", ("b", "c", 1)), ("2", ("a", "c", 8)))],
    shortest={"a": 0, "b": 7, "c": 8, "d": 12},
)  # fmt: skip
def shortest_ways_get_longer_when_a_way_is_cut(t: eddy.Topology) -> None:
    roads = t.table("roads", S, Native).to_relation().map(lambda _, road: (road[0], (road[1], road[2])), key=S)
    start = t.constant([("a", 0)], "start", S, N)
    ways = start.recursively(
        lambda x: x.join(roads, lambda at, sum, to: (to[0], sum + to[1]), "on", S, N).reduce(least, "least"), "ways"
    )
    ways.reduce(least, "shortest").group_by_key(S, N).reduce(plus, less, "lengths").to("shortest")


def least(key: Any, values: Any) -> list[Any]:
    return [min(values)]


@case([CYCLE, of("edges", ("4", None), ("6", ("d", "d")))], below={"r": 4, "a": 3, "b": 2, "c": 1, "d": 1})
def transitive_closure_as_x_joined_with_itself(t: eddy.Topology) -> None:

    def op(x: eddy.Relation[str, str]) -> eddy.Relation[str, str]:
        backwards = x.map(lambda a, b: (b, a), key=S, value=S)
        return backwards.join(x, lambda b, a, c: (a, c), "two", S, S).distinct("path")

    paths = edges_of(t).distinct("edge").recursively(op, "paths")
    paths.distinct("pairs").group_by_key().count("below").to("below")


@case(
    [of("shares", ("1", ("a", "b", 60)), ("2", ("a", "c", 40)), ("3", ("b", "c", 20)), ("4", ("c", "d", 51))),
     of("shares", ("5", ("d", "b", 30)), ("1", ("a", "b", 30))),
     of("shares", ("1", ("a", "b", 51)), ("4", ("c", "d", 50)), ("6", ("b", "d", 1)))],
    controls={"a": 3, "b": 0, "c": 0, "d": 0},
)  # fmt: skip
def who_controls_whom_by_sums_that_go_round(t: eddy.Topology) -> None:
    """A company controls one of which it, and those it controls, hold more than half."""
    shares = t.table("shares", S, Native).to_relation().map(lambda _, share: (share[0], (share[1], share[2])), key=S)
    selves = shares.flat_map(lambda a, share: [(a, a), (share[0], share[0])], key=S, value=S).distinct("selves")

    def op(x: eddy.Relation[str, str]) -> eddy.Relation[str, str]:
        held = x.distinct("once").join(shares, lambda c, owner, s: ((owner, s[0]), s[1]), "held", Native, N)
        sums = held.group_by_key(Native, N).reduce(plus, less, "sums").to_relation().filter(lambda _, n: n > 50)
        return sums.map(lambda pair, _: (pair[1], pair[0]), key=S, value=S).distinct("controlled")

    controls = selves.recursively(op, "controls").map(lambda company, owner: (owner, company), key=S, value=S)
    others = controls.distinct("pairs").map(lambda owner, company: (owner, int(owner != company)), key=S, value=N)
    others.group_by_key(S, N).reduce(plus, less, "controls-of").to("controls")


@case(
    [CYCLE, of("edges", ("6", ("d", "e")), ("7", ("e", "d"))), of("edges", ("4", None), ("8", ("b", "a")))],
    components=dict.fromkeys(["r in r", "a in a", "b in a", "c in c", "d in d", "e in d"], 1),
)
def strongly_connected_components_by_recursions_in_a_recursion(t: eddy.Topology) -> None:
    """Labels spread along the edges inside, forth and back; an edge whose ends differ in a label is cut."""
    edges = edges_of(t).distinct("edge")
    nodes = edges.flat_map(lambda a, b: [(a, a), (b, b)], key=S, value=S).distinct("nodes")

    def labels(inside: eddy.Relation[str, str], name: str) -> eddy.Relation[str, str]:
        spread = nodes.recursively(
            lambda x: x.join(inside, lambda a, label, b: (b, label), f"{name}-step", S, S).reduce(least, f"{name}-min"),
            name,
        )
        return spread.reduce(least, f"{name}-label")

    def both(cut: eddy.Relation[str, str], name: str) -> eddy.Relation[str, tuple[str, str]]:
        inside = edges.minus(cut, f"{name}-inside")
        back = labels(inside.map(lambda a, b: (b, a), key=S, value=S), f"{name}-back")
        return labels(inside, f"{name}-forth").join(back, lambda node, f, b: (node, (f, b)), f"{name}-both", S, Native)

    def op(cut: eddy.Relation[str, str]) -> eddy.Relation[str, str]:
        found = both(cut, "op")
        ends = edges.join(found, lambda a, b, label: (b, (a, label)), "from", S, Native)
        matched = ends.join(found, lambda b, one, label: ((one[0], b), (one[1], label)), "to", Native, Native)
        differ = matched.filter(lambda _, ends: ends[0] != ends[1])
        return differ.map(lambda edge, _: edge, key=S, value=S).union(cut).distinct("cut")

    cut = edges.filter(lambda a, b: False).recursively(op, "cuts")
    found = both(cut, "end").map(lambda node, label: (f"{node} in {label[0]}", 1), key=S, value=N)
    found.group_by_key().count("components").to("components")


def parity(t: eddy.Topology, **limit: Any) -> Any:
    """Nodes at an even and at an odd number of steps from "r"."""
    edges, start = edges_of(t), t.constant([("r", 0)], "start", S, N)

    def step(even: Any, odd: Any) -> tuple[Any, Any]:
        even = start.union(odd.join(edges, lambda a, _, b: (b, 0), "to-even", S, N)).distinct("evens")
        odd = even.join(edges, lambda a, _, b: (b, 0), "to-odd", S, N).distinct("odds")
        return even, odd

    serdes = {"even": (S, N), "odd": (S, N)}
    found = t.mutually_recursive(step, name="parity", serdes=serdes, **limit)
    found.even.group_by_key(S, N).count("even-of").to("even")
    found.odd.group_by_key(S, N).count("odd-of").to("odd")
    return found


@case([CYCLE], even=dict.fromkeys("rabcd", 1), odd=dict.fromkeys("abcd", 1))
def mutual_recursion_even_and_odd(t: eddy.Topology) -> None:
    parity(t)


@case(
    [CYCLE, of("edges", ("3", ("b", "a")), ("4", None)), of("edges", ("5", ("b", "d")), ("2", ("a", "d")))],
    even={"r": 1, "d": 1},
    odd={"a": 1},
)
def mutual_recursion_after_moves(t: eddy.Topology) -> None:
    parity(t)


@case([CYCLE, of("edges", ("6", ("b", "r")))], even={"r": 1, "b": 1}, odd={"a": 1, "c": 1, "r": 1})
def mutual_recursion_returned_after_two_rounds(t: eddy.Topology) -> None:
    parity(t, limit=2, on_limit="return")


CHAIN = of("edges", ("1", ("r", "a")), ("2", ("a", "b")), ("3", ("b", "c")))


@case(
    [CHAIN, of("edges", ("4", ("c", "d"))), of("edges", ("5", ("d", "e")), ("6", ("e", "f"))),
     of("edges", ("2", ("a", "x")))],
    even={"r": 1, "x": 1},
    odd={"a": 1},
    errors={},
)  # fmt: skip
def an_error_of_a_limit_goes_when_the_data_is_mended(t: eddy.Topology) -> None:
    """r → a → b → c → d ends in its third iteration, so that the fourth changes nothing; f is of the fourth."""
    found = parity(t, limit=4, on_limit="hold")
    found.errors.map(lambda binding, row: (binding, 1), key=S, value=N).group_by_key().count("errors-of").to("errors")


@case(
    [CHAIN, of("edges", ("4", ("c", "d"))), of("edges", ("5", ("d", "e")))],
    even={},
    odd={},
)
def a_block_is_empty_while_there_is_an_error(t: eddy.Topology) -> None:
    parity(t, limit=3, on_limit="hold")


@case(
    [of("edges", ("1", ("a", "b")), ("2", ("b", "c")), ("3", ("c", "d")), ("4", ("d", "c"))),
     of("edges", ("4", None)), of("edges", ("5", ("a", "e")))],
    won={"a": 1, "c": 1},
)  # fmt: skip
def a_game_is_won_by_who_moves_to_where_it_is_lost(t: eddy.Topology) -> None:
    """Not monotone: what is won in an iteration may be lost in the next one. Six iterations of op."""
    moves = edges_of(t).distinct("moves").map(lambda a, b: (b, a), key=S, value=S)

    def op(won: eddy.Relation[str, int]) -> eddy.Relation[str, int]:
        into_won = moves.join(won, lambda b, a, _: (b, a), "into-won", S, S)
        return moves.minus(into_won, "good").map(lambda b, a: (a, 0), key=S, value=N).distinct("one-good")

    nothing = moves.filter(lambda b, a: False).map(lambda b, a: (a, 0), key=S, value=N)
    won = nothing.recursively(op, "won", limit=6, on_limit="return")
    won.group_by_key().count("ways-to-win").to("won")


def by_steps(t: eddy.Topology, outer: dict[str, Any], inner: dict[str, Any]) -> Any:
    """Nodes from "r" on: an inner block goes on from where the last iteration of the outer one was."""
    edges, start = edges_of(t), t.constant([("r", 0)], "start", S, N)

    def iterations(found: Any) -> tuple[Any, ...]:
        def steps(at: Any) -> tuple[Any, ...]:
            return (start.union(found, at.join(edges, lambda a, _, b: (b, 0), "on", S, N)).distinct("at-once"),)

        at = t.mutually_recursive(steps, name="steps", serdes={"at": (S, N)}, **inner).at
        return (at.distinct("found-once"),)

    block = t.mutually_recursive(iterations, name="iterations", serdes={"found": (S, N)}, **outer)
    block.found.group_by_key(S, N).count("found-of").to("found")
    return block


@case(
    [CYCLE, of("edges", ("6", ("d", "e")), ("7", ("e", "f"))), of("edges", ("1", ("r", "c")), ("8", ("f", "g")))],
    found=dict.fromkeys("rcadebf", 1),
)
def a_block_in_a_block_goes_two_steps_in_each_of_two_rounds(t: eddy.Topology) -> None:
    """c, a and d in the first; b, e and f in the second; g would need another one."""
    by_steps(t, {"limit": 2, "on_limit": "return"}, {"limit": 3, "on_limit": "return"})


@case([CYCLE, of("edges", ("2", ("a", "d")), ("6", ("d", "r")))], found=dict.fromkeys("rad", 1))
def a_block_in_a_block_comes_to_rest_after_moves(t: eddy.Topology) -> None:
    by_steps(t, {}, {})


@case(
    [CHAIN, of("edges", ("4", ("c", "d")), ("5", ("d", "e"))), of("edges", ("2", ("a", "x")))],
    found=dict.fromkeys("rax", 1),
    errors={},
)
def an_error_of_an_inner_limit_goes_when_the_data_is_mended(t: eddy.Topology) -> None:
    """The first iteration takes three steps of a chain and one that changes nothing; five are too many."""
    found = by_steps(t, {}, {"limit": 5})
    found.errors.map(lambda binding, row: (binding, 1), key=S, value=N).group_by_key().count("errors-of").to("errors")


@case(
    [CHAIN, of("edges", ("4", ("c", "d")), ("5", ("d", "e")))],
    found={},
    errors={"steps.at": 1},
)
def a_block_is_empty_while_an_inner_limit_is_too_low(t: eddy.Topology) -> None:
    found = by_steps(t, {}, {"limit": 5})
    found.errors.map(lambda binding, row: (binding, 1), key=S, value=N).group_by_key().count("errors-of").to("errors")


@case(
    [of("roots", ("1", "r")) + CYCLE, of("edges", ("6", ("e", "f")), ("7", ("f", "e")), ("3", ("b", "a")))],
    picked={"r": 1, "c": 1, "e": 1},
)
def a_block_in_a_recursion_finds_what_is_left(t: eddy.Topology) -> None:
    """One more root in each iteration: the least node that no root reaches. The block says which nodes are left."""
    edges = edges_of(t)
    nodes = edges.flat_map(lambda a, b: [(a, 0), (b, 0)], key=S, value=N).distinct("nodes")
    roots = t.table("roots", S, S).to_relation().map(lambda _, node: (node, 0), key=S, value=N)

    def op(x: eddy.Relation[str, int]) -> eddy.Relation[str, int]:
        def reach(there: Any, left: Any) -> tuple[Any, Any]:
            there = x.union(there.join(edges, lambda a, _, b: (b, 0), "step", S, N)).distinct("there-once")
            return there, nodes.minus(there, "left")

        left = t.mutually_recursive(reach, name="reach", serdes={"there": (S, N), "left": (S, N)}).left
        first = left.map(lambda node, _: (0, node), key=N, value=S).reduce(least, "first", N, S)
        return x.union(first.map(lambda _, node: (node, 0), key=S, value=N)).distinct("root-once")

    picked = roots.recursively(op, "picked", limit=5, on_limit="return").distinct("picked-once")
    picked.group_by_key().count("picked-of").to("picked")


@case(
    [of("roads", ("1", ("a", "b", 7)), ("2", ("a", "c", 3)), ("3", ("c", "b", 1)), ("4", ("b", "a", 2))),
     of("roads", ("3", ("c", "b", 5)), ("5", ("b", "c", 4)))],
    nearest={"a": 0, "b": 7, "c": 3},
    single={"a": 0},
)  # fmt: skip
def first_values_and_single_rows_go_round(t: eddy.Topology) -> None:
    """Shortest ways by `min` inside a recursion; and after two steps, nodes that one way alone has led to."""
    roads = t.table("roads", S, Native).to_relation().map(lambda _, road: (road[0], (road[1], road[2])), key=S)
    start = t.constant([("a", 0)], "start", S, N)

    def onward(x: eddy.Relation[str, int], name: str) -> eddy.Relation[str, int]:
        return x.join(roads, lambda at, sum, to: (to[0], sum + to[1]), name, S, N)

    ways = start.recursively(lambda x: onward(x, "on").group_by_key().min("least").to_relation(), "ways", max_depth=3)
    ways.group_by_key().min("nearest").to("nearest")
    alone = start.recursively(
        lambda x: onward(x, "step").filter(lambda to, sum: to != "a").distinct("once").to_table("alone").to_relation(),
        "single-ways",
        max_depth=2,
    )
    alone.to_table("single").to("single")
