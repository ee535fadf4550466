"""The answer to a one-off query as a value."""

import eddy

PEOPLE = (["name", "age"], [("Ada <b>", 36), ("Ben", None)])


def test_it_is_iterated_and_has_rows_as_dicts() -> None:
    answer = eddy.query("SELECT name, age FROM people ORDER BY name", {"people": PEOPLE})
    assert list(answer) == answer.rows == [("Ada <b>", 36), ("Ben", None)]
    assert len(answer) == 2
    assert answer.to_dicts() == [{"name": "Ada <b>", "age": 36}, {"name": "Ben", "age": None}]


def test_a_notebook_shows_text_as_text_and_the_first_hundred_rows() -> None:
    shown = eddy.query("SELECT name, age FROM people ORDER BY name", {"people": PEOPLE})._repr_html_()
    assert "<th>age<br><small>bigint</small></th>" in shown
    assert "<tr><td>Ada &lt;b&gt;</td><td>36</td></tr><tr><td>Ben</td><td></td></tr>" in shown
    many = eddy.query("SELECT n FROM numbers", {"numbers": (["n"], [(n,) for n in range(1_105)])})._repr_html_()
    assert many.count("<td>") == 100
    assert many.endswith("<p>1,005 more rows</p>")
