"""The tables that a one-off query reads, and its answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from eddy.topology.sql.algebra import NamedColumn

__all__ = ["SEVERAL_COLUMNS", "Answer", "AnswerTable", "repeated_name"]

SEVERAL_COLUMNS = "several columns are called '{0}'; an object has one value of each name. Name them: SELECT … AS {0}_1"
"""The refusal of objects, to be formatted with a name."""

_SHOWN = 100
"""How many rows a notebook shows."""


@dataclass(frozen=True)
class AnswerTable:
    """A table in memory: columns with their types, and rows of values of these types."""

    columns: tuple[NamedColumn, ...]
    rows: Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Answer:
    """The answer to a query: the names of its columns, their types in SQL's words, and its rows.

    Iteration yields the rows. A notebook shows the first 100 rows as a table.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return each row as a dict by column, as `pandas.DataFrame` and `polars.DataFrame` accept them.

        If several columns have one name, the last column is kept.
        """
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table` with the types of SQL. Raises: ImportError without PyArrow; DataError."""
        from eddy.topology.sql.answer_frames import arrow_table

        return arrow_table(self.columns, self.types, self.rows)

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`. Raises: ImportError without pandas and PyArrow; DataError."""
        return self.to_arrow().to_pandas(integer_object_nulls=True)

    def to_polars(self) -> Any:
        """Return a `polars.DataFrame`. Raises: ImportError without Polars and PyArrow; DataError."""
        from polars import from_arrow

        return from_arrow(self.to_arrow())

    def _repr_html_(self) -> str:
        head = "".join(
            f"<th>{escape(name)}<br><small>{escape(type)}</small></th>"
            for name, type in zip(self.columns, self.types, strict=True)
        )
        rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows[:_SHOWN])
        more = f"<p>{len(self.rows) - _SHOWN:,} more rows</p>" if len(self.rows) > _SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"


def repeated_name(columns: Sequence[str]) -> str:
    """Return the first name that several columns have; empty if each has its own."""
    return next((name for name in columns if columns.count(name) > 1), "")


def _cell(value: Any) -> str:
    return f"<td>{'' if value is None else escape(str(value))}</td>"
