"""SQL over HTTP: the answers of `eddy sql`'s engine, within bounds, to callers that may read the tables."""

import http.client
import json
import os
import random
import select
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.program.sql_process import MAX_ANSWERED
from eddy.serve import sql_pages
from eddy.serve.endpoint import endpoint_of, listen
from eddy.serve.http_server import HttpServer
from eddy.serve.table_pages import tables_app
from tests.serve.conftest import fetch
from tests.waiting import PATIENCE_S, wait_for


def authorize(request: Any, table: str) -> Any:
    user = request.headers.get("x-user", "root")
    if user == "root":
        return True
    return table == "orders" and (lambda key, value: value["by"] == user)


class Shop:
    """Orders and their customers, served."""

    def __init__(self, stack: ExitStack) -> None:
        self.log = stack.enter_context(closing(eddy.open_log()))
        topology = eddy.Topology("shop")
        topology.table("orders", key=eddy.Int64, value=eddy.Json())
        topology.table("customers-of", key=eddy.String, value=eddy.String)
        topology.table("pairs", key=eddy.String, value=eddy.Json())
        eddy.create_topics(topology, self.log, partitions=2)
        stack.enter_context(eddy.run(topology, self.log))
        self.tables = stack.enter_context(eddy.open_tables(topology, self.log))
        app = tables_app(self.tables, authorize)
        listener = listen(endpoint_of("0"))
        self.port = listener.getsockname()[1]
        server = HttpServer(app, listener, keep_alive=True, answer_s=8.0)  # less than a query may take
        server.start()
        stack.callback(server.stop)
        stack.callback(app.state.live.stop)
        draw = random.Random(7)
        names = [f"c{number}" for number in range(9)]
        self.customers = {name: draw.choice(["Oslo", "Bonn"]) for name in names}
        self.orders = {n: {"by": draw.choice(names), "sum": draw.randrange(90), "at": None} for n in range(300)}
        self.tables.wait(self.log.write("customers-of", self.customers, key=eddy.String, value=eddy.String))
        ends = self.log.write("orders", self.orders, key=eddy.Int64, value=eddy.Json())
        self.tables.wait(ends, exact=True, timeout_s=PATIENCE_S)

    def ask(self, sql: Any, user: str = "root", kind: str = "application/json") -> tuple[int, Any]:
        """The status and the body of the answer."""
        data = json.dumps({"sql": sql}).encode()
        headers = {"Content-Type": kind, "X-User": user}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/sql", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with ExitStack() as stack:
        yield Shop(stack)


def test_answer_is_that_of_the_rows(shop: Shop) -> None:
    status, found = shop.ask(
        'SELECT c.value, count(*), sum(o.sum) FROM orders o JOIN "customers-of" c ON o.by = c.key GROUP BY 1 ORDER BY 1'
    )
    expected = []
    for city in sorted(set(shop.customers.values())):
        sums = [order["sum"] for order in shop.orders.values() if shop.customers[order["by"]] == city]
        expected.append([city, str(len(sums)), str(sum(sums))])
    assert (status, found["answer"]["rows"], found["exact"]) == (200, expected, True)
    assert found["answer"]["types"] == ["text", "bigint", "numeric"]
    assert found["version"] == shop.tables.version.token


def test_recursive_query_is_answered(shop: Shop) -> None:
    text = "WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT sum(n) FROM t"
    assert shop.ask(text)[1]["answer"]["rows"] == [["15"]]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT nope\nFROM orders", "line 1, column 8: no column 'nope'"),
        (
            "SELECT 1\nFROM other",
            "line 2, column 6: no table 'other'; one of ['customers-of', 'orders', 'pairs'] is needed.",
        ),
        ("SELECT 1 FRM orders", "line 1, column 14"),
        ("DELETE FROM orders", "line 1, column 1: DELETE is not supported"),
        ("CREATE VIEW v AS SELECT 1", "line 1, column 13: CREATE is not supported"),
        ("INSERT INTO orders VALUES (1)", "line 1, column 1: INSERT is not supported"),
        ("SELECT 1; DROP TABLE orders", "2 statements; one is needed"),
        ("SELECT 1 / 0", "division by zero"),
        ("", "there is no statement"),
        ({"not": "text"}, "this is not a request"),
    ],
)
def test_error_names_the_place(shop: Shop, sql: Any, message: str) -> None:
    status, found = shop.ask(sql)
    assert status == 400
    assert message in found["error"]
    assert "tables={" not in found["error"]


def test_only_json_is_taken_so_that_pages_of_other_origins_cannot_ask(shop: Shop) -> None:
    assert shop.ask("SELECT 1", kind="text/plain")[0] == 415


def test_tables_and_rows_are_those_that_the_caller_may_read(shop: Shop) -> None:
    mine = [order for order in shop.orders.values() if order["by"] == "c3"]
    assert shop.ask("SELECT count(*), min(by) FROM orders", "c3")[1]["answer"]["rows"] == [[str(len(mine)), "c3"]]
    status, found = shop.ask('SELECT * FROM "customers-of"', "c3")
    assert (status, "one of ['orders'] is needed" in found["error"]) == (400, True)
    listed = fetch(shop.port, "/v1/sql", headers={"X-User": "c3"}).json["tables"]
    assert [table["name"] for table in listed] == ["orders"]


def test_columns_are_listed_with_their_types(shop: Shop) -> None:
    tables = {table["name"]: table["columns"] for table in fetch(shop.port, "/v1/sql").json["tables"]}
    assert {column["name"]: column["type"] for column in tables["orders"]} == {
        "key": "bigint",
        "by": "text",
        "sum": "bigint",
        "at": "text",
    }
    assert [column["name"] for column in tables["customers-of"]] == ["key", "value"]
    assert [column["name"] for column in tables["pairs"]] == ["key", "value"]  # it has no rows


def test_rows_that_are_read_and_answered_are_bounded(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    found = shop.ask("SELECT o.key, p.key FROM orders o, orders p WHERE o.key < 40 ORDER BY 1, 2")[1]["answer"]
    assert (found["count"], len(found["rows"]), found["rows"][0]) == (12_000, MAX_ANSWERED, ["0", "0"])
    monkeypatch.setattr(sql_pages, "MAX_READ", 308)
    assert shop.ask("SELECT count(*) FROM orders")[0] == 200
    status, found = shop.ask('SELECT count(*) FROM orders, "customers-of"')
    assert (status, found["code"]) == (429, "QUERY_LIMIT")
    assert "table 'orders' has 300 rows; 299 more can be read here" in found["error"]


def test_bound_of_rows_tells_nothing_of_rows_that_the_caller_may_not_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = sum(order["by"] == "c3" for order in shop.orders.values())
    monkeypatch.setattr(sql_pages, "MAX_READ", mine)
    assert shop.ask("SELECT count(*) FROM orders", "c3")[1]["answer"]["rows"] == [[str(mine)]]
    monkeypatch.setattr(sql_pages, "MAX_READ", mine - 1)
    status, found = shop.ask("SELECT count(*) FROM orders", "c3")
    assert (status, found["code"]) == (429, "QUERY_LIMIT")
    assert f"table 'orders' has more rows that may be read; {mine - 1} more can be read here" in found["error"]
    assert "300" not in found["error"]
    monkeypatch.setattr(sql_pages, "SECONDS", -1.0)
    status, found = shop.ask("SELECT count(*) FROM orders", "c3")
    assert (status, "that may be read were not found in" in found["error"]) == (429, True)


def test_few_queries_wait_and_others_are_refused_while_the_server_answers_all_else(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_pages, "MAX_WAITING", 2)
    endless = "WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 99999999) SELECT 1 FROM t"
    data, headers = json.dumps({"sql": endless}), {"Content-Type": "application/json"}
    with ExitStack() as stack:
        sent = []
        for _ in range(6):
            client = stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", shop.port)))
            client.request("POST", "/v1/sql", data, headers)
            sent.append(client)
        wait_for(lambda: len(answered(sent)) == 3, PATIENCE_S, "one that is answered, two that wait, three refused")
        for client in answered(sent):
            answer = client.getresponse()
            assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
            assert "2 queries wait for their turn, which is the limit" in answer.read().decode()
        assert fetch(shop.port, "/v1/tables").status == 200
    wait_for(lambda: shop.ask("SELECT 1")[0] == 200, PATIENCE_S, "the places of clients that have gone")


def answered(clients: list[http.client.HTTPConnection]) -> list[http.client.HTTPConnection]:
    ready = select.select([client.sock for client in clients], [], [], 0)[0]
    return [client for client in clients if client.sock in ready]


@pytest.mark.parametrize(
    ("sql", "limit"),
    [
        ("SELECT a.key, b.key, c.key FROM orders a, orders b, orders c", "GiB of memory"),
        ("WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 99999999) SELECT 1 FROM t", "10 s"),
    ],
)
def test_query_without_end_is_ended_and_the_next_one_is_answered(shop: Shop, sql: str, limit: str) -> None:
    status, found = shop.ask(sql)
    assert (status, found["code"]) == (429, "QUERY_LIMIT")
    assert limit in found["error"] or "10 s" in found["error"]  # on a slow machine it is the time, of both
    assert shop.ask("SELECT 1")[1]["answer"]["rows"] == [["1"]]


def test_answer_of_long_values_is_bounded(shop: Shop) -> None:
    assert len(shop.ask("SELECT repeat('x', 9000000)")[1]["answer"]["rows"][0][0]) == 9_000_000
    status, found = shop.ask("SELECT repeat('x', 9000000), repeat('y', 9000000)")
    assert (status, found["code"]) == (429, "QUERY_LIMIT")
    assert "its answer has more than 16 MiB" in found["error"]


def test_process_of_a_query_ends_though_its_server_was_killed() -> None:
    program = """
import select
from eddy.program.sql_process import Question, SqlProcesses
rows = "WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3000)"
text = rows + " SELECT count(*) FROM t a, t b, t c WHERE a.n + b.n * c.n = 7"
processes = SqlProcesses(12.0)
processes.begin()
select.select([processes._ahead.stdout], [], [])  # it has begun, and waits for a question
print(processes._ahead.pid, flush=True)
processes.ask(Question(text, "query", {}))
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        query = Path("/proc", server.stdout.readline().strip(), "stat")

        def work_s() -> float:
            return int(query.read_text().split()[13]) / os.sysconf("SC_CLK_TCK")

        begun_s = work_s()
        wait_for(lambda: work_s() > begun_s + 0.3, PATIENCE_S, "a query that runs")
        server.kill()
    wait_for(lambda: not query.exists() or ") Z " in query.read_text(), PATIENCE_S, "the end of the query")
