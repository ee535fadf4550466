"""The columns that a query reads, by table."""

from collections.abc import Iterator

from eddy.live.query.syntax import And, Compare, Condition, Nest, Or, QueriedTable, Select

__all__ = ["columns_read"]


def columns_read(select: Select) -> dict[QueriedTable, set[str]]:
    """Return, by table, the columns that conditions, orders, nests, groups and aggregates of a query name."""
    found: dict[QueriedTable, set[str]] = {}
    for table, column in _of_select(select):
        found.setdefault(table, set()).add(column)
    return found


def _of_select(select: Select) -> Iterator[tuple[QueriedTable, str]]:
    table = select.table
    names = [*table.key, *select.group, *(each.column for each in select.aggregates if each.column is not None)]
    if not select.aggregates:
        names += [*(order.column for order in select.order), *(select.columns or ())]
    yield from ((table, name) for name in names)
    if select.where is not None:
        yield from _of_condition(select.where, table)
    for nest in select.nests:
        yield from _of_nest(nest, table)


def _of_nest(nest: Nest, table: QueriedTable) -> Iterator[tuple[QueriedTable, str]]:
    yield from ((table, parent) for parent, _ in nest.on)
    if isinstance(nest.query, Select):
        yield from ((nest.query.table, own) for _, own in nest.on)
        yield from _of_select(nest.query)


def _of_condition(condition: Condition, table: QueriedTable) -> Iterator[tuple[QueriedTable, str]]:
    if isinstance(condition, Compare):
        yield table, condition.column
    elif isinstance(condition, And | Or):
        for term in condition.terms:
            yield from _of_condition(term, table)
    else:
        for parent, own in condition.on:
            yield table, parent
            yield condition.query.table, own
        yield from _of_select(condition.query)
