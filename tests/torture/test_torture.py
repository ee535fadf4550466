"""The short form of the torture: a few kills of each kind, on programs and with seeds that rotate by the day.

`make torture` is the full one: each kind on each program.

A failure names its seed; what was done and what the workers said is in the test's folder.
"""

import time
import uuid
from itertools import cycle
from pathlib import Path

import pytest

import eddy
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.log import TopicSpec
from tests.kafka import OwnBroker
from tests.seeds import DAY, in_turn, on_days
from tests.torture.faults import FAULTS, STEPS
from tests.torture.feed import Feed
from tests.torture.programs import NAMES, PARTITIONS, program_of
from tests.torture.scenario import Outcome, torture
from tests.waiting import WaitTimeoutError

pytestmark = pytest.mark.xdist_group("torture")

TIMES = {
    "kill at steps": 10,
    "kill at random": 4,
    "stop": 2,
    "pause": 2,
    "storm": 6,
    "purge": 3,
    "state": 4,
    "positions": 3,
}
"""How often each kind of fault is done; `broker` is done to a broker of its own."""
PROGRAMS = dict(zip(FAULTS, cycle([*NAMES[DAY % len(NAMES) :], *NAMES[: DAY % len(NAMES)]]), strict=False))
"""Each fault's program today."""


def say(outcome: Outcome) -> None:
    told = f"{outcome.fault}, {outcome.program}, seed {outcome.seed}: {outcome.failure}"
    if outcome.hangs and not (outcome.difference.lost or outcome.difference.doubled or outcome.difference.wrong):
        raise WaitTimeoutError(told)
    if outcome.failure:
        pytest.fail(told)
    assert outcome.checked, "it was never called quiescent"


def test_the_steps_are_those_of_an_epoch() -> None:
    seen: list[str] = []
    topology = eddy.Topology("steps")
    topology.stream("in").to("out")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.worker._parts.observe = seen.append  # private: a driver's worker has no observer
        driver.input("in").pipe(b"a", b"b")
    assert seen[: len(STEPS)] == STEPS


def test_a_feed_that_was_told_to_stop_while_it_waited_for_the_gate_feeds_no_more(broker: str) -> None:
    """A burst after the rest was seen would be left when the workers have ended."""
    program = program_of("countdown", uuid.uuid4().hex[:8])
    log = KafkaLog(KafkaSettings.of(broker, environ={}))
    topics = [source.topic for source in program.topology().plan.sources()]
    log.create_topics(TopicSpec(topic, PARTITIONS) for topic in topics)
    feed = Feed(log.settings, program, 1, transactional=False)
    try:
        for _ in range(5):
            with feed.gate:
                feed.running.set()
                time.sleep(0.3)  # pause: it waits for the gate, and says so to nobody
                feed.running.clear()
            with feed.gate:
                fed = dict(feed.acknowledged)
            time.sleep(0.3)  # pause: nothing is fed meanwhile
            assert feed.acknowledged == fed
    finally:
        feed.close()
        log.delete_topics(topics)
        log.close()


@pytest.mark.parametrize("fault", [*in_turn(TIMES, 2)])
def test_nothing_is_lost_doubled_or_called_done_too_early(broker: str, tmp_path: Path, fault: str) -> None:
    say(torture(broker, tmp_path, fault, PROGRAMS[fault], DAY, TIMES[fault]))


def test_every_kind_of_fault_is_done() -> None:
    assert FAULTS.keys() == {*TIMES, "broker"}


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("program", "seed"), [("countdown", 1), ("descendants", 2), ("nearest", 3), ("orders", 4)])
def test_nothing_is_lost_or_given_up_in_a_hundred_pauses(broker: str, tmp_path: Path, program: str, seed: int) -> None:
    say(torture(broker, tmp_path, "pause", program, seed, 25))


@on_days({1}, 2)
def test_a_broker_that_ends_or_pauses_in_the_middle_of_transactions_loses_nothing(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    own = own_broker(settings={"broker.session.timeout.ms": "1000"})
    own.start()
    say(torture(own.bootstrap, tmp_path, "broker", PROGRAMS["broker"], DAY, 3, own))


@pytest.mark.parametrize(
    ("planted", "fault", "times"),
    [*in_turn([("write_the_store_before_the_commit", "kill at steps", 3), ("commit_for_nobody", "stop", 1)], 2)],
)
def test_a_planted_bug_is_found(broker: str, tmp_path: Path, planted: str, fault: str, times: int) -> None:
    """The kills do not always come between the two things that have to go together, so there are more tries."""
    tries = (torture(broker, tmp_path, fault, "countdown", seed, times, planted=planted) for seed in (2, 3, 4, 5))
    assert any(outcome.failure for outcome in tries)
