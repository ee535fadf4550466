"""Values over HTTP are those of the tables: at any depth, of any number, with keys that are booleans."""

import json
import math
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

import eddy
from eddy.serve.endpoint import endpoint_of
from eddy.serve.table_server import Served, served
from tests.live.server.sse import Client, asked
from tests.serve.conftest import fetch
from tests.waiting import PATIENCE_S

LEVELS = 2_000
queries = eddy.Queries()
numbers = eddy.live_table("numbers", key="id", value="v")
flags = eddy.live_table("flags", key="id", value="v")
nodes = eddy.live_table("nodes", key="id")
NUMBERS = {"a": 1.7e308, "b": 1.7e308, "c": math.inf, "d": -math.inf, "e": math.nan, "f": -0.0}
FLAGS = ["true", "false"]


def below(row: Any) -> eddy.Query:
    return nodes.where(nodes.parent == row.id).nest(below=below)


@queries.query
def all_numbers() -> eddy.Query:
    return numbers


@queries.query
def total() -> eddy.Query:
    return numbers.where(numbers.v > 0).sum(numbers.v)


@queries.query
def tree(root: int) -> eddy.Query:
    return nodes.where(nodes.id == root).nest(below=below)


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    topology = eddy.Topology("exact-values")
    topology.table("numbers", key=eddy.String, value=eddy.Float64)
    topology.table("flags", key=eddy.Json(bool), value=eddy.String)
    topology.table("nodes", key=eddy.Json(int), value=eddy.Json())
    with ExitStack() as stack:
        log = stack.enter_context(closing(eddy.open_log()))
        eddy.create_topics(topology, log)
        producer = log.producer(None)
        producer.begin()
        rows = {
            "numbers": {key: struct.pack(">d", value) for key, value in NUMBERS.items()},
            "flags": {key: key.encode() for key in FLAGS},
            "nodes": {str(n): json.dumps({"parent": n + 1}).encode() for n in range(LEVELS)},
        }
        for topic, values in rows.items():
            producer.send(topic, 0, [key.encode() for key in values], list(values.values()), [0] * len(values))
        ends = producer.flush()
        producer.commit({}, None)
        producer.close()
        stack.enter_context(eddy.run(topology, log))
        made = stack.enter_context(served(endpoint_of("0"), topology, log, queries=queries))
        written = {p.topic: {p.partition: end} for p, end in ends.items()}
        made.tables.wait(written, exact=True, timeout_s=PATIENCE_S)
        yield made


def test_tree_of_any_depth_is_answered(server: Served) -> None:
    for depth in (450, 500, LEVELS):
        page = fetch(server.port, f"/v1/queries/tree?root={depth - 1}")
        assert page.status == 200
        assert page.text.count('"below":[{') == depth - 1
        assert page.text.startswith(f'{{"rows":[{{"id":{depth - 1},"parent":{depth},"below":[{{"id":{depth - 2},')


def test_numbers_that_json_has_not_are_text_in_every_answer(server: Served) -> None:
    shown = {"a": 1.7e308, "b": 1.7e308, "c": "Infinity", "d": "-Infinity", "e": "NaN", "f": -0.0}
    assert fetch(server.port, "/v1/queries/total").json["rows"] == "Infinity"
    by_query = fetch(server.port, "/v1/queries/all_numbers").json["rows"]
    by_table = fetch(server.port, "/v1/tables/numbers").json["rows"]
    alone = {key: fetch(server.port, f"/v1/tables/numbers/{key}").json["value"] for key in NUMBERS}
    client = Client(server.port, PATIENCE_S)
    client.asked["n"] = asked("n", "all_numbers")
    client.connect()
    client.until(lambda: "n" in client.whole)
    streamed = client.rows("n")
    client.close()
    assert [repr(row["v"]) for row in by_query] == [repr(shown[key]) for key in shown]
    for found in (
        {row["id"]: row["v"] for row in streamed},
        {row["key"]: row["value"] for row in by_table},
        alone,
    ):
        assert {key: repr(value) for key, value in found.items()} == {key: repr(v) for key, v in shown.items()}


def test_keys_that_are_booleans_come_back_as_such(server: Served) -> None:
    for rows, name in ((fetch(server.port, "/v1/tables/flags").json["rows"], "key"), (server.tables.read(flags), "id")):
        assert [row[name] is True for row in rows] == [False, True]
    for key in FLAGS:
        found = fetch(server.port, f"/v1/tables/flags/{key}").json
        assert (json.dumps(found["key"]), found["value"]) == (key, key)
    assert server.tables.read(flags.where(flags.id == True)) == [{"id": True, "v": "true"}]  # noqa: E712
