"""Typed expressions over the columns of a row, and the Python functions that are made from them.

An expression is a tree of `Expr`. It is turned into the source of one Python function and compiled once, so a row needs
no call for each node. Null is None. The three truth values are True, False and None:

    strict call   None if an argument is None
    and           False if an operand is False, else None if an operand is None, else True
    or            True if an operand is True, else None if an operand is None, else False

A filter only asks whether a condition is true. Python's own `and` and `or` suffice for it, since None is not true.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eddy.errors import DataError
from eddy.topology.sql.types import BOOLEAN, Type

__all__ = [
    "TRUE",
    "Expr",
    "PythonWriter",
    "Written",
    "column",
    "columns_of",
    "conjuncts",
    "is_cheap",
    "literal",
    "predicate_of",
    "replace_columns",
    "rows_of",
    "shifted",
    "transform",
    "walk",
]


@dataclass(frozen=True, slots=True)
class Expr:
    """One node of an expression.

    `value` is a column's index, a literal's value, or the `Call` of a call. `where` is the node's place in the text.

    The operations are column, literal, call, and, or, not, case, coalesce, is-null and distinct. Two more operations
    have
    no value of their own: a group computes an aggregate, and a join replaces a subquery by a column.
    """

    op: str
    type: Type
    args: tuple["Expr", ...] = ()
    value: Any = None
    where: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Written:
    """The attribute `written` of a function: its expressions, for other engines, which evaluate the expressions
    themselves.

    `shape` and `columns` are as in `rows_of`. `test` says that the function tests if all its expressions are true.
    """

    parameters: str
    columns: tuple[str, ...]
    shape: tuple[tuple[Expr, ...] | None, ...]
    test: bool = False


def column(index: int, type: Type, where: str = "") -> Expr:
    """Return an expression for the value of a column."""
    return Expr("column", type, (), index, where)


def literal(value: Any, type: Type, where: str = "") -> Expr:
    """Return an expression for a constant."""
    return Expr("literal", type, (), value, where)


def transform(expr: Expr, function: Callable[[Expr], Expr | None]) -> Expr:
    """Replace each node of the tree by `function(node)`, from the top down.

    Where the function returns None, the node is kept and its parts are replaced.
    """
    found = function(expr)
    if found is not None:
        return found
    return replace(expr, args=tuple(transform(arg, function) for arg in expr.args)) if expr.args else expr


def replace_columns(expr: Expr, by: Sequence[Expr] | dict[int, Expr]) -> Expr:
    """Replace column i in the tree by `by[i]`."""
    return transform(expr, lambda node: by[node.value] if node.op == "column" else None)


def shifted(expr: Expr, by: int) -> Expr:
    """Move each column in the tree `by` places to the right."""
    return transform(expr, lambda node: replace(node, value=node.value + by) if node.op == "column" else None)


def columns_of(expr: Expr) -> frozenset[int]:
    """Return the columns that an expression reads."""
    return frozenset(node.value for node in walk(expr) if node.op == "column")


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield each node of the tree, from the top down."""
    yield expr
    for arg in expr.args:
        yield from walk(arg)


def conjuncts(expr: Expr) -> list[Expr]:
    """Return the conditions that AND joins in the expression `expr`."""
    return [part for arg in expr.args for part in conjuncts(arg)] if expr.op == "and" else [expr]


def is_cheap(expr: Expr) -> bool:
    """Return whether an expression can be computed twice at no cost."""
    return expr.op in {"column", "literal"}


def rows_of(parameters: str, columns: Sequence[str], *shape: Sequence[Expr] | None) -> Callable[..., Any]:
    """Make a function of `parameters` that returns the tuple of the values of each part of `shape`; `row` for a None.

    `columns` has the Python code of each column. With one shape the function returns the tuple, with two a pair.
    """
    writer = PythonWriter(parameters, columns)
    parts = ["row" if exprs is None else writer.tuple(exprs) for exprs in shape]
    made = writer.function(parts[0] if len(parts) == 1 else f"({', '.join(parts)})")
    made.written = Written(parameters, tuple(columns), tuple(None if one is None else tuple(one) for one in shape))
    return made


def predicate_of(parameters: str, columns: Sequence[str], exprs: Sequence[Expr]) -> Callable[..., Any]:
    """Make a function of `parameters` that returns whether all of `exprs` are true."""
    writer = PythonWriter(parameters, columns)
    made = writer.function(" and ".join(writer.truth(expr) for expr in exprs) or "True")
    made.written = Written(parameters, tuple(columns), (tuple(exprs),), test=True)
    return made


_DEEPEST = 30  # Python's parser allows at most 200 nested parentheses


class PythonWriter:
    """Writes expressions as Python code. The code reads constants and functions by names, not as text.

    `columns` has the Python code of each column, which reads `parameters`. `names` has the objects by their names.
    """

    def __init__(
        self, parameters: str, columns: Sequence[str] | Mapping[int, str], names: dict[str, Any] | None = None
    ) -> None:
        self._parameters, self._columns = parameters, columns
        self._depth = 0
        self._names: dict[str, Any] = {} if names is None else names
        self._temporaries = 0

    def function(self, body: str) -> Any:
        """Return the function of the parameters that returns `body`."""
        return eval(f"lambda {self._parameters}: {body}", self._names)

    def tuple(self, exprs: Sequence[Expr]) -> str:
        """Return the code of a tuple of the values of expressions."""
        return f"({''.join(self.value(expr) + ', ' for expr in exprs)})"

    def value(self, expr: Expr) -> str:
        """Return the code of the value of an expression."""
        if self._depth == _DEEPEST:
            below = PythonWriter(self._parameters, self._columns)
            return f"{self._bound(below.function(below.value(expr)))}({self._parameters})"
        writer: Callable[[Expr], str] = getattr(self, f"_{expr.op.replace('-', '_')}")
        self._depth += 1
        code = writer(expr)
        self._depth -= 1
        return code

    def truth(self, expr: Expr) -> str:
        """Return code that is true if the expression is true, and false if it is false or null."""
        if expr.op in {"and", "or"}:
            return f"({f' {expr.op} '.join(self.truth(arg) for arg in expr.args)})"
        return self.value(expr)

    def _column(self, expr: Expr) -> str:
        return self._columns[expr.value]

    def _literal(self, expr: Expr) -> str:
        value = expr.value
        return repr(value) if value is None or type(value) is bool else self._bound(value)

    def _call(self, expr: Expr) -> str:
        """Return the code of a call: None if an argument is None, unless the function accepts nulls."""
        call = expr.value
        tests, names = [], []
        for arg in expr.args:
            code = self.value(arg)
            if call.takes_nulls or not _nullable(arg):
                names.append(code)
                continue
            if arg.op == "column":
                tests.append(f"{code} is None")
                names.append(code)
            else:
                names.append(self._temporary())
                tests.append(f"({names[-1]} := {code}) is None")
        body = self._apply(call, names, expr)
        return f"(None if {' or '.join(tests)} else {body})" if tests else body

    def _apply(self, call: Any, names: list[str], expr: Expr) -> str:
        if call.template is None:
            function = _named(call.function, expr.where) if call.raises else call.function
            return f"{self._bound(function)}({', '.join(names)})"
        result: str = call.template.format(*names)
        if call.limit:
            name, fail = self._temporary(), self._bound(_out_of_range(expr))
            result = f"({name} if {-call.limit} <= ({name} := {result}) < {call.limit} else {fail}())"
        return f"({result})"

    def _and(self, expr: Expr) -> str:
        return self._chain(expr, "False", "True")

    def _or(self, expr: Expr) -> str:
        return self._chain(expr, "True", "False")

    def _chain(self, expr: Expr, decided: str, otherwise: str) -> str:
        names = [self._temporary() for _ in expr.args]
        tests = [
            f"{decided} if ({n} := {self.value(a)}) is {decided} else" for n, a in zip(names, expr.args, strict=True)
        ]
        nulls = " or ".join(f"{name} is None" for name in names)
        return f"({' '.join(tests)} None if {nulls} else {otherwise})"

    def _not(self, expr: Expr) -> str:
        (arg,) = expr.args
        if not _nullable(arg):
            return f"(not {self.value(arg)})"
        name = self._temporary()
        return f"(None if ({name} := {self.value(arg)}) is None else not {name})"

    def _is_null(self, expr: Expr) -> str:
        return f"({self.value(expr.args[0])} is None)"

    def _distinct(self, expr: Expr) -> str:
        one, other = self._temporary(), self._temporary()
        left, right = (self.value(arg) for arg in expr.args)
        return f"(({one} := {left}) is not ({other} := {right}) and {one} != {other})"

    def _case(self, expr: Expr) -> str:
        """Return the code of CASE: pairs of condition and value, then the value if no condition is true."""
        *pairs, otherwise = expr.args
        arms = [
            f"{self.value(value)} if {self.truth(when)} else"
            for when, value in zip(pairs[::2], pairs[1::2], strict=True)
        ]
        return f"({' '.join(arms)} {self.value(otherwise)})"

    def _coalesce(self, expr: Expr) -> str:
        *first, last = expr.args
        names = [self._temporary() for _ in first]
        arms = [f"{n} if ({n} := {self.value(a)}) is not None else" for n, a in zip(names, first, strict=True)]
        # The code tests a condition before it computes the value of that condition.
        return f"({' '.join(arms)} {self.value(last)})"

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    def _bound(self, value: Any) -> str:
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name


def _nullable(expr: Expr) -> bool:
    if expr.op == "literal":
        return expr.value is None
    if expr.op in {"is-null", "distinct"}:
        return False
    if expr.op == "call" and not expr.value.takes_nulls:
        return any(_nullable(arg) for arg in expr.args)
    if expr.op in {"and", "or", "not"}:
        return any(_nullable(arg) for arg in expr.args)
    return True


def _named(function: Callable[..., Any], where: str) -> Callable[..., Any]:
    """Return the function, changed so: its errors name the place in the text."""

    def called(*args: Any) -> Any:
        try:
            return function(*args)
        except DataError as error:
            raise DataError(f"sql {where}: {error}") from error

    return called


def _out_of_range(expr: Expr) -> Callable[[], Any]:
    def fail() -> Any:
        raise DataError(
            f"sql {expr.where}: {expr.type} out of range; a wider type is needed. Cast its operands: x::numeric"
        )

    return fail


TRUE = literal(True, BOOLEAN)
