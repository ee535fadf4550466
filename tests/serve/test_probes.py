"""What /healthz and /readyz say in each state of a worker that runs, over HTTP."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.errors import IndeterminateCommitError, SlotTakenError
from eddy.runtime.lifecycle import WorkerState
from eddy.serve.endpoint import endpoint_of
from eddy.serve.monitor import monitored
from eddy.serve.state import Facts, Restoring, health, readiness
from tests.holding import reaching, way_round
from tests.serve.conftest import Ward, produce
from tests.waiting import PATIENCE_S, wait_for

WELL = (200, "RUNNING", "")

Admit = Callable[..., Ward]


def test_worker_is_alive_and_not_ready_before_it_is_made_and_before_its_first_step(admit: Admit) -> None:
    ward = admit()
    assert ward.says("/healthz") == (200, "CREATED", "")
    assert ward.says("/readyz") == (503, "CREATED", "starting: no step has ended yet")
    ward.admit()
    assert ward.says("/readyz") == (503, "CREATED", "starting: no step has ended yet")
    ward.step()
    assert ward.says("/readyz") == WELL


def test_worker_is_ready_while_it_works_and_when_it_is_idle(ward: Ward, log: LocalLog) -> None:
    produce(log, {"leaf": "twig", "twig": "branch"})
    ward.step(2)
    assert (ward.says("/healthz"), ward.says("/readyz")) == (WELL, WELL)
    ward.settle()
    assert (ward.says("/healthz"), ward.says("/readyz")) == (WELL, WELL)


def test_worker_that_restores_is_alive_and_says_how_far_it_is(admit: Admit, log: LocalLog) -> None:
    produce(log, {f"n{i}": f"n{i // 2}" for i in range(1, 100)})
    ward = admit(config=eddy.Config(restore_records=20))
    before = eddy.Worker(ward.topology, log)
    before.run_until_idle()
    before.close()  # its states were in memory: all of them are lost
    ward.admit().step()
    left = ward.worker.restoring
    assert ward.says("/healthz") == (200, "REBALANCING", "")
    assert ward.says("/readyz") == (503, "REBALANCING", f"restoring: 0 of {left:,} offsets, 0/s")
    ward.now += 2.0
    ward.step()
    done = left - ward.worker.restoring
    rest_s = (left - done) / (done / 2)
    reason = f"restoring: {done} of {left:,} offsets, {done / 2:,.0f}/s, done in about {rest_s:,.0f} s"
    assert ward.says("/readyz") == (503, "REBALANCING", reason)
    while ward.worker.restoring:
        assert ward.says("/readyz")[:2] == (503, "REBALANCING")
        ward.step()
    assert ward.says("/readyz") == WELL


def test_worker_that_tries_in_vain_is_alive_and_not_ready(ward: Ward, log: LocalLog) -> None:
    ward.settle()
    with closing(log.producer(None)) as other:
        other.begin()
        produce(log, {"leaf": "twig"})
        other.send("descendants", 0, [b"k"], [b"v"], [0])
        other.flush()  # until it ends, nobody else can commit
        ward.step()
        ward.now += 40.0
        ward.step()
        assert ward.says("/healthz") == WELL
        page = ward.get("/readyz")
        assert (page.status, page.json["state"]) == (503, "RUNNING")
        assert page.json["reason"] == "failing, trying again, for 40 s; nothing was committed since"
        assert "a transaction of this process was flushed and is still open" in page.json["error"]
    ward.step()
    assert ward.says("/readyz") == WELL


def test_worker_that_is_fenced_is_not_ready_and_in_the_end_dead(admit: Admit, log: LocalLog) -> None:
    thieves = 0

    def steal(step: str) -> None:
        nonlocal thieves
        if step == "begun" and thieves:
            thieves -= 1
            log.producer("family-0").close()

    ward = admit(observe=steal).admit()
    ward.settle()
    produce(log, {"leaf": "twig"})
    thieves = 1
    ward.step()
    assert ward.says("/healthz") == WELL
    reason = "fenced, joining again, for 0 s; nothing was committed since"
    assert ward.says("/readyz") == (503, "RUNNING", reason)
    ward.now += 31.0
    ward.step()
    reason = "fenced: another worker has its name or its partitions, for 31 s"
    assert ward.says("/healthz") == ward.says("/readyz") == (503, "RUNNING", reason)
    ward.step()
    assert (ward.says("/healthz"), ward.says("/readyz")) == (WELL, WELL)


def test_worker_that_restores_for_long_after_a_fence_is_alive() -> None:
    """Another worker has taken its partitions, and the group has given it others."""
    progress = Restoring(position=10, end=1_000, offsets_per_s=1.0, eta_s=990.0)
    facts = Facts(worker=WorkerState.RESTORING, owned=1, restoring=progress, fenced=True, failing_s=60.0)
    assert health(facts).ok
    assert not readiness(facts).ok
    assert not health(replace(facts, restoring=None)).ok


def test_worker_is_ready_again_when_a_commit_had_happened_of_which_it_did_not_know(admit: Admit, log: LocalLog) -> None:
    unknown: list[str] = []

    def lose_the_answer(step: str) -> None:
        if step == "committed" and unknown:
            raise IndeterminateCommitError(unknown.pop())

    ward = admit(observe=lose_the_answer).admit()
    ward.settle()
    produce(log, {"leaf": "twig"})
    unknown.append("no answer")
    ward.step()
    assert ward.says("/readyz")[0] == 503
    ward.settle()
    assert ward.says("/readyz") == WELL
    assert ward.worker.statistics.records == 0, "what was committed was not done again"


def test_worker_that_lost_its_partitions_is_not_ready(ward: Ward, log: LocalLog) -> None:
    ward.settle()
    with closing(eddy.Worker(ward.topology, log, member="-1")) as first:  # its name sorts before "0"
        first.step()
        ward.step()
        assert ward.says("/healthz") == (200, "REBALANCING", "")
        assert ward.says("/readyz") == (503, "REBALANCING", "rebalancing: the group has given it no partitions")
    ward.step()
    assert ward.says("/readyz") == WELL


def test_worker_is_not_ready_while_the_log_cannot_be_read(ward: Ward, log: LocalLog) -> None:
    ward.settle()
    log.delete_topics(["nodes"])
    ward.monitor.refresh()
    ward.now += 7.0
    ward.monitor.refresh()
    assert ward.says("/healthz") == WELL
    page = ward.get("/readyz")
    assert (page.status, page.json["reason"]) == (503, "waiting for the log: it could not be read for 7 s")
    assert "nodes" in page.json["error"]
    log.create_topics([TopicSpec("nodes", 1)])
    ward.monitor.refresh()
    assert ward.says("/readyz") == WELL


@pytest.fixture
def stuck(admit: Admit, log: LocalLog) -> Iterator[Ward]:
    """A worker within a function of the user's, in a thread of its own; let go at the end, it is well again."""
    entered, held = threading.Event(), threading.Event()

    def work(key: str, value: str) -> None:
        entered.set()
        held.wait()

    topology = eddy.Topology("slow")
    topology.stream("nodes", key=eddy.String, value=eddy.String).peek(work).to("descendants")
    ward = admit(topology=topology).admit()
    ward.settle()
    produce(log, {"leaf": "twig"})
    thread = threading.Thread(target=ward.step)
    thread.start()
    try:
        wait_for(entered.is_set, PATIENCE_S, "a call of the user's function")
        yield ward
    finally:
        held.set()
    wait_for(lambda: not thread.is_alive(), PATIENCE_S, "the end of the step")
    assert ward.says("/readyz") == WELL


def test_worker_whose_function_does_not_return_is_dead_after_half_a_minute(stuck: Ward) -> None:
    stuck.now += 30.0
    assert (stuck.says("/healthz"), stuck.says("/readyz")) == (WELL, WELL)
    stuck.now += 1.0
    reason = "stuck: no step has ended for 31 s, in 'compute', more than 30 s"
    assert stuck.says("/healthz") == stuck.says("/readyz") == (503, "RUNNING", reason)


def test_worker_that_waits_for_the_log_is_not_ready_and_alive_for_longer(ward: Ward) -> None:
    ward.settle()
    ward.worker.doing = "commit"
    ward.now += 31.0
    assert ward.says("/healthz") == WELL
    assert ward.says("/readyz") == (503, "RUNNING", "waiting: no step has ended for 31 s, in 'commit'")
    ward.now += 270.0
    reason = "stuck: no step has ended for 301 s, in 'commit', more than 300 s"
    assert ward.says("/healthz") == ward.says("/readyz") == (503, "RUNNING", reason)
    ward.step()
    assert (ward.says("/healthz"), ward.says("/readyz")) == (WELL, WELL)


def test_worker_may_take_three_epochs_for_one(admit: Admit) -> None:
    ward = admit(config=eddy.Config(max_epoch_s=60.0)).admit()
    ward.settle()
    ward.now += 180.0
    assert ward.says("/readyz") == WELL


def test_worker_that_was_asked_to_stop_is_alive_until_it_is_closed(ward: Ward) -> None:
    ward.settle()
    ward.asked_to_stop = True  # a signal may come in the midst of a step
    assert ward.says("/healthz") == (200, "PENDING_SHUTDOWN", "")
    assert ward.says("/readyz") == (503, "PENDING_SHUTDOWN", "stopping")


def test_worker_that_takes_no_more_steps_is_stopping(admit: Admit, log: LocalLog) -> None:
    ward = admit()
    with closing(eddy.Worker(ward.topology, log)) as worker:
        with ward.monitor.watching(worker):
            worker.step()
            ward.monitor.refresh()
        assert ward.says("/readyz") == (503, "PENDING_SHUTDOWN", "stopping")


def test_worker_that_failed_is_dead_and_says_why(admit: Admit, log: LocalLog) -> None:
    topology = eddy.Topology("bad")
    words = topology.stream("nodes", key=eddy.String, value=eddy.String)
    words.map_values(lambda word: word.nothing).to("descendants")
    ward = admit(topology=topology).admit()
    produce(log, {"leaf": "twig"})
    with pytest.raises(eddy.DataError) as caught, ward.monitor.watching(ward.worker):
        ward.step(2)
    page = ward.get("/healthz")
    assert page.status == 503
    assert page.json == {"state": "ERROR", "reason": "failed: DATA", "error": str(caught.value)}
    assert ward.says("/readyz") == (503, "ERROR", "failed: DATA")


def test_worker_that_another_of_its_name_replaced_is_dead(ward: Ward, log: LocalLog) -> None:
    ward.settle()
    with closing(eddy.Worker(ward.topology, log)) as other:
        other.step()
        with pytest.raises(SlotTakenError), ward.monitor.watching(ward.worker):
            ward.step()
    assert ward.says("/healthz") == (503, "ERROR", "failed: CONNECTOR_SLOT_TAKEN")


def test_without_an_endpoint_nothing_is_served(log: LocalLog) -> None:
    ward = Ward(log)
    with monitored(None, ward.topology) as monitor, closing(eddy.Worker(ward.topology, log)) as worker:
        with monitor.watching(worker):
            worker.step()
            monitor.refresh()
        assert monitor.port is None


def test_what_has_no_finite_answer_is_told_and_is_no_illness(admit: Admit, log: LocalLog) -> None:
    log.create_topics([TopicSpec("links", 1), TopicSpec("reached", 1)])
    ward = admit(topology=reaching()).admit()
    ward.settle()
    assert "held" not in ward.get("/readyz").json
    produce(log, {"top": "a", "a": "top"}, "links")
    ward.settle()
    for page in ("/healthz", "/readyz"):
        assert ward.get(page).json == {"state": "RUNNING", "reason": "", "held": [way_round("top", "a", "top")]}
        assert ward.says(page) == WELL
    assert 'eddy_held_partitions{step="reach"} 1.0' in ward.get("/metrics").text
    produce(log, {"a": "b"}, "links")
    ward.settle()
    assert "held" not in ward.get("/readyz").json
    assert 'eddy_held_partitions{step="reach"} 0.0' in ward.get("/metrics").text


def test_who_shows_no_token_is_not_told_what_is_held(admit: Admit, log: LocalLog, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef")
    log.create_topics([TopicSpec("links", 1), TopicSpec("reached", 1)])
    ward = admit(topology=reaching(), endpoint=endpoint_of("127.0.0.1:0", tmp_path / "token")).admit()
    produce(log, {"top": "a", "a": "top"}, "links")
    ward.settle()
    assert ward.get("/readyz").json == {"state": "RUNNING", "reason": ""}
    assert len(ward.get("/readyz", Authorization="Bearer 0123456789abcdef").json["held"]) == 1
