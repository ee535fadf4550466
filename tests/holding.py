"""Topologies that hold something by a rule of the data, and nothing when that is mended.

`Once` takes the place of `distinct()` while `once_held` is entered: a row that is there more than once has no answer,
at the partition of its key. `reaching` has a fixpoint, at one owner, in which a cycle has none.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import eddy
from eddy.operators import weight_functions
from eddy.state.arrangement import Arrangement

__all__ = ["Once", "once_held", "reaching", "way_round"]


class Once(weight_functions.WeightFunction):
    """Rows with any weights in, the rows that are there exactly once out."""

    def __init__(self, name: str, arrangement: Arrangement[Any, Any], f: Callable[[int], int]) -> None:
        super().__init__(name, arrangement, lambda weight: int(weight == 1))

    def held(self) -> Mapping[int, str]:
        """The least row that is there more than once, by the partition of its key."""
        spec, found = self.arrangement.spec, {}
        for (key, value), weight in sorted(self.arrangement.items(), reverse=True):
            if weight > 1:
                (partition,) = spec.partitions_of(spec.key.identify_many([key]))
                found[partition] = (
                    f"distinct '{self.name}': key {key!r} has {value!r} {weight} times; take back all but one"
                )
        return found


@contextmanager
def once_held() -> Iterator[None]:
    """Topologies that are compiled meanwhile have `Once` for `distinct()`."""
    before = weight_functions.WeightFunction
    weight_functions.WeightFunction = Once  # type: ignore[misc]
    try:
        yield
    finally:
        weight_functions.WeightFunction = before  # type: ignore[misc]


def reaching(
    on_limit: Literal["hold", "stop"] = "hold", name: str = "app", source: str = "links", sink: str = "reached"
) -> eddy.Topology:
    """What the root "top" reaches over links, node -> next."""
    topology = eddy.Topology(name)
    links = topology.table(source, key=eddy.String, value=eddy.String)
    top = topology.constant([("top", "top")], "top", eddy.String, eddy.String)
    found = topology.recursive_fixpoint(roots=top, edges=links, name="reach", cycle_policy="error", on_limit=on_limit)
    rows = found.filter(lambda key, row: not row.cycle).map(lambda key, row: (row.node, row.depth), key=eddy.String)
    rows.group_by_key().count("seen").to(sink, value=eddy.Int64)
    return topology


def way_round(*nodes: str) -> str:
    """The message of `reaching` where these nodes lead around."""
    way = " → ".join(nodes)
    what = f"recursive_fixpoint 'reach': from root 'top' the path {way} comes around"
    return f"{what}; cycle_policy='error' needs a graph without cycles. Take back a link of it"
