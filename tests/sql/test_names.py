"""Names of steps: no two clash, whatever the author calls tables, queries and steps."""

import itertools
from typing import Any

import pytest

import eddy
from eddy import query
from eddy.topology.sql.names import StepNames, built, step_name
from tests.sql import duck

EDGES: Any = {"e": ({"a": "integer", "b": "integer"}, [(1, 2), (2, 3)])}

CLASHES = [
    "WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + (SELECT 1) FROM t WHERE x < 3) SELECT * FROM t",
    "WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t WHERE x < 3), u AS (SELECT x FROM t UNION ALL "
    "SELECT u.x * 2 + t.x FROM u, t WHERE u.x < 9) SELECT * FROM u",
    "WITH RECURSIVE t AS (SELECT 1 AS i UNION ALL SELECT j FROM t, generate_series(0, 5, 1) series(j) WHERE j = i + 1) "
    "SELECT * FROM t",
    "WITH RECURSIVE r(a, b) AS (SELECT a, b FROM e UNION SELECT n.b, n.a FROM r n), q(a, b) AS (SELECT a, 0 FROM r "
    "UNION ALL SELECT n.a, n.b + 1 FROM q n, e y WHERE n.b < 1) SELECT x.c, y.b FROM (SELECT count(*) AS c FROM q) x "
    "CROSS JOIN r y",
    'WITH "group" AS (SELECT a, count(*) AS n FROM e GROUP BY a), "group-rows" AS (SELECT a, max(b) AS n FROM e GROUP '
    'BY a) SELECT "left".n, count(*) FROM "group" "left", "group-rows" "left-join" WHERE "left".a < "left-join".a '
    "GROUP BY 1",
    'SELECT "a b".a FROM (SELECT DISTINCT a FROM e) "a b" JOIN (SELECT DISTINCT b FROM e) "a_b" ON "a b".a = "a_b".b',
]


@pytest.mark.parametrize("text", CLASHES)
def test_internal_names_never_clash(text: str) -> None:
    assert duck.bag(query(text, EDGES).rows) == duck.answer(text, EDGES)


@pytest.mark.parametrize("taken", ["v-e-join", "v-e-join-left", "v-group", "v-e-repartition", "v-x-repartition"])
def test_a_view_gives_way_to_steps_that_have_a_name_already(taken: str) -> None:
    topology = eddy.Topology("names")
    rows = topology.stream("rows", key=eddy.String, value=eddy.Int64)
    rows.group_by_key().count(taken)
    columns = {"a": "integer", "b": "integer"}
    tables = {name: (topology.table(name, key=eddy.Int64, value=eddy.Int64), columns) for name in "xe"}
    view = topology.sql("SELECT x.a, max(e.b) AS b FROM x JOIN e ON x.a = e.a GROUP BY x.a", tables, name="v", key="a")
    view.to_table("of")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("x").pipe(1, 1)
        driver.input("e").pipe(1, 7)
        assert driver.store("of").all() == {1: (1, 7)}


def test_bindings_whose_names_are_no_parameters_get_others_that_no_binding_has() -> None:
    text = 'WITH MUTUALLY RECURSIVE "a b" (n int) AS (SELECT 1), binding_0 (n int) AS (SELECT n + 1 FROM "a b"), '
    text += '"limit" (n int) AS (SELECT n + 1 FROM binding_0) SELECT * FROM "limit"'
    assert query(text).rows == [(3,)]


def test_queries_inside_of_many_others_have_names_of_bounded_length() -> None:
    text = "SELECT DISTINCT a FROM e"
    for _ in range(30):
        text = f"SELECT DISTINCT a FROM ({text}) query"
    assert sorted(query(text, EDGES).rows) == [(1,), (2,)]
    assert len({step_name("x" * 150, str(i)) for i in range(100)}) == 100


def test_names_of_a_body_that_is_built_again_are_those_of_its_first_call() -> None:
    names = StepNames()
    assert names.take("a", "join") == "a-join"
    mark = names.mark()
    for _ in range(2):
        names.reset(mark)
        assert [names.take("a-join") for _ in range(2)] == ["a-join-2", "a-join-3"]


def test_a_name_that_the_statement_has_not_given_is_the_authors_error() -> None:
    topology = eddy.Topology("names")
    topology.stream("rows", key=eddy.String).group_by_key().count("mine")
    tries = itertools.count()

    def make(names: StepNames) -> None:
        next(tries)
        topology.stream("others", key=eddy.String).group_by_key().count("mine")

    with pytest.raises(eddy.TopologyError, match="the name is taken by step 'mine'"):
        built(topology.plan, make)
    assert next(tries) == 1
