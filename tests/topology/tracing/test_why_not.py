"""Why a key has no row: the step that is named is the one without whose drop there would be a row."""

import random
from itertools import pairwise
from typing import Any

import pytest

import eddy
from eddy.topology.tracing.evaluation import Evaluation
from eddy.topology.tracing.text import why_not_text
from eddy.topology.tracing.why_not import DroppedRow, WhyNot
from tests.topology.programs import family
from tests.topology.tracing.traced import NAMES, Traced, check, step_of

S = eddy.String
Tables = dict[str, dict[str, Any]]


def why_not(topology: eddy.Topology, step: str, key: Any, tables: Tables) -> list[DroppedRow]:
    node = step_of(topology, step)
    rows = {source.topic: list(tables[source.topic].items()) for source in topology.plan.sources()}
    evaluation = Evaluation(topology.plan, node, rows)
    assert key not in {row[0] for row, _ in evaluation.bags[node]}
    return WhyNot(topology.plan, evaluation).of(node, [key])


def shop(least: int = 5) -> eddy.Topology:
    """Totals by the city of the customer: of orders that are not void, where they are large enough."""
    topology = eddy.Topology("shop")
    customers = topology.table("customers", key=S, value=S)
    placed = topology.table("placed", key=S, value=eddy.Json()).to_relation()
    paid = placed.filter(lambda _, order: not order["void"], name="paid")
    by_city = paid.map(lambda _, order: (order["by"], order["sum"])).join(
        customers, lambda _, total, city: (city, total), name="to-city"
    )
    sums = by_city.group_by_key().sum("sums")
    sums.filter(lambda _, total: total >= least, name="large").to("large")
    return topology


def order(by: str, total: int, void: bool = False) -> dict[str, Any]:
    return {"by": by, "sum": total, "void": void}


def test_filter_before_a_sum_that_drops_all_rows_of_a_key() -> None:
    tables: Tables = {"customers": {"ann": "rome"}, "placed": {"o1": order("ann", 9, void=True)}}
    (found,) = why_not(shop(), "large", "rome", tables)
    assert not found.of
    assert (found.step, found.key, found.value, found.maybe) == ("paid", "o1", order("ann", 9, void=True), False)
    assert found.reason.startswith("drops it (tests/topology/tracing/test_why_not.py:")


def test_filter_after_a_sum() -> None:
    tables: Tables = {"customers": {"ann": "rome"}, "placed": {"o1": order("ann", 3)}}
    (found,) = why_not(shop(), "large", "rome", tables)
    assert (found.step, found.key, found.value) == ("large", "rome", 3)


def test_side_of_a_join_whose_result_has_another_key_may_be_the_reason() -> None:
    tables: Tables = {"customers": {"tom": "oslo"}, "placed": {"o1": order("ann", 9)}}
    maybe, *ends = why_not(shop(), "large", "rome", tables)
    assert (maybe.step, maybe.maybe, maybe.key, maybe.value) == ("to-city", True, "ann", 9)
    assert maybe.reason == "has no row with this key on its right side, row of topic customers 'customers'"
    assert [(each.step, each.reason) for each in ends] == [("to-city", "makes this key of none of its 1 rows")]


def test_side_of_a_join_of_tables_is_asked_in_turn() -> None:
    topology = eddy.Topology("both")
    names = topology.table("names", key=S, value=S).filter(lambda _, name: name != "", name="known")
    cities = topology.table("cities", key=S, value=S)
    names.join(cities, lambda name, city: f"{name} in {city}", name="where").to("where")
    (lacking,) = why_not(topology, "where", "1", {"names": {"1": ""}, "cities": {"1": "rome"}})
    assert lacking.reason == "has no row with this key on its left side, filter 'known'"
    assert [(each.step, each.key) for each in lacking.of] == [("known", "1")]
    (lacking,) = why_not(topology, "where", "1", {"names": {"1": "ann"}, "cities": {}})
    assert [(each.step, each.reason) for each in lacking.of] == [("cities", "has no row with this key, among 0")]
    assert (
        why_not_text([lacking])
        == """\
  join 'where' has no row with this key on its right side, row of topic cities 'cities': "1" = "ann"
    row of topic cities 'cities' has no row with this key, among 0
"""
    )


def test_key_that_is_in_no_table_ends_at_the_tables() -> None:
    found = why_not(family(), "descendants", "x", {"nodes": {"a": "b"}})
    assert found[-1].reason == "makes this key of none of its 1 rows"


def test_row_that_minus_takes_away() -> None:
    topology = eddy.Topology("minus")
    here = topology.table("here", key=S, value=S).to_relation()
    gone = topology.table("gone", key=S, value=S).to_relation()
    here.minus(gone, name="left")
    (found,) = why_not(topology, "left", "a", {"here": {"a": "1"}, "gone": {"a": "1"}})
    assert found.reason.startswith("takes it away")


@pytest.mark.parametrize("include_self", [True, False])
def test_nodes_on_a_cycle_are_held_and_the_path_is_named(include_self: bool) -> None:
    topology = eddy.Topology("totals")
    topology.table("nodes", key=S, value=S).tree_totals("totals", include_self=include_self)
    tables: Tables = {"nodes": {"a": "b", "b": "c", "c": "a", "d": "a", "e": "d"}}
    for node in "abc":
        (found,) = why_not(topology, "totals", node, tables)
        assert (found.reason, found.key) == ("holds it: the path a → b → c → a is a cycle. Mend the data", node)
    if not include_self:
        assert "no node is below it" in why_not(topology, "totals", "e", tables)[0].reason


def test_root_beyond_a_bound_is_held() -> None:
    topology = eddy.Topology("reaching")
    roots = topology.table("roots", key=S, value=S).to_relation()
    edges = topology.table("edges", key=S, value=S).to_relation()
    found = topology.recursive_fixpoint(roots=roots, edges=edges, name="reached", node=S, max_nodes=2)
    found.group_by_key().count("sizes")
    tables: Tables = {"roots": {"r": "a"}, "edges": {"a": "b", "b": "c"}}
    (held,) = why_not(topology, "sizes", "r", tables)
    assert held.reason == "holds it: the root reaches 3 nodes, down to depth 2, which is beyond a bound"


def test_having_and_where_of_sql() -> None:
    topology = eddy.Topology("sql")
    orders = topology.table("orders", key=S, value=eddy.Native)
    topology.sql(
        "SELECT city, COUNT(*) AS n FROM orders WHERE paid GROUP BY city HAVING COUNT(*) > 1",
        name="view",
        tables={"orders": (orders, {"id": "text", "city": "text", "paid": "boolean"})},
        key="city",
    )
    last = topology.plan.nodes[-1].name
    tables: Tables = {"orders": {"1": ("rome", True), "2": ("oslo", False), "3": ("oslo", False)}}
    (having,) = why_not(topology, last, "rome", tables)
    assert having.where == "filter after 'view-group'"
    assert having.value == ("rome", 1)
    (where,) = why_not(topology, last, "oslo", tables)
    assert ("oslo" in where.value, where.of) == (True, [])
    (where,) = why_not(topology, last, "oslo", {"orders": {"2": ("oslo", False)}})
    assert [(each.where, each.value) for each in where.of] == [("filter after 'view-group'", ("oslo", 1))]


@pytest.mark.parametrize("seed", range(12))
def test_steps_that_are_named_have_dropped_the_rows_and_without_that_there_would_be_one(seed: int) -> None:
    draw = random.Random(seed)
    cities = {name: draw.choice(["rome", "oslo", "bonn"]) for name in NAMES[:6]}
    placed = {f"o{n}": order(draw.choice(NAMES), draw.randrange(4), draw.random() < 0.5) for n in range(7)}
    tables: Tables = {"customers": cities, "placed": placed}

    def totals(rows: dict[str, Any]) -> dict[str, int]:
        found: dict[str, int] = {}
        for row in rows.values():
            if row["by"] in cities and not row["void"]:
                found[cities[row["by"]]] = found.get(cities[row["by"]], 0) + row["sum"]
        return found

    now = totals(placed)
    for city in ("rome", "oslo", "bonn"):
        if now.get(city, 0) >= 5:
            continue
        found = why_not(shop(), "large", city, tables)
        void = {key for key, row in placed.items() if row["void"] and cities.get(row["by"]) == city}
        sure = [each for each in found if not each.maybe and each.key is not None]
        if city in now:
            assert [(each.step, each.key, each.value) for each in sure] == [("large", city, now[city])]
        elif void:
            assert [each.step for each in sure] == ["paid"]
            assert sure[0].key in void
            assert sure[0].more == len(void) - 1
            together = totals({key: {**row, "void": False} for key, row in placed.items() if key in void})
            assert [(each.step, each.value) for each in sure[0].of] == [("large", together[city])] * (
                together[city] < 5
            )
        else:
            assert sure == []


def ways(first: str, second: str, name: str) -> eddy.Topology:
    """The number of paths to each node, over rows (node, next) of two tables."""
    topology = eddy.Topology(name)
    one, other = (topology.table(table, key=S, value=S).to_relation() for table in (first, second))
    links = one.union(other)
    found = links.map(lambda node, end: (end, 1)).recursively(
        lambda rows: rows.join(links, lambda _, one, end: (end, 1)), name="paths"
    )
    found.group_by_key().count("counts")
    return topology


def counted(links: list[tuple[str, str]]) -> dict[str, int]:
    """The number of paths that end at each node, without the nodes to which a cycle leads."""
    reaches = {node: {node} for node in NAMES}
    for _ in NAMES:
        for start, end in links:
            reaches[end] |= reaches[start]
    around = {start for start, end in links if end in reaches[start]}
    held = {node for node in NAMES if reaches[node] & around}

    def number(node: str) -> int:
        return sum(1 + number(start) for start, end in links if end == node)

    return {node: number(node) for node in NAMES if node not in held and number(node)}


@pytest.mark.parametrize("seed", range(20))
def test_keys_that_a_cycle_reaches_are_held_and_all_others_are_exact(seed: int) -> None:
    draw = random.Random(seed)
    topology = ways("first", "second", "ways")
    tables: Tables = {
        table: {node: draw.choice(NAMES) for node in NAMES if draw.random() < 0.5} for table in ("first", "second")
    }
    links = [link for rows in tables.values() for link in rows.items()]
    expected = counted(links)
    with eddy.TopologyTestDriver(topology) as driver:
        for table, rows in tables.items():
            driver.input(table).pipe_all(draw.sample([*rows.items()], len(rows)))
        assert driver.store("counts").all() == expected
    node = step_of(topology, "counts")
    evaluation = Evaluation(topology.plan, node, {table: list(rows.items()) for table, rows in tables.items()})
    assert dict(row for row, _ in evaluation.bags[node]) == expected
    for key in {end for _, end in links} - expected.keys():
        (found,) = WhyNot(topology.plan, evaluation).of(node, [key])
        assert found.step == "paths"
        path = found.reason.removeprefix("holds it: the path ").removesuffix(" is a cycle. Mend the data").split(" → ")
        assert path[0] == path[-1]
        assert all(link in links for link in pairwise(path))
    for key, number in expected.items():
        receipt = Traced(topology, "counts", tables).receipt(key)
        before = [start for start, end in links if end == key]
        assert receipt.number == number
        check(receipt, {start: expected.get(start, 0) * before.count(start) for start in before}, len(before))


def test_all_that_follows_from_a_cycle_is_held_however_far_it_is() -> None:
    line = {f"n{n}": f"n{n + 1}" for n in range(150)} | {"free": "n200", "n200": "n201"}
    topology = ways("first", "second", "ways")
    for start, held in ((0, 151), (100, 51)):
        tables: Tables = {"first": line, "second": {f"n{start + 1}": f"n{start}"}}
        node = step_of(topology, "counts")
        evaluation = Evaluation(topology.plan, node, {table: list(rows.items()) for table, rows in tables.items()})
        (found,) = evaluation.held.values()
        assert len(found.keys) == held
        assert {row[0] for row, _ in evaluation.bags[node]} >= {"n200", "n201"}
        assert found.path in {f"n{start} → n{start + 1} → n{start}", f"n{start + 1} → n{start} → n{start + 1}"}
