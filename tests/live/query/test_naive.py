"""The naive evaluation and the oracle give the answers of the conformance cases, and the same to random queries."""

import random
from types import ModuleType
from typing import Any

import pytest

import eddy
from eddy.like_pattern import like_pattern
from eddy.live.query.naive import evaluate
from tests.live.query import oracle
from tests.live.query.cases import CASES, LIKES, apply_to, as_list, plain_tables, query_of, windowed, without_nulls
from tests.live.query.oracle import answer
from tests.live.query.random_queries import KEYS, random_query, random_row
from tests.live.query.test_random import canonical
from tests.seeds import of_today


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_answer_is_that_of_the_case_after_each_change(case: dict[str, Any]) -> None:
    query, (tables, keys) = query_of(case), plain_tables(case)
    for change, expected in zip([None, *case["changes"]], case["expected_steps"], strict=True):
        if change is not None and change["op"] == "window":
            query = windowed(query, change)
        elif change is not None:
            apply_to(tables, keys, change)
        rows = {name: list(rows.values()) for name, rows in tables.items()}
        for found in (evaluate(query.syntax, rows), answer(query, rows)):
            assert without_nulls(as_list(found)) == without_nulls(expected)


@pytest.mark.parametrize("seed", [*range(60), *of_today(60)])
def test_answer_is_that_of_the_oracle(seed: int) -> None:
    draw = random.Random(seed)
    tables = {name: [random_row(draw, name) for _ in range(draw.randrange(25))] for name in KEYS}
    rows = {name: list({tuple(row[c] for c in KEYS[name]): row for row in tables[name]}.values()) for name in KEYS}
    query = random_query(draw)
    assert canonical(evaluate(query.syntax, rows)) == canonical(answer(query, rows)), query


@pytest.mark.parametrize("case", LIKES, ids=lambda case: f"{case['pattern']}/{case['flags']}")
def test_like_fits_as_in_the_cases(case: dict[str, Any]) -> None:
    pattern = like_pattern(case["pattern"], ignore_case=case["flags"] == "i")
    assert [(text, bool(pattern.fullmatch(text))) for text, _ in case["inputs"]] == [
        (text, fits) for text, fits in case["inputs"]
    ]


def test_cycle_over_a_table_of_links_ends_at_the_row_that_leads_back() -> None:
    """A row whose nest is plucked is not shown, so that it cannot be the one that has `$cycle`."""
    nodes, links = eddy.live_table("nodes", key="id"), eddy.live_table("links", key="id")

    def below(row: Any) -> eddy.Query:
        found = links.where(links.src == row.id)
        return found.nest(to=lambda link: nodes.where(nodes.id == link.dst).nest(below=below)).pluck("to")

    pairs = ["ab", "bc", "cb"]
    tables = {
        "nodes": [{"id": name} for name in "abc"],
        "links": [{"id": pair, "src": pair[0], "dst": pair[1]} for pair in pairs],
    }
    tree = nodes.where(nodes.id == "a").nest(below=below)
    last = {"id": "b", "$cycle": True}
    assert evaluate(tree.syntax, tables) == [
        {"id": "a", "below": [{"id": "b", "below": [{"id": "c", "below": [last]}]}]}
    ]


def test_like_of_many_parts_takes_no_longer_than_to_look_for_each_part_once() -> None:
    """Were other places tried too, neither would come to an end."""
    assert like_pattern("%a" * 40 + "%b").fullmatch("a" * 2_000) is None
    assert like_pattern("%A_" * 40 + "%b", ignore_case=True).fullmatch("ab" * 2_000) is not None


@pytest.mark.parametrize("seed", range(5))
def test_like_is_as_by_its_definition(seed: int) -> None:
    def fits(pattern: str, text: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "%":
            return any(fits(pattern[1:], text[at:]) for at in range(len(text) + 1))
        return bool(text) and pattern[0] in {"_", text[0]} and fits(pattern[1:], text[1:])

    draw = random.Random(seed)
    for _ in range(400):
        pattern, text = ("".join(draw.choices(of, k=draw.randrange(8))) for of in ("ab%%_", "ab"))
        assert bool(like_pattern(pattern).fullmatch(text)) == fits(pattern, text), (pattern, text)


def test_oracle_has_no_code_of_eddy() -> None:
    imported = {each.__name__.partition(".")[0] for each in vars(oracle).values() if isinstance(each, ModuleType)}
    made_in = {getattr(each, "__module__", "").partition(".")[0] for each in vars(oracle).values()}
    assert "eddy" not in imported | made_in
