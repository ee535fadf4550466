"""mode="worker": eddy's worker beside Faust's loop, in the same process."""

from pathlib import Path

import pytest

from tests.faust.conftest import Start
from tests.faust.rig import Topics, unique
from tests.seeds import in_turn
from tests.waiting import wait_for

HERE = Path(__file__).parent
SESSION_S = 60.0
"""Faust's default."""


@pytest.mark.parametrize(
    ("mode", "kills"), [*in_turn([("worker", 1), ("agents", 1)], 2), pytest.param("agents", 20, marks=pytest.mark.long)]
)
def test_one_that_was_killed_does_not_wait_for_its_own_session_and_one_that_stops_leaves(
    start: Start, topics: Topics, mode: str, kills: int
) -> None:
    """It takes four to six seconds on an idle machine, of which Faust takes most to start."""
    name = unique("faust-killed")
    topics.make(1, f"{name}-in", f"{name}-out")
    worker = start("apps", HERE, NAME=name, MODE=mode)
    topics.write(f"{name}-in", {b"k": b"v"})
    wait_for(lambda: topics.read(f"{name}-out"), 2 * SESSION_S, "the first output", 0.1)
    for kill in range(kills):
        worker.kill()
        worker.restart()
        topics.write(f"{name}-in", {b"k": b"v"})
        wait_for(lambda kill=kill: len(topics.read(f"{name}-out")) == kill + 2, 0.7 * SESSION_S, "an output", 0.1)
    worker.wait_for_page("/seen", lambda status, text: status == 200 and '"V"' in text)  # at least once: Faust's agent
    worker.demand_end()
    assert not topics.log.groups().get(f"{name}-app")


@pytest.mark.long
def test_a_step_that_blocks_its_thread_does_not_block_the_app_and_agents_read_committed_outputs(
    start: Start, topics: Topics
) -> None:
    name = unique("faust-worker")
    topics.make(1, f"{name}-in", f"{name}-out")
    worker = start("apps", HERE, NAME=name)
    topics.write(f"{name}-out", {b"k": b"never"}, abort=True)
    topics.write(f"{name}-in", {b"k": b"wait"})
    worker.wait_for_page("/eddy/healthz", lambda status, text: status == 200)
    worker.wait_for_page("/go")  # Faust's loop answers, although the worker waits for this
    worker.wait_for_json("/seen", {"WAIT": 1})
    assert worker.stop() == 0


@pytest.mark.long
def test_it_goes_on_where_it_was_stopped(start: Start, topics: Topics) -> None:
    name = unique("faust-again")
    topics.make(1, f"{name}-in", f"{name}-out")
    worker = start("apps", HERE, NAME=name)
    for value in (b"one", b"two"):
        topics.write(f"{name}-in", {b"k": value})
        worker.wait_for_page("/seen", lambda status, text, value=value: value.decode().upper() in text)
        assert worker.stop() == 0
        worker.restart()
    topics.write(f"{name}-in", {b"k": b"poison"})
    assert worker.ended() == 1
    assert topics.read(f"{name}-out") == [(b"k", b"ONE"), (b"k", b"TWO")]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["worker", "agents"])
def test_an_error_of_the_worker_takes_the_app_down_and_names_the_record(
    start: Start, topics: Topics, mode: str
) -> None:
    name = unique("faust-poison")
    topics.make(1, f"{name}-in", f"{name}-out")
    topics.write(f"{name}-in", {b"k": b"poison"})
    worker = start("apps", HERE, NAME=name, MODE=mode)
    assert worker.ended() == 1
    assert f"'{name}-in' partition 0 offset 0" in "".join(worker.child.said())


@pytest.mark.long
def test_a_topic_that_does_not_exist_takes_the_app_down_and_is_named(start: Start, topics: Topics) -> None:
    name = unique("faust-missing")
    topics.make(1, f"{name}-out")
    worker = start("apps", HERE, NAME=name)
    assert worker.ended() == 1
    assert f"topics {name}-in do not exist" in "".join(worker.child.said())
