"""The limits of SQL's values, the same in every engine. A value beyond a limit is an error of its row."""

__all__ = ["MOST_CHARACTERS", "MOST_DIGITS", "MOST_LIMITED", "MOST_NUMBERS"]

MOST_CHARACTERS = 1 << 26
"""The most characters of a text that `repeat`, `lpad`, `rpad` or `replace` makes."""
MOST_DIGITS = 131_072
"""The most digits of a numeric before its point, as in PostgreSQL."""
MOST_LIMITED = 10_000
"""The most rows of LIMIT and OFFSET together in a view or an inner query, since one row of a store has them all."""
MOST_NUMBERS = 10_000_000
"""The most numbers of one `generate_series`."""
