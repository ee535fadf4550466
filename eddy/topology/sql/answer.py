"""The tables that a one-off query reads, and its answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eddy.topology.sql.algebra import Column

__all__ = ["Answer", "Table"]


@dataclass(frozen=True)
class Table:
    """A table that is at hand: columns with their types, and rows of values of them."""

    columns: tuple[Column, ...]
    rows: Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Answer:
    """The answer to a query: the names of its columns, their types in SQL's words, and its rows."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]
