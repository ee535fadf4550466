"""Tables as files over HTTP: as other programs read them, of one exact version, and never cut off in silence."""

import base64
import csv
import importlib.util
import io
import json
import random
import threading
from collections import Counter
from contextlib import ExitStack
from typing import Any

import msgspec
import pyarrow.parquet
import pytest
from starlette.testclient import TestClient

import eddy
from eddy.connectors.csv_rows import csv_rows
from eddy.connectors.log import Log
from eddy.serve import parquet_rows, row_export, table_pages
from eddy.serve.endpoint import endpoint_of
from eddy.serve.table_pages import tables_app
from eddy.serve.table_server import served
from tests.serve.conftest import fetch
from tests.tables.conftest import produce
from tests.tables.topologies import bank

pytestmark = pytest.mark.parametrize("log", ["memory"], indirect=True)
FORMS = ("csv", "jsonl", "parquet")


def opened(stack: ExitStack, log: Log, name: str, rows: dict[str, Any]) -> TestClient:
    topology = eddy.Topology(name)
    topology.table("items", key=eddy.String, value=eddy.Json())
    eddy.create_topics(topology, log, partitions=2)
    stack.enter_context(eddy.run(topology, log))
    tables = stack.enter_context(eddy.open_tables(topology, log))
    tables.wait(log.write("items", rows, key=eddy.String, value=eddy.Json()), exact=True)
    return TestClient(tables_app(tables))


def drawn(rng: random.Random) -> dict[str, Any]:
    """An object with columns of one kind, of several, and with texts that files have to quote."""
    value = {
        "whole": rng.choice((0, -5, 2**62)),
        "number": rng.choice((1, 2.5, -7)),
        "text": rng.choice(("", "plain", 'a "quote"', "two\nlines", "comma, semicolon;", "é😀", " space ")),
        "yes": rng.random() < 0.5,
        "mixed": rng.choice((1, "1", None, [1, {"a": "b"}], 2**70)),
        "nothing": None,
        "key": "not the key",
    }
    return {column: each for column, each in value.items() if rng.random() < 0.9}


def parquet(data: bytes) -> list[dict[str, Any]]:
    return pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()  # type: ignore[no-any-return]


def as_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("seed", range(3))
def test_files_have_the_rows_as_other_readers_read_them(
    log: Log, name: str, seed: int, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_rows, "GROUP_ROWS", 37)
    monkeypatch.setattr(row_export, "CHUNK_BYTES", 500)
    rng = random.Random(seed)
    rows = {f"k,{number:03}": drawn(rng) for number in range(200)}
    client = opened(stack, log, name, rows)
    get = client.get
    lines = [json.loads(line) for line in get("/v1/tables/items?format=jsonl").text.splitlines()]
    assert lines == [{"key": key, "value": value} for key, value in rows.items()]
    found = list(csv.reader(io.StringIO(get("/v1/tables/items?format=csv").content.decode(), newline="")))
    assert found[0] == ["key", "value"]
    assert [(key, json.loads(value)) for key, value in found[1:]] == list(rows.items())
    assert parquet(get("/v1/tables/items?format=parquet").content) == [
        {"key": key, "value": as_json(dict(sorted(value.items())))} for key, value in rows.items()
    ]

    columns = ["text", "whole", "mixed", "key", "nowhere", "number", "yes", "nothing"]
    asked = "&".join(f"column={column}" for column in columns)
    text = get(f"/v1/tables/items?format=csv&{asked}").content.decode()
    cells = [row for _, row in csv_rows(io.StringIO(text, newline=""))]
    assert cells[0] == ["$key", *columns]

    def cell(value: Any) -> str | None:
        return value if value is None or isinstance(value, str) else as_json(value)

    assert cells[1:] == [[key, *(cell(value.get(column)) for column in columns)] for key, value in rows.items()]
    lines = [json.loads(line) for line in get(f"/v1/tables/items?format=jsonl&{asked}").text.splitlines()]
    assert lines == [
        {"key": key, "value": {column: value[column] for column in columns if column in value}}
        for key, value in rows.items()
    ]
    answer = get(f"/v1/tables/items?format=parquet&{asked}")
    file = pyarrow.parquet.ParquetFile(io.BytesIO(answer.content))
    types = {field.name: str(field.type) for field in file.schema_arrow}
    assert types == dict.fromkeys(["$key", "text", "key", "mixed", "nowhere", "nothing"], "string") | {
        "whole": "int64",
        "number": "double",
        "yes": "bool",
    }
    assert file.num_row_groups == 6
    expected = []
    for key, value in rows.items():
        row = {"$key": key} | {column: value.get(column) for column in columns}
        row["mixed"] = None if row["mixed"] is None else as_json(row["mixed"])
        expected.append(row)
    assert file.read().to_pylist() == expected
    assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''items.parquet"


def test_a_range_of_numbers_keeps_its_types(log: Log, name: str, stack: ExitStack) -> None:
    topology = eddy.Topology(name)
    topology.table("numbers", key=eddy.Int64, value=eddy.Float64)
    eddy.create_topics(topology, log)
    stack.enter_context(eddy.run(topology, log))
    tables = stack.enter_context(eddy.open_tables(topology, log))
    rows = {number: number / 4 for number in range(-5, 5)}
    tables.wait(log.write("numbers", rows, key=eddy.Int64, value=eddy.Float64), exact=True)
    client = TestClient(tables_app(tables, lambda request, table: lambda key, value: key != 2))
    path = "/v1/tables/numbers?from=-1&to=4&format="
    wanted = {number: number / 4 for number in (-1, 0, 1, 3)}
    assert {row["key"]: row["value"] for row in parquet(client.get(path + "parquet").content)} == wanted
    assert client.get(path + "csv").text == "key,value\n" + "".join(f"{key},{value}\n" for key, value in wanted.items())
    assert client.get("/v1/tables/numbers?from=9&format=csv").text == "key,value\n"
    assert parquet(client.get("/v1/tables/numbers?from=9&format=parquet").content) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.slow
def test_a_file_is_of_the_version_that_it_names_while_money_moves(
    log: Log, name: str, stack: ExitStack, form: str
) -> None:
    topology = bank(name)
    topic = f"{name}-transfers"
    eddy.create_topics(topology, log)
    stack.enter_context(eddy.run(topology, log))
    tables = stack.enter_context(eddy.open_tables(topology, log))
    written: list[tuple[int, str, int]] = []  # of each transfer: offset, payer, amount
    stop, rng = threading.Event(), random.Random(5)

    def move() -> None:
        while not stop.is_set():
            transfers = [(f"p{rng.randrange(2_000)}", "payee", rng.randrange(100)) for _ in range(40)]
            ends = produce(log, topic, [("t", json.dumps(transfer).encode()) for transfer in transfers])
            begin = ends[topic][0] - len(transfers)
            written.extend((begin + index, payer, amount) for index, (payer, _, amount) in enumerate(transfers))

    mover = threading.Thread(target=move)
    mover.start()
    stack.callback(mover.join)
    stack.callback(stop.set)
    client = TestClient(tables_app(tables))
    files = [client.get(f"/v1/tables/payers?format={form}") for _ in range(12)]
    stop.set()
    mover.join()
    versions = [file.headers["Eddy-Version"] for file in files]
    assert len(set(versions)) > 1
    for version, file in zip(versions, files, strict=True):
        end = msgspec.msgpack.decode(base64.urlsafe_b64decode(version + "=" * (-len(version) % 4)))["i"][topic][0]
        expected: Counter[str] = Counter()
        for offset, payer, amount in written:
            if offset < end:
                expected.subtract({payer: amount})
        assert dict(rows_of(form, file.content)) == expected


def rows_of(form: str, data: bytes) -> list[tuple[str, int]]:
    if form == "parquet":
        return [(row["key"], row["value"]) for row in parquet(data)]
    if form == "csv":
        return [(key, int(value)) for key, value in list(csv.reader(io.StringIO(data.decode())))[1:]]
    return [(row["key"], row["value"]) for row in map(json.loads, data.splitlines())]


def test_what_cannot_be_a_file_is_refused(
    log: Log, name: str, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(stack, log, name, {"a": {"n": 1}})
    for query in ("format=xls", "column=n", "format=csv&column=n&column=n", "format=csv&at=1", "format=csv&order=n"):
        assert client.get(f"/v1/tables/items?{query}").status_code == 400, query
    assert client.get("/v1/tables").json()["formats"] == list(FORMS)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else find(name))
    assert client.get("/v1/tables").json()["formats"] == ["csv", "jsonl"]
    refusal = client.get("/v1/tables/items?format=parquet")
    assert (refusal.status_code, "pip install pyarrow" in refusal.text) == (400, True)
    monkeypatch.setattr(table_pages, "MAX_WAIT_S", 0.0)
    later = json.dumps({"items": {"0": 1_000}})
    assert client.get("/v1/tables/items", params={"format": "csv", "at_least": later}).status_code == 503


@pytest.mark.slow
def test_a_file_that_cannot_be_completed_has_no_end(
    log: Log, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topology = eddy.Topology(name)
    topology.table("items", key=eddy.String, value=eddy.String)
    eddy.create_topics(topology, log)
    with eddy.run(topology, log), served(endpoint_of("0"), topology, log) as server:
        rows = {f"k{number:05}": "x" * 100 for number in range(20_000)}
        server.tables.wait(produce(log, "items", {key: row.encode() for key, row in rows.items()}), exact=True)
        whole = fetch(server.port, "/v1/tables/items?format=csv")
        assert len(whole.text.splitlines()) == 20_001
        monkeypatch.setattr(table_pages, "MAX_EXPORT_S", 0.0)
        with pytest.raises(Exception, match=r"Incomplete|Remote end|reset"):
            fetch(server.port, "/v1/tables/items?format=csv")
        assert "was not sent whole as a file" in caplog.text
        monkeypatch.undo()
        for _ in range(5):  # what was held for it is released
            assert fetch(server.port, "/v1/tables/items?format=jsonl").status == 200
