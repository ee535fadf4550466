"""Queries as values: what is written comes back from `repr` and JSON, and mistakes name table and column."""

from typing import Any

import msgspec
import pytest

import eddy
from tests.live.query.oracle import answer


class Issue(msgspec.Struct):
    title: str
    status: str
    owner: str | None = None
    created: int = 0
    starred: bool = False


issues = eddy.live_table("issues", key="id", columns=Issue)
comments = eddy.live_table("comments", key="id")
users = eddy.live_table("users", key="id")
labels = eddy.live_table("labels", key="id")
tagged = eddy.live_table("tagged", key=("issue", "label"), columns=[])
nodes = eddy.live_table("nodes", key="id", value="parent")


def children(row: Any) -> eddy.Query:
    return nodes.where(nodes.parent == row.id).order_by(-nodes.id).nest(children=children)


def tasks(row: Any) -> eddy.Query:
    return comments.where(comments.task == row.id).nest(people=people)


def people(row: Any) -> eddy.Query:
    return users.where(users.team == row.team).nest(tasks=tasks)


QUERIES = [
    issues,
    issues.where(issues.status == "open", issues.title.ilike("%crash%")).order_by(-issues.created, issues.title),
    issues.where(~((issues.status == "open") | (issues.created < 3)) & ~issues.owner.is_null()).skip(2).limit(5),
    issues.where(~issues.status.is_in(["a", "b"])).select("id", issues.title).one(),
    issues.order_by("-created").start({"created": 5, "id": "i"}, inclusive=True),
    issues.where(lambda i: comments.where(comments.issue == i.id, comments.flag).exists() | i.starred),
    issues.where(lambda i: ~comments.where(comments.issue == i.id).exists()),
    issues.nest(
        comments=lambda i: comments.where(comments.issue == i.id).order_by(-comments.at).limit(3),
        owner=lambda i: users.where(users.id == i.owner).one(),
        n=lambda i: comments.where(comments.issue == i.id).count(),
    ),
    issues.nest(
        labels=lambda i: (
            tagged.where(tagged.issue == i.id).nest(label=lambda t: labels.where(labels.id == t.label)).pluck("label")
        )
    ),
    issues.group_by(issues.status).aggregate(n=issues.id.count(), last=issues.created.max()).order_by("-n").limit(2),
    comments.where(comments["odd name"] == 1, comments["count"] > 2),
    issues.count(),
    nodes.where(nodes.parent.is_null()).nest(children=children),
    nodes.where(nodes.parent.is_null()).nest(children=children, depth=3),
    issues.nest(tasks=tasks),
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: repr(query)[-80:])
def test_query_is_read_back_from_its_code_and_its_json(query: eddy.Query) -> None:
    namespace: dict[str, Any] = {"eddy": eddy}
    for table in (issues, comments, users, labels, tagged, nodes):
        namespace[repr(table)] = table
    *functions, expression = repr(query).split("\n")
    exec("\n".join(functions), namespace)
    assert eval(expression, namespace).syntax == query.syntax
    assert eddy.query_from_json(query.to_json()) == query
    assert repr(eddy.query_from_json(query.to_json())) == repr(query)


def test_calls_make_new_queries_and_leave_the_old_ones() -> None:
    limited = issues.limit(3)
    assert (limited.limit(5), limited) == (issues.limit(5), issues.limit(3))
    assert issues.limit(1).where(issues.status == "x") == issues.where(issues.status == "x").limit(1)
    assert issues.order_by(issues.title).order_by(-issues.title) == issues.order_by(-issues.title)


def test_null_is_neither_less_nor_not_less() -> None:
    rows = {
        "users": [{"id": 1, "age": 3}, {"id": 2, "age": None}, {"id": 3}, {"id": 4, "age": 9}, {"id": 5, "age": "x"}]
    }

    def found(condition: Any) -> list[int]:
        return [row["id"] for row in answer(users.where(condition), rows)]

    assert found(users.age < 5) == [1]
    assert found(~(users.age < 5)) == [4]
    assert found(users.age != 3) == [4, 5]
    assert found(users.age.is_null()) == [2, 3]
    assert found(~users.age.is_in([9])) == [1, 5]


def test_tree_ends_at_a_row_that_leads_back_to_its_own_path() -> None:
    rows = {"nodes": [{"id": "a", "parent": "b"}, {"id": "b", "parent": "a"}, {"id": "c", "parent": "b"}]}
    tree = nodes.where(nodes.id == "a").nest(children=children)
    assert answer(tree, rows) == [
        {
            "id": "a",
            "parent": "b",
            "children": [
                {
                    "id": "b",
                    "parent": "a",
                    "children": [
                        {"id": "c", "parent": "b", "children": []},
                        {"id": "a", "parent": "b", "$cycle": True},
                    ],
                }
            ],
        }
    ]


def test_depth_bounds_the_levels() -> None:
    rows = {"nodes": [{"id": str(n), "parent": str(n - 1) if n else None} for n in range(6)]}
    tree = nodes.where(nodes.parent.is_null()).nest(children=children, depth=2)
    (root,) = answer(tree, rows)
    (first,) = root["children"]
    (second,) = first["children"]
    assert (second["id"], "children" in second) == ("2", False)


def test_aggregates_of_nothing_and_of_mixed_values() -> None:
    rows = {"users": [{"id": 1, "n": 0.1}, {"id": 2, "n": 0.2}, {"id": 3, "n": None}, {"id": 4, "n": "x"}]}
    query = users.aggregate(n=users.n.count(), total=users.n.sum(), mean=users.n.avg(), top=users.n.max())
    assert answer(query, rows) == [{"n": 3, "total": 0.1 + 0.2, "mean": (0.1 + 0.2) / 2, "top": "x"}]
    assert answer(query, {"users": []}) == [{"n": 0, "total": None, "mean": None, "top": None}]
    assert answer(users.count(), rows) == 4


def nothing(row: Any) -> eddy.Query:
    return users


def plucked(row: Any) -> eddy.Query:
    return nodes.where(nodes.parent == row.id).nest(below=plucked).pluck("below")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: issues.where(issues.nothing == 1), "table 'issues': there is no column 'nothing'"),
        (lambda: tagged.where(tagged.color == 1), "table 'tagged': there is no column 'color'; one of issue, label"),
        (lambda: issues.where(issues.owner == None), r"issues.owner.is_null\(\)"),  # noqa: E711 - the mistake
        (lambda: issues.where(issues.created == object()), "column issues.created: = takes"),
        (lambda: issues.where(issues.title.like(3)), "column issues.title: like takes 3"),  # type: ignore[arg-type]
        (lambda: issues.where(issues.title.like("\ud800%")), "like takes '.ud800%', which has a lone surrogate"),
        (lambda: issues.where(issues.title.is_in(["a", "\udfff"])), "in takes '.udfff', which has a lone surrogate"),
        (lambda: eddy.live_table("t").order_by("\ud800"), "'.ud800' has a lone surrogate, and no column has"),
        (lambda: issues.where(issues.starred and issues.title), "column issues.starred: it has no truth"),
        (lambda: issues.where(3), "where of table 'issues': 3 is not a condition"),
        (lambda: issues.where(users.id == 1), "users.id is a column of another row"),
        (lambda: issues.where(users.id == issues.owner), "one of the enclosing row are needed"),
        (lambda: issues.where(issues.created < issues.owner), "columns compare with constants"),
        (lambda: issues.order_by(users.id), "order_by of table 'issues': users.id"),
        (lambda: issues.order_by(-users.id), "order_by of table 'issues': users.id"),
        (lambda: issues.order_by(issues.count), r"Write: t\['count'\]"),  # type: ignore[arg-type]
        (lambda: issues.where(issues.count == 3), r"t\['count'\] == 3 where a method"),  # type: ignore[comparison-overlap, arg-type]
        (lambda: issues.where(issues.title.is_in("open")), "issues.title: is_in takes 'open'; a list of values"),
        (lambda: issues.where(issues.created.is_in(3)), "is_in takes 3; a list of values"),  # type: ignore[arg-type]
        (lambda: issues.start([1]), r"start of table 'issues': row=\[1\] is not a row"),  # type: ignore[arg-type]
        (lambda: issues.aggregate(n=users.age.sum()), "sum of table 'issues': users.age is none of its columns"),
        (lambda: users.group_by(users.team).aggregate(n=users.id.count()).order_by(-issues.created), "issues.created"),
        (lambda: eddy.live_table("t", value="v", columns=["v"]), "table 't': value='v' and columns; one of them is"),
        (lambda: issues.limit(-1), r"limit\(-1\)"),
        (lambda: issues.nest(x=nothing), "nest 'x' of table 'issues': the query of 'users' does not depend on the row"),
        (lambda: issues.nest(x=lambda i: 3), "its function returned 3"),  # type: ignore[arg-type,return-value]
        (lambda: issues.nest(x=users), "is not a function of the row"),  # type: ignore[arg-type]
        (lambda: issues.nest(x=lambda i: users.where(users.id == i.boss)), "table 'issues': there is no column 'boss'"),
        (lambda: issues.nest(x=tasks, depth=0), "depth=0"),
        (
            lambda: issues.nest(x=lambda i: users.where(users.id == i.owner), depth=2),
            "its function does not refer to itself",
        ),
        (lambda: issues.where(lambda i: ~(users.id == i.owner)), "only be joined where columns are equal"),
        (lambda: issues.limit(0).exists(), "exists of table 'issues'"),
        (
            lambda: issues.nest(n=lambda i: users.where(users.id == i.owner).count()).pluck("n").syntax,
            "this one is a single aggregate",
        ),
        (lambda: nodes.nest(below=plucked).syntax, "shows the rows of a recursion that plucks itself"),
        (lambda: issues.aggregate(n=3), "aggregate: 3 is not an aggregate"),  # type: ignore[arg-type]
        (lambda: issues.limit(2).count(), "it is over all rows"),
        (lambda: issues.count().order_by("title"), "have no column 'title'"),
        (lambda: issues.start({"id": 1}).order_by(issues.title).syntax, "the row has no column 'title'"),
        (lambda: issues.where(issues.created < float("inf")), "a finite number is needed"),
        (lambda: issues.group_by(issues.status).syntax, "group_by needs aggregates"),
        (lambda: issues.count().limit(0).syntax, "an aggregate of all rows is one row"),
        (lambda: issues.aggregate(n=issues.id.count()).order_by("n").syntax, "an aggregate of all rows is one row"),
        (lambda: issues.group_by(issues.status).count().one().syntax, "groups take no nest, no start and no one"),
        (lambda: issues.select(issues.title).count().syntax, "groups have no column 'title'"),
        (lambda: issues.nest(u=lambda i: users.where(users.id == i.owner)).pluck("u").exists(), "aggregate or pluck"),
        (lambda: eddy.query_from_json(b'{"table": 3}'), "is not a query in JSON"),
        (
            lambda: issues.nest(
                c=lambda i: comments.where(comments.issue == i.id).nest(u=lambda c: users.where(users.id == i.owner))
            ),
            "issues.owner is a column of a row further out",
        ),
    ],
)
def test_mistake_is_an_error_that_names_table_and_column(build: Any, message: str) -> None:
    with pytest.raises(eddy.QueryBuildError, match=message):
        build()


def test_new_lambda_in_each_call_is_refused_instead_of_calling_for_ever() -> None:
    def below(row: Any) -> eddy.Query:
        return nodes.where(nodes.parent == row.id).nest(children=lambda row: below(row))

    with pytest.raises(eddy.QueryBuildError, match="64 functions call one another"):
        nodes.nest(children=below)


@pytest.mark.parametrize(
    ("clauses", "message"),
    [
        ('"limit": -1', "not negative"),
        ('"where": {"type": "compare", "column": "x", "op": "like", "value": 3}', "column 'x' like takes no 3"),
        ('"where": {"type": "compare", "column": "x", "op": "in", "value": 3}', "column 'x' in takes no 3"),
        ('"where": {"type": "compare", "column": "x", "op": "=", "value": {"a": 1}}', "not a query in JSON"),
        ('"pluck": "n"', "there is no nest 'n' to pluck"),
        ('"scalar": true', "of one aggregate"),
        ('"nests": [{"name": "n", "on": [["a", "b"]], "query": {"type": "ref", "label": "l"}}]', "refers to 'l'"),
        (
            '"nests": [{"name": "n", "on": [], "query": {"type": "select", "table": {"name": "t", "key": ["id"]}}}]',
            "no col",
        ),
    ],
)
def test_json_that_the_builder_does_not_make_is_refused(clauses: str, message: str) -> None:
    with pytest.raises(eddy.QueryBuildError, match=message):
        eddy.query_from_json(f'{{"type": "select", "table": {{"name": "t", "key": ["id"]}}, {clauses}}}')
