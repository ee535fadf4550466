"""Where a disk is full, a record does not decode, a client asks for too much, or a broker goes away."""

import contextlib
import itertools
import logging
import threading
from pathlib import Path

import pytest

import eddy
from eddy.connectors.broker import Broker
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.serve.endpoint import endpoint_of
from eddy.serve.table_server import served
from eddy.tables import served_rows as rows_module
from tests.disk import files_no_longer_than
from tests.kafka import OwnBroker
from tests.serve.conftest import fetch
from tests.tables.conftest import produce
from tests.tables.topologies import people
from tests.waiting import PATIENCE_S, wait_for


@pytest.fixture
def topology(local: LocalLog, name: str) -> eddy.Topology:
    """The table of people is read in their topic, without a worker, whose states would be on the same disk."""
    made = people(name)
    local.create_topics([TopicSpec(f"{name}-people", 1, {"cleanup.policy": "compact"})])
    eddy.create_topics(made, local)
    with eddy.run(made, local) as worker:
        worker.wait_idle(PATIENCE_S)
    return made


def test_full_disk_ends_reading_with_the_reason_and_a_restart_goes_on(
    local: LocalLog, topology: eddy.Topology, tmp_path: Path
) -> None:
    topic = f"{topology.name}-people"
    with served(endpoint_of("0"), topology, local, tmp_path, max_wait_s=0.0) as server:
        tables = server.tables
        produce(local, topic, {"first": b"ada"})
        wait_for(lambda: not tables.rows.hindrance and tables["people"].get("first"), PATIENCE_S, "the row")
        snapshot = tables.snapshot()
        numbers = itertools.count()
        with files_no_longer_than(60_000):

            def refused() -> bool:
                produce(local, topic, {f"k{next(numbers)}": b"x" * 2_000})
                return tables.rows.failure is not None

            wait_for(refused, PATIENCE_S, "the end of the tables")
        for read in (lambda: tables["people"].get("first"), lambda: snapshot["people"].get("first"), tables.wait):
            with pytest.raises(eddy.StateError, match=r"write was refused .*Free space"):
                read()
        with pytest.raises(eddy.StateError) as last:
            tables["people"].get("first")
        assert len(last.traceback) < 10, "frames of earlier readers"
        assert fetch(server.port, "/healthz").status == 503
        answer = fetch(server.port, "/v1/tables/people/first")
        assert (answer.status, answer.json["code"]) == (503, eddy.StateError.code)
    with eddy.open_tables(topology, local, state_dir=tmp_path, max_wait_s=0.0) as again:
        written = next(numbers)
        wait_for(lambda: not again.rows.hindrance and again["people"].count() > written, PATIENCE_S, "all rows")
        assert dict(again["people"].all()) == {"first": "ada"} | {f"k{n}": "x" * 2_000 for n in range(written)}


def test_record_that_does_not_decode_is_left_out_and_named(
    local: LocalLog, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    local.create_topics([TopicSpec("numbers", 1, {"cleanup.policy": "compact"})])
    topology = eddy.Topology(name)
    topology.table("numbers", key=eddy.String, value=eddy.Int64)
    with eddy.run(topology, local) as worker:
        worker.wait_idle(PATIENCE_S)
    number = eddy.Int64.encode(5)
    with caplog.at_level(logging.WARNING, "eddy.tables"), eddy.open_tables(topology, local, max_wait_s=0.0) as tables:
        written = produce(local, "numbers", [("a", number), ("b", b"no number"), ("c", number), ("c", b"")])
        end = written["numbers"][0]
        wait_for(
            lambda: not tables.rows.hindrance and tables.version.offsets.get("numbers") == [end],
            PATIENCE_S,
            "the records",
        )
        assert dict(tables["numbers"].all()) == {"a": 5, "c": 5}
        assert tables.reader.left_out == 2
    assert caplog.text.count("a record is left out: the value b'no number' is not a valid int64") == 1


@pytest.mark.parametrize("key", ["[" * 3_000, "[" * 400 + "]" * 400])
def test_key_that_is_nested_deep_is_answered(local: LocalLog, name: str, key: str) -> None:
    topology = eddy.Topology(name)
    table = topology.table(f"{name}-pairs", key=eddy.Json(), value=eddy.String, name="pairs")
    table.to_relation().map(lambda key, value: (1, value), name="ones").group_by_key().count("sizes")
    eddy.create_topics(topology, local)
    with eddy.run(topology, local), served(endpoint_of("0"), topology, local) as server:
        server.tables.wait(exact=True, timeout_s=PATIENCE_S)
        assert fetch(server.port, f"/v1/tables/pairs/{key}").status == 404
        assert fetch(server.port, f"/v1/tables/pairs?from={key}").status == 200
        assert fetch(server.port, f"/v1/tables/sizes/{key}").status in {400, 404}
        assert fetch(server.port, f"/v1/trace/pairs?key={key}").status == 200
        assert fetch(server.port, f"/v1/trace/ones?key={key}").status == 200


@pytest.mark.slow
def test_many_keys_are_of_one_version_though_they_are_looked_up_in_slices(
    local: LocalLog, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking up a million takes seconds, in which versions come. Here a slice is one key, a version changes all."""
    topology, keys = people(name), [f"k{n}" for n in range(50)]
    eddy.create_topics(topology, local)
    with eddy.run(topology, local), eddy.open_tables(topology, local) as tables:
        tables.wait(produce(local, f"{name}-people", dict.fromkeys(keys, b"0")), timeout_s=PATIENCE_S)
        found = tables["people"].get_many([f"k{n % 60}" for n in range(1_000_000)])
        assert (len(found), found[0], found[59]) == (1_000_000, "0", None)
        monkeypatch.setattr(rows_module, "MANY_KEYS", 1)
        seen, stop = set(), threading.Event()

        def write() -> None:
            for number in itertools.count(1):
                if stop.is_set():
                    return
                produce(local, f"{name}-people", dict.fromkeys(keys, b"%d" % number))

        thread = threading.Thread(target=write)
        thread.start()
        try:

            def several() -> bool:
                values = set(tables["people"].get_many(keys))
                assert len(values) == 1
                seen.update(values)
                return len(seen) > 10

            wait_for(several, PATIENCE_S, "versions", pause_s=0.0)
        finally:
            stop.set()
            thread.join()


def test_snapshots_that_stay_open_share_a_bounded_memory(
    local: LocalLog, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "MAX_KEPT", 100)
    topology = people(name)
    eddy.create_topics(topology, local)
    with eddy.run(topology, local), eddy.open_tables(topology, local) as tables:
        tables.wait(produce(local, f"{name}-people", {f"k{n}": b"x" for n in range(60)}), timeout_s=PATIENCE_S)
        first = tables.snapshot()
        tables.wait(produce(local, f"{name}-people", {f"k{n}": b"y" for n in range(40)}), timeout_s=PATIENCE_S)
        second = tables.snapshot()
        assert first["people"].get("k1") == "x"
        tables.wait(produce(local, f"{name}-people", {f"k{n}": b"z" for n in range(20, 60)}), timeout_s=PATIENCE_S)
        with pytest.raises(eddy.QueryError, match="more than 100 rows have changed"):
            first["people"].get("k1")
        assert second["people"].get_many(["k1", "k21", "k59"]) == ["y", "y", "x"]
        assert second["people"].count() == 60
        second.close()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_broker_that_goes_away_and_comes_back(own_broker: OwnBroker, name: str) -> None:
    broker: Broker = own_broker()
    broker.start()
    topology, topic = people(name), f"{name}-people"
    with contextlib.closing(eddy.kafka(broker.bootstrap)) as log:
        eddy.create_topics(topology, log)
        with eddy.run(topology, log), eddy.open_tables(topology, log) as tables:
            tables.wait(produce(log, topic, {"a": b"ada"}), exact=True, timeout_s=PATIENCE_S)
            broker.kill()
            wait_for(lambda: tables.last_error, PATIENCE_S, "an error of the log")
            assert tables["people"].get("a") == "ada"
            assert tables.version.exact, "of the inputs that it names"
            broker.start()
            wait_for(lambda: not tables.last_error, PATIENCE_S, "the log")
        with eddy.run(topology, log), eddy.open_tables(topology, log) as tables:
            tables.wait(produce(log, topic, {"b": b"ada"}), exact=True, timeout_s=PATIENCE_S)
            assert tables["counts"].get("ada") == 2


def test_files_of_others_beside_the_rows_of_queries_are_refused_and_cost_nothing(
    local: LocalLog, topology: eddy.Topology, tmp_path: Path
) -> None:
    other = tmp_path / topology.name / "~queries" / "album.txt"
    other.parent.mkdir(parents=True)
    other.write_text("ours")
    with pytest.raises(eddy.StateError, match=r"album\.txt") as refused:
        eddy.open_tables(topology, local, state_dir=tmp_path)
    assert other.read_text() == "ours"
    other.unlink()
    people = eddy.live_table("people")
    with eddy.open_tables(topology, local, state_dir=tmp_path, max_wait_s=0.0, table_rows=0) as tables:
        produce(local, f"{topology.name}-people", {"first": b"ada"})
        wait_for(lambda: not tables.rows.hindrance and tables["people"].get("first"), PATIENCE_S, "the row")
        other.parent.mkdir(exist_ok=True)
        other.write_text("ours")
        for _ in range(3):
            with pytest.raises(eddy.QueryError, match=r"cannot be kept on disk: .*album\.txt"):
                tables.read(people.nest(same=lambda row: people.where(people.key == row.key)))
        assert not tables.rows._snapshots  # private: none is left
    assert refused.type is eddy.StateError
