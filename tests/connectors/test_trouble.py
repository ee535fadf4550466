"""Outages in the log: one line for each and one for its end, however a broker hesitates."""

import re

import pytest
from confluent_kafka import KafkaError
from hypothesis import example, given
from hypothesis import strategies as st

from eddy.connectors.kafka import trouble as module
from eddy.connectors.kafka.trouble import Trouble

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
        patch.setattr(module, "_log", Log())
        trouble = Trouble("kafka", clock=lambda: now)
        for answer in answers:
            now = float(next(seconds))
            for _ in range(3):  # of several polls in a second one asks
                trouble.report(DOWN)
                trouble.look(lambda answer=answer: answer == "+")
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
