"""Bounds that nested time meets: what is downstream is that from scratch, or nothing while there is no answer.

Stories of edits make and mend data without an answer, in epochs cut anyhow, undone, restarted and replayed between.
What is expected after each epoch is what the naive evaluator makes of the tables; of a loop that keeps its keys, key by
key.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import eddy
from eddy.topology.plan.plan import Plan
from tests.naive import Bag, Naive, NoAnswerError
from tests.recursion.cluster import Cluster
from tests.recursion.programs import Graph, Program, Watched
from tests.recursion.rig import Rig, Tables, agree, befall, draw, taken, watch

Relation = eddy.Relation[Any, Any]


def game(g: Graph) -> Watched:
    """Who wins, by turns: positions from which a move leads to one that loses. Some cycles have no answer."""
    moves = g.edges().distinct(g("moves"))
    places = moves.flat_map(lambda a, b: [(a, 0), (b, 0)]).distinct(g("places"))
    back = moves.map(lambda a, b: (b, a))

    def step(win: Relation) -> tuple[Relation, ...]:
        loses = places.minus(win, g("loses"))
        return (loses.join(back, lambda place, _, before: (before, 0), g("moved")).distinct(g("wins")),)

    block = g.topology.mutually_recursive(step, name=g("game"))
    return {"win": block.win}


def distances(g: Graph) -> Watched:
    """All distances from the roots: without end on cycles. What goes round is in no trace as it is."""
    edges = g.edges()

    def op(x: Relation) -> Relation:
        moved = x.map_values(lambda n: n + 1).join(edges, lambda a, n, b: (b, n), g("hop"))
        return moved.distinct(g("once")).filter(lambda node, n: node != 3)

    return {"found": g.roots().recursively(op, g("distances"), limit=30)}


def flips(g: Graph) -> Watched:
    """Rows of nodes from 3 on go back and forth; each owner keeps its keys."""
    roots = g.roots().distinct(g("once"))
    late = roots.filter(lambda node, _: node >= 3)
    x = roots.filter(lambda node, _: node < 3).recursively(lambda x: late.minus(x, g("other")), g("flip"))
    return {"x": x}


def chained(g: Graph) -> Watched:
    """Blocks in one another, the inner one without an answer in some iterations; a join reads what was withheld."""
    edges = g.edges()

    def outer(seen: Relation) -> tuple[Relation, ...]:
        def inner(at: Relation) -> tuple[Relation, ...]:
            on = seen.union(at).join(edges, lambda a, _, b: (b, 0), g("step"))
            return (g.roots_once.union(on).minus(at.filter(lambda n, _: n == 4), g("not")).distinct(g("ats")),)

        return (g.topology.mutually_recursive(inner, name=g("inner")).at,)

    g.roots_once = g.roots().distinct(g("roots-once"))  # type: ignore[attr-defined]
    seen = g.topology.mutually_recursive(outer, name=g("outer")).seen
    return {"seen": seen, "next": seen.join(edges, lambda a, _, b: (a, b), g("next"))}


PROGRAMS = {
    "game": Program("game", game, ("edges",), nodes=5),
    "distances": Program("distances", distances, nodes=5),
    "flips": Program("flips", flips, ("roots",), nodes=6, tags=frozenset({"keyed"})),
    "chained": Program("chained", chained, nodes=6),
}


def answer(program: Program, plan: Plan, tables: Tables) -> dict[str, Bag]:
    """What is to be downstream."""
    if "keyed" not in program.tags:
        return evaluated(plan, tables)
    found: dict[str, Bag] = {sink.topic: Counter() for sink in plan.sinks()}
    for node in set(itertools.chain(*(rows.values() for rows in tables.values()))):
        one = {topic: {id: value for id, value in rows.items() if value == node} for topic, rows in tables.items()}
        for topic, rows in evaluated(plan, one).items():
            found[topic].update(rows)
    return found


def evaluated(plan: Plan, tables: Tables) -> dict[str, Bag]:
    try:
        return Naive(plan, tables, patience=40).sinks()
    except NoAnswerError:
        return {sink.topic: Counter() for sink in plan.sinks()}


def settle(rig: Rig) -> None:
    for _ in range(200):
        if not rig.circuit.due():
            return
        rig.epoch([])
    raise AssertionError("tries are owed for ever")


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 1 << 30))
@example(seed=19)  # a root moves off the cycle
def test_downstream_is_that_from_scratch_or_nothing(name: str, seed: int) -> None:
    program, rng = PROGRAMS[name], random.Random(seed)
    story = draw(program, rng, mixed=0.0)
    topology, watched = program.topology()
    watch(topology, watched)
    rig = Rig(topology, story.partitions, story.max_cells)
    tables: Tables = {}
    for fate, edits in story.epochs:
        at = f"{tables} and then {edits}"
        befall(rig, fate, edits, rng, story, at)
        tables = taken(tables, edits)
        rig.epoch(edits)
        settle(rig)
        expected = answer(program, topology.plan, tables)
        for topic, rows in expected.items():
            agree(f"{topic}, {at}", rig.left[topic], rows)
    rig.epoch([(topic, key, None) for topic, rows in tables.items() for key in rows])
    settle(rig)
    assert not rig.circuit.held()
    assert not rig.stored()


class _Cluster(Cluster):
    def __init__(self, program: Program, members: int, partitions: int, rng: random.Random) -> None:
        super().__init__(program, members, partitions, rng)
        self.program = program

    def check(self) -> None:
        for topic, rows in answer(self.program, self.topology.plan, self.tables).items():
            agree(f"{topic}: {self.trace}", dict(self.read(topic)), dict(rows))


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_whatever_befalls_its_workers_downstream_is_that_from_scratch_or_nothing(name: str, members: int) -> None:
    rng = random.Random(f"{name} {members}")
    _Cluster(PROGRAMS[name], members, 1 if members == 1 else 4, rng).live(PROGRAMS[name])


def run(op: Callable[[Relation], Relation], **config: Any) -> eddy.TopologyTestDriver:
    topology = eddy.Topology("run")
    topology.table("seeds", eddy.Native, eddy.Native).to_relation().recursively(op, "x").group_by_key().count("rows")
    return eddy.TopologyTestDriver(topology, eddy.Config(**config))


def test_much_work_that_ends_is_divided_rather_than_withheld() -> None:
    """Each key takes 64 rows, all together more than the bound."""
    op = lambda x: x.map_values(lambda n: n + 1).filter(lambda k, n: n < 64, "few").distinct("once")  # noqa: E731
    with run(op, max_nested_rows=1_000) as driver:
        driver.input("seeds").pipe_all([(key, 0) for key in range(100)])
        assert driver.store("rows").all() == dict.fromkeys(range(100), 64)
        assert not driver.worker.circuit.held()


def test_what_goes_back_and_forth_is_found_in_few_iterations_and_costs_little_while_it_lasts() -> None:
    topology = eddy.Topology("flip")
    rows = topology.table("rows", eddy.Native, eddy.Native).to_relation().distinct("once")
    late = rows.filter(lambda key, _: key > 0)
    rows.filter(lambda key, _: key <= 0).recursively(lambda x: late.minus(x, "other"), "x").group_by_key().count(
        "counted"
    )
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("rows").pipe_all([(0, 1), (1, 1)])
        assert "has the same rows as before" in driver.worker.circuit.held()["x", 0]
        before = driver.worker.statistics.waves
        driver.input("rows").pipe_all([(-n, 1) for n in range(1, 50)])
        driver.input("rows").pipe(1, 2)
        assert driver.worker.statistics.waves - before < 500
        assert driver.store("counted").all() == {-n: 1 for n in range(50)}


def test_a_view_that_oscillates_on_empty_tables_starts_and_is_right_once_records_come() -> None:
    topology = eddy.Topology("empty")
    stop = topology.table("stop", eddy.Native, eddy.Native).to_relation().map(lambda id, _: (0, 0))
    one = topology.constant([(0, 0)], "one", eddy.Native, eddy.Native)

    def step(x: Relation) -> tuple[Relation, ...]:
        return (one.minus(x.minus(stop, "unless"), "not").union(stop).distinct("once"),)

    block = topology.mutually_recursive(step, name="block")
    block.x.group_by_key().count("rows")
    block.errors.group_by_key().count("errors")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.run()
        assert list(driver.worker.circuit.held()) == [("block", 0)]
        assert driver.store("rows").all() == {}
        assert driver.store("errors").all() == {"block": 1}
        driver.input("stop").pipe(1, 1)
        assert not driver.worker.circuit.held()
        assert driver.store("rows").all() == {0: 1}
        assert driver.store("errors").all() == {}


@pytest.mark.parametrize("distinct", [True, False], ids=["nested", "waves"])
def test_numbers_that_are_squared_are_found_before_they_fill_the_memory(distinct: bool) -> None:
    """Nested time withholds the keys, all found in one try; waves withhold the recursion."""

    def op(x: Relation) -> Relation:
        squared = x.map_values(lambda n: n * n).filter(lambda _, n: n != 1, "more")
        return squared.distinct("once") if distinct else squared

    with run(op) as driver:
        driver.input("seeds").pipe_all([(key, 3) for key in range(200)] + [(-1, 1)])
        assert driver.worker.circuit.held()
        assert driver.store("rows").all() == ({-1: 1} if distinct else {})
        assert driver.worker.statistics.waves < 200
        driver.input("seeds").pipe_all([(key, None) for key in range(200)])
        assert not driver.worker.circuit.held()
        assert driver.store("rows").all() == {-1: 1}
