"""The naive evaluation gives the answers of the conformance cases, and LIKE those of its own."""

from typing import Any

import pytest

from eddy.operators.views.values import like_pattern
from eddy.topology.queries.naive import evaluate
from tests.queries.cases import CASES, LIKES, apply_to, as_list, plain_tables, query_of, windowed, without_nulls


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_answer_is_that_of_the_case_after_each_change(case: dict[str, Any]) -> None:
    query, (tables, keys) = query_of(case), plain_tables(case)
    for change, expected in zip([None, *case["changes"]], case["expected_steps"], strict=True):
        if change is not None and change["op"] == "window":
            query = windowed(query, change)
        elif change is not None:
            apply_to(tables, keys, change)
        found = evaluate(query.syntax, {name: rows.values() for name, rows in tables.items()})
        assert without_nulls(as_list(found)) == without_nulls(expected)


@pytest.mark.parametrize("case", LIKES, ids=lambda case: f"{case['pattern']}/{case['flags']}")
def test_like_fits_as_in_the_cases(case: dict[str, Any]) -> None:
    pattern = like_pattern(case["pattern"], ignore_case=case["flags"] == "i")
    assert [(text, bool(pattern.fullmatch(text))) for text, _ in case["inputs"]] == [
        (text, fits) for text, fits in case["inputs"]
    ]
