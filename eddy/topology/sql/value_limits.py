"""The limits of SQL's values, the same in every engine. A value beyond a limit is an error of its row."""

__all__ = ["MOST_CHARACTERS", "MOST_DIGITS", "MOST_LIMITED", "MOST_NUMBERS"]

MOST_CHARACTERS = 1 << 26
"""The characters of a text that `repeat`, `lpad`, `rpad` or `replace` makes."""
MOST_DIGITS = 131_072
"""The digits of a numeric before its point: PostgreSQL's."""
MOST_LIMITED = 10_000
"""The rows of LIMIT and OFFSET in a view or an inner query: all of them are one row of a store."""
MOST_NUMBERS = 10_000_000
"""The numbers of one `generate_series`."""
