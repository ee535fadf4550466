"""The answer to a one-off query as a value."""

import datetime
import decimal

import pytest

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


TYPED = "SELECT name, age, age * 1.5 AS half, age > 36 AS old, timestamp '2024-01-01 00:00:00' AS at FROM people"


def test_a_table_of_arrow_has_the_types_of_sql() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = eddy.query(f"{TYPED} ORDER BY name", {"people": PEOPLE}).to_arrow()
    kinds = [str(field.type) for field in table.schema]
    assert kinds == ["string", "int64", "decimal128(3, 1)", "bool", "timestamp[us]"]
    moment = datetime.datetime(2024, 1, 1)
    assert table.to_pylist() == [
        {"name": "Ada <b>", "age": 36, "half": decimal.Decimal("54.0"), "old": False, "at": moment},
        {"name": "Ben", "age": None, "half": None, "old": None, "at": moment},
    ]
    empty = eddy.query(f"{TYPED} WHERE age < 0", {"people": PEOPLE}).to_arrow()
    assert (empty.num_rows, empty.schema.field("age").type) == (0, pyarrow.int64())
    same = eddy.query("SELECT 1 AS n, 2 AS n", {}).to_arrow()
    assert same.column_names == ["n", "n"]
    with pytest.raises(eddy.DataError, match=r"answer column 'n': .*; cast it in the query: n::double"):
        eddy.query("SELECT n FROM t", {"t": (["n"], [(decimal.Decimal(10) ** 90,)])}).to_arrow()


def test_data_frames_have_the_rows() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    answer = eddy.query("SELECT name, age FROM people WHERE age > 0", {"people": PEOPLE})
    assert answer.to_pandas().to_dict("records") == [{"name": "Ada <b>", "age": 36}]
    large = eddy.query("SELECT 9007199254740993 AS n UNION ALL SELECT NULL", {})
    assert list(large.to_pandas()["n"]) == [row[0] for row in large]


def test_polars_has_the_rows() -> None:
    pytest.importorskip("polars")
    answer = eddy.query("SELECT name, age FROM people WHERE age > 0", {"people": PEOPLE})
    assert answer.to_polars().rows() == [("Ada <b>", 36)]
