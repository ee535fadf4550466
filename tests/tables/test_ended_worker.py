"""A worker of this program that ends with an error: open tables say why nothing follows, until the program knows."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import eddy
from tests.waiting import PATIENCE_S, Deadline

S = eddy.String
NUMBERS = eddy.live_table("numbers", key="id", value="number")
REASON = "tables: the worker of 'app' in this program has ended: topic 'words' partition 0 offset "


def numbers() -> eddy.Topology:
    topology = eddy.Topology("app")
    topology.table("words", key=S, value=S).map_values(int, value=eddy.Int64).to_stream().to_table("numbers")
    return topology


@pytest.fixture(params=["memory", "disk"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made = eddy.open_log(None if request.param == "memory" else tmp_path / "log")
    eddy.create_topics(numbers(), made)
    yield made
    made.close()


def ended(worker: Any) -> None:
    deadline = Deadline(PATIENCE_S)
    while worker.alive:
        deadline.check("the worker's end")


def test_reads_and_waits_raise_the_reason_until_it_was_raised(log: Any, caplog: pytest.LogCaptureFixture) -> None:
    topology = numbers()
    worker = eddy.run(topology, log)
    with eddy.open_tables(topology, log) as tables:
        tables.wait(log.write("words", {"a": "1"}), exact=True)
        with tables.snapshot() as snapshot, tables.live(NUMBERS) as view:
            with caplog.at_level(logging.ERROR, "eddy.worker"):
                wanted = log.write("words", {"a": "no number"})
                ended(worker)
            assert "the worker of 'app' has ended: topic 'words'" in caplog.text
            for ask in (
                lambda: tables["numbers"].get("a"),
                lambda: list(tables["numbers"].all()),
                lambda: tables.wait(wanted, timeout_s=PATIENCE_S),
                lambda: tables.snapshot(timeout_s=PATIENCE_S),
                lambda: tables.read(NUMBERS),
                lambda: view.rows,
                lambda: view.next(PATIENCE_S),
                lambda: view.wait(wanted, timeout_s=PATIENCE_S),
                lambda: next(iter(view)),
                lambda: asyncio.run(tables.wait_async(wanted, timeout_s=PATIENCE_S)),
            ):
                with pytest.raises(eddy.QueryError) as caught:
                    ask()
                assert str(caught.value).startswith(REASON)
                assert isinstance(caught.value.__cause__, eddy.DataError)
            assert snapshot["numbers"].get("a") == 1
            for _ in range(2):
                with pytest.raises(eddy.DataError, match="invalid literal"):
                    worker.wait_idle()
            assert isinstance(worker.error, eddy.DataError)
            worker.stop()  # it was raised by the wait
            assert tables["numbers"].get("a") == 1
            assert view.rows == [{"id": "a", "number": 1}]


@pytest.mark.parametrize(
    "waits",
    [
        lambda tables, view, wanted: tables.wait(wanted, timeout_s=PATIENCE_S),
        lambda tables, view, wanted: view.next(PATIENCE_S),
        lambda tables, view, wanted: view.wait(wanted, timeout_s=PATIENCE_S),
    ],
)
def test_wait_that_has_begun_ends_with_the_worker(log: Any, waits: Callable[..., object]) -> None:
    topology = numbers()
    worker = eddy.run(topology, log)
    with eddy.open_tables(topology, log) as tables, tables.live(NUMBERS) as view:
        found: list[BaseException] = []

        def wait() -> None:
            try:
                waits(tables, view, {"words": {0: 100}})
            except eddy.EddyError as error:
                found.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        log.write("words", {"a": "no number"})
        waiting.join(PATIENCE_S / 2)
        assert [str(error)[: len(REASON)] for error in found] == [REASON]
        with pytest.raises(eddy.DataError):
            worker.stop()


def test_another_worker_lets_reads_go_on(log: Any) -> None:
    topology = numbers()
    worker = eddy.run(topology, log)
    log.write("words", {"a": "no number"})
    ended(worker)
    with eddy.open_tables(topology, log) as tables:  # opened after the end
        with pytest.raises(eddy.QueryError, match="has ended"):
            tables.wait(timeout_s=PATIENCE_S)
        with eddy.run(topology, log, eddy.Config(on_error="skip")):
            tables.wait(log.write("words", {"b": "2"}), exact=True, timeout_s=PATIENCE_S)
            assert dict(tables["numbers"].all()) == {"b": 2}
    with pytest.raises(eddy.DataError):
        worker.stop()


def test_worker_that_is_stopped_is_no_failure(log: Any) -> None:
    topology = numbers()
    with eddy.open_tables(topology, log) as tables:
        with eddy.run(topology, log):
            tables.wait(log.write("words", {"a": "1"}), exact=True)
        assert tables["numbers"].get("a") == 1


def test_failure_in_another_log_is_of_no_concern(log: Any) -> None:
    topology, other = numbers(), eddy.open_log()
    eddy.create_topics(topology, other)
    broken = eddy.run(topology, other)
    with eddy.run(topology, log), eddy.open_tables(topology, log) as tables:
        other.write("words", {"a": "no number"})
        ended(broken)
        tables.wait(log.write("words", {"a": "1"}), exact=True)
        assert tables["numbers"].get("a") == 1
    with pytest.raises(eddy.DataError):
        broken.stop()
    other.close()
