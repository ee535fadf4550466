"""Queries as texts: the code of a query is read as that query, nothing else is run, and mistakes have their place."""

import random
import re

import pytest

import eddy
from eddy.live.query.query_text import MAX_TEXT, query_of_text
from tests.live.query.random_queries import KEYS, random_query

_DECLARED = {
    "items": "live_table('items', key='id')",
    "parts": "live_table('parts', key=('item', 'n'))",
    "nodes": "eddy.live_table('nodes', key=['id'])",
}


def declared(code: str) -> str:
    """The code with the tables as they are declared, not by their names alone."""
    return re.sub(r"\b(items|parts|nodes)(?=[.\[]|$)", lambda table: _DECLARED[table[1]], code)


@pytest.mark.parametrize("seed", range(200))
def test_code_of_a_query_is_read_as_python_runs_it(seed: int) -> None:
    """Where the code is one expression: a recursion is a function in lines of its own."""
    query = random_query(random.Random(seed))
    while (code := declared(repr(query))).startswith("def "):
        seed += 1_000
        query = random_query(random.Random(seed))
    try:
        expected = eval(code, {"eddy": eddy, "live_table": eddy.live_table}).syntax
    except eddy.QueryBuildError as error:  # rows of functions in one another have one name in the code
        with pytest.raises(eddy.QueryBuildError, match=re.escape(str(error))):
            query_of_text(code, KEYS)
        return
    if len(code) > MAX_TEXT:
        with pytest.raises(eddy.QueryBuildError, match=f"{len(code):,} characters; at most 4,000"):
            query_of_text(code, KEYS)
        return
    assert query_of_text(code, KEYS).syntax == expected
    assert query_of_text(f"\n  {code} # its end\n", KEYS).syntax == expected


def test_keys_and_values_are_named_as_by_live_table() -> None:
    assert query_of_text("folders.where(folders.key == 'home')", ["folders"]) == eddy.live_table("folders").where(
        eddy.live_table("folders").key == "home"
    )
    sizes = eddy.live_table("sizes", value="size")
    assert query_of_text("live_table('sizes', value='size').max('size')", ["sizes"]) == sizes.max("size")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1, column 1: an empty text"),
        ("folders.", "line 1, column 9: this is no query: invalid syntax"),
        ("folders.where(folders.a == 1))", "line 1, column 30: this is no query: unmatched ')'"),
        ("folders\n.limit(1", "line 2, column 7: this is no query: '(' was never closed"),
        ("fodlers", "line 1, column 1: 'fodlers': there is no such table; one of these is needed: counts, folders"),
        ("folders\n  .wehre(folders.a == 1)", "line 2, column 4: wehre: folders has no method of that name; one of"),
        ("folders.where", "line 1, column 9: where: a method. Write: folders.where(…), or folders['where']"),
        ("folders.limit('x')", "line 1, column 9: limit('x'): a number of rows is needed"),
        ("folders.where(folders.ä == 1, a=1)", "line 1, column 9: folders.where(folders.ä == 1, a=1): where() got an"),
        (
            "folders.where('ä' == folders.b, folders._c)",
            "line 1, column 41: _c: Python has this name. Write: folders['_c']",
        ),
        ("folders.where(folders.a == 1 and folders.b == 2)", "line 1, column 15: folders.a == 1 and folders.b == 2"),
        (
            "folders.where(folders.a == 1 & folders.b == 2)",
            "line 1, column 15: folders.a == 1 & folders.b == 2: one comparison",
        ),
        ("folders.where(folders.a in [1])", "Write: folders.name.is_in([…])"),
        ("folders.where(folders.a is None)", "Write: folders.name.is_null()"),
        ("folders.where(1 < folders.a < 3)", "line 1, column 15: 1 < folders.a < 3: one comparison is needed"),
        ("folders.where(1 == 1)", "line 1, column 15: 1 == 1: a column on one side is needed"),
        (
            "folders.where(folders.a == b'x')",
            "line 1, column 28: b'x': a text, a number, True, False or None is needed",
        ),
        ("folders.where(folders.a == [1])", "line 1, column 15: column folders.a: = takes [1], a list"),
        ("folders.where(folders.a + 1 == 2)", "line 1, column 15: folders.a + 1: columns are compared"),
        ("folders.where(lambda a, b: a.x == 1)", "line 1, column 15: lambda a, b: a.x == 1: a function of one row"),
        ("folders.where(*[folders.a])", "arguments with * are not read"),
        ("folders.start({[1]: 2})", "line 1, column 15: {[1]: 2}: unhashable type: 'list'"),
        ("folders.start({'a': 1})", "line 1, column 1: start of table 'folders': the row has no column 'key'"),
        ("live_table('nope')", "line 1, column 1: table 'nope': there is none of that name"),
        ("live_table('folders', columns=['a'])", "line 1, column 1: live_table('folders', columns=['a'])"),
        ("folders.a", "line 1, column 1: live query: folders.a is not a query"),
        ("folders.into(int)", "line 1, column 9: into: folders has no method of that name"),
        ("-" * 3000 + "1", "line 1, column 1"),
        ("folders" + ".limit(1)" * 50, "line 1, column 1: this query has more than 100 levels"),
        ("folders.count()\0", "line 1, column"),
    ],
)
def test_mistake_has_its_place_and_what_is_needed(text: str, said: str) -> None:
    with pytest.raises(eddy.QueryBuildError) as caught:
        query_of_text(text, ["counts", "folders"])
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "folders.__class__.__mro__",
        "().__class__",
        "folders['a'].__init__.__globals__",
        "folders.where.__globals__",
        "[each for each in folders]",
        "folders if True else folders",
        "(x := folders)",
        "f'{folders}'",
        "'{0.__class__}'.format(folders)",
        "folders.where(lambda row: row._check)",
        "folders.where(lambda row: open('/etc/passwd'))",
        "folders._changed(limit=1)",
        "folders.to_json()",
        "eddy.run()",
        "10**10**10",
        "'x' * 10**9",
    ],
)
def test_nothing_else_is_run(text: str) -> None:
    with pytest.raises(eddy.QueryBuildError, match=r"^line 1, column \d+: "):
        query_of_text(text, ["folders"])
