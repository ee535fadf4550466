"""Columns and conditions as they are written: `t.age >= 18`, `t["name"].like("A%") & ~t.gone`.

Until a condition is used in a query, and its names are checked, it is one of these:

    Comparison   a column with a constant
    Equality     two columns: of the query's own row and of an enclosing row
    Junction     several conditions with & or |
    Has          whether a query has rows

`~` negates the innermost conditions at once: `~(a & b)` is `~a | ~b`, `~(x < 1)` is `x >= 1`. Every comparison with
null is false. So where x is null, `x < 1` and `~(x < 1)` are both false.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from eddy.errors import QueryBuildError
from eddy.live.query.syntax import Function, Operator, Select

__all__ = [
    "Column",
    "Comparison",
    "Descending",
    "Described",
    "Equality",
    "Expression",
    "Has",
    "Junction",
    "Link",
    "Measure",
    "RowProxy",
    "condition_of",
    "is_text",
]

_OPPOSITE: dict[Operator, Operator] = {}
for _one, _other in (("=", "!="), ("<", ">="), (">", "<="), ("in", "not in"), ("is", "is not")):
    _OPPOSITE |= {_one: _other, _other: _one}  # type: ignore[dict-item]
for _one in ("like", "ilike"):
    _OPPOSITE |= {_one: f"not {_one}", f"not {_one}": _one}  # type: ignore[dict-item]


class Expression:
    """A condition, to be combined by `&`, `|` and `~`."""

    def __and__(self, other: "Expression | Column") -> "Expression":
        return Junction("and", (self, condition_of(other, "&")))

    def __or__(self, other: "Expression | Column") -> "Expression":
        return Junction("or", (self, condition_of(other, "|")))

    def __invert__(self) -> "Expression":
        raise NotImplementedError

    def __bool__(self) -> bool:
        raise QueryBuildError(
            "query: a condition has no truth value; combine conditions by &, | and ~, in brackets. Write: (t.a "
            "== 1) & (t.b == 2)"
        )


class Column:
    """A column of a table or, if `row` is given, of the row that this proxy stands for."""

    __slots__ = ("_name", "_row", "_table")

    def __init__(self, table: str, name: str, row: object = None) -> None:
        self._table, self._name, self._row = table, name, row

    def _compared(self, op: Operator, value: Any) -> Expression:
        if isinstance(value, Column):
            if op != "=":
                raise QueryBuildError(
                    f"column {self}: {op} compares with {value}; columns compare with constants, and by == with a "
                    "column of the enclosing row"
                )
            return Equality(self, value)
        _check_constant(self, op, value)
        return Comparison(self, op, value)

    def __eq__(self, value: Any) -> Expression:  # type: ignore[override]
        return self._compared("=", value)

    def __ne__(self, value: Any) -> Expression:  # type: ignore[override]
        return self._compared("!=", value)

    def __lt__(self, value: Any) -> Expression:
        return self._compared("<", value)

    def __le__(self, value: Any) -> Expression:
        return self._compared("<=", value)

    def __gt__(self, value: Any) -> Expression:
        return self._compared(">", value)

    def __ge__(self, value: Any) -> Expression:
        return self._compared(">=", value)

    def __hash__(self) -> int:
        return hash((self._table, self._name))

    def is_in(self, values: Iterable[Any]) -> Expression:
        """Whether the value is one of these. Null is in no list."""
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise QueryBuildError(f"column {self}: is_in takes {values!r}; a list of values is needed")
        return self._compared("in", tuple(values))

    def like(self, pattern: str) -> Expression:
        """Whether the text matches: % is any text, _ any character, \\ escapes the next one."""
        return self._compared("like", pattern)

    def ilike(self, pattern: str) -> Expression:
        """`like`, but upper and lower case are equal."""
        return self._compared("ilike", pattern)

    def is_null(self) -> Expression:
        """Whether there is no value."""
        return Comparison(self, "is", None)

    def __neg__(self) -> "Descending":
        """For `order_by`: descending."""
        return Descending(self)

    def count(self) -> "Measure":
        """For `aggregate`: the number of values."""
        return Measure("count", self)

    def sum(self) -> "Measure":
        """For `aggregate`: the sum of the numbers; None if there are no numbers."""
        return Measure("sum", self)

    def min(self) -> "Measure":
        """For `aggregate`: the least value; None without any."""
        return Measure("min", self)

    def max(self) -> "Measure":
        """For `aggregate`: the greatest value; None without any."""
        return Measure("max", self)

    def avg(self) -> "Measure":
        """For `aggregate`: the mean of the numbers; None if there are no numbers."""
        return Measure("avg", self)

    def __and__(self, other: "Expression | Column") -> Expression:
        return condition_of(self, "&") & other

    def __or__(self, other: "Expression | Column") -> Expression:
        return condition_of(self, "|") | other

    def __invert__(self) -> Expression:
        return ~condition_of(self, "~")

    def __bool__(self) -> bool:
        raise QueryBuildError(f"column {self}: it has no truth value; a condition is needed. Write: where({self})")

    def __repr__(self) -> str:
        return f"{self._table}.{self._name}" if self._name.isidentifier() else f"{self._table}[{self._name!r}]"


@dataclass(frozen=True, slots=True)
class Descending:
    """A column to sort by, the greatest value first: `-t.amount`."""

    column: Column

    def __repr__(self) -> str:
        return f"-{self.column}"


@dataclass(frozen=True, slots=True)
class Measure:
    """An aggregate that has no name yet: `t.amount.sum()`."""

    function: Function
    column: Column | str | None


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """A column that equals a column of the enclosing row."""

    own: str
    parent: Column


class Described:
    """A query while it is built: its syntax, the columns that are known, and the links to an enclosing row."""

    __slots__ = ("_columns", "_kind", "_links", "_select")

    def __init__(
        self,
        select: Select,
        columns: frozenset[str] | None = None,
        links: tuple[Link, ...] = (),
        kind: Any = None,
    ) -> None:
        self._select, self._columns, self._links, self._kind = select, columns, links, kind

    def _check(self, name: str) -> str:
        """Return the name if the query has this column.

        Raises: QueryBuildError, which names the table and the column.
        """
        table = self._select.table.name
        if not isinstance(name, str):
            raise QueryBuildError(f"table '{table}': {name!r} names no column; a string is needed")
        if not is_text(name):
            raise QueryBuildError(f"table '{table}': {name!r} has a lone surrogate, and no column has; {_TEXT}")
        if self._columns is not None and name not in self._columns:
            known = ", ".join(sorted(self._columns))
            raise QueryBuildError(f"table '{table}': there is no column '{name}'; one of {known} is needed")
        return name


class RowProxy:
    """The argument `row` of functions in `nest` and `where`. It has columns, `row.x` or `row["x"]`, but no values."""

    def __init__(self, table: str, check: Callable[[str], str]) -> None:
        self.__table, self.__check = table, check

    def __getattr__(self, name: str) -> Column:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Column:
        return Column(self.__table, self.__check(name), self)

    def __repr__(self) -> str:
        return f"<a row of {self.__table}>"


class Comparison(Expression):
    """A column compared with a constant."""

    def __init__(self, column: Column, op: Operator, value: Any) -> None:
        self.column, self.op, self.value = column, op, value

    def __invert__(self) -> Expression:
        return Comparison(self.column, _OPPOSITE[self.op], self.value)


class Equality(Expression):
    """A column of a query's row that has to equal a column of the enclosing row."""

    def __init__(self, one: Column, other: Column) -> None:
        self.one, self.other = one, other

    def __invert__(self) -> Expression:
        raise QueryBuildError(f"~({self.one} == {self.other}): rows can only be joined where columns are equal")


class Junction(Expression):
    """Conditions joined by and, or by or."""

    def __init__(self, op: str, terms: tuple[Expression, ...]) -> None:
        self.op, self.terms = op, terms

    def __invert__(self) -> Expression:
        return Junction("or" if self.op == "and" else "and", tuple(~term for term in self.terms))


class Has(Expression):
    """Whether a query has a row."""

    def __init__(self, query: "Described", negated: bool = False) -> None:
        self.query, self.negated = query, negated

    def __invert__(self) -> Expression:
        return Has(self.query, not self.negated)


def condition_of(found: Any, where: str) -> Expression:
    """Return an argument as a condition. A column alone is the condition that its value is true.

    Raises: QueryBuildError, whose text begins with `where`.
    """
    if isinstance(found, Column):
        return Comparison(found, "=", True)
    if isinstance(found, Expression):
        return found
    hint = ", and t['count'] == 3 where a method has the column's name" if isinstance(found, bool) else ""
    raise QueryBuildError(
        f"{where}: {found!r} is not a condition; a comparison of a column is needed. Write: t.status == 'open'{hint}"
    )


def _check_constant(column: Column, op: Operator, value: Any) -> None:
    for each in value if op == "in" else (value,):
        if isinstance(each, str) and not is_text(each):
            raise QueryBuildError(f"column {column}: {op} takes {each!r}, which has a lone surrogate; {_TEXT}")
    if op in {"like", "ilike"}:
        if not isinstance(value, str):
            raise QueryBuildError(f"column {column}: {op} takes {value!r}; a pattern, which is a string, is needed")
        return
    for each in value if op == "in" else (value,):
        if each is None:
            raise QueryBuildError(f"column {column}: nothing compares with None. Write: {column}.is_null()")
        if type(each) not in {str, int, float, bool}:
            raise QueryBuildError(
                f"column {column}: {op} takes {each!r}, a {type(each).__name__}; a string, a number or a bool is needed"
            )
        if type(each) is float and not math.isfinite(each):
            raise QueryBuildError(f"column {column}: {op} takes {each!r}; a finite number is needed")


_TEXT = "a string that UTF-8 can encode is needed"


def is_text(value: str) -> bool:
    """Return whether UTF-8 can encode a string, that is, whether it has no lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
