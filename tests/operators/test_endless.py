"""What has no finite answer is held whatever the cut, the owners and the order: cycles that grow, double, multiply."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import eddy
from eddy.operators.exchange import Budget, Ownership
from eddy.topology.compiler.circuit_compiler import Environment, compile_plan
from tests import oracle
from tests.operators.bench import Bench, facts, run_to_rest
from tests.operators.test_recursion import Cluster

N = eddy.Native
Edge = tuple[int, int, str]
WIDEST = 2_000
"""The bytes of the largest row in these tests, with what a log adds to it."""

STEPS: dict[str, Callable[[Any], Any]] = {
    "same": lambda value: value,
    "add": lambda value: value + 1,
    "double": lambda value: value * 2,
    "letter": lambda value: f"{value}x",
    "twice": lambda value: f"{value}{value}",
}
NUMBERS, TEXTS = ("same", "add", "double"), ("same", "letter", "twice")
SEEDS = {NUMBERS: 1, TEXTS: "seed "}


def program(limit: int) -> eddy.Topology:
    """Rows (node, value) of X are counted in the table "rows"."""
    topology = eddy.Topology("app")
    seeds = topology.table("seeds", N, N).to_relation().map(lambda id, row: row, key=N, value=N)
    edges = topology.table("edges", N, N).to_relation().map(lambda id, e: (e[0], e[1:]), key=N, value=N)
    x = seeds.recursively(
        lambda rows: rows.join(edges, lambda _, value, edge: (edge[0], STEPS[edge[1]](value)), "hop"), "x", limit=limit
    )
    x.map(lambda node, value: ((node, str(value)), 1), key=N, value=N).group_by_key().count("rows")
    return topology


def maker(limit: int, partitions: int = 1, ownership: Ownership | None = None, budget: int = 1 << 60) -> Any:
    plan = program(limit).plan
    counts = {node.topic: partitions for node in plan.sources()}
    owners, by_first_byte = ownership or Ownership(), lambda key, count: sum(key) % count
    return lambda store, max_cells: compile_plan(
        plan,
        Environment(
            counts,
            ownership=owners,
            budget=Budget(budget),
            partitioner=by_first_byte,
            store=store,
            max_cells=max_cells,
            max_row_bytes=WIDEST,
        ),
    )


def answer(seeds: dict[Any, Any], edges: dict[Any, Edge]) -> dict[Any, int] | None:
    """The counts from scratch; None where rows are endless, or too large for a topic."""
    start = oracle.bag((row, 1) for row in seeds.values())

    def op(x: oracle.Bag) -> oracle.Bag:
        return oracle.bag(
            ((to, STEPS[kind](value)), weight)
            for (node, value), weight in x.items()
            for source, to, kind in edges.values()
            if source == node
        )

    met, left = set(start), list(start)
    while left:
        for row in op(oracle.bag([(left.pop(), 1)])):
            if len(str(row[1])) > WIDEST - 1_024 or len(met) > 2_000:
                return None
            if row not in met:
                met.add(row)
                left.append(row)
    rows, _ = oracle.held_recursion(start, op)
    return {(node, str(value)): weight for (node, value), weight in rows.items()}


class Case:
    """A story of seeds and edges, which engines take in in their own epochs."""

    def __init__(self, records: list[tuple[str, Any, Any]]) -> None:
        self.records = records

    def __repr__(self) -> str:
        return f"Case({self.records})"

    def tables(self, count: int) -> tuple[dict[Any, Any], dict[Any, Any]]:
        tables: dict[str, dict[Any, Any]] = {"seeds": {}, "edges": {}}
        for topic, key, value in self.records[:count]:
            tables[topic][key] = value
        seeds, edges = ({k: v for k, v in table.items() if v is not None} for table in tables.values())
        return seeds, edges

    def cuts(self, sizes: list[int]) -> Iterator[list[tuple[str, Any, Any]]]:
        """The records, so many an epoch in turn."""
        left = iter(self.records)
        for size in itertools.cycle(sizes):
            part = list(itertools.islice(left, size))
            if not part:
                return
            yield part


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A path of some nodes below a seed, and what changes there: every other story closes a cycle."""
    kinds = draw(st.sampled_from([NUMBERS, NUMBERS, TEXTS]))
    nodes, kind = st.integers(0, 3), st.sampled_from((kinds[0], *kinds))
    edge = st.tuples(nodes, nodes, kind)
    seed = nodes.map(lambda node: (node, SEEDS[kinds]))
    changes = st.one_of(
        st.tuples(st.just("edges"), st.integers(0, 5), st.one_of(edge, edge, edge, st.none())),
        st.tuples(st.just("edges"), st.integers(0, 5), edge),
        st.tuples(st.just("seeds"), st.integers(0, 1), st.one_of(seed, seed, st.none())),
    )
    path = [("edges", node, (node, node + 1, draw(kind))) for node in range(draw(st.integers(1, 3)))]
    return Case([("seeds", 0, (0, SEEDS[kinds])), *path, *draw(st.lists(changes, min_size=1, max_size=7))])


@st.composite
def chases(draw: st.DrawFn, branches: bool = True) -> tuple[Case, list[int]]:
    """A path, and one epoch that cuts it, makes rows grow below the cut, and closes a cycle below them.

    The retraction follows the rows that grow, and both meet the cycle in each wave. Returns the sizes of the epochs,
    too. `branches`: rows may grow in several ways, so that there may be very many.
    """
    kinds = draw(st.sampled_from([NUMBERS, NUMBERS, TEXTS]))
    kind = st.sampled_from((kinds[0], kinds[0], *kinds)) if branches else st.just(kinds[0])
    last = draw(st.integers(2, 5))
    nodes = draw(st.permutations(range(last + 1)))
    path = [("edges", n, (nodes[n], nodes[n + 1], kinds[0])) for n in range(last)]
    grown = draw(st.integers(1, last - 1))
    closing = draw(st.integers(grown + 1, last))
    node = st.sampled_from(nodes)
    changes: list[tuple[str, int, Any]] = [
        ("edges", draw(st.integers(0, grown - 1)), draw(st.one_of(st.none(), st.tuples(node, node, kind)))),
        ("edges", last + 1, (nodes[grown], nodes[grown], draw(st.sampled_from(kinds[1:])))),
        ("edges", last + 2, (nodes[closing], nodes[draw(st.integers(grown, closing))], kinds[0])),
        *draw(st.lists(st.tuples(st.just("edges"), st.integers(0, last + 3), st.tuples(node, node, kind)), max_size=2)),
    ]
    first = ("seeds", 0, (nodes[0], SEEDS[kinds]))
    return Case([first, *path, *draw(st.permutations(changes))]), [1 + last, *draw(st.sampled_from([[], [1]])), 9]


def by_topic(part: list[tuple[str, Any, Any]]) -> dict[str, Any]:
    return {topic: facts([(k, v) for name, k, v in part if name == topic]) for topic in ("seeds", "edges")}


def counted(bench: Bench) -> dict[Any, int]:
    return dict(bench.states()["rows"])


def check(case: Case, count: int, rows: dict[Any, int], held: list[str]) -> str:
    """Whether rows and what is held are those from scratch. Returns what is told."""
    wanted = answer(*case.tables(count))
    assert rows == (wanted or {})
    assert len(held) <= 1
    if wanted is None:
        assert "the recursion has no rows downstream" in held[0]
    elif held:
        assert "the keys that it reaches have no row" in held[0]
    return held[0] if held else ""


def alone(case: Case, limit: int, sizes: list[int], budget: int, restarts: bool) -> str:
    """Run a case on one worker, and check it after each epoch. Returns what is told in the end."""
    bench, count, told = Bench(maker(limit, budget=budget)), 0, ""
    for part in case.cuts(sizes):
        count += len(part)
        run_to_rest(bench, **by_topic(part))
        if restarts:
            bench = bench.restarted()
        while bench.circuit.unsettled:
            bench.step({}, settling=True)
            bench.end()
        told = check(case, count, counted(bench), list(bench.circuit.held().values()))
    return told


class Owners(Cluster):
    """Workers that own some partitions each."""

    def __init__(self, workers: int, each: int, limit: int) -> None:
        self.limit = limit
        super().__init__(program(limit), workers, each)

    def maker(self, ownership: Ownership) -> Any:
        return maker(self.limit, self.partitions, ownership)

    def held(self) -> list[str]:
        return [why for bench in self.workers for why in bench.circuit.held().values()]


def shared(case: Case, limit: int, owners: int, each: int, rooms: list[int], sizes: list[int]) -> str:
    """The same on several workers, which take in so many rows of each topic in turn."""
    cluster, count, told = Owners(owners, each, limit), 0, ""
    for part in case.cuts(sizes):
        count += len(part)
        for topic, key, value in part:
            cluster.give(topic, (key, value))
        for index, room in enumerate(rooms):
            if any(cluster.inboxes[index % owners].values()):
                cluster.work(index % owners, room)
        cluster.rest(3_000)
        told = check(case, count, cluster.rows(), cluster.held())
    return told


GROWS = Case([("seeds", 0, (0, 1)), ("edges", 0, (0, 1, "add")), ("edges", 1, (1, 0, "same")),
              ("edges", 2, (3, 4, "same")), ("seeds", 1, (3, 1)), ("edges", 1, None)])  # fmt: skip
BESIDE_A_CYCLE = Case([("seeds", 0, (3, 1)), ("edges", 0, (2, 2, "same")), ("edges", 1, (3, 1, "add")),
                       ("edges", 2, (1, 2, "same")), ("edges", 3, (2, 3, "same")), ("edges", 3, None)])  # fmt: skip
WIDENS = Case(
    [("seeds", 0, (0, "seed ")), ("edges", 0, (0, 1, "twice")), ("edges", 1, (1, 0, "letter")), ("edges", 0, None)]
)
CROSSES = Case(
    [("seeds", 0, (0, "seed ")), ("edges", 0, (0, 1, "same")), ("edges", 1, (1, 2, "twice")), ("seeds", 1, None),
     ("edges", 3, (0, 0, "twice")), ("seeds", 1, (3, "seed ")), ("edges", 5, (0, 0, "twice")),
     ("seeds", 1, (1, "seed ")), ("edges", 2, (0, 3, "same")), ("edges", 5, (0, 3, "twice"))]
)  # fmt: skip
"""A change of op makes a wide row of an earlier one, for another owner."""
PATH = [("seeds", 0, (0, 1)), *(("edges", n, (n, n + 1, "same")) for n in range(3))]
FOLLOWS = Case([*PATH, ("edges", 0, (0, 0, "same")), ("edges", 0, (2, 2, "add")), ("edges", 1, (3, 3, "same"))])
"""A loop makes rows that grow, which the retraction of the way there follows one wave later; both meet a cycle."""
FOLLOWS_TWICE = Case([*PATH, ("edges", 0, (2, 2, "add")), ("edges", 3, (2, 2, "add")), ("edges", 1, (3, 3, "same"))])
TOO_LARGE = Case([("seeds", 0, (1, 1)), ("edges", 0, (1, 4, "same")), ("edges", 1, (4, 0, "same")),
                  ("edges", 2, (0, 3, "same")), ("edges", 3, (3, 2, "same")), ("edges", 1, (2, 2, "same")),
                  ("edges", 6, (2, 3, "same")), ("edges", 5, (3, 3, "double"))])  # fmt: skip
"""The rows that grow become too large while what retracts them is still on its way."""
RELEASED_TWICE = Case([("seeds", 0, (1, 1)), ("edges", 0, (1, 0, "same")), ("edges", 1, (0, 2, "same")),
                       ("edges", 2, (2, 5, "same")), ("edges", 3, (5, 4, "same")), ("edges", 4, (4, 3, "same")),
                       ("edges", 7, (3, 3, "same")), ("edges", 6, (4, 4, "double")),
                       ("edges", 1, (4, 4, "add"))])  # fmt: skip
"""Two reviews release rows in one epoch."""
LINKS = Case([("seeds", 0, (0, 1)), *(("edges", n, (0, 1, "same")) for n in range(3)),
              *(("edges", n, (1, 0, "same")) for n in range(3, 6)), ("seeds", 1, (2, 1))])  # fmt: skip


@given(
    case=cases(),
    limit=st.sampled_from([5, 30, 10_000]),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    other=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    budget=st.sampled_from([1, 7, 1 << 60]),
    restarts=st.booleans(),
)
@example(GROWS, 30, [1], [9], 1 << 60, False)
@example(BESIDE_A_CYCLE, 25, [1], [9], 1, True)
@example(WIDENS, 30, [1], [3], 1 << 60, True)
@example(LINKS, 10_000, [1], [9], 1 << 60, False)
def test_it_is_so_whatever_the_cut(
    case: Case, limit: int, sizes: list[int], other: list[int], budget: int, restarts: bool
) -> None:
    assert alone(case, limit, sizes, 1 << 60, False) == alone(case, limit, other, budget, restarts)


@given(
    case=cases(),
    limit=st.sampled_from([5, 30]),
    owners=st.integers(2, 4),
    each=st.integers(1, 2),
    rooms=st.lists(st.integers(1, 5), max_size=12),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
)
@example(GROWS, 30, 2, 1, [], [1])
@example(BESIDE_A_CYCLE, 25, 3, 2, [1, 1, 2], [1])
@example(WIDENS, 30, 2, 1, [], [9])
@example(LINKS, 30, 2, 2, [1, 1], [9])
@example(CROSSES, 30, 4, 1, [4, 5, 2, 4, 3, 3, 1, 2, 4], [4, 3])
def test_it_is_so_whoever_owns_the_rows(
    case: Case, limit: int, owners: int, each: int, rooms: list[int], sizes: list[int]
) -> None:
    assert shared(case, limit, owners, each, rooms, sizes) == alone(case, limit, [len(case.records)], 1 << 60, False)


@given(
    chase=chases(),
    limit=st.sampled_from([5, 30, 10_000]),
    budget=st.sampled_from([7, 1 << 60, 1 << 60]),
    restarts=st.booleans(),
)
@example((FOLLOWS, [3, 1]), 5, 1 << 60, False)
@example((FOLLOWS_TWICE, [3, 1]), 5, 1 << 60, False)
@example((TOO_LARGE, [5, 3]), 5, 1 << 60, False)
def test_rows_that_their_retractions_follow_support_no_others(
    chase: tuple[Case, list[int]], limit: int, budget: int, restarts: bool
) -> None:
    case, sizes = chase
    assert alone(case, limit, sizes, budget, restarts) == alone(case, limit, [99], 1 << 60, False)


@given(
    chase=chases(branches=False),
    limit=st.sampled_from([5, 30]),
    owners=st.integers(2, 3),
    each=st.integers(1, 2),
    rooms=st.lists(st.integers(1, 5), max_size=9),
)
def test_they_support_no_others_among_several_owners(
    chase: tuple[Case, list[int]], limit: int, owners: int, each: int, rooms: list[int]
) -> None:
    case, sizes = chase
    assert shared(case, limit, owners, each, rooms, sizes) == alone(case, limit, [99], 1 << 60, False)


@pytest.mark.long
def test_two_reviews_that_end_in_one_epoch_release_the_rows_of_both() -> None:
    assert shared(RELEASED_TWICE, 5, 2, 2, [3, 3, 3], [7, 2]) == ""
