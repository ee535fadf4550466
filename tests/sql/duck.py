"""An oracle for queries: DuckDB, which shares no code with eddy, and tables that both have."""

import decimal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb

Tables = Mapping[str, tuple[Mapping[str, str], Sequence[tuple[Any, ...]]]]


class Duck:
    """A connection to DuckDB, for many questions."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET integer_division = true; SET python_enable_replacements = false; SET threads = 1")
        self._connection.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")  # PostgreSQL's

    def fill(self, tables: Tables) -> None:
        """Make these the tables."""
        for name, (columns, rows) in tables.items():
            declared = ", ".join(f"{column} {type}" for column, type in columns.items())
            self._connection.execute(f"CREATE OR REPLACE TABLE {name} ({declared})")
            if rows:
                marks = ", ".join(f"({', '.join('?' for _ in columns)})" for _ in rows)
                self._connection.execute(f"INSERT INTO {name} VALUES {marks}", [cell for row in rows for cell in row])

    def answer(self, text: str) -> "Counter[tuple[Any, ...]]":
        """The bag of rows that DuckDB answers. Raises: duckdb.Error."""
        return bag(self._connection.execute(text).fetchall())

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


def answer(text: str, tables: Tables) -> "Counter[tuple[Any, ...]]":
    """The bag of rows that DuckDB answers over these tables alone."""
    duck = Duck()
    try:
        duck.fill(tables)
        return duck.answer(text)
    finally:
        duck.close()


def bag(rows: Iterable[Sequence[Any]]) -> "Counter[tuple[Any, ...]]":
    """Rows as a bag, numbers as exact as both engines have them."""
    return Counter(tuple(_comparable(value) for value in row) for row in rows)


def _comparable(value: Any) -> Any:
    if isinstance(value, decimal.Decimal | float):
        return round(float(value), 9)
    return value
