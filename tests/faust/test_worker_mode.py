"""mode="worker": eddy's worker beside Faust's loop, in the same process."""

from pathlib import Path

import pytest

from tests.faust.conftest import Start
from tests.faust.rig import Topics, unique

HERE = Path(__file__).parent


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
    assert f"'{name}-in' partition 0 offset 0" in worker.said.read_text()


@pytest.mark.long
def test_a_topic_that_does_not_exist_takes_the_app_down_and_is_named(start: Start, topics: Topics) -> None:
    name = unique("faust-missing")
    topics.make(1, f"{name}-out")
    worker = start("apps", HERE, NAME=name)
    assert worker.ended() == 1
    assert f"topics {name}-in do not exist" in worker.said.read_text()
