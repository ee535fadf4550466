"""Changes the names of the tables in a query."""

from collections.abc import Mapping

from msgspec.structs import replace

from eddy.live.query.syntax import And, Condition, Exists, Or, Select

__all__ = ["renamed"]


def renamed(select: Select, names: Mapping[str, str]) -> Select:
    """Return the query with tables renamed by `names`, in nests and conditions too."""
    table = replace(select.table, name=names.get(select.table.name, select.table.name))
    nests = tuple(
        replace(nest, query=renamed(nest.query, names)) if isinstance(nest.query, Select) else nest
        for nest in select.nests
    )
    where = None if select.where is None else _condition(select.where, names)
    return replace(select, table=table, nests=nests, where=where)


def _condition(condition: Condition, names: Mapping[str, str]) -> Condition:
    if isinstance(condition, And | Or):
        return replace(condition, terms=tuple(_condition(term, names) for term in condition.terms))
    if isinstance(condition, Exists):
        return replace(condition, query=renamed(condition.query, names))
    return condition
