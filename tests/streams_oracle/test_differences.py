"""Each difference of the rules by an example: what Kafka Streams writes to the last topic, and what eddy writes.

`docs/java-to-eddy.md` says these things to users.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.streams_oracle import in_eddy
from tests.streams_oracle.case import Answer, Case, Input, Step
from tests.streams_oracle.functions import Key, Value
from tests.streams_oracle.oracle import Oracle, kafka_streams_version

pytestmark = pytest.mark.xdist_group("streams-oracle")

DOCS = Path(__file__).parents[2] / "docs" / "java-to-eddy.md"
Written = dict[Key, list[Value]]

STREAM: Step = {"op": "stream", "topic": "a"}
TABLE: Step = {"op": "table", "topic": "a", "stored": True}
COUNT: Step = {"op": "count", "of": 0, "stored": True}
SUM: Step = {"op": "aggregate", "of": 0, "f": "plus", "undo": "minus", "start": 0, "stored": True, "value": "same"}

WINDOWED: Step = {
    "op": "windowed", "of": 0, "size": 10, "advance": 10, "grace": 0, "emit": "update", "fold": "count"
}  # fmt: skip
SESSIONS: Step = {"op": "sessions", "of": 0, "gap": 10, "grace": 0, "emit": "update", "fold": "count", "start": 0}


class Difference(NamedTuple):
    """Steps, records (key, value) of the topic, one in 10 ms, and the values by key that the engines write."""

    steps: list[Step]
    records: list[tuple[Key, Value]]
    kafka_streams: Written
    eddy: Written
    times: list[int] | None = None
    """Other times of the records."""


DIFFERENCES = {
    "an equal value": Difference([TABLE], [("k", 1), ("k", 1)], {"k": [1, 1]}, {"k": [1]}),
    "a key that was not there": Difference([TABLE], [("k", None)], {"k": [None]}, {}),
    "a row that a filter has never let pass": Difference(
        [{**TABLE, "stored": False}, {"op": "filter", "of": 0, "f": "even"}], [("k", 1)], {"k": [None]}, {}
    ),
    "a group that its last row has left": Difference(
        [TABLE, {**COUNT, "key": "same", "value": "same"}], [("k", 1), ("k", None)], {"k": [1, 0]}, {"k": [1, None]}
    ),
    "a row whose value in its group is null": Difference(
        [TABLE, {**COUNT, "key": "same", "value": "none_if_big"}], [("k", 7)], {}, {"k": [1]}
    ),
    "a group whose total was null": Difference(
        [TABLE, {**SUM, "f": "xor_or_none", "undo": "xor_or_none", "key": "one"}],
        [("k", 2), ("l", 2), ("l", None)], {"x": [2, None, None]}, {"x": [2, None, 2]},
    ),
    "a table that the record changes through another topic": Difference(
        [STREAM, {**COUNT, "key": "same"}, {"op": "left_join", "of": 0, "with": 1, "f": "last"}],
        [("k", 5), ("k", 5)], {"k": [None, 1]}, {"k": [1, 2]},
    ),
    "a join whose sides change one after the other": Difference(
        [TABLE, {**SUM, "key": "same"}, {"op": "join", "of": 0, "with": 1, "f": "plus", "stored": True}],
        [("k", 1), ("k", 2)], {"k": [2, 3, 4]}, {"k": [2, 4]},
    ),
    "groups of a stream that are grouped again": Difference(
        [STREAM, COUNT, {**COUNT, "of": 1, "key": "one", "value": "same"}],
        [("k", 5), ("l", 5)], {"x": [1, 1]}, {"x": [1, 2]},
    ),
    "a punctuation by event time": Difference(
        [STREAM, {"op": "process", "of": 0, "stored": True, "every": 25, "by": "event time"}],
        [("k", 1)] * 4, {"k": [1, 1, 2, 3], "sum": [1, 3]}, {"k": [1, 2, 3, 1], "sum": [3]},
    ),
    "a re-keyed record without a key, at a processor": Difference(
        [STREAM, {"op": "select_key", "of": 0, "key": "same"}, {"op": "process", "of": 1, "stored": True}],
        [(None, 1)], {None: [1]}, {},
    ),
    "a record without a value, in a window": Difference([STREAM, WINDOWED], [("k", None)], {"k@0-10": [1]}, {}),
    "a record that is late by one that a filter has dropped": Difference(
        [STREAM, {"op": "filter", "of": 0, "f": "even"}, {**WINDOWED, "of": 1}],
        [("k", 2), ("k", 1), ("k", 2)], {"k@0-10": [1, 2]}, {"k@0-10": [1]}, times=[0, 30, 5],
    ),
    "a late record of a session that is not late": Difference(
        [STREAM, SESSIONS], [("k", 1), ("k", 1), ("l", 1), ("k", 1)],
        {"k@20-20": [1, None], "k@20-30": [2, None], "l@40-40": [1], "k@12-30": [3]},
        {"k@20-20": [1, None], "k@20-30": [2], "l@40-40": [1]},
        times=[20, 30, 40, 12],
    ),
    "a sliding window behind a record whose own window is over": Difference(
        [STREAM, {**WINDOWED, "op": "sliding", "grace": 10}], [("k", 1), ("k", 1), ("k", 1)],
        {"k@20-30": [1]}, {"k@20-30": [1], "k@13-23": [1]}, times=[30, 12, 18],
    ),
    "an aggregate of sessions that merge": Difference(
        [STREAM, {**SESSIONS, "fold": "aggregate", "f": "plus", "merge": "plus", "start": 1}], [("k", 1), ("k", 1)],
        {"k@0-0": [2, None], "k@0-10": [4]}, {"k@0-0": [2, None], "k@0-10": [3]},
    ),
    "a session that is over and then has another record": Difference(
        [STREAM, {**SESSIONS, "emit": "close"}], [("k", 1), ("l", 1), ("k", 1), ("l", 1)],
        {"k@0-0": [1], "k@0-10": [2], "l@11-11": [1]}, {"k@0-10": [2], "l@11-11": [1]},
        times=[0, 11, 10, 40],
    ),
    "a stream that is merged with itself": Difference(
        [STREAM, {"op": "merge", "of": 0, "with": 0}], [("k", 5)], {"k": [5]}, {"k": [5, 5]}
    ),
    "streams of several records each that are merged": Difference(
        [
            STREAM,
            {"op": "flat_map_values", "of": 0, "parts": [
                {"f": "all", "key": "same", "value": "same"}, {"f": "all", "key": "same", "value": "half"}]},
            {"op": "map_values", "of": 1, "f": "plus_key"},
            {"op": "merge", "of": 1, "with": 2},
        ],
        [("k", 4)], {"k": [5, 4, 3, 2]}, {"k": [4, 2, 5, 3]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("difference", DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_they_write(oracle: Oracle, difference: Difference) -> None:
    times = difference.times or range(0, 1_000, 10)
    records: list[Input] = [
        ("a", key, value, time) for (key, value), time in zip(difference.records, times, strict=False)
    ]
    case = Case(difference.steps, records)
    assert last_of(oracle.answer(case)) == difference.kafka_streams
    assert last_of(in_eddy.answer(case)) == difference.eddy


def last_of(answer: Answer) -> Written:
    return {key: [value for value, _, _ in records] for key, records in answer.out[-1].items()}


def test_a_late_record_has_the_time_of_its_group_or_its_own(oracle: Oracle) -> None:
    records: list[Input] = [("a", "k", 1, 100), ("a", "k", 1, 50)]
    case = Case([STREAM, COUNT], records)
    assert oracle.answer(case).out[1] == {"k": [(1, 100, 0), (2, 100, 1)]}
    assert in_eddy.answer(case).out[1] == {"k": [(1, 100, 0), (2, 50, 1)]}


def test_a_reducers_total_of_null_is_begun_anew_by_a_row_that_is_the_same_again(oracle: Oracle) -> None:
    xor: Step = {"op": "reduce", "of": 1, "f": "xor_or_none", "undo": "xor_or_none", "stored": True, "key": "one"}
    steps = [TABLE, {"op": "map_values", "of": 0, "f": "one", "stored": True}, {**xor, "value": "plus_key"}]
    case = Case(steps, [("a", "k", 7, 0), ("a", "l", 3, 0), ("a", "l", 0, 0)])
    assert last_of(oracle.answer(case)) == last_of(in_eddy.answer(case)) == {"x": [2, None, 2]}


def test_a_change_of_a_session_has_the_time_of_its_end_or_of_its_record(oracle: Oracle) -> None:
    case = Case([STREAM, SESSIONS], [("a", "k", 1, 10), ("a", "k", 1, 5)])
    assert oracle.answer(case).out[1] == {"k@10-10": [(1, 10, -1), (None, 10, -1)], "k@5-10": [(2, 10, -1)]}
    assert in_eddy.answer(case).out[1] == {"k@10-10": [(1, 10, -1), (None, 5, -1)], "k@5-10": [(2, 5, -1)]}


def test_stream_time_is_that_of_all_topics_or_of_the_records_own(oracle: Oracle) -> None:
    sums: Step = {"op": "process", "of": 0, "stored": True, "every": 25, "by": "event time"}
    case = Case(
        [STREAM, {"op": "stream", "topic": "b"}, sums], [("a", "k", 1, 10), ("a", "k", 1, 20), ("b", "l", 1, 30)]
    )
    assert oracle.answer(case).out[2] == {"k": [(1, 10, 0), (1, 20, 1)], "sum": [(1, 10, -1), (1, 30, -1)]}
    assert in_eddy.answer(case).out[2] == {"k": [(1, 10, 0), (2, 20, 1)]}


@pytest.mark.parametrize("emit", ["update", "close", "suppress"])
def test_windows_of_several_topics_are_over_by_the_first_or_by_their_own(oracle: Oracle, emit: str) -> None:
    steps = [STREAM, {"op": "stream", "topic": "b"}, {"op": "merge", "of": 0, "with": 1}]
    records: list[Input] = [("a", "k", 1, 2), ("a", "k", 1, 30), ("b", "k", 1, 4), ("b", "k", 1, 40), ("a", "k", 1, 41)]
    case = Case([*steps, {**WINDOWED, "of": 2, "emit": emit}], records)
    streams, eddy = oracle.answer(case).out[3], in_eddy.answer(case).out[3]
    if emit == "update":
        assert streams == {"k@0-10": [(1, 2, 0)], "k@30-40": [(1, 30, 1)], "k@40-50": [(1, 40, 3), (2, 41, 4)]}
        assert eddy == {**streams, "k@0-10": [(1, 2, 0), (2, 4, 2)]}
    else:
        headers = {"close": (1, 3), "suppress": (0, 1)}[emit]
        assert streams == {"k@0-10": [(1, 2, headers[0])], "k@30-40": [(1, 30, headers[1])]}
        assert eddy == {"k@0-10": [(2, 9, -1)], "k@30-40": [(1, 39, -1)]}


def test_the_page_names_the_version_and_each_difference() -> None:
    page = re.sub(r"\s+", " ", DOCS.read_text(encoding="utf-8"))
    assert f"Kafka Streams {kafka_streams_version()}" in page
    assert [name for name in DIFFERENCES if name not in page] == []
