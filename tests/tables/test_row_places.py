"""Pages by place over HTTP: against a sorted list, in ranges, while rows change, and what is refused."""

import json
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import eddy
from eddy.connectors.log import Log
from eddy.serve import row_places
from eddy.serve.table_pages import tables_app
from eddy.tables import key_ranks
from tests.tables.conftest import produce
from tests.tables.topologies import people
from tests.waiting import Deadline


def get(client: TestClient, path: str, **query: object) -> Any:
    answer = client.get(path, params={name: str(value) for name, value in query.items()})
    return answer.json() if answer.status_code == 200 else (answer.status_code, answer.json()["code"])


@pytest.mark.parametrize("log", ["memory"], indirect=True)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_places_are_those_of_a_sorted_list(
    log: Log, name: str, seed: int, tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_ranks, "RUN", 16)
    rng = random.Random(seed)
    topology, partitions = people(name), rng.choice((1, 2, 3))
    eddy.create_topics(topology, log, partitions=partitions)
    stack.enter_context(eddy.run(topology, log))
    state_dir = rng.choice((None, tmp_path / "state"))
    tables = stack.enter_context(eddy.open_tables(topology, log, state_dir=state_dir))
    rows: set[str] = set()
    for turn in range(8):
        if turn == 5 and state_dir is not None:  # a restart counts anew
            tables.close()
            tables = stack.enter_context(eddy.open_tables(topology, log, state_dir=state_dir))
        added = {f"{rng.choice('abc')}{rng.randrange(400):03}" for _ in range(rng.choice((1, 40)))}
        removed = set(rng.sample(sorted(rows), len(rows) // 5)) - added
        changes = dict.fromkeys(added, b"x") | dict.fromkeys(removed)
        rows = (rows | added) - removed
        tables.wait(produce(log, f"{name}-people", changes, partitions), exact=True)
        client = TestClient(tables_app(tables))
        for _ in range(12):
            check(client, rng, rows)


def check(client: TestClient, rng: random.Random, rows: set[str]) -> None:
    low, high = (rng.choice((None, f"{rng.choice('abcd')}{rng.randrange(400):03}")) for _ in range(2))
    prefix = rng.choice((None, "a", "b1", "z"))
    if prefix is not None:
        given = {"prefix": prefix}
        keys = sorted(key for key in rows if key.startswith(prefix))
    else:
        given = {name: key for name, key in (("from", low), ("to", high)) if key is not None}
        keys = sorted(key for key in rows if (low or "") <= key < (high or "~"))
    at = rng.randrange(len(keys) + 3)
    page = get(client, "/v1/tables/people", at=at, limit=7, **given)
    assert [row["key"] for row in page["rows"]] == keys[at : at + 7]
    assert (page["at"], page["count"]) == (min(at, len(keys)), len(keys))
    assert page["next"] == (keys[at + 6] if at + 7 < len(keys) else None)
    sought = f"{rng.choice('abcd')}{rng.randrange(400):03}"
    page = get(client, "/v1/tables/people", find=sought, limit=7, **given)
    later = [key for key in keys if key >= sought]
    assert [row["key"] for row in page["rows"]] == later[:7]
    assert (page["at"], page["count"]) == (len(keys) - len(later), len(keys))


@pytest.mark.parametrize("log", ["memory"], indirect=True)
def test_a_key_is_sought_by_the_order_of_its_serde(log: Log, name: str, stack: ExitStack) -> None:
    topology = eddy.Topology(name)
    topology.table("mixed", key=eddy.Json(), value=eddy.String)
    eddy.create_topics(topology, log)
    stack.enter_context(eddy.run(topology, log))
    tables = stack.enter_context(eddy.open_tables(topology, log))
    keys: list[Any] = [-1, 0.5, 2, 10, "a", "b"]
    tables.wait(log.write("mixed", dict.fromkeys(keys, "x"), key=eddy.Json(), value=eddy.String), exact=True)
    client = TestClient(tables_app(tables))
    sought = {"null": 0, "0": 1, "3": 3, "10": 3, "a": 4, '"b"': 5, "aa": 5, '"2"': 4, "c": 6}
    assert {text: get(client, "/v1/tables/mixed", find=text)["at"] for text in sought} == sought


@pytest.mark.parametrize("log", ["memory"], indirect=True)
def test_pages_by_key_tell_the_text_5_from_the_number(log: Log, name: str, stack: ExitStack) -> None:
    topology = eddy.Topology(name)
    topology.table("mixed", key=eddy.Json(), value=eddy.String)
    eddy.create_topics(topology, log)
    stack.enter_context(eddy.run(topology, log))
    tables = stack.enter_context(eddy.open_tables(topology, log))
    keys: list[Any] = [4, 5, 6, "", "4", "5", "null", "x"]
    tables.wait(log.write("mixed", dict.fromkeys(keys, "x"), key=eddy.Json(), value=eddy.String), exact=True)
    client = TestClient(tables_app(tables))
    found: list[Any] = []
    after: dict[str, str] = {}
    while len(found) < 2 * len(keys):
        page = get(client, "/v1/tables/mixed", limit=1, **after)
        found += [row["key"] for row in page["rows"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert found == keys


@pytest.mark.parametrize("log", ["memory"], indirect=True)
def test_what_cannot_be_placed_is_refused(
    log: Log, name: str, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = people(name)
    eddy.create_topics(topology, log)
    stack.enter_context(eddy.run(topology, log))
    tables = stack.enter_context(eddy.open_tables(topology, log))
    tables.wait(produce(log, f"{name}-people", {f"k{n:04}": b"x" for n in range(3_000)}), exact=True)
    client = TestClient(tables_app(tables))
    assert get(client, "/v1/tables/people", at=1, find="k") == (400, "QUERY")
    assert get(client, "/v1/tables/people", at=1, after="k") == (400, "QUERY")
    assert get(client, "/v1/tables/people", at=-1) == (400, "QUERY")
    assert get(client, "/v1/tables/people", at=1, prefix="") == get(client, "/v1/tables/people", at=1)
    lines = client.get("/v1/tables/people?at=1", headers={"Accept": "application/x-ndjson"})
    assert (lines.status_code, "not for lines" in lines.text) == (400, True)
    some = TestClient(tables_app(tables, lambda request, table: lambda key, value: key > "k2"))
    assert get(some, "/v1/tables/people", at=0) == (403, "QUERY_FORBIDDEN")
    assert get(some, "/v1/tables/people", limit=1)["rows"] == [{"key": "k2000", "value": "x"}]
    monkeypatch.setattr(row_places, "COUNTING_S", 0.0)
    others = TestClient(tables_app(stack.enter_context(eddy.open_tables(topology, log))))
    get(others, "/v1/tables/people", at_least=tables.version.token)
    assert get(others, "/v1/tables/people", at=0, limit=1)["count"] == 3_000, "known without counting"
    refusal = others.get("/v1/tables/people?at=2999")
    assert (refusal.status_code, refusal.headers["Retry-After"]) == (503, "1")
    assert "of 3,000 keys are counted so far" in json.loads(refusal.text)["error"]
    deadline = Deadline()
    while (page := get(others, "/v1/tables/people", at=2_999)) == (503, "QUERY_NOT_READY"):
        deadline.check("all keys are counted")
    assert [row["key"] for row in page["rows"]] == ["k2999"]
