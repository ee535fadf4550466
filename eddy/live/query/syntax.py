"""The abstract syntax of a query: immutable data that is written as JSON, and read from it.

Select     rows of one table: filtered, ordered, cut to a window; with nests, or in groups
Nest       for each row, the rows of another Select whose columns equal columns of the row
Ref        in a nest: the enclosing Select of that label, which makes the nest recursive
Condition  Compare | And | Or | Exists; a negation is applied to the innermost conditions when it is built
"""

from typing import Any, Literal

import msgspec

__all__ = [
    "Aggregate",
    "And",
    "Compare",
    "Condition",
    "Exists",
    "Nest",
    "Or",
    "Order",
    "QueriedTable",
    "Ref",
    "Select",
    "WindowStart",
    "from_json",
    "nest_select",
    "to_json",
]

Operator = Literal[
    "=", "!=", "<", "<=", ">", ">=", "in", "not in", "like", "not like", "ilike", "not ilike", "is", "is not"
]
Function = Literal["count", "sum", "min", "max", "avg"]


Constant = str | int | float | bool | None | tuple[str | int | float | bool, ...]


class _Data(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of data that compares and hashes by its contents."""


class QueriedTable(_Data, frozen=True):
    """A table, the names of its key's columns, and the name of the column for a value that is no object."""

    name: str
    key: tuple[str, ...]
    value: str | None = None


class Compare(_Data, frozen=True, tag="compare"):
    """A column compared with a constant; `is` and `is not` compare it with null."""

    column: str
    op: Operator
    value: Constant = None


class And(_Data, frozen=True, tag="and"):
    """True if all terms are true; true without terms."""

    terms: tuple["Condition", ...]


class Or(_Data, frozen=True, tag="or"):
    """True if at least one term is true; false without terms."""

    terms: tuple["Condition", ...]


class Exists(_Data, frozen=True, tag="exists"):
    """Is true for a row if the query has a row with equal columns.

    `on` has pairs (this row's column, that row's column).
    """

    on: tuple[tuple[str, str], ...]
    query: "Select"
    negated: bool = False


Condition = Compare | And | Or | Exists


class Order(_Data, frozen=True):
    """One column to sort by."""

    column: str
    descending: bool = False


class WindowStart(_Data, frozen=True):
    """The first position of a window. Rows are shown after the position of `row`, or from it on if `inclusive`."""

    row: dict[str, Any]
    inclusive: bool = False


class Aggregate(_Data, frozen=True):
    """A column of a group: a function of all its rows.

    `count` counts the values of its column, or rows if it has none.
    """

    name: str
    function: Function
    column: str | None = None


class Ref(_Data, frozen=True, tag="ref"):
    """Refers to the innermost enclosing Select with this label."""

    label: str


class Nest(_Data, frozen=True):
    """Rows below each row, as the column `name`. `depth` bounds a recursion.

    `on` has the pairs (column of the row, column of the rows below) whose values have to be equal.
    """

    name: str
    on: tuple[tuple[str, str], ...]
    query: "Select | Ref"
    depth: int | None = None


class Select(_Data, frozen=True, tag="select"):
    """Rows of a table. If `columns` is None, all columns are shown.

    `scalar`: the value of the only aggregate is shown itself. `pluck`: the rows of this nest are shown instead.
    """

    table: QueriedTable
    where: Condition | None = None
    order: tuple[Order, ...] = ()
    start: WindowStart | None = None
    skip: int = 0
    limit: int | None = None
    one: bool = False
    columns: tuple[str, ...] | None = None
    nests: tuple[Nest, ...] = ()
    pluck: str | None = None
    group: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    scalar: bool = False
    label: str | None = None

    @property
    def bound(self) -> int | None:
        """The greatest number of rows that can be shown; None if there is no bound."""
        return min(1, 1 if self.limit is None else self.limit) if self.one else self.limit


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(Select).decode


def to_json(select: Select) -> bytes:
    """Return the query as JSON; equal queries have equal JSON."""
    return _encode(select)


def from_json(data: bytes | str) -> Select:
    """Return the query of this JSON. Raises: msgspec.ValidationError."""
    return _decode(data)


def nest_select(nest: Nest, around: dict[str, Select]) -> Select:
    """Return the Select of a nest. `around` has the labelled Selects around the nest, by label."""
    return around[nest.query.label] if isinstance(nest.query, Ref) else nest.query
