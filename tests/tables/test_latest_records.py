"""Dead letters and the records of rows, read backwards: against lists of all records, on each log, in small parts."""

import random
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import eddy
from eddy.connectors.log import Log
from eddy.program import latest_records
from eddy.serve.record_pages import record_routes
from tests.waiting import PATIENCE_S


def opened(stack: ExitStack, log: Log, name: str, partitions: int) -> tuple[eddy.Tables, TestClient]:
    """A table of numbers by text, whose records that are not numbers become dead letters."""
    topology = eddy.Topology(name)
    numbers = topology.table(f"{name}-numbers", key=eddy.String, value=eddy.Int64, name="numbers")
    numbers.to_relation().map(lambda key, value: (value % 3, 1)).group_by_key().count("counts")
    eddy.create_topics(topology, log, partitions=partitions)
    stack.enter_context(eddy.run(topology, log, eddy.Config(on_error="dead-letter")))
    tables = stack.enter_context(eddy.open_tables(topology, log))
    return tables, TestClient(Starlette(routes=record_routes(topology, lambda: tables)))


def all_letters(client: TestClient, limit: int) -> list[dict[str, Any]]:
    found, before = [], {}
    while True:
        part = client.get("/v1/dead-letters", params={"limit": limit, **before}).json()
        assert len(part["letters"]) <= limit
        found += part["letters"]
        if part["before"] is None:
            return found
        before = {"before": part["before"]}


@pytest.mark.parametrize("seed", range(2))
def test_letters_and_records_are_the_ones_that_were_written(
    log: Log, name: str, seed: int, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest_records, "WINDOW", 7)
    rng = random.Random(seed)
    partitions = rng.choice((1, 2, 3))
    tables, client = opened(stack, log, name, partitions)
    topic = f"{name}-numbers"
    assert client.get("/v1/dead-letters").json()["letters"] == []
    bad: list[tuple[str, bytes, int]] = []
    last: dict[str, tuple[int, int, list[Any]]] = {}
    ends: Any = None
    for turn in range(12):
        key, time_ms = f"k{rng.randrange(6)}", 1_700_000_000_000 + turn
        headers = [("turn", str(turn).encode())] if rng.random() < 0.5 else []
        if rng.random() < 0.4:
            value = rng.choice((b"no number", b"\xff\x00", b"x" * 9))  # a rejected record is no row's
            bad.append((key, value, time_ms))
            ends = log.write(topic, {key: value}, value=eddy.Bytes, timestamp_ms=time_ms, headers=headers)
        else:
            last[key] = (turn, time_ms, headers)
            ends = log.write(topic, {key: turn}, value=eddy.Int64, timestamp_ms=time_ms, headers=headers)
        if rng.random() < 0.3:
            tables.wait(ends, exact=True, timeout_s=PATIENCE_S)
    tables.wait(ends, exact=True, timeout_s=PATIENCE_S)
    letters = all_letters(client, rng.choice((1, 2, 100)))
    assert sorted((each["key"]["text"], each["timestamp"]) for each in letters) == sorted(
        (key, time_ms) for key, _, time_ms in bad
    )
    contents = {each["timestamp"]: each for each in letters}
    for _, value, time_ms in bad:
        content = contents[time_ms]["value"]
        assert (content.get("text"), content.get("hex")) == (
            (None, value.hex()) if value[0] == 0xFF else (value.decode(), None)
        )
        sent = dict(contents[time_ms]["headers"])
        assert sent["eddy.topic"]["text"] == topic
        assert "is not a valid int64" in sent["eddy.error"]["text"] or "int64" in sent["eddy.error"]["text"]
    assert [each["offset"] for each in letters] == sorted((each["offset"] for each in letters), reverse=True)
    for key in [f"k{number}" for number in range(7)]:
        found = record_of(client, key)
        if key not in last:
            assert found is None, "no record of it decodes"
            continue
        turn, time_ms, headers = last[key]
        assert found is not None
        assert (found["topic"], found["timestamp"]) == (topic, time_ms)
        assert found["headers"] == [["turn", {"size": len(str(turn)), "text": str(turn)}] for _ in headers]
        assert found["value"]["size"] == 8


def record_of(client: TestClient, key: str) -> dict[str, Any] | None:
    before: str = "{}"
    while True:
        part = client.get("/v1/records/numbers", params={"key": key, "before": before})
        assert part.status_code == 200, part.text
        if part.json()["record"] is not None or part.json()["before"] is None:
            return part.json()["record"]  # type: ignore[no-any-return]
        before = eddy.Json().encode(part.json()["before"]).decode()


@pytest.mark.parametrize("log", ["memory"], indirect=True)
def test_a_long_topic_is_read_in_parts(log: Log, name: str, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, client = opened(stack, log, name, 2)
    with log.writer(f"{name}-numbers", value=eddy.Int64) as writer:
        for number in range(5_000):
            writer.add(f"k{number}", number)
    tables.wait(writer.ends, exact=True)
    monkeypatch.setattr(latest_records, "LOOK_S", 0.0)
    part = client.get("/v1/records/numbers?key=k0").json()
    assert part["record"] is None
    assert 0 < part["searched"] <= latest_records.WINDOW
    found = record_of(client, "k0")
    assert found is not None
    assert found["key"] == {"size": 2, "text": "k0"}
    assert record_of(client, "nobody") is None


@pytest.mark.parametrize("log", ["memory"], indirect=True)
def test_a_record_that_a_function_rejected_is_told_from_the_row(log: Log, name: str, stack: ExitStack) -> None:
    topology = eddy.Topology(name)
    topology.table("shares", key=eddy.String, value=eddy.Int64).to_relation().map(
        lambda key, value: (100 // value, 1)
    ).group_by_key().count("counts")
    eddy.create_topics(topology, log)
    stack.enter_context(eddy.run(topology, log, eddy.Config(on_error="skip")))
    tables = stack.enter_context(eddy.open_tables(topology, log))
    client = TestClient(Starlette(routes=record_routes(topology, lambda: tables)))
    for value, agrees in ((5, True), (0, False), (7, True)):
        tables.wait(log.write("shares", {"a": value}, value=eddy.Int64), exact=True)
        assert client.get("/v1/records/shares?key=a").json()["agrees"] is agrees
    tables.wait(log.write("shares", {"a": None}, value=eddy.Int64), exact=True)
    found = client.get("/v1/records/shares?key=a").json()
    assert (found["agrees"], found["record"]["value"]) == (True, None)


@pytest.mark.parametrize("log", ["memory"], indirect=True)
def test_what_has_no_record_is_refused(log: Log, name: str, stack: ExitStack) -> None:
    tables, client = opened(stack, log, name, 1)
    tables.wait(log.write(f"{name}-numbers", {"a": 1}, value=eddy.Int64), exact=True)
    for path, status in (
        ("/v1/records/counts?key=1", 400),
        ("/v1/records/nothing?key=1", 404),
        ("/v1/records/numbers", 400),
        ("/v1/records/numbers?key=a&before=x", 400),
        ("/v1/dead-letters?before=x", 400),
        ("/v1/dead-letters?limit=x", 400),
    ):
        assert client.get(path).status_code == status, path
    later = TestClient(Starlette(routes=record_routes(eddy.Topology("none"), lambda: None)))
    assert later.get("/v1/dead-letters").status_code == 503
