"""Translates the user's conditions into syntax: checks names, and separates the links to the enclosing row."""

from collections.abc import Sequence

from eddy.errors import QueryBuildError
from eddy.live.query.columns import (
    Column,
    Comparison,
    Described,
    Equality,
    Expression,
    Has,
    Junction,
    Link,
    RowProxy,
)
from eddy.live.query.syntax import And, Compare, Condition, Exists, Or

__all__ = ["conjunction", "linked", "resolve"]


def resolve(found: Expression, query: Described, proxy: RowProxy) -> tuple[Condition, list[Link]]:
    """Return a condition as syntax, and separately its links to an enclosing row. `proxy` is the query's own row."""
    terms = list(found.terms) if isinstance(found, Junction) and found.op == "and" else [found]
    conditions: list[Condition] = []
    links: list[Link] = []
    for term in terms:
        if isinstance(term, Equality):
            links.append(_link(term, query, proxy))
        elif isinstance(term, Junction) and term.op == "and":
            condition, more = resolve(term, query, proxy)
            conditions.append(condition)
            links += more
        else:
            conditions.append(_condition(term, query, proxy))
    return conjunction(*conditions) or And(()), links


def conjunction(*conditions: Condition | None) -> Condition | None:
    """Join conditions by `and`; None if there are no conditions. An `and` among them is merged into the result."""
    terms: list[Condition] = []
    for condition in conditions:
        if isinstance(condition, And):
            terms += condition.terms
        elif condition is not None:
            terms.append(condition)
    return terms[0] if len(terms) == 1 else And(tuple(terms)) if terms else None


def _condition(found: Expression, query: Described, proxy: RowProxy) -> Condition:
    if isinstance(found, Comparison):
        return Compare(_own_name(found.column, query, proxy), found.op, found.value)
    if isinstance(found, Junction):
        terms = tuple(_condition(term, query, proxy) for term in found.terms)
        return And(terms) if found.op == "and" else Or(terms)
    if isinstance(found, Has):
        on = linked(found.query, proxy, f"exists in where of table '{query._select.table.name}'")
        return Exists(on, found.query._select, found.negated)
    assert isinstance(found, Equality)
    raise QueryBuildError(
        f"where of table '{query._select.table.name}': {found.one} == {found.other} joins rows; it has to hold by "
        "itself or with &, not below | or ~"
    )


def _own_name(column: Column, query: Described, proxy: RowProxy) -> str:
    table = query._select.table.name
    if column._table != table or (column._row is not None and column._row is not proxy):
        raise QueryBuildError(
            f"where of table '{table}': {column} is a column of another row; columns of '{table}' are needed, and of "
            f"others only as t.x == {column}"
        )
    return query._check(column._name)


def _link(found: Equality, query: Described, proxy: RowProxy) -> Link:
    """Return the link of an equality.

    The query's own column belongs to `proxy` or to its table; the other column to an enclosing row.
    """
    table = query._select.table.name
    for own, parent in ((found.one, found.other), (found.other, found.one)):
        is_own = own._row is proxy or (own._row is None and own._table == table)
        if is_own and parent._row is not None and parent._row is not proxy:
            return Link(query._check(own._name), parent)
    raise QueryBuildError(
        f"where of table '{table}': {found.one} == {found.other}; a column of '{table}' and one of the enclosing row "
        f"are needed. Write: lambda row: {table}.where({table}.x == row.y)"
    )


def linked(query: Described, proxy: RowProxy, where: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs (column of the enclosing row, own column) that a nested query compares for equality.

    `proxy` stands for the enclosing row, `where` is the place that an error names. Raises: QueryBuildError.
    """
    for link in query._links:
        if link.parent._row is not proxy:
            raise QueryBuildError(
                f"{where}: {link.parent} is a column of a row further out; a column of the directly enclosing "
                f"row is needed"
            )
    if not query._links:
        table = query._select.table.name
        raise QueryBuildError(
            f"{where}: the query of '{table}' does not depend on the row; an equality with one of its columns is "
            f"needed. Write: lambda row: {table}.where({table}.x == row.y)"
        )
    return tuple(_pairs(query._links))


def _pairs(links: Sequence[Link]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((link.parent._name, link.own) for link in links))
