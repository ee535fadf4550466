"""The naive evaluator, held to results that are written down and to answers found in other ways."""

import random
from collections import Counter
from typing import Any

import pytest

import eddy
from tests import oracle
from tests.conformance.cases import CASES, Case
from tests.naive import Naive, NoAnswerError, covers, table_of

OF_WHAT_WAS = {
    "a-block-is-empty-while-there-is-an-error",
    "a-block-is-empty-while-an-inner-limit-is-too-low",
}
"""Cases whose answer is not a function of what is now."""
OF_TABLES = [case for case in CASES if case.name not in OF_WHAT_WAS and covers(case.topology().plan)]


@pytest.mark.parametrize("case", OF_TABLES, ids=lambda case: case.name)
def test_it_gives_what_the_conformance_suite_expects(case: Case) -> None:
    tables: dict[str, dict[Any, Any]] = {}
    for topic, key, value in (record for batch in case.batches for record in batch):
        tables[topic] = oracle.latest([(key, value)], tables.get(topic))
    found = Naive(case.topology().plan, tables).sinks()
    assert {topic: table_of(rows) for topic, rows in found.items()} == case.expected


def test_many_cases_of_the_suite_are_of_tables() -> None:
    assert len(OF_TABLES) > 40


def test_facts_are_refused() -> None:
    topology = eddy.Topology("facts")
    topology.stream("in", eddy.Native, eddy.Native).to("out")
    with pytest.raises(NotImplementedError, match="is of facts"):
        Naive(topology.plan, {}).sinks()


def walks(bound: dict[str, Any]) -> eddy.Topology:
    """Rows (end, start) of all walks."""
    topology = eddy.Topology("walks")
    edges = topology.table("edges", eddy.Native, eddy.Native).to_relation().map(lambda _, edge: edge)
    backwards = edges.map(lambda a, b: (b, a))
    backwards.recursively(lambda x: x.join(edges, lambda b, a, c: (c, a), "step"), "walks", **bound)
    return topology


@pytest.mark.parametrize("depth", range(4))
@pytest.mark.parametrize("seed", range(5))
def test_walks_through_cycles_are_powers_of_the_matrix(seed: int, depth: int) -> None:
    rng, nodes = random.Random(seed), range(4)
    edges = {n: (rng.choice(nodes), rng.choice(nodes)) for n in range(6)}
    once = Counter(edges.values())
    total, power = Counter(once), Counter(once)
    for _ in range(depth):
        power = Counter({(a, c): sum(power[a, b] * once[b, c] for b in nodes) for a in nodes for c in nodes})
        total.update(power)
    expected = {(b, a): weight for (a, b), weight in total.items() if weight}
    for bound in ({"max_depth": depth}, {"limit": depth, "on_limit": "return"}):
        if bound != {"limit": 0, "on_limit": "return"}:
            assert Naive(walks(bound).plan, {"edges": edges})["walks"] == expected


def test_a_cycle_without_a_bound_has_no_answer() -> None:
    cycle = {"edges": {1: ("a", "b"), 2: ("b", "a")}}
    with pytest.raises(NoAnswerError, match="walks"):
        Naive(walks({}).plan, cycle)["walks"]
