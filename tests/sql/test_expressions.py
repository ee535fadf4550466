"""Expressions: three values of truth, arithmetic within its bounds, casts, and the functions of PostgreSQL."""

import datetime
import itertools
import math
import sys
from decimal import Decimal
from typing import Any

import pytest

import eddy
from eddy import query

TRUTHS = (True, False, None)


def value(expression: str) -> Any:
    ((found,),) = query(f"SELECT {expression}").rows
    return found


def over_columns(expression: str, types: dict[str, str], row: tuple[Any, ...]) -> Any:
    ((found,),) = query(f"SELECT {expression} FROM r", {"r": (types, [row])}).rows
    return found


def and3(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


@pytest.mark.parametrize(("a", "b"), list(itertools.product(TRUTHS, TRUTHS)))
def test_and_or_not_have_three_values(a: bool | None, b: bool | None) -> None:
    def of(expression: str) -> Any:
        return over_columns(expression, {"a": "boolean", "b": "boolean"}, (a, b))

    assert of("a AND b") is and3(a, b)
    negated = and3(None if a is None else not a, None if b is None else not b)
    assert of("a OR b") is (None if negated is None else not negated)
    assert of("NOT a") is (None if a is None else not a)
    assert of("a = b") is (None if a is None or b is None else a == b)
    assert of("a IS DISTINCT FROM b") is (a is not b)
    assert of("a IS NOT TRUE") is (a is not True)
    assert of("a IS FALSE") is (a is False)
    assert of("a IS NULL") is (a is None)


@pytest.mark.parametrize("sign", ["+", "-", "*", "/", "%", "=", "<>", "<", ">", "<=", ">=", "||"])
@pytest.mark.parametrize("row", [(None, 1), (1, None), (None, None)])
def test_operators_of_null_are_null(sign: str, row: tuple[Any, ...]) -> None:
    texts = tuple(None if cell is None else str(cell) for cell in row)
    types = dict.fromkeys("ab", "text" if sign == "||" else "integer")
    assert over_columns(f"a {sign} b", types, texts if sign == "||" else row) is None


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("NULL IN (1, 2)", None),
        ("1 IN (2, NULL)", None),
        ("1 IN (1, NULL)", True),
        ("1 NOT IN (2, NULL)", None),
        ("1 NOT IN (1, NULL)", False),
        ("(1, 2) IN ((1, 2), (3, 4))", True),
        ("2 BETWEEN NULL AND 1", False),
        ("2 BETWEEN NULL AND 3", None),
        ("NULL IS NULL", True),
        ("NULL = NULL", None),
        ("NULL IS NOT DISTINCT FROM NULL", True),
        ("CASE WHEN NULL THEN 1 ELSE 2 END", 2),
        ("CASE WHEN false THEN 1 END", None),
        ("CASE NULL WHEN NULL THEN 1 ELSE 2 END", 2),
        ("coalesce(NULL, NULL, 3, 4)", 3),
        ("nullif(1, 1)", None),
        ("nullif(1, NULL)", 1),
        ("greatest(NULL, 2, 1)", 2),
        ("least(NULL, NULL::integer)", None),
        ("concat('a', NULL, 'b')", "ab"),
        ("'a' || NULL", None),
        ("length(NULL)", None),
        ("'x' LIKE NULL", None),
        ("false AND 1 / 0 = 1", False),
        ("CASE WHEN true THEN 1 ELSE 1 / 0 END", 1),
    ],
)
def test_nulls_go_through_or_do_not(expression: str, expected: Any) -> None:
    assert value(expression) == expected
    assert (value(expression) is None) == (expected is None)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("7 / -2", -3),
        ("-7 % 2", -1),
        ("7 % -2", 1),
        ("7 / 2.0", Decimal("3.5")),
        ("1 / 3.0", Decimal(1) / Decimal(3)),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("2147483648 + 1", 2147483649),
        ("9223372036854775808", Decimal(9223372036854775808)),
        ("0.1 + 0.2", Decimal("0.3")),
        ("0.1::double precision + 0.2", 0.30000000000000004),
        ("1 + 1.5", Decimal("2.5")),
        ("'5' + 1", 6),
        ("2 * 3 + 4", 10),
        ("2 * (3 + 4)", 14),
        ("- -1", 1),
        ("round(2.5)", Decimal(3)),
        ("round(-2.5)", Decimal(-3)),
        ("round(2.5::double precision)", 2.0),
        ("round(1234.567, -2)", Decimal(1200)),
        ("trunc(-2.7)", Decimal(-2)),
        ("floor(-1.5)", Decimal(-2)),
        ("ceil(-1.5)", Decimal(-1)),
        ("sign(-3)", -1.0),
        ("abs(-9223372036854775807)", 9223372036854775807),
        ("mod(-7, 3)", -1),
        ("power(2, 10)", 1024.0),
        ("sqrt(16)", 4.0),
    ],
)
def test_numbers(expression: str, expected: Any) -> None:
    found = value(expression)
    assert (type(found), float(found)) == (type(expected), pytest.approx(float(expected)))


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("1 / 0", "sql line 1, column 8: division by zero"),
        ("1 % 0", "division by zero"),
        ("1.5 / 0", "division by zero"),
        ("1 / 0::double precision", "division by zero"),
        ("2147483647 + 1", "sql line 1, column 8: integer out of range"),
        ("32767::smallint + 1::smallint", "smallint out of range"),
        ("9223372036854775807 * 2", "bigint out of range"),
        ("-(-9223372036854775807 - 1)", "bigint out of range"),
        ("(-2147483647 - 1) / -1", "out of range"),
        ("3000000000::integer", "integer out of range"),
        ("1234.5::numeric(5, 2)", r"numeric\(5,2\) out of range"),
        ("('x' || 'y')::integer", "'xy' is not a valid integer"),
        ("('x' || 'y')::boolean", "'xy' is not a valid boolean"),
        ("lower('X')::timestamp", "'x' is not a valid timestamp"),
        ("split_part('a', ',', 0)", "split_part: part 0"),
        ("substring('abc', 1, -1)", "substring of length -1"),
        ("sqrt(-1)", "square root of -1"),
        ("ln(0)", "logarithm of 0"),
    ],
)
def test_what_has_no_value_is_an_error_with_its_place(expression: str, said: str) -> None:
    with pytest.raises(eddy.DataError, match=said):
        value(expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("' 12 '::integer", 12),
        ("2.5::integer", 3),
        ("-2.5::numeric::integer", -3),
        ("(2.5::double precision)::integer", 2),
        ("1::boolean", True),
        ("true::integer", 1),
        ("'yes'::boolean", True),
        ("true::text", "true"),
        ("1.50::text", "1.5"),
        ("1.5::numeric(4, 2)::text", "1.50"),
        ("1.005::numeric(4, 2)", Decimal("1.01")),
        ("100::numeric::text", "100"),
        ("1.0::double precision::text", "1"),
        ("1e20::double precision::text", "1e+20"),
        ("1e15::double precision::text", "1e+15"),
        ("0.1::real::double precision", 0.10000000149011612),
        ("'NaN'::double precision = 'NaN'::double precision", True),
        ("'NaN'::double precision > 'Infinity'::double precision", True),
        ("'2024-02-29'::timestamp", datetime.datetime(2024, 2, 29)),
        ("'2024-02-29 12:00:00.5'::timestamp::text", "2024-02-29 12:00:00.500000"),
        ("CAST('7' AS bigint)", 7),
        ("'a'::varchar(3)", "a"),
    ],
)
def test_casts(expression: str, expected: Any) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("substring('hello', 2)", "ello"),
        ("substring('hello' FROM 2 FOR 3)", "ell"),
        ("substr('hello', -1, 3)", "h"),
        ("position('l' IN 'hello')", 3),
        ("strpos('hello', 'z')", 0),
        ("left('hello', 2) || right('hello', 2)", "helo"),
        ("left('hello', -2) || right('hello', -2)", "helllo"),
        ("trim('  x ')", "x"),
        ("trim(BOTH 'x' FROM 'xaxx')", "a"),
        ("trim(LEADING 'x' FROM 'xax')", "ax"),
        ("rtrim('xax', 'x')", "xa"),
        ("replace('aXbX', 'X', '--')", "a--b--"),
        ("split_part('a,b,c', ',', 2) || split_part('a,b,c', ',', -1)", "bc"),
        ("split_part('a', ',', 2)", ""),
        ("starts_with('abc', 'ab')", True),
        ("lpad('7', 3, '0') || rpad('7', 3)", "0077  "),
        ("lpad('abcd', 2)", "ab"),
        ("initcap('hello wORLD')", "Hello World"),
        ("reverse('abc') || repeat('z', 2)", "cbazz"),
        ("char_length('äöü')", 3),
        ("upper('straße')", "STRASSE"),
        ("'a%b' LIKE 'a\\%b'", True),
        ("'axb' LIKE 'a\\%b'", False),
        ("'Hello' ILIKE 'h_LL%'", True),
        ("repeat('a', 2000) LIKE '" + "%a" * 40 + "%b'", False),
        ("'a\\' LIKE 'a\\\\'", True),
        ("'ab' NOT LIKE 'a%'", False),
        ("'a' || 1 || true", "a1true"),
        ("'it''s'", "it's"),
    ],
)
def test_texts(expression: str, expected: Any) -> None:
    assert value(expression) == expected


def test_aggregates_skip_nulls_and_have_postgresqls_types() -> None:
    table = (
        {"i": "integer", "b": "bigint", "n": "numeric(5,2)", "d": "double precision"},
        [(1, 1, 1, 0.1)] * 3 + [(None,) * 4],
    )
    found = query(
        "SELECT count(*), count(i), sum(i), sum(b), sum(n), sum(d), avg(i), avg(d), min(n), max(d) FROM t", {"t": table}
    )
    assert found.types == (*["bigint"] * 3, *["numeric"] * 2, "double", "numeric", "double", "numeric(5,2)", "double")
    assert found.rows == [(4, 3, 3, 3, 3, pytest.approx(0.3), 1, pytest.approx(0.1), 1, 0.1)]


def test_sum_of_floats_does_not_depend_on_the_order() -> None:
    rows = [(value,) for value in (1e100, 1.0, -1e100, 1.0)]
    for order in itertools.permutations(rows):
        assert query("SELECT sum(x) FROM t", {"t": ({"x": "double"}, order)}).rows == [(2.0,)]


def test_groups_take_nulls_and_nan_as_equal() -> None:
    rows = [(None,), (None,), (math.nan,), (float("nan"),)]
    assert sorted(n for _, n in query("SELECT x, count(*) FROM t GROUP BY x", {"t": ({"x": "double"}, rows)}).rows) == [
        2,
        2,
    ]


NAN_OF_NAN = [
    "-x",
    "abs(x)",
    "-y",
    "abs(y)",
    "sqrt(x)",
    "ln(x)",
    "exp(x)",
    "power(x, 2)",
    "sign(x)",
    "round(x)",
    "floor(x)",
]


@pytest.mark.parametrize("text", NAN_OF_NAN)
def test_all_nan_that_an_expression_computes_are_one_value(text: str) -> None:
    table = ({"x": "double", "y": "real"}, [(math.nan, math.nan), (math.nan, math.nan)])
    assert len(query(f"SELECT DISTINCT {text} FROM t", {"t": table}).rows) == 1
    made = f"SELECT {text} AS v FROM t"
    pairs = f"SELECT count(*) FROM ({made}) AS a JOIN ({made}) AS b ON a.v = b.v"
    assert query(pairs, {"t": table}).rows == [(4,)]


def test_means_that_are_nan_are_one_value() -> None:
    table = ({"k": "bigint", "x": "double"}, [(1, math.nan), (2, math.nan)])
    assert len(query("SELECT DISTINCT avg(x) FROM t GROUP BY k", {"t": table}).rows) == 1


NOON = datetime.datetime(2020, 1, 1, 12)
CELLS = [
    ("timestamp", NOON.replace(tzinfo=datetime.UTC), NOON),
    ("timestamp", datetime.datetime(2020, 1, 1, 7, tzinfo=datetime.timezone(datetime.timedelta(hours=-5))), NOON),
    ("real", 0.1, 0.10000000149011612),
    ("real", 16777217, 16777216.0),
    ("numeric", Decimal("-0.0"), Decimal("0.0")),
]


@pytest.mark.parametrize(("type", "value", "found"), CELLS)
def test_a_value_of_a_table_is_one_of_its_column_s_type(type: str, value: object, found: object) -> None:
    assert repr(query("SELECT x FROM t", {"t": ({"x": type}, [(value,)])}).rows[0][0]) == repr(found)


def test_moments_with_a_time_zone_are_compared_with_moments_without() -> None:
    rows = [(NOON.replace(tzinfo=datetime.UTC),), (NOON,)]
    text = "SELECT count(*) FROM t WHERE x <= '2020-01-01 12:00:00'::timestamp"
    assert query(text, {"t": ({"x": "timestamp"}, rows)}).rows == [(2,)]
    assert query(text, {"t": (["x"], rows)}).rows == [(2,)]


WRONG_CELLS = [
    ("timestamp", datetime.datetime.max.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-5)))),
    ("real", 1e300),
    ("real", 10**400),
    ("double", 10**400),
    ("numeric", Decimal("Infinity")),
    ("numeric", Decimal("sNaN")),
    ("numeric", Decimal("1e99999999")),
    ("numeric", "1_0"),
]


@pytest.mark.parametrize(("type", "value"), WRONG_CELLS)
def test_a_value_that_a_column_cannot_have_is_refused(type: str, value: object) -> None:
    with pytest.raises(eddy.DataError, match="sql table 't' column 'x': "):
        query("SELECT x FROM t", {"t": ({"x": type}, [(value,)])})


@pytest.mark.parametrize("row", [5, None, "x", b"x", {"x": "y"}, {"y"}])
def test_a_row_that_is_no_sequence_of_values_is_refused(row: object) -> None:
    for columns in (["x"], {"x": "text"}):
        with pytest.raises(eddy.DataError, match=r"sql table 't': the row .* a tuple or a list"):
            query("SELECT x FROM t", {"t": (columns, [row])})  # type: ignore[list-item]


@pytest.mark.parametrize("tables", ["", [], 0, False])
def test_tables_that_are_no_mapping_are_refused_although_empty(tables: Any) -> None:
    with pytest.raises(eddy.TopologyError, match="tables"):
        query("SELECT 1", tables)


@pytest.mark.parametrize("table", [(["x"], None), (["x"], "xy"), (["x"], {"x": 1}), ("x", [(1,)]), ([1], [(1,)])])
def test_columns_or_rows_of_another_shape_are_refused(table: Any) -> None:
    with pytest.raises(eddy.TopologyError, match=r"query: table 't' has .* is needed"):
        query("SELECT 1 FROM t", {"t": table})


@pytest.mark.parametrize(
    "text",
    [
        "'1_0'::double precision",
        "'1_0'::numeric",
        "'٣'::integer",
        "'٣'::numeric",
        "'1e99999999'::numeric",
        "'1e999999'::numeric::bigint",
    ],
)
def test_texts_that_are_no_numbers_or_too_large_ones_are_refused(text: str) -> None:
    with pytest.raises((eddy.TopologyError, eddy.DataError)):
        query(f"SELECT {text}")


def test_long_expressions_are_cut_and_too_long_ones_refused() -> None:
    table = (["x"], [(1,)])
    assert query(f"SELECT {' + '.join(['x'] * 120)} FROM t", {"t": table}).rows == [(120,)]
    assert query(f"SELECT 1 FROM t WHERE {' OR '.join(f'x = {i}' for i in range(200))}", {"t": table}).rows == [(1,)]
    limit = sys.getrecursionlimit()  # other tests may have raised it
    sys.setrecursionlimit(1_000)
    try:
        with pytest.raises(eddy.TopologyError, match="nesting so deep is not supported"):
            query(f"SELECT {' + '.join(['x'] * 1000)} FROM t", {"t": table})
    finally:
        sys.setrecursionlimit(limit)


def test_names_fold_unless_they_are_quoted() -> None:
    table = (["a", "Big"], [(1, 2)])
    assert query('SELECT A, "Big", big FROM T', {"t": table}).rows == [(1, 2, 2)]


def test_order_limit_and_offset_of_a_one_off_query() -> None:
    table = (["a", "b"], [(1, "x"), (2, None), (3, "y"), (None, "z")])
    assert query("SELECT a FROM t ORDER BY b DESC NULLS LAST LIMIT 2", {"t": table}).rows == [(None,), (3,)]
    assert query("SELECT a FROM t ORDER BY a DESC", {"t": table}).rows == [(None,), (3,), (2,), (1,)]
    assert query("SELECT a AS c FROM t UNION SELECT 7 ORDER BY c OFFSET 3", {"t": table}).rows == [(7,), (None,)]
    assert query("SELECT b, count(*) FROM t GROUP BY b ORDER BY max(a) NULLS FIRST LIMIT 1", {"t": table}).rows == [
        ("z", 1)
    ]
    assert query("SELECT DISTINCT a % 2 AS r FROM t ORDER BY r", {"t": table}).rows == [(0,), (1,), (None,)]
