"""Results as values of one's own types."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pytest

import eddy
from eddy.live.query.query import kind_of
from eddy.live.query.typed import typed
from tests.live.query.rig import Rig

issues = eddy.live_table("issues", key="id")
comments = eddy.live_table("comments", key="id")
nodes = eddy.live_table("nodes", key="id")


class Comment(msgspec.Struct):
    id: int
    text: str = ""


@dataclass
class Issue:
    id: int
    title: str
    comments: list[Comment]
    latest: Comment | None = None


class Node(msgspec.Struct):
    id: str
    below: list["Node"] = []
    is_cycle: bool = msgspec.field(name="$cycle", default=False)


class Group(TypedDict):
    title: str
    n: int


NESTED = issues.nest(
    comments=lambda issue: comments.where(comments.issue == issue.id),
    latest=lambda issue: comments.where(comments.issue == issue.id).order_by(-comments.id).one(),
)


def below(node: Any) -> eddy.Query:
    return nodes.where(nodes.parent == node.id).nest(below=below)


def rig() -> Rig:
    return Rig(
        {"issues": ["id"], "comments": ["id"], "nodes": ["id"]},
        {
            "issues": [{"id": 1, "title": "one", "more": 5}, {"id": 2, "title": "two"}],
            "comments": [{"id": 7, "issue": 1, "text": "x"}, {"id": 8, "issue": 1}],
            "nodes": [{"id": "a", "parent": "b"}, {"id": "b", "parent": "a"}],
        },
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            NESTED.into(Issue),
            [Issue(1, "one", [Comment(7, "x"), Comment(8)], Comment(8)), Issue(2, "two", [], None)],
        ),
        (NESTED.one().into(Issue).where(issues.id > 1), Issue(2, "two", [])),
        (issues.where(issues.id > 5).into(Issue).one(), None),
        (
            nodes.where(nodes.id == "a").nest(below=below).into(Node),
            [Node("a", [Node("b", [Node("a", [], is_cycle=True)])])],
        ),
        (
            issues.group_by(issues.title).aggregate(n=issues.id.count()).into(Group),
            [Group(title="one", n=1), Group(title="two", n=1)],
        ),
        (issues.count().into(float), 2.0),
    ],
)
def test_rows_are_values_of_the_type(query: Any, expected: Any) -> None:
    assert typed(rig().follow(query).rows, kind_of(query)) == expected


def test_type_is_kept_by_later_clauses_and_is_no_part_of_the_query() -> None:
    query = issues.into(Issue).where(issues.id == 1).order_by(issues.title)
    assert kind_of(query) is Issue
    assert repr(query) == "issues.where(issues.id == 1).order_by(issues.title).into(Issue)"
    assert query == issues.where(issues.id == 1).order_by(issues.title)
    assert eddy.query_from_json(query.to_json()) == query


def test_type_that_no_row_can_become_and_a_type_in_a_nest_are_refused() -> None:
    with pytest.raises(eddy.QueryBuildError, match="into of table 'issues'"):
        issues.into(Path)
    with pytest.raises(eddy.QueryBuildError, match="the rows of a nest have the type of the field"):
        issues.nest(comments=lambda issue: comments.where(comments.issue == issue.id).into(Comment))


def test_row_that_is_not_of_the_type_is_named() -> None:
    with pytest.raises(
        eddy.QueryError, match=r"a row is not a valid Comment: Expected `int`, got `str` - at `\$\[1\].id`"
    ):
        typed([{"id": 1}, {"id": "x"}], Comment)


def test_columns_that_are_methods_are_written_in_brackets() -> None:
    for name in dir(type(issues)):
        if not name.startswith("_"):
            assert f"issues[{name!r}]" in repr(issues.where(issues[name] == 1))
