"""A step evaluated from scratch, for traces: its rows are computed from all rows of its inputs."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from eddy.topology.plan.addends import Addend
from eddy.topology.plan.bags import Bag, Way, Weighted

__all__ = ["EvaluatedStep"]


class EvaluatedStep:
    """The methods that compute a step's rows from all rows of its inputs, without the step's operator."""

    untraced: ClassVar[str] = "has an algorithm of its own"
    """Why `rows_from` returns None, as the end of a sentence that begins with "it"."""
    passes: ClassVar[bool] = False
    """Whether each row of the step is a row of an input, so that derivations skip the step."""
    explained_by_key: ClassVar[bool] = False
    """Whether `ways` yields the keys of the step's rows instead of the rows."""

    def rows_from(self, *inputs: Bag) -> Weighted | None:
        """Return the step's rows, computed from all rows of its inputs; None if only its operator can compute them.

        The computation uses no deltas, no states and no operator.
        """
        return None

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Yield each row of the step, or each key of its rows, with the input rows from which it is made."""
        return ()

    @property
    def factor(self) -> int | None:
        """The number n if a row's weight is n times a sum over its `ways`; None if it is no such sum.

        The sum has, for each way, the product of the weights of the way's rows.
        """
        return None

    @property
    def addends(self) -> tuple[Addend, ...]:
        """The numbers in the values of rows that are sums over the input rows of their keys."""
        return ()

    def forest(self, rows: Bag) -> Any:
        """Return the rows as a `Forest`, each row below the row from which it was made; None if they form no forest."""
        return None

    def subtree_sums(self, *inputs: Bag) -> Any:
        """Return the sums over subtrees in the values of the step's rows; None if the values are no such sums.

        The result is a `Forest` with the number of each node, and whether a node's sum includes the node's own number.
        """
        return None

    def outside(self, keys: Sequence[Any], inputs: Sequence[Bag]) -> str:
        """Return why the step has no row with one of `keys`, as a verb and its object; empty if the inputs say why."""
        return ""
