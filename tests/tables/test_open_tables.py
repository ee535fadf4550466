"""The tables of a running application: what is served, that versions are exact, and reading one's own writes."""

import asyncio
import random
import threading
from contextlib import ExitStack

import pytest

import eddy
from eddy.connectors.log import Log, TopicSpec
from eddy.tables.version import Version
from tests.tables.conftest import produce
from tests.tables.topologies import bank, people
from tests.waiting import PATIENCE_S, Deadline, wait_for


def rows_of(tables: eddy.Tables, table: str) -> dict[object, object]:
    return dict(tables[table].all())


def test_tables_are_read_by_point_range_and_prefix(log: Log, name: str) -> None:
    topology = people(name)
    eddy.create_topics(topology, log, 2)
    with eddy.run(topology, log), eddy.open_tables(topology, log) as tables:
        assert tables.names == [f"{name}-twice", "counts", "people"]
        names = {f"k{n:02}": b"ada" if n % 2 else b"bob" for n in range(20)}
        wanted = produce(log, f"{name}-people", names | {"other": b"eve"}, 2)
        version = tables.wait(wanted, exact=True, timeout_s=PATIENCE_S)
        assert version.exact
        assert tables["people"].get("k03") == "ada"
        assert tables["people"].get("none", "nobody") == "nobody"
        assert tables["people"].get_many(["k04", "x", "k01"]) == ["bob", None, "ada"]
        assert [key for key, _ in tables["people"].range("k03", "k06")] == ["k03", "k04", "k05"]
        assert [key for key, _ in tables["people"].prefix("k1", limit=3)] == ["k10", "k11", "k12"]
        assert [key for key, _ in tables["people"].prefix("k1", after="k17")] == ["k18", "k19"]
        assert [key for key, _ in tables["people"].after("k18")] == ["k19", "other"]
        assert rows_of(tables, "counts") == {"ada": 10, "bob": 10, "eve": 1}
        assert rows_of(tables, f"{name}-twice") == {"ada": 20, "bob": 20, "eve": 2}
        table = tables["people"]
        assert (table.count(), tables["counts"].count()) == (21, 3)
        tables.wait(produce(log, f"{name}-people", {"other": None}, 2), exact=True, timeout_s=PATIENCE_S)
        assert (tables["people"].get("other"), tables["counts"].get("eve")) == (None, None)
        assert table.count() == tables["people"].count() == 20


@pytest.mark.slow
def test_each_exact_version_keeps_the_sum_and_each_write_is_read(log: Log, name: str) -> None:
    keeps_the_sum(log, name, 100 if getattr(log, "path", "kafka") is None else 15)


@pytest.mark.long
def test_a_hundred_exact_versions_keep_the_sum(log: Log, name: str) -> None:
    keeps_the_sum(log, name, 100)


def keeps_the_sum(log: Log, name: str, versions: int) -> None:
    topology = bank(name)
    eddy.create_topics(topology, log)
    rng, written, end = random.Random(1), threading.Event(), threading.Event()
    latest: dict[str, dict[int, int]] = {}

    def transfer() -> None:
        own = log.reopened()
        number = 0
        while not end.is_set():
            payer, payee = rng.randrange(10), rng.randrange(10)
            rows = {f"t{number}": eddy.Json().encode([f"p{payer}", f"q{payee}", rng.randrange(100)])}
            latest.update(produce(own, f"{name}-transfers", rows))
            written.set()
            number += 1
        if own is not log:
            own.close()

    thread = threading.Thread(target=transfer)
    with eddy.run(topology, log), eddy.open_tables(topology, log, max_wait_s=PATIENCE_S) as tables:
        thread.start()
        try:
            wait_for(written.is_set, PATIENCE_S, "a write")
            moved = set()
            for exact, _ in enumerate(tables.versions(timeout_s=PATIENCE_S), 1):
                with tables.snapshot(exact=True, timeout_s=PATIENCE_S) as snapshot:
                    payers, payees = dict(snapshot["payers"].all()), dict(snapshot["payees"].all())
                assert sum(payers.values()) + sum(payees.values()) == 0, snapshot.version
                moved.add(sum(payees.values()))
                if exact >= versions and len(moved) > versions // 5:
                    break
        finally:
            end.set()
            thread.join()
        tables.wait(latest, exact=True, timeout_s=PATIENCE_S)
        for number in range(20):  # a read right after a write never misses it
            row = {f"w{number}": eddy.Json().encode([f"payer{number}", f"payee{number}", number])}
            with tables.snapshot(produce(log, f"{name}-transfers", row), timeout_s=PATIENCE_S) as snapshot:
                assert snapshot["payees"].get(f"payee{number}") == number
                assert snapshot["payers"].get(f"payer{number}") == -number
                token = snapshot.version.token
            assert tables.wait(token, timeout_s=PATIENCE_S).covers(tables.wanted(token))


def test_every_exact_version_of_two_workers_keeps_the_sum(local: Log, name: str) -> None:
    """They are exact when the workers are quiescent."""
    two_workers_keep_the_sum(local, name, 15)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("log", ["memory", "kafka"], indirect=True)
def test_many_exact_versions_of_two_workers_keep_the_sum(log: Log, name: str) -> None:
    two_workers_keep_the_sum(log, name, 100)


def two_workers_keep_the_sum(log: Log, name: str, bursts: int) -> None:
    topology, config, rng = bank(name), eddy.Config(cut_interval_s=0.05), random.Random(3)
    eddy.create_topics(topology, log, 2)
    exact: set[int] = set()
    with (
        eddy.run(topology, log, config, member="0"),
        eddy.run(topology, log, config, member="1"),
        eddy.open_tables(topology, log, max_wait_s=0.02) as tables,
    ):
        for burst in range(bursts):
            rows = {f"{burst}-{n}": eddy.Json().encode([f"p{n}", f"q{n}", rng.randrange(1, 99)]) for n in range(9)}
            wanted = produce(log, f"{name}-transfers", rows, 2)
            for _ in range(10):
                with tables.snapshot(timeout_s=PATIENCE_S) as snapshot:
                    if snapshot.version.exact:
                        payers, payees = dict(snapshot["payers"].all()), dict(snapshot["payees"].all())
                        assert sum(payers.values()) + sum(payees.values()) == 0, snapshot.version
                        exact.add(sum(payees.values()))
            if burst % 3 == 2:
                with tables.snapshot(wanted, exact=True, timeout_s=PATIENCE_S) as snapshot:
                    total = sum(dict(snapshot["payees"].all()).values())
                    assert total == -sum(dict(snapshot["payers"].all()).values())
                    exact.add(total)
    assert len(exact) >= bursts // 3


def test_a_snapshot_stays_at_its_version(log: Log, name: str) -> None:
    topology = people(name)
    eddy.create_topics(topology, log)
    with eddy.run(topology, log), eddy.open_tables(topology, log) as tables:
        topic = f"{name}-people"
        tables.wait(produce(log, topic, {f"k{n}": b"old" for n in range(50)}), timeout_s=PATIENCE_S)
        with tables.snapshot() as snapshot:
            before = list(snapshot["people"].all())
            changed = [(f"k{n}", b"new") for n in range(0, 50, 3)] + [(f"k{n}", None) for n in range(1, 50, 3)]
            tables.wait(produce(log, topic, [*changed, ("k00", b"new")]), timeout_s=PATIENCE_S)
            assert list(snapshot["people"].all()) == before == sorted(before)
            assert list(snapshot["people"].prefix("k1", limit=4)) == [row for row in before if row[0][:2] == "k1"][:4]
            assert snapshot["people"].get_many(["k00", "k1", "k3"]) == [None, "old", "old"]
            assert snapshot["people"].count() == 50
        assert tables["people"].get_many(["k00", "k1", "k3"]) == ["new", None, "new"]
        with pytest.raises(eddy.QueryError, match="closed"):
            snapshot["people"].get("k1")


def test_what_is_not_served_is_refused_with_the_remedy(local: Log, name: str) -> None:
    topology = eddy.Topology(name)
    facts = topology.stream("facts", key=eddy.String, value=eddy.String)
    table = topology.table("rows", key=eddy.String, value=eddy.String)
    facts.join(table, lambda a, b: a).to("joined")
    table.to_relation().map(lambda k, v: (v, k)).distinct(name="once")
    topology.table("other", key=eddy.Int64, value=eddy.Json()).map_values(str).to("plain")
    eddy.create_topics(topology, local)
    with eddy.run(topology, local), eddy.open_tables(topology, local) as tables:
        tables.wait(timeout_s=PATIENCE_S)
        for table_name, remedy in {
            "facts": r"\.to_table\(name=",
            "joined": r"\.to_table\(name=",
            "once": r"\.to\('…'\)",
            "plain": r"\.to\('plain', value=",
            "nothing": "served is needed: other, rows",
        }.items():
            with pytest.raises(eddy.TableNotServedError, match=remedy):
                tables[table_name]
        for wrong in (5, b"x", None, ["a"]):
            with pytest.raises(eddy.QueryError, match=r"key .* is not a valid string"):
                tables["rows"].get(wrong)
        with pytest.raises(eddy.QueryError, match="is not a valid int64"):
            tables["other"].get("five")
        for unknown in (
            "not a token",
            "AAAA",
            {"elsewhere": [1]},
            {"rows": [1, 2]},
            {"rows": {0: "x"}},
            {"rows": 5},
            5,
        ):
            with pytest.raises(eddy.QueryError, match="at_least"):
                tables.wait(unknown, timeout_s=0.0)
        with pytest.raises(eddy.NotReadyError, match="as late as asked for was not reached within 0"):
            tables.wait({"rows": [5]}, timeout_s=0.0)


def test_without_a_worker_tables_are_shown_after_a_while_and_are_not_called_exact(local: Log, name: str) -> None:
    topology = people(name)
    local.create_topics([TopicSpec(f"{name}-people", 1, {"cleanup.policy": "compact"})])
    eddy.create_topics(topology, local)
    with eddy.run(topology, local) as worker:
        worker.wait_idle(PATIENCE_S)
    with eddy.open_tables(topology, local, max_wait_s=0.05) as tables:
        assert tables.wait(exact=True, timeout_s=PATIENCE_S).exact
        produce(local, f"{name}-people", {"a": b"ada"})
        deadline = Deadline(PATIENCE_S)
        while tables["people"].get("a") is None:
            deadline.check("the row")
        assert not tables.version.exact
        with eddy.run(topology, local):
            version = tables.wait({f"{name}-people": [1]}, exact=True, timeout_s=PATIENCE_S)
        assert isinstance(version, Version)
        assert (tables["counts"].get("ada"), tables["people"].get("a")) == (1, "ada")


def test_keys_of_numbers_are_in_their_order(local: Log, name: str, stack: ExitStack) -> None:
    topology = eddy.Topology(name)
    topology.table("numbers", key=eddy.Int64, value=eddy.Bytes)
    eddy.create_topics(topology, local)
    producer = local.producer(None)
    producer.begin()
    numbers = [5, -3, 0, 7, -(2**63), 2**63 - 1]
    producer.send("numbers", 0, eddy.Int64.encode_many(numbers), [b"x"] * 6, [0] * 6)
    producer.commit({}, None)
    producer.close()
    stack.enter_context(eddy.run(topology, local))
    tables = stack.enter_context(eddy.open_tables(topology, local))
    tables.wait({"numbers": [6]}, timeout_s=PATIENCE_S)
    assert [key for key, _ in tables["numbers"].all()] == sorted(numbers)
    assert [key for key, _ in tables["numbers"].range(-3, 7)] == [-3, 0, 5]


def test_what_ends_a_worker_is_raised_where_its_block_is_left(local: Log, name: str) -> None:
    topology = people(name)
    with pytest.raises(eddy.ConfigurationError, match="do not exist"):
        eddy.run(topology, local)
    eddy.create_topics(topology, local)
    worker = eddy.run(topology, local)
    produce(local, f"{name}-people", {"a": b"\xff"})
    deadline = Deadline(PATIENCE_S)
    while worker.alive:
        deadline.check("its end")
    with pytest.raises(eddy.DataError, match="offset 0"):
        worker.stop()


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_waiting_coroutine_lets_others_run(local: Log, name: str, partitions: int) -> None:
    topology = people(name)
    eddy.create_topics(topology, local, partitions)

    home = local.partitioner(b"a", partitions)

    async def reading() -> object:
        async with eddy.open_tables(topology, local) as tables:
            wanted = {f"{name}-people": {home: 1}}
            waiting = asyncio.create_task(tables.wait_async(wanted, exact=True, timeout_s=PATIENCE_S))
            await asyncio.sleep(0)
            assert not waiting.done()
            await asyncio.to_thread(produce, local, f"{name}-people", {"a": b"ada"}, partitions)
            await waiting
            return tables["counts"].get("ada")

    with eddy.run(topology, local):
        assert asyncio.run(reading()) == 1
