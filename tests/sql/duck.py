"""An oracle for queries: DuckDB, which shares no code with eddy, and tables that both have."""

import decimal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb

Tables = Mapping[str, tuple[Mapping[str, str], Sequence[tuple[Any, ...]]]]


def answer(text: str, tables: Tables) -> "Counter[tuple[Any, ...]]":
    """The bag of rows that DuckDB answers."""
    connection = duckdb.connect()
    connection.execute("SET integer_division = true")
    for name, (columns, rows) in tables.items():
        connection.execute(f"CREATE TABLE {name} ({', '.join(f'{c} {type}' for c, type in columns.items())})")
        if rows:
            marks = ", ".join("?" for _ in columns)
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", list(rows))
    try:
        return bag(connection.execute(text).fetchall())
    finally:
        connection.close()


def bag(rows: Iterable[Sequence[Any]]) -> "Counter[tuple[Any, ...]]":
    """Rows as a bag, numbers as exact as both engines have them."""
    return Counter(tuple(_comparable(value) for value in row) for row in rows)


def _comparable(value: Any) -> Any:
    if isinstance(value, decimal.Decimal | float):
        return round(float(value), 9)
    return value
