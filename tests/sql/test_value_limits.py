"""Values of SQL beyond their limits: an error with its place, in each of the ways in which a query is computed."""

import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from eddy.connectors.spark.sql_numbers import FLOAT_FUNCTIONS, NUMERICS, calculated
from eddy.connectors.spark.sql_texts import TEXT_FUNCTIONS
from eddy.errors import DataError, TopologyError
from eddy.topology.sql import arithmetic
from tests.seeds import of_today
from tests.sql.both_ways import at_once, by_circuit

LARGE = Decimal("1e131000")
TABLES: Any = {
    "t": (
        {"id": "bigint", "x": "numeric", "y": "double precision"},
        [(1, LARGE, -0.0), (2, Decimal("1e50"), 0.0), (3, -LARGE, 1e-5)],
    )
}


def both(text: str) -> Any:
    """The rows of both ways, which are the same, or the error of both."""
    told = []
    for way in (at_once, by_circuit):
        try:
            rows = way(text, TABLES)
            assert rows is not None
            told.append(sorted(rows, key=repr))
        except DataError as error:
            told.append(str(error))
    assert told[0] == told[1]
    return told[0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x * x", "line 1, column 8: numeric out of range; at most 131,072 digits before the point"),
        ("x / (1 / x)", "numeric out of range"),
        ("power(10::numeric, 200000::numeric)", "numeric out of range"),
        (
            "repeat('ab', 2000000000)",
            "repeat makes a text of 4,000,000,000 characters; at most 67,108,864",
        ),
        ("lpad('a', 2000000000)", "lpad makes a text of 2,000,000,000 characters"),
        ("rpad('a', 2000000000, 'bc')", "rpad makes a text of 2,000,000,000 characters"),
        ("length(replace(repeat('a', 60000000), 'a', 'bb'))", "replace makes a text of 120,000,000 characters"),
        ("exp(1000::double precision)", r"exp(1000.0) is out of range"),
    ],
)
def test_result_beyond_a_limit_is_an_error(value: str, message: str) -> None:
    assert message in both(f"SELECT {value} AS v FROM t WHERE id = 1")


def test_series_of_too_many_numbers_is_an_error_at_once() -> None:
    message = "generate_series has 100,000,000,000 numbers; at most 10,000,000 are possible"
    assert message in both("SELECT g FROM generate_series(1, 100000000000) AS s(g)")
    assert message in both("SELECT g FROM generate_series(100000000000, 1, -1) AS s(g)")
    assert both("SELECT g FROM generate_series(5, 1) AS s(g)") == []
    assert both("SELECT g FROM generate_series(5, 1, -2) AS s(g)") == [(1,), (3,), (5,)]


def test_the_two_zeros_are_one_also_as_text() -> None:
    assert both("SELECT y::text AS s, count(*) AS n FROM t GROUP BY 1") == [("0", 2), ("1e-05", 1)]
    assert both("SELECT a.y::text AS s, b.id FROM t a JOIN t b ON a.y = b.y WHERE a.id < 3") == [
        ("0", 1),
        ("0", 1),
        ("0", 2),
        ("0", 2),
    ]
    assert both("SELECT (-0.0::double precision)::text AS s, (y * -1)::text AS m FROM t WHERE id = 2") == [("0", "0")]


def test_numbers_of_many_digits_are_rounded_and_divided_exactly() -> None:
    fifty = Decimal("1e50")
    assert both("SELECT round(x, 2) AS r, trunc(x) AS t, round(x, -51) AS d, x % 3 AS m FROM t WHERE id = 2") == [
        (fifty, fifty, Decimal(0), Decimal(10**50 % 3))
    ]


def test_number_is_rounded_to_any_place() -> None:
    places = "-2147483648, -1000000, -131073, -131072, 131073, 2147483647"
    texts = [f"{name}(1.5, {place})" for name in ("round", "trunc") for place in places.split(", ")]
    assert both(f"SELECT {', '.join(texts)}") == [tuple([0] * 4 + [Decimal("1.5")] * 2) * 2]
    assert "column 8: numeric out of range" in both("SELECT round(9 * x * 1e71, -131072) FROM t")
    for name in ("round", "trunc"):
        assert [NUMERICS[name](Decimal("1.5"), int(place)) for place in places.split(", ")][:4] == [0] * 4
    with pytest.raises(DataError, match="numeric out of range"):
        NUMERICS["round"](Decimal("9e131071"), -131072)


def test_zero_has_no_digits_whatever_it_is_made_of() -> None:
    assert both("SELECT 0 * x * x AS v, '0e200000'::numeric AS w FROM t WHERE id = 1") == [(0, 0)]
    assert calculated("*", "numeric", [calculated("*", "numeric", [Decimal(0), LARGE]), LARGE]) == 0


@pytest.mark.parametrize("number", ["1e9999999999", "-1e131072", "1e99999999999999999999", "1e-99999999999999999999"])
def test_number_literal_beyond_the_limits_is_refused(number: str) -> None:
    with pytest.raises(TopologyError, match=r"line 1, column \d+: .* is (out of range of|not a valid) numeric"):
        by_circuit(f"SELECT ({number})::bigint FROM t", TABLES)


@pytest.mark.parametrize("seed", of_today(3))
def test_both_evaluators_compute_numerics_as_fractions_do(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(300):
        one, other = (Decimal(draw.randint(-(10**39), 10**39)).scaleb(draw.randint(-60, 60)) for _ in range(2))
        digits = draw.randint(-70, 70)
        rest = Fraction(one) - Fraction(other) * int(Fraction(one) / Fraction(other))
        for found in (arithmetic.modulo_numeric(one, other), calculated("%", "numeric", [one, other])):
            assert abs(Fraction(found) - rest) <= abs(rest) / 10**38
        scaled = Fraction(one) * Fraction(10) ** digits
        expected = (-1 if scaled < 0 else 1) * int(abs(scaled) + Fraction(1, 2)) / Fraction(10) ** digits
        for found in (arithmetic.round_numeric(one, digits), NUMERICS["round"](one, digits)):
            assert Fraction(found) == expected


@pytest.mark.slow
def test_the_second_evaluator_has_the_same_limits() -> None:
    for call in (
        lambda: TEXT_FUNCTIONS["repeat"]("ab", 2_000_000_000),
        lambda: TEXT_FUNCTIONS["lpad"]("a", 2_000_000_000),
        lambda: TEXT_FUNCTIONS["replace"]("a" * 60_000_000, "a", "bb"),
        lambda: calculated("*", "numeric", [LARGE, LARGE]),
        lambda: FLOAT_FUNCTIONS["exp"](1000.0),
    ):
        with pytest.raises(DataError, match=r"are possible|out of range"):
            call()
    assert TEXT_FUNCTIONS["repeat"]("", 2_000_000_000) == ""
