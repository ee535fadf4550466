"""Reads a query from a text. The text is the Python code that builds the query; it is read but not run.

    folders.where(folders.parent == "home").order_by(-folders.at).limit(20)

Names are tables, or `live_table("folders", key="id")`; the methods are the methods of queries and columns. A text has
constants, lists and dicts of them, comparisons, `&`, `|`, `~`, `-`, and `lambda row: …` for nests and conditions on
other tables. `repr` of a query without a recursion is such a text.

Nothing else is evaluated: a name, an attribute and a call are looked up in the tables of this module. An error has the
line and the column, in characters from 1.
"""

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from eddy.errors import QueryBuildError
from eddy.live.query.columns import Column, Descending, Expression, RowProxy
from eddy.live.query.query import LiveTable, Query, checked_query, live_table
from eddy.live.query.validity import check_select

__all__ = ["MAX_LEVELS", "MAX_TEXT", "query_of_text"]

MAX_TEXT = 4_000
"""The most characters of a text."""
MAX_LEVELS = 100
"""The most levels of nodes in a text, because nodes are read by recursion."""
_MOST = 20
_OF_QUERIES = frozenset(
    {"where", "order_by", "start", "skip", "limit", "one", "select", "nest", "pluck", "exists", "group_by", "aggregate"}
    | {"count", "sum", "min", "max", "avg"}
)
_OF_COLUMNS = frozenset({"is_in", "like", "ilike", "is_null", "count", "sum", "min", "max", "avg"})
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_COMBINED: dict[type[ast.operator], Callable[[Any, Any], Any]] = {ast.BitAnd: operator.and_, ast.BitOr: operator.or_}
_CONDITIONS = (Expression, Column)
_CONSTANTS = (str, int, float, type(None))


def query_of_text(text: str, tables: Collection[str]) -> Query[Any]:
    """Read a query over these tables from a text. Raises: QueryBuildError, with the place in the text."""
    if len(text) > MAX_TEXT:
        raise QueryBuildError(f"query: a text of {len(text):,} characters; at most {MAX_TEXT:,} are read")
    if not text.strip():
        raise QueryBuildError("line 1, column 1: an empty text; a query of a table is needed")
    lines = text.split("\n")
    try:
        tree = ast.parse(f"({text}\n)", mode="eval")
    except SyntaxError as error:
        raise _syntax_error(lines, error) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise QueryBuildError(f"line 1, column 1: this is no query: {error}") from error
    if _is_deeper(tree.body, MAX_LEVELS):
        raise QueryBuildError(f"line 1, column 1: this query has more than {MAX_LEVELS} levels, two for each method")
    found = _Reader(lines, tables).value(tree.body, {})
    try:
        query = checked_query(found)
        check_select(query.syntax)
    except QueryBuildError as error:
        raise QueryBuildError(f"line 1, column 1: {error}") from error
    return query


def _is_deeper(node: ast.AST, levels: int) -> bool:
    """Return whether a tree of nodes is deeper than `levels`; `node` itself is the first level."""
    level = [node]
    for _ in range(levels):
        level = [child for each in level for child in ast.iter_child_nodes(each)]
    return bool(level)


def _syntax_error(lines: list[str], error: SyntaxError) -> QueryBuildError:
    """Make the error for a text that is not Python, with the line and the column of the fault.

    The fault is searched in the text as one line, without the brackets that eddy puts around the text.
    """
    flat = " ".join(lines)
    try:
        ast.parse(flat.lstrip(), mode="eval")
    except SyntaxError as found:
        error, at = found, (found.offset or len(flat) + 1) - 1 + len(flat) - len(flat.lstrip())
    except ValueError:
        at = 0
    else:
        at = 0
    line = 0
    while line < len(lines) - 1 and at > len(lines[line]):
        at -= len(lines[line]) + 1
        line += 1
    return QueryBuildError(f"line {line + 1}, column {at + 1}: this is no query: {error.msg}")


class _Reader:
    """Reads the nodes of one text."""

    def __init__(self, lines: list[str], tables: Collection[str]) -> None:
        self._lines, self._tables = lines, tables
        self._readers: dict[type[ast.expr], Callable[[Any, Mapping[str, Any]], Any]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Subscript: self._item,
            ast.Call: self._call,
            ast.Compare: self._compare,
            ast.BinOp: self._combine,
            ast.UnaryOp: self._turn,
            ast.List: self._list,
            ast.Tuple: self._list,
            ast.Dict: self._dict,
            ast.Lambda: self._function,
        }

    def value(self, node: ast.expr, rows: Mapping[str, Any]) -> Any:
        """Return the value of a node; `rows` are the parameters of the functions around it."""
        read = self._readers.get(type(node))
        if read is None:
            raise self._error(node, f"{self._code(node)}: this is no part of a query{_hint(node)}")
        return read(node, rows)

    def _error(self, node: ast.expr, what: str) -> QueryBuildError:
        line, head = node.lineno, node.col_offset
        if isinstance(node, ast.Attribute):  # its own name, at its end
            line, head = node.end_lineno or line, (node.end_col_offset or 0) - len(node.attr.encode())
        head -= line == 1
        line = min(line, len(self._lines))
        column = len(self._lines[line - 1].encode()[: max(head, 0)].decode(errors="ignore")) + 1
        return QueryBuildError(f"line {line}, column {column}: {what}")

    def _code(self, node: ast.expr) -> str:
        code = ast.unparse(node)
        return code if len(code) <= 2 * _MOST else f"{code[: 2 * _MOST]}…"

    def _constant(self, node: ast.Constant, rows: Mapping[str, Any]) -> Any:
        if not isinstance(node.value, _CONSTANTS):
            raise self._error(node, f"{self._code(node)}: a text, a number, True, False or None is needed")
        return node.value

    def _name(self, node: ast.Name, rows: Mapping[str, Any]) -> Any:
        if node.id in rows:
            return rows[node.id]
        if node.id in self._tables:
            return live_table(node.id)
        known = sorted(self._tables)
        more = f", … {len(known) - _MOST} more" if len(known) > _MOST else ""
        told = ", ".join(known[:_MOST]) + more if known else "none; there are no tables"
        raise self._error(node, f"'{node.id}': there is no such table; one of these is needed: {told}")

    def _attribute(self, node: ast.Attribute, rows: Mapping[str, Any]) -> Any:
        """Return a column. Only a call looks up a method."""
        of = self.value(node.value, rows)
        name = self._code(node.value)
        if not isinstance(of, LiveTable | RowProxy):
            raise self._error(node, f"{node.attr}: only tables and rows have columns; {name} is none of them")
        if isinstance(of, LiveTable) and node.attr in _OF_QUERIES:
            raise self._error(
                node, f"{node.attr}: a method. Write: {name}.{node.attr}(…), or {name}[{node.attr!r}] of a column"
            )
        if node.attr.startswith("_") or (isinstance(of, LiveTable) and hasattr(Query, node.attr)):
            raise self._error(node, f"{node.attr}: Python has this name. Write: {name}[{node.attr!r}]")
        return self._made(node, lambda: of[node.attr])

    def _item(self, node: ast.Subscript, rows: Mapping[str, Any]) -> Any:
        of, column = self.value(node.value, rows), self.value(node.slice, rows)
        if not isinstance(of, LiveTable | RowProxy) or not isinstance(column, str):
            raise self._error(node, f'{self._code(node)}: a column of a table or a row is needed: folders["name"]')
        return self._made(node, lambda: of[column])

    def _call(self, node: ast.Call, rows: Mapping[str, Any]) -> Any:
        method = self._method(node, rows)
        if any(isinstance(each, ast.Starred) for each in node.args) or any(not each.arg for each in node.keywords):
            raise self._error(node, f"{self._code(node)}: arguments with * are not read; write each of them")
        arguments = [self.value(each, rows) for each in node.args]
        named = {str(each.arg): self.value(each.value, rows) for each in node.keywords}
        return self._made(node, lambda: method(*arguments, **named))

    def _method(self, node: ast.Call, rows: Mapping[str, Any]) -> Callable[..., Any]:
        if ast.unparse(node.func) in {"live_table", "eddy.live_table"}:
            return self._live_table
        if not isinstance(node.func, ast.Attribute):
            raise self._error(node, f"{self._code(node.func)}: not to be called; a method is needed: folders.where(…)")
        name, of = node.func.attr, self.value(node.func.value, rows)
        known = _OF_QUERIES if isinstance(of, Query) else _OF_COLUMNS if isinstance(of, Column) else frozenset[str]()
        if name not in known:
            one = f"one of {', '.join(sorted(known))} is needed" if known else "a table or a column has methods"
            raise self._error(node.func, f"{name}: {self._code(node.func.value)} has no method of that name; {one}")
        found: Callable[..., Any] = getattr(of, name)
        return found

    def _live_table(self, name: Any, *, key: Any = "key", value: Any = None) -> LiveTable:
        if name not in self._tables:
            raise QueryBuildError(f"table {name!r}: there is none of that name")
        return live_table(name, key=key, value=value)

    def _made(self, node: ast.expr, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, a call of the builder; its errors get the place of the node."""
        try:
            return make()
        except QueryBuildError as error:
            if str(error).startswith("line "):
                raise
            raise self._error(_place(node), str(error)) from error
        except TypeError as error:
            raise self._error(_place(node), f"{self._code(node)}: {str(error).removeprefix('Query.')}") from error

    def _compare(self, node: ast.Compare, rows: Mapping[str, Any]) -> Any:
        more, compared = node.ops[1:], _COMPARED.get(type(node.ops[0]))
        if more or compared is None:
            raise self._error(node, f"{self._code(node)}: one comparison is needed{_hint(node)}")
        left, right = self.value(node.left, rows), self.value(node.comparators[0], rows)
        if not isinstance(left, Column) and not isinstance(right, Column):
            raise self._error(node, f"{self._code(node)}: a column on one side is needed: folders.name == 'home'")
        return self._made(node, lambda: compared(left, right))

    def _combine(self, node: ast.BinOp, rows: Mapping[str, Any]) -> Any:
        combined = _COMBINED.get(type(node.op))
        if combined is None:
            raise self._error(
                node, f"{self._code(node)}: columns are compared, not computed with; only & and | combine"
            )
        left, right = self.value(node.left, rows), self.value(node.right, rows)
        for side, code in ((left, node.left), (right, node.right)):
            if not isinstance(side, _CONDITIONS):
                raise self._error(
                    code, f"{self._code(code)}: no condition; comparisons with & and | need brackets: (a) & (b)"
                )
        return self._made(node, lambda: combined(left, right))

    def _turn(self, node: ast.UnaryOp, rows: Mapping[str, Any]) -> Any:
        of = self.value(node.operand, rows)
        if isinstance(node.op, ast.Invert) and isinstance(of, _CONDITIONS):
            return self._made(node, lambda: ~of)
        if isinstance(node.op, ast.USub) and isinstance(of, Column):
            return Descending(of)
        if isinstance(node.op, ast.USub) and isinstance(of, int | float) and not isinstance(of, bool):
            return -of
        raise self._error(node, f"{self._code(node)}: ~ is for conditions, - for numbers and for columns of order_by")

    def _list(self, node: ast.List | ast.Tuple, rows: Mapping[str, Any]) -> Any:
        return self._values(node.elts, rows)

    def _values(self, nodes: list[ast.expr], rows: Mapping[str, Any]) -> list[Any]:
        return [self.value(each, rows) for each in nodes]

    def _dict(self, node: ast.Dict, rows: Mapping[str, Any]) -> Any:
        if None in node.keys:
            raise self._error(node, f"{self._code(node)}: a dict of columns and values is needed")
        keys = [self.value(key, rows) for key in node.keys if key is not None]
        return self._made(node, lambda: dict(zip(keys, self._values(node.values, rows), strict=True)))

    def _function(self, node: ast.Lambda, rows: Mapping[str, Any]) -> Any:
        names = node.args
        if names.vararg or names.kwarg or names.kwonlyargs or names.defaults or len(names.args) != 1:
            raise self._error(node, f"{self._code(node)}: a function of one row is needed: lambda row: …")
        (parameter,) = names.args
        return lambda row: self.value(node.body, {**rows, parameter.arg: row})


def _place(node: ast.expr) -> ast.expr:
    """Return the part of a node at which its error is shown; for a call, the name of its method."""
    return node.func if isinstance(node, ast.Call) else node


def _hint(node: ast.expr) -> str:
    """Return advice, for an error, how a query says what this node says; "" if there is no advice."""
    if isinstance(node, ast.BoolOp):
        return ". Write: (a) & (b), or (a) | (b)"
    if isinstance(node, ast.UnaryOp):
        return ". Write: ~(a)"
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        return "; comparisons with & and | need brackets. Write: (a) & (b)"
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return ". Write: folders.name.is_in([…])"
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
        return ". Write: folders.name.is_null()"
    return ""
