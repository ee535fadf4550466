"""Outages in the log: one line for each and one for its end, however a broker hesitates."""

import re

import pytest
from confluent_kafka import KafkaError
from hypothesis import example, given
from hypothesis import strategies as st

from eddy.connectors.kafka import cluster_trouble as module
from eddy.connectors.kafka.cluster_trouble import ClusterTrouble, ClusterWatch

DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)
ANSWERS = st.lists(
    st.sampled_from(["-", "--", "---", "-----", "+", "++", "+" * 10, "+" * 11, "+" * 12]), max_size=20
).map("".join)
OUTAGE = re.compile(r"---.*?(\+{11}|$)")
"""From three questions in a row without an answer to eleven with one: ten seconds from the first to the last."""


def lines(answers: str) -> list[str]:
    """The lines of a log where each second a question is answered, `+`, or not."""
    said: list[str] = []
    seconds = iter(range(len(answers) + 1))
    now = 0.0

    class Log:
        def warning(self, *_: object) -> None:
            said.append("away")

        def info(self, *_: object) -> None:
            said.append("back")

        def debug(self, *_: object) -> None:
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_log", Log())  # private: each example has its own log
        trouble = ClusterTrouble("kafka", reachable=lambda: False, clock=lambda: now)
        watch = ClusterWatch(trouble)
        for answer in answers:
            now = float(next(seconds))
            for _ in range(3):  # of several polls in a second one asks
                trouble.report(DOWN)
                assert not watch.is_lost(lambda answer=answer: answer == "+")
    return said


@example("---" + "+" * 11 + "--")
@example("---+--+" + "-" + "+" * 12)
@given(ANSWERS)
def test_an_outage_and_its_end_are_told_once_each(answers: str) -> None:
    expected = []
    for outage in OUTAGE.finditer(answers):
        expected += ["away", "back"] if outage[1] else ["away"]
    assert lines(answers) == expected


def test_one_question_without_an_answer_is_no_outage() -> None:
    assert lines("-+" * 30 + "--+" * 30) == []


def test_a_broker_that_hesitates_as_it_starts_is_one_outage() -> None:
    assert lines("-" * 20 + "++-+--+++---+-" + "+" * 20) == ["away", "back"]


def test_a_client_is_lost_where_brokers_answer_others_only() -> None:
    now, others = 0.0, [False]
    trouble = ClusterTrouble("kafka", reachable=lambda: others[0], clock=lambda: now)
    lost, answered = ClusterWatch(trouble), ClusterWatch(trouble)
    assert not lost.is_lost(lambda: False)  # nothing was reported: it is not asked
    trouble.report(DOWN)
    found = []
    for now in range(60):
        others[0] = now > 20
        assert not answered.is_lost(lambda: others[0])
        found.append(lost.is_lost(lambda: False))
    assert [now for now, is_lost in enumerate(found) if is_lost] == [*range(21, 60)]


def test_a_client_is_asked_until_it_was_answered_for_ten_seconds() -> None:
    now = 0.0
    trouble = ClusterTrouble("kafka", reachable=lambda: True, clock=lambda: now)
    watch, asked = ClusterWatch(trouble), []
    trouble.report(DOWN)
    for now in range(30):
        watch.is_lost(lambda: bool(asked.append(now)) or now != 5)  # noqa: B023
    assert asked == [*range(17)]
