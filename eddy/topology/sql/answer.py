"""The tables that a one-off query reads, and its answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eddy.topology.sql.algebra import NamedColumn

__all__ = ["Answer", "AnswerTable"]


@dataclass(frozen=True)
class AnswerTable:
    """A table that is at hand: columns with their types, and rows of values of them."""

    columns: tuple[NamedColumn, ...]
    rows: Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Answer:
    """The answer to a query: the names of its columns, their types in SQL's words, and its rows."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]
