"""What a program is told of a worker: its states, its restores, and its end."""

import logging
import threading
from contextlib import closing

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.errors import DataError, TopologyError
from tests.waiting import PATIENCE_S


def counting() -> eddy.Topology:
    topology = eddy.Topology("count")
    topology.stream("words", key=eddy.String, value=eddy.String).group_by_key().count("counts")
    return topology


def test_states_and_restores_are_told_in_order() -> None:
    log, states = eddy.open_log(), list[tuple[str, str]]()
    restores: list[tuple[str, int, int]] = []
    eddy.create_topics(counting(), log)
    log.write("words", [(f"{n}", "x") for n in range(10)])
    for _ in range(2):  # the second one restores what the first has written
        config = eddy.Config(
            restore_records=4,
            on_state=lambda old, new: states.append((old, new)),
            on_restore=lambda store, done, total: restores.append((store, done, total)),
        )
        with closing(eddy.Worker(counting(), log, config)) as worker:
            worker.run_until_idle()
    one_life = [("joining", "restoring"), ("restoring", "processing"), ("processing", "closing")]
    assert states == 2 * one_life
    assert {store for store, _, _ in restores} == {"counts"}
    done = [(done, total) for _, done, total in restores]
    assert len(done) > 1
    assert done == sorted(done)
    assert done[-1][0] == done[-1][1] >= 10


def test_a_listener_that_fails_is_logged_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def fail(old: str, new: str) -> None:
        raise ZeroDivisionError

    log = eddy.open_log()
    eddy.create_topics(counting(), log)
    log.write("words", {"a": "x"})
    with closing(eddy.Worker(counting(), log, eddy.Config(on_state=fail))) as worker:
        worker.run_until_idle()
        assert worker.store("counts").get("a") == 1
    assert "a listener failed with 'joining', 'restoring'" in caplog.text


@pytest.mark.parametrize("setting", ["on_state", "on_restore"])
def test_what_is_no_listener_is_refused(setting: str) -> None:
    with pytest.raises(TopologyError, match=f"config: {setting}=.* is called with"):
        eddy.Config(**{setting: lambda: None})  # type: ignore[arg-type]


class TestEnd:
    def run(self, log: LocalLog, seen: list[BaseException]) -> None:
        topology = eddy.Topology("broken")
        topology.stream("words", key=eddy.String, value=eddy.String).map_values(int).to("numbers", value=eddy.Int64)
        eddy.create_topics(topology, log)
        told = threading.Event()

        def note(error: BaseException) -> None:
            seen.append(error)
            told.set()

        with eddy.run(topology, log, on_failure=note) as worker:
            log.write("words", {"a": "no number"})
            assert told.wait(PATIENCE_S)
            assert worker.statistics.records == 0

    def test_the_error_that_ends_a_worker_is_logged_and_told_at_once(self, caplog: pytest.LogCaptureFixture) -> None:
        seen: list[BaseException] = []
        with caplog.at_level(logging.ERROR, "eddy.worker"), pytest.raises(DataError, match="invalid literal"):
            self.run(eddy.open_log(), seen)
        assert [type(error) for error in seen] == [DataError]
        assert "the worker of 'broken' has ended" in caplog.text

    def test_what_is_no_function_of_an_error_is_refused(self) -> None:
        with pytest.raises(TopologyError, match=r"run: on_failure=.* is called with \(error\)"):
            eddy.run(counting(), eddy.open_log(), on_failure=lambda: None)  # type: ignore[misc,arg-type]
