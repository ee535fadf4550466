"""A step from scratch, for traces: its rows, computed from all rows of its inputs, without deltas and states."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from eddy.topology.plan.addends import Addend
from eddy.topology.plan.bags import Bag, Way, Weighted

__all__ = ["EvaluatedStep"]


class EvaluatedStep:
    """The rows of a step as a function of the rows of its inputs, independently of its operator."""

    untraced: ClassVar[str] = "has an algorithm of its own"
    """Why `rows_from` has no rows, if it has none."""
    passes: ClassVar[bool] = False
    """Whether each row of the step is a row of an input, so that derivations skip the step."""
    explained_by_key: ClassVar[bool] = False
    """Whether `ways` has the keys of the step's rows instead of rows."""

    def rows_from(self, *inputs: Bag) -> Weighted | None:
        """Return the step's rows, computed from all rows of its inputs; None if only its operator can compute them.

        The computation uses no deltas, no states and no operator.
        """
        return None

    def ways(self, *inputs: Bag) -> Iterable[tuple[Any, Way]]:
        """Each row of the step, or each key of its rows, with the rows from which it is made."""
        return ()

    @property
    def factor(self) -> int | None:
        """A factor, if a row's weight is this factor times a sum over its `ways`; otherwise None.

        The sum has, for each way, the product of the weights of the way's rows.
        """
        return None

    @property
    def addends(self) -> tuple[Addend, ...]:
        """The numbers in the values of rows that are sums over the input rows of their keys."""
        return ()

    def forest(self, rows: Bag) -> Any:
        """The step's rows as a `Forest`, each below the row from which it was made; None if they do not form one."""
        return None

    def subtree_sums(self, *inputs: Bag) -> Any:
        """Explain values that are sums over subtrees; return None if the values are no such sums.

        Returns a `Forest` with numbers, and whether a node's sum includes the number of the node itself.
        """
        return None

    def outside(self, keys: Sequence[Any], inputs: Sequence[Bag]) -> str:
        """Why the step has no row with one of these keys, as a verb with its object; empty if its inputs explain it."""
        return ""
