"""CollectedTable: the result of `collect`, and a table of errors for groups that have too many values."""

from collections.abc import Callable
from typing import TypeVar

from eddy.operators.top_k import Selection
from eddy.serde import String
from eddy.topology.dsl.builder import Builder
from eddy.topology.dsl.table import KTable
from eddy.topology.plan import plan

__all__ = ["CollectedTable"]

K = TypeVar("K")
V = TypeVar("V")


class CollectedTable(KTable[K, tuple[V, ...]]):
    """The result of `collect`: a table of all values of each group, in order."""

    def __init__(
        self, builder: Builder, node: plan.Node, selection: Selection, counts: Callable[[str], KTable[K, int]]
    ) -> None:
        """Wrap the table of a selection. `counts` adds a table of the groups' numbers of values, given its name."""
        super().__init__(builder, node)
        self._selection, self._counts = selection, counts

    @property
    def errors(self) -> KTable[K, str]:
        """A table of the groups with more values than `max`, each with a message.

        The first use of this property adds its steps to the topology.
        """
        builder, name = self._builder, f"{self._node.name}-errors"
        made = next((node for node in builder.plan.nodes if node.name == name), None)
        if made is not None:
            return KTable(builder, made)
        message = _TooMany(self._selection)
        counts = self._counts(f"{name}-counts")
        return counts.filter(message.applies, f"{name}-keys").map_values(message, name, String)


class _TooMany:
    """A function that returns the message for a group with too many values."""

    def __init__(self, selection: Selection) -> None:
        self._name, self._most = selection.name, selection.n or 1

    def applies(self, key: object, count: int) -> bool:
        """Return whether a group has too many values."""
        return count > self._most

    def __call__(self, count: int) -> str:
        return (
            f"collect '{self._name}': this group has {count} values, and max={self._most}. Raise max, take values "
            "away, or keep only the first ones: .top_k(…)"
        )
