"""A recursion of SQL that does not end is told in SQL's words, with its place in the text."""

import re

import pytest

import eddy
from eddy import Config, LoopLimitError, TopologyTestDriver

COLUMNS = {"a": "bigint", "b": "bigint"}
SEED = "SELECT b FROM e WHERE a = 1"
FOLLOW = "SELECT e.b FROM r JOIN e ON e.a = r.n"
CYCLE = [(1, 2), (2, 1)]
OURS = re.compile(r"recursive|max_depth|on_limit|limit=|waves|key \(\)|fixpoint|\(\(")

ENDLESS = {
    "bag over a cycle": (
        f"WITH RECURSIVE r(n) AS ({SEED} UNION ALL {FOLLOW}) SELECT * FROM r",
        r"sql 'v' line 1, column \d+: 'r': row \([12],\): the path \([12],\) → \([12],\) → \([12],\) came around, "
        r"so that there is no finite answer; .*Write UNION, which has each row once",
    ),
    "bag of two columns": (
        "WITH RECURSIVE r(n, m) AS (SELECT a, b FROM e UNION ALL SELECT r.n, e.b FROM r JOIN e ON e.a = r.m) "
        "SELECT n FROM r",
        r"sql 'v' line 1, column \d+: 'r': row \(\d, \d\): the path \(\d, \d\) → ",
    ),
    "set that grows": (
        f"WITH RECURSIVE r(n) AS ({SEED} UNION SELECT n + 1 FROM r WHERE n > 0) SELECT * FROM r",
        r"sql 'v' line 1, column \d+: 'r' does not end: after 10000 iterations it still changed, e.g. by row "
        r"\(\d+,\); .*Let the step end: … WHERE depth < 100",
    ),
    "block over a cycle": (
        f"WITH MUTUALLY RECURSIVE r(n bigint) AS ({SEED} UNION ALL {FOLLOW}) SELECT * FROM r",
        r"sql 'v': binding 'r' does not end: the epoch's rows or seconds were spent, e.g. by row \([12],\); "
        r".*WITH MUTUALLY RECURSIVE \(RETURN AT RECURSION LIMIT n\)",
    ),
}


def view(topology: eddy.Topology, text: str) -> eddy.View:
    edges = topology.table("edges", key=eddy.Int64, value=eddy.Int64)
    return topology.sql(text, {"e": (edges, COLUMNS)}, name="v")


@pytest.mark.parametrize("name", ENDLESS)
def test_error_speaks_sql(name: str) -> None:
    text, said = ENDLESS[name]
    topology = eddy.Topology("app")
    view(topology, text)
    spent = Config(max_nested_rows=500 if "block" in name else 100_000)
    with TopologyTestDriver(topology, spent) as driver:
        try:
            driver.input("edges").pipe_all(CYCLE)
            (why,) = driver.worker.circuit.held().values()
        except LoopLimitError as error:
            why = str(error)
        assert re.search(said, why)
    assert not OURS.search(re.sub("(WITH )?(MUTUALLY )?RECURSIVE", "", why))


def test_error_of_an_answer_speaks_sql_too() -> None:
    text, said = ENDLESS["bag over a cycle"]
    with pytest.raises(LoopLimitError, match=said.replace("'v'", "'query'")):
        eddy.query(text, {"e": (COLUMNS, CYCLE)})
    with pytest.raises(LoopLimitError, match=r"sql .query. line 1, column .* does not end"):
        eddy.query(ENDLESS["set that grows"][0], {"e": (COLUMNS, CYCLE)})


def test_a_set_over_a_cycle_and_over_a_deep_chain_comes_to_rest() -> None:
    topology = eddy.Topology("app")
    reached = view(topology, f"WITH RECURSIVE r(n) AS ({SEED} UNION {FOLLOW}) SELECT count(*) AS n FROM r")
    reached.to_table("count").map_values(lambda row: row[0]).to("out", value=eddy.Int64)
    deep = 10_050
    with TopologyTestDriver(topology, Config(max_epoch_records=deep)) as driver:
        driver.input("edges").pipe_all([(n, n + 1) for n in range(1, deep)] + [(deep, 1)])
        assert driver.output("out").read_key_values()[-1] == ((), deep)


@pytest.mark.parametrize("written", ["RECURSION LIMIT 3", "RECURSION LIMIT = 3", "RECURSION LIMIT=3"])
@pytest.mark.parametrize("then", ["RETURN AT ", "ERROR AT ", ""])
def test_a_limit_may_have_an_equals_sign(written: str, then: str) -> None:
    text = f"WITH MUTUALLY RECURSIVE ({then}{written}) r(n int) AS (SELECT 1 UNION SELECT n + 1 FROM r WHERE n < {{}}) "
    assert eddy.query(text.format(2) + "SELECT * FROM r ORDER BY n").rows == [(1,), (2,)]
    endless = text.format(100) + "SELECT * FROM r ORDER BY n"
    if then == "RETURN AT ":
        assert eddy.query(endless).rows == [(1,), (2,), (3,)]
    else:
        with pytest.raises(eddy.DataError, match="ERROR AT RECURSION LIMIT 3"):
            eddy.query(endless)
