"""The bytes in memory that some views hold alone: operators and tables that would go with them.

An operator goes with the views if all its users do: these views, and operators downstream that go as well. A table goes
with all that reads it. Cost: O(operators of these views).
"""

from collections import Counter
from collections.abc import Iterable

from eddy.live.dataflow.dataflow import QueryOperator
from eddy.live.query.planning import PlannedView

__all__ = ["held_alone"]


def held_alone(views: Iterable[PlannedView]) -> int:
    """The bytes that nothing else holds, about; a view counts that is given for each that uses it."""
    calls: Counter[QueryOperator] = Counter()
    for view, given in Counter(views).items():
        if given >= view.users:
            calls.update(view.operators)
    gone: set[QueryOperator] = set()
    for operator in sorted(calls, key=lambda each: each.rank, reverse=True):  # those downstream first
        released = sum(each.inputs.count(operator) for each in operator.dependents if each in gone)
        if calls[operator] + released >= operator.users:
            gone.add(operator)
    sources = {source for operator in gone for source in operator.inputs if source.identity is None}
    tables = {source for source in sources if gone.issuperset(source.dependents)}
    return sum(each.held_bytes() for each in gone | tables)
