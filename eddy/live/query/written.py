"""Writes queries, for `repr`, as the Python code that builds them.

A row in the function of a nest is called `row`. A recursion is written as a function, in separate lines before the
query.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from eddy.live.query.syntax import And, Compare, Condition, Exists, Nest, Or, Ref, Select

__all__ = ["condition_text", "written"]


def written(select: Select, links: Sequence[tuple[str, str]] = ()) -> str:
    """Return the code of a query; `links` are pairs of equal columns (own column, column of the enclosing row)."""
    functions: dict[str, str] = {}
    expression = _expression(select, links, functions)
    return "\n".join([*functions.values(), expression])


def condition_text(condition: Condition, table: str) -> str:
    """Return the code of a condition on one table's rows."""
    return _condition(condition, table, {})


def _expression(select: Select, links: Iterable[tuple[str, str]], functions: dict[str, str]) -> str:
    table = select.table.name
    conditions = [f"{_column(table, own)} == {_column('row', parent)}" for own, parent in links]
    terms = select.where.terms if isinstance(select.where, And) else [select.where] if select.where else []
    conditions += [_condition(term, table, functions) for term in terms]
    parts = [_name(table)]
    if conditions:
        code = " & ".join(f"({text})" if " " in text else text for text in conditions)
        needs_row = any(_has_exists(term) for term in terms)
        parts.append(f"where({'lambda row: ' if needs_row else ''}{code if len(conditions) > 1 else conditions[0]})")
    parts += _groups(select)
    parts += _window(select)
    for nest in select.nests:
        parts.append(_nest(nest, functions))
    if select.columns is not None:
        parts.append(f"select({', '.join(map(repr, select.columns))})")
    if select.pluck is not None:
        parts.append(f"pluck({select.pluck!r})")
    return ".".join(parts)


def _groups(select: Select) -> list[str]:
    table, parts = select.table.name, []
    if select.group:
        parts.append(f"group_by({', '.join(_column(table, column) for column in select.group)})")
    if select.scalar or any(each.column is None for each in select.aggregates):
        only = select.aggregates[0]
        parts.append(f"{only.function}({_column(table, only.column) if only.column else ''})")
    elif select.aggregates:
        made = (
            f"{each.name}={_column(table, each.column)}.{each.function}()" for each in select.aggregates if each.column
        )
        parts.append(f"aggregate({', '.join(made)})")
    return parts


def _window(select: Select) -> list[str]:
    table, parts = select.table.name, []
    if select.order:
        if select.aggregates:
            by = [repr(f"{'-' if each.descending else ''}{each.column}") for each in select.order]
        else:
            by = [f"{'-' if each.descending else ''}{_column(table, each.column)}" for each in select.order]
        parts.append(f"order_by({', '.join(by)})")
    if select.start is not None:
        parts.append(f"start({select.start.row!r}{', inclusive=True' if select.start.inclusive else ''})")
    if select.skip:
        parts.append(f"skip({select.skip})")
    if select.limit is not None:
        parts.append(f"limit({select.limit})")
    if select.one:
        parts.append("one()")
    return parts


def _nest(nest: Nest, functions: dict[str, str]) -> str:
    depth = "" if nest.depth is None else f", depth={nest.depth}"
    if isinstance(nest.query, Ref):
        return f"nest({nest.name}={nest.query.label})"
    links = [(own, parent) for parent, own in nest.on]
    label = nest.query.label
    if label is None:
        return f"nest({nest.name}=lambda row: {_expression(nest.query, links, functions)})"
    inner: dict[str, str] = {}
    body = _expression(nest.query, links, inner)
    lines = [line for text in inner.values() for line in text.split("\n")] + [f"return {body}"]
    functions[label] = "\n".join([f"def {label}(row):", *(f"    {line}" for line in lines)])
    return f"nest({nest.name}={label}{depth})"


def _condition(condition: Condition, table: str, functions: dict[str, str]) -> str:
    if isinstance(condition, Compare):
        return _compare(condition, table)
    if isinstance(condition, Exists):
        links = [(own, parent) for parent, own in condition.on]
        return f"{'~' if condition.negated else ''}{_expression(condition.query, links, functions)}.exists()"
    joined = " & " if isinstance(condition, And) else " | "
    texts = [_condition(term, table, functions) for term in condition.terms]
    return joined.join(f"({text})" if " " in text else text for text in texts)


def _compare(condition: Compare, table: str) -> str:
    column, op = _column(table, condition.column), condition.op
    if op in {"is", "is not"}:
        return f"{'~' if op == 'is not' else ''}{column}.is_null()"
    if op in {"=", "!=", "<", "<=", ">", ">="}:
        return f"{column} {'==' if op == '=' else op} {condition.value!r}"
    method = op.removeprefix("not ")
    value: Any = condition.value
    value = list(value) if method == "in" else value
    return f"{'~' if op.startswith('not') else ''}{column}.{'is_in' if method == 'in' else method}({value!r})"


def _has_exists(condition: Condition) -> bool:
    if isinstance(condition, And | Or):
        return any(_has_exists(term) for term in condition.terms)
    return isinstance(condition, Exists)


def _name(table: str) -> str:
    return table if table.isidentifier() else f"eddy.live_table({table!r})"


def _column(table: str, column: str) -> str:
    plain = column.isidentifier() and column not in _TAKEN
    return f"{_name(table)}.{column}" if plain else f"{_name(table)}[{column!r}]"


_TAKEN = frozenset(
    {"where", "order_by", "start", "skip", "limit", "one", "select", "nest", "pluck", "exists", "group_by", "aggregate"}
    | {"count", "sum", "min", "max", "avg", "syntax", "to_json", "explain", "into"}
)
"""The names of columns that are written as t["name"]."""
