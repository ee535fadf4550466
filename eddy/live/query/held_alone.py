"""Estimates the bytes in memory that only some views hold: those of operators and tables that only these views use.

An operator is removed with the views if its only users are these views, and downstream operators that are removed as
well. A table is removed if all operators that read it are removed. Cost: O(operators of these views).
"""

from collections import Counter
from collections.abc import Iterable

from eddy.live.dataflow.dataflow import QueryOperator
from eddy.live.query.planning import PlannedView

__all__ = ["held_alone"]


def held_alone(views: Iterable[PlannedView]) -> int:
    """Return an estimate of the bytes in memory that only these views hold.

    If a view has several users, it must be given once for each of them; otherwise it does not count.
    """
    calls: Counter[QueryOperator] = Counter()
    for view, given in Counter(views).items():
        if given >= view.users:
            calls.update(view.operators)
    gone: set[QueryOperator] = set()
    for operator in sorted(calls, key=lambda each: each.rank, reverse=True):  # downstream operators first
        released = sum(each.inputs.count(operator) for each in operator.dependents if each in gone)
        if calls[operator] + released >= operator.users:
            gone.add(operator)
    sources = {source for operator in gone for source in operator.inputs if source.identity is None}
    tables = {source for source in sources if gone.issuperset(source.dependents)}
    return sum(each.held_bytes() for each in gone | tables)
