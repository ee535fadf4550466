"""Makes Spark's functions for folds, first values and sums of a key's rows from the steps that authors declare."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from eddy.connectors.spark.exact_sums import ExactSums
from eddy.connectors.spark.fold_functions import AuthorsFold, FirstFold, FoldForm, ReducingFold
from eddy.connectors.spark.grouped_values import FirstValues
from eddy.connectors.spark.sql_aggregates import Aggregates, SqlFold
from eddy.connectors.spark.sql_expressions import own
from eddy.topology.plan import plan as nodes
from eddy.windows import Windowed

__all__ = ["first_values_of", "fold_of", "listed_of", "sums_of"]


def first_values_of(selection: Any) -> FirstValues:
    """Return the function that selects the first values of a group."""
    return FirstValues(selection.n, selection.descending, selection.by, selection.serde, selection.whole)


@dataclass(frozen=True)
class _Listed:
    """Lists all values of a group in their order."""

    first: FirstValues

    def __call__(self, key: Any, pairs: Iterable[tuple[Any, int]]) -> Any:
        """Return all values, each as often as its weight; None if there are too many."""
        return self.first.of([value for value, weight in pairs for _ in range(weight)])


def listed_of(selection: Any) -> Callable[[Any, Iterable[tuple[Any, int]]], Any]:
    """Return the function that lists the values of a group."""
    return _Listed(first_values_of(selection))


def sums_of(summation: Any) -> ExactSums:
    """Return the function that computes sums or means."""
    return ExactSums(summation.mean, summation.of, summation.type, summation.required)


@dataclass(frozen=True)
class _OfPlainKeys:
    """A fold whose functions get the keys of records, without the windows."""

    fold: FoldForm

    def add(self, key: Windowed[Any], value: Any, aggregate: Any) -> Any:
        """Return the aggregate with one row more."""
        return self.fold.add(key.key, value, aggregate)

    def subtract(self, key: Windowed[Any], value: Any, aggregate: Any) -> Any:
        """Return the aggregate with one row less."""
        return self.fold.subtract(key.key, value, aggregate)

    def result(self, aggregate: Any) -> Any:
        """Return the value of the table."""
        return self.fold.result(aggregate)


def fold_of(node: nodes.Aggregate) -> FoldForm:
    """Return the fold of an aggregate."""
    return _OfPlainKeys(_declared(node)) if node.plain_keys else _declared(node)


def _declared(node: nodes.Aggregate) -> FoldForm:
    if node.selection is not None:
        return FirstFold(first_values_of(node.selection))
    if node.reducers is not None:
        return ReducingFold(*node.reducers)
    if isinstance(aggregates := own(node.adder), Aggregates):
        return SqlFold(aggregates)
    return AuthorsFold(node.initial, node.adder, node.subtractor)
