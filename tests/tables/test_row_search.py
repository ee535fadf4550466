"""Rows by their values over HTTP: against plain Python, in parts of any length, and with bounds."""

import random
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.testclient import TestClient

import eddy
from eddy.connectors.log import Log
from eddy.serve import row_search
from eddy.serve.table_pages import tables_app
from tests.tables.test_row_places import get

pytestmark = pytest.mark.parametrize("log", ["memory"], indirect=True)


def opened(stack: ExitStack, log: Log, name: str, rows: dict[str, Any]) -> tuple[eddy.Tables, TestClient]:
    topology = eddy.Topology(name)
    topology.table("items", key=eddy.String, value=eddy.Json())
    eddy.create_topics(topology, log, partitions=2)
    stack.enter_context(eddy.run(topology, log))
    tables = stack.enter_context(eddy.open_tables(topology, log))
    tables.wait(log.write("items", rows, key=eddy.String, value=eddy.Json()), exact=True)
    return tables, TestClient(tables_app(tables))


def drawn(rng: random.Random) -> Any:
    """A value: mostly an object, whose column `n` has many kinds of values, or none."""
    value: dict[str, Any] = {"name": rng.choice(("Ann", "BOB", "straße", "ÄPFEL", 'a "quote"'))}
    if rng.random() < 0.8:
        value["n"] = rng.choice((None, True, False, -1, 2, 2.5, 10, 2**60, "", "a", "b", "é", "😀", [1], {"x": 1}))
    return rng.choice((value, value, value, 5, "plain Ann"))


def rank(value: Any) -> tuple[int, Any]:
    """The order of live queries, written again: null, false, true, numbers, strings by UTF-8, others as JSON."""
    if value is None:
        return 0, 0
    if isinstance(value, bool):
        return 1, value
    if isinstance(value, int | float):
        return 2, value
    return (3, value.encode()) if isinstance(value, str) else (4, eddy.Json().encode(value))


def all_parts(client: TestClient, limit: int, **asked: object) -> list[Any]:
    parts, after = [], {}
    while True:
        part = get(client, "/v1/tables/items", limit=limit, **asked, **after)
        parts.append(part)
        assert len(part["rows"]) <= limit
        if part["next"] is None:
            return parts
        after = {"after": part["next"]}


@pytest.mark.parametrize("seed", range(4))
def test_parts_of_a_search_are_the_search_of_all_rows(
    log: Log, name: str, seed: int, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    rows = {f"Key{number:03}": drawn(rng) for number in range(150)}
    _, client = opened(stack, log, name, rows)
    monkeypatch.setattr(row_search, "LOOK_EVERY", rng.choice((1, 7, 60)))
    monkeypatch.setattr(row_search, "SEARCH_S", rng.choice((0.0, 0.001, 10.0)))
    for text in ("ann", "BOB", "STRASSE", "äpf", 'a "', '"n":2', "key00", "nowhere"):
        parts = all_parts(client, rng.choice((3, 1_000)), search=text)
        found = [row["key"] for part in parts for row in part["rows"]]
        shown = {
            key: value if isinstance(value, str) else eddy.Json().encode(value).decode() for key, value in rows.items()
        }
        wanted = [key for key in rows if text.casefold() in key.casefold() or text.casefold() in shown[key].casefold()]
        assert found == wanted, text
        assert sum(part["searched"] for part in parts) == len(rows)


@pytest.mark.parametrize("seed", range(4))
def test_first_rows_by_a_column_are_merged_from_the_parts(
    log: Log, name: str, seed: int, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    rows = {f"k{number:03}": drawn(rng) for number in range(150)}
    _, client = opened(stack, log, name, rows)
    monkeypatch.setattr(row_search, "LOOK_EVERY", rng.choice((1, 30)))
    monkeypatch.setattr(row_search, "SEARCH_S", rng.choice((0.0, 10.0)))
    columns = {key: value if isinstance(value, dict) else {"value": value} for key, value in rows.items()}
    for column in ("n", "name", "value"):
        for sign in ("", "-"):
            parts = all_parts(client, 25, order=f"{sign}{column}")
            merged = sorted((each for part in parts for each in part["rows"]), key=lambda each: each["position"])
            wanted = sorted(rows, key=lambda key: rank(columns[key].get(column)), reverse=bool(sign))
            if sign:  # equal ones are in the order of keys, also where the column falls
                wanted.sort()
                wanted.sort(key=lambda key: rank(columns[key].get(column)), reverse=True)
            assert [each["row"]["key"] for each in merged[:25]] == wanted[:25], (column, sign)
            assert sum(part["searched"] for part in parts) == len(rows)
    parts = all_parts(client, 25, order="name", search="bob")
    assert {each["row"]["value"]["name"] for part in parts for each in part["rows"]} == {"BOB"}


def test_an_order_is_the_one_of_a_live_query(log: Log, name: str, stack: ExitStack) -> None:
    rng = random.Random(1)
    rows = {f"k{number:03}": {"n": drawn(rng)} for number in range(200)}
    tables, client = opened(stack, log, name, rows)
    items = eddy.live_table("items", key="id")
    for order, query in (("n", items.order_by(items.n)), ("-n", items.order_by(-items.n))):
        (part,) = all_parts(client, 1_000, order=order)
        with tables.live(query) as view:
            assert [each["row"]["key"] for each in part["rows"]] == [row["id"] for row in view.rows]


@pytest.mark.slow
def test_a_search_has_bounds_and_says_what_is_wrong(
    log: Log, name: str, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {f"k{number:05}": {"n": number, "text": "x" * 200} for number in range(30_000)}
    tables, client = opened(stack, log, name, rows)
    monkeypatch.setattr(row_search, "SEARCH_S", 0.02)
    part = get(client, "/v1/tables/items", search="nowhere")
    assert 0 < part["searched"] < 30_000, "the time is over before the end"
    monkeypatch.setattr(row_search, "SEARCH_S", 10.0)
    monkeypatch.setattr(row_search, "MAX_FOUND_BYTES", 100_000)
    part = get(client, "/v1/tables/items", search="x", limit=10_000)
    assert 300 < len(part["rows"]) < 500, "as many as there is room for"
    assert part["next"] == part["rows"][-1]["key"]
    assert get(client, "/v1/tables/items", order="n", limit=10_000) == (429, "QUERY_LIMIT")
    assert len(get(client, "/v1/tables/items", order="n", limit=100)["rows"]) == 100
    assert get(client, "/v1/tables/items", order="-") == (400, "QUERY")
    assert get(client, "/v1/tables/items", order="n", at=5) == (400, "QUERY")
    lines = client.get("/v1/tables/items?search=x", headers={"Accept": "application/x-ndjson"})
    assert lines.status_code == 400
    some = TestClient(tables_app(tables, lambda request, table: lambda key, value: value["n"] == 7))
    assert [row["key"] for row in get(some, "/v1/tables/items", search="x")["rows"]] == ["k00007"]
