"""Programs that nobody would write: operators put together at random, recursions and blocks in one another among them.

Rows are pairs of small numbers, and what goes round is made distinct and has a limit, so that every
program has an answer, however it jumps about. The same number gives the same program.
"""

import random
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import eddy
from eddy.topology.dsl.mutual import Bindings
from tests.recursion.programs import Graph, Program, Watched

__all__ = ["random_block", "random_nest", "random_program"]

M = 4
Relation = eddy.Relation[Any, Any]
Term = tuple[Any, ...]
"""(operator, what it takes …), as data."""

MAPS: list[Callable[[int, int], tuple[int, int]]] = [
    lambda k, v: (v, k),
    lambda k, v: ((k + 1) % M, v),
    lambda k, v: (k, (v + 1) % M),
    lambda k, v: (k, 0),
    lambda k, v: ((k + v) % M, k),
    lambda k, v: (0, v),
]
FILTERS: list[Callable[[int, int], bool]] = [
    lambda k, v: k != v,
    lambda k, v: v < 2,
    lambda k, v: (k + v) % 2 == 0,
    lambda k, v: k != 0,
]
FLATS: list[Callable[[int, int], list[tuple[int, int]]]] = [
    lambda k, v: [(k, v), (v, k)],
    lambda k, v: [(k, (v + 1) % M)] * 2 if k != v else [],
    lambda k, v: [(k, n) for n in range(int(v))],
]
MERGES: list[Callable[[int, int, int], tuple[int, int]]] = [
    lambda k, v, w: (w, v),
    lambda k, v, w: (v, w),
    lambda k, v, w: (k, (v + w) % M),
    lambda k, v, w: ((k + v) % M, w),
]
REDUCES: list[Callable[[int, Mapping[int, int]], list[int]]] = [
    lambda k, values: [min(values)],
    lambda k, values: [max(values)],
    lambda k, values: sorted(values)[:2],
    lambda k, values: [sum(values.values()) % M],
    lambda k, values: [value for value, weight in values.items() if weight % 2],
    lambda k, values: [min(values)] * 2,
    lambda k, values: [k] if len(values) > 1 else [],
]
ONE = {"map": MAPS, "filter": FILTERS, "flat-map": FLATS, "reduce": REDUCES}
TWO = ["join", "union", "minus"]


def term(rng: random.Random, variables: tuple[str, ...], size: int, depth: int) -> Term:
    """A term of about so many operators."""
    if size <= 0:
        return ("leaf", rng.choice([*variables, *variables, "edges", "roots"]))
    what = rng.choice(["map", "filter", "flat-map", "reduce", "join", "join", "union", "minus", "distinct", "count",
                       "sum", "self-join", "recursion"])  # fmt: skip
    if what == "recursion" and depth < 2:
        return recursion(rng, variables, size // 2, depth)
    if what in TWO:
        left = rng.randrange(size)
        sides = term(rng, variables, left, depth), term(rng, variables, size - 1 - left, depth)
        return (what, rng.randrange(len(MERGES)), *sides)
    inner = term(rng, variables, size - 1, depth)
    return what if what != "recursion" else "distinct", rng.randrange(len(ONE.get(what, MERGES))), inner


def body(rng: random.Random, variables: tuple[str, ...], needed: str, size: int, depth: int) -> Term:
    """A term that holds the variable `needed`, and gives each row once."""
    made = term(rng, variables, size, depth)
    if needed not in str(made):
        made = ("union", 0, made, ("map", rng.randrange(len(MAPS)), ("leaf", needed)))
    return ("distinct", 0, made)


def recursion(rng: random.Random, variables: tuple[str, ...], size: int, depth: int) -> Term:
    """X = seed + op(X), up to a limit."""
    variable = f"x{depth}"
    seed = term(rng, variables, rng.randrange(2), depth)
    op = body(rng, (*variables, variable), variable, size, depth + 1)
    bound = {"max_depth": rng.randrange(5)} if rng.random() < 0.3 else {"limit": rng.randint(1, 6)}
    linear = (
        op[2][0] != "leaf" and str(op).count(variable) == 1 and not any(w in str(op) for w in ("self-join", "union"))
    )
    if depth and "max_depth" in bound and linear:
        op = op[2]  # by waves, if nothing else is against it; the loop around makes it distinct
        bound = {"max_depth": min(bound["max_depth"], 2)}
    return "recursion", variable, bound, seed, op


def block(rng: random.Random, variables: tuple[str, ...], depth: int, errors: bool, of: tuple[str, ...] = ()) -> Term:
    """One or two bindings that recur mutually, up to a limit, which may be an error if `errors`; one of them is it.

    It depends on one of the variables `of`, so that it lies in their loop.
    """
    names = tuple(f"y{depth}{i}" for i in range(rng.randint(1, 2)))
    on_limit = "hold" if errors and rng.random() < 0.4 else "return"
    bodies: list[Term] = []
    for i, name in enumerate(names):
        made = term(rng, (*variables, *names, *(f"new-{other}" for other in names[:i])), 2, 2)
        if depth < 3 and rng.random() < (0.9 if depth == 0 else 0.4):
            inside = rng.random() < 0.25
            x = (f"x{depth}",) if inside else ()
            nest = block(rng, (*variables, *names, *x), depth + 1, errors and not inside, x or names)
            if inside:
                nest = ("distinct", 0, ("union", 0, nest, ("leaf", *x)))
                nest = ("recursion", *x, {"limit": rng.randint(1, 2)}, ("leaf", rng.choice(names)), nest)
            made = (rng.choice(["union", "minus", "join"]), rng.randrange(len(MERGES)), made, nest)
        if name not in str(made):
            made = ("union", 0, made, ("map", rng.randrange(len(MAPS)), ("leaf", name)))
        if of and not any(repr(("leaf", variable)) in str(made) for variable in of):
            made = (rng.choice(["union", "minus"]), 0, made, ("leaf", rng.choice(of)))
        seed = ("filter", rng.randrange(len(FILTERS)), ("leaf", rng.choice([*variables, "roots", "edges"])))
        bodies.append(("distinct", 0, ("union", 0, made, seed)))
    return "block", names, rng.randint(1, 4 - depth), on_limit, rng.randrange(len(names)), bodies


class _Builder:
    """Makes relations of terms."""

    def __init__(self, graph: Graph) -> None:
        self._numbers, self._topology = count(), graph.topology
        self._leaves: dict[str, Relation] = {
            "edges": graph.edges().map(lambda k, v: (k % M, v % M)),
            "roots": graph.roots().map(lambda k, v: (k % M, v)),
        }

    def name(self, what: str) -> str:
        """A name for a step."""
        return f"{what}-{next(self._numbers)}"

    def under(self, leaves: Mapping[str, Relation], made: Term) -> Relation:
        """What a term is where variables are `leaves`."""
        outer, self._leaves = self._leaves, {**self._leaves, **leaves}
        try:
            return self.make(made)
        finally:
            self._leaves = outer

    def make(self, made: Term) -> Relation:
        """What a term is."""
        what, which, *inner = made
        if what == "leaf":
            return self._leaves[which]
        name = self.name(what)
        if what == "recursion":
            bound, seed, op = inner
            leaves = dict(self._leaves)
            on_limit = {} if "max_depth" in bound else {"on_limit": "return"}
            return self.make(seed).recursively(
                lambda x: self.under({**leaves, which: x}, op), name, **bound, **on_limit
            )
        if what == "block":
            return list(self.block(made))[made[4]]
        first, *rest = map(self.make, inner)
        if what in ONE:
            method = getattr(first, what.replace("-", "_"))
            made_of: Relation = method(ONE[what][which], name)
            return made_of
        if what in {"join", "self-join"}:
            return first.join(rest[0] if rest else first, MERGES[which], name)
        if what in {"union", "minus"}:
            return getattr(first, what)(rest[0], name=name)  # type: ignore[no-any-return]
        return _aggregated(first, what, name)

    def block(self, made: Term) -> Bindings:
        """The bindings of a block, one or two."""
        _, names, limit, on_limit, _, bodies = made
        around = dict(self._leaves)

        def step(*last: Relation) -> tuple[Relation, ...]:
            leaves = {**around, **dict(zip(names, last, strict=True))}
            for name, body in zip(names, bodies, strict=True):
                leaves[f"new-{name}"] = self.under(leaves, body)
            return tuple(leaves[f"new-{name}"] for name in names)

        taking: dict[int, Callable[..., Any]] = {1: lambda one: step(one), 2: lambda one, two: step(one, two)}
        return self._topology.mutually_recursive(
            taking[len(names)], limit=limit, on_limit=on_limit, name=self.name("block")
        )


def _aggregated(rows: Relation, what: str, name: str) -> Relation:
    if what == "distinct":
        return rows.distinct(name)
    grouped = rows.group_by_key()
    if what == "count":
        return grouped.count(name).to_relation().map(lambda k, n: (k, n % M))
    total = grouped.aggregate(lambda: 1, lambda _, v, a: (a + v) % M, lambda _, v, a: (a - v) % M, name, eddy.Native)
    return total.to_relation().filter(lambda k, n: True)


def random_program(seed: int) -> Program:
    """The program of a number: one recursion, and what is made of it."""
    rng = random.Random(seed)
    spec = recursion(rng, (), rng.randint(1, 7), 0)
    while str(spec).count("join") > 3:  # weights that are powers of the number of edges are too slow to wait for
        spec = recursion(rng, (), rng.randint(1, 7), 0)

    def build(graph: Graph) -> Watched:
        builder = _Builder(graph)
        x = builder.make(spec)
        return {"x": x, "size": x.group_by_key().count("size").to_relation()}

    return Program(f"random-{seed}", build, nodes=M)


def random_block(seed: int) -> Program:
    """The program of a number: two or three bindings that recur mutually."""
    rng = random.Random(seed)
    names = ["one", "two", "three"][: rng.randint(2, 3)]
    bodies = []
    for i, _ in enumerate(names):
        seen = (*names, *(f"new-{name}" for name in names[:i]))
        bodies.append(
            ("distinct", 0, ("union", 0, term(rng, ("roots",), 1, 2), body(rng, seen, rng.choice(seen), 3, 2)))
        )
    limit = rng.randint(1, 6)

    def build(graph: Graph) -> Watched:
        builder = _Builder(graph)

        def step(*last: Relation) -> tuple[Relation, ...]:
            leaves = dict(zip(names, last, strict=True))
            for name, made in zip(names, bodies, strict=True):
                leaves[f"new-{name}"] = builder.under(leaves, made)
            return tuple(leaves[f"new-{name}"] for name in names)

        pairs = {2: lambda one, two: step(one, two), 3: lambda one, two, three: step(one, two, three)}
        block = graph.topology.mutually_recursive(pairs[len(names)], limit=limit, on_limit="return", name="block")
        return {name: getattr(block, name) for name in names}

    return Program(f"random-block-{seed}", build, nodes=M)


def random_nest(seed: int) -> Program:
    """The program of a number: a block with blocks inside, and recursions with blocks inside."""
    rng = random.Random(f"nest {seed}")
    spec = block(rng, (), 0, True)
    while str(spec).count("'block'") not in (2, 3) or str(spec).count("join") > 1 or len(str(spec)) > 900:
        spec = block(rng, (), 0, True)

    def build(graph: Graph) -> Watched:
        made = _Builder(graph).block(spec)
        watched = dict(zip(("one", "two"), made, strict=False))
        return {**watched, "errors": made.errors} if "'hold'" in str(spec) else watched

    return Program(f"nest-{seed}", build, nodes=M)
