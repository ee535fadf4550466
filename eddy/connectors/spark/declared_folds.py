"""The fold of an aggregate on Spark, by how the author has declared it."""

from typing import Any

from eddy.connectors.spark.fold_functions import AuthorsFold, FirstFold, FoldForm, ReducingFold
from eddy.connectors.spark.grouped_values import FirstValues
from eddy.connectors.spark.sql_aggregates import Aggregates, SqlFold
from eddy.connectors.spark.sql_expressions import own
from eddy.topology.plan import plan as nodes

__all__ = ["first_values_of", "fold_of"]


def first_values_of(selection: Any) -> FirstValues:
    """The function that selects the first values of a group."""
    return FirstValues(selection.n, selection.descending, selection.by, selection.serde)


def fold_of(node: nodes.Aggregate) -> FoldForm:
    """The fold of an aggregate."""
    if node.selection is not None:
        return FirstFold(first_values_of(node.selection))
    if node.reducers is not None:
        return ReducingFold(*node.reducers)
    if isinstance(aggregates := own(node.adder), Aggregates):
        return SqlFold(aggregates)
    return AuthorsFold(node.initial, node.adder, node.subtractor)
