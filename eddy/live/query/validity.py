"""Checks of whole queries: clauses that exclude each other, and JSON that the builder never makes."""

from eddy.errors import QueryBuildError
from eddy.live.query.syntax import And, Compare, Condition, Or, Ref, Select

__all__ = ["check_select"]


def check_select(select: Select, labels: frozenset[str] = frozenset(), plucked: frozenset[str] = frozenset()) -> None:
    """Raise QueryBuildError for a query that has no answer.

    `labels` are the labels of the enclosing Selects. `plucked` are the labels of those whose rows are replaced by this
    query's rows.
    """
    where = f"query of table '{select.table.name}'"
    numbers = [select.skip, select.limit or 0, *(nest.depth or 1 for nest in select.nests)]
    if not select.table.key or min(numbers) < 0 or any(nest.depth == 0 for nest in select.nests):
        raise QueryBuildError(f"{where}: a key, and numbers of rows and levels that are not negative are needed")
    if select.scalar and (len(select.aggregates) != 1 or select.group):
        raise QueryBuildError(f"{where}: a single value is of one aggregate without groups")
    _check_groups(select, where)
    if select.pluck is not None and select.pluck not in {nest.name for nest in select.nests}:
        raise QueryBuildError(f"{where}: there is no nest '{select.pluck}' to pluck")
    if select.where is not None:
        _check_condition(select.where, where)
    own = {select.label} if select.label else set()
    labels, plucked = labels | own, plucked | own
    for nest in select.nests:
        is_plucked = nest.name == select.pluck
        if is_plucked and isinstance(nest.query, Select) and nest.query.aggregates and not nest.query.group:
            raise QueryBuildError(
                f"{where}: pluck('{nest.name}') shows the rows of a nest, and this one is a single aggregate; "
                "rows or groups are needed. Leave pluck out, or use group_by"
            )
        if not nest.on:
            raise QueryBuildError(f"{where}: nest '{nest.name}' compares no columns")
        if not isinstance(nest.query, Ref):
            check_select(nest.query, labels, plucked if is_plucked else frozenset())
        elif is_plucked and nest.query.label in plucked:
            raise QueryBuildError(
                f"{where}: pluck('{nest.name}') shows the rows of a recursion that plucks itself, which has none; "
                "a recursion over rows that are shown is needed. Name the function in a nest of the plucked rows"
            )
        elif nest.query.label not in labels:
            raise QueryBuildError(f"{where}: nest '{nest.name}' refers to '{nest.query.label}', which is not around it")


def _check_groups(select: Select, where: str) -> None:
    if not select.aggregates:
        if select.group:
            raise QueryBuildError(f"{where}: group_by needs aggregates. Write: group_by(t.x).count()")
        return
    if select.nests or select.start or select.one:
        raise QueryBuildError(f"{where}: groups take no nest, no start and no one")
    if not select.group and (select.skip or select.limit is not None or select.order):
        raise QueryBuildError(f"{where}: an aggregate of all rows is one row, and takes no order_by, skip or limit")
    known = (*select.group, *(each.name for each in select.aggregates))
    named = (*(order.column for order in select.order), *(select.columns or ()))
    if unknown := [column for column in named if column not in known]:
        raise QueryBuildError(f"{where}: groups have no column '{unknown[0]}'; one of {', '.join(known)} is needed")


def _check_condition(condition: Condition, where: str) -> None:
    if isinstance(condition, And | Or):
        for term in condition.terms:
            _check_condition(term, where)
    elif isinstance(condition, Compare):
        op, value = condition.op, condition.value
        fits = (
            isinstance(value, str)
            if op.endswith("like")
            else isinstance(value, tuple)
            if op.endswith("in")
            else value is None
            if op.startswith("is")
            else value is not None and not isinstance(value, tuple)
        )
        if not fits:
            raise QueryBuildError(f"{where}: column '{condition.column}' {op} takes no {value!r}")
    else:
        if not condition.on:
            raise QueryBuildError(f"{where}: an exists compares no columns")
        query = condition.query
        if query.skip or query.start or query.limit == 0 or query.aggregates or query.pluck is not None:
            raise QueryBuildError(f"{where}: an exists takes no skip, start, limit 0, aggregate or pluck")
        check_select(query)
