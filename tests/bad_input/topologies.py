"""The programs of these tests, each with a naive oracle."""

from collections import Counter
from collections.abc import Callable, Iterable

import eddy
from tests.bad_input.rig import Rig
from tests.descendants import descendants


def echo(rig: Rig, function: Callable[[str], str] = str.upper) -> eddy.Topology:
    """Stream `in` to `out`, one by one: it has no state."""
    topology = eddy.Topology(rig.name)
    lines = topology.stream(rig.topic("in"), eddy.String, eddy.String)
    lines.map_values(function, value=eddy.String).to(rig.topic("out"))
    return topology


def sums(rig: Rig, seen: Callable[[str, int], object] = lambda key, n: None) -> eddy.Topology:
    """Numbers of stream `in`, added up by key in table `sums`: what is lost or doubled shows for ever."""
    topology = eddy.Topology(rig.name)
    numbers = topology.stream(rig.topic("in"), eddy.String, eddy.Int64).peek(seen)
    numbers.group_by_key().reduce(lambda total, n: total + n, "sums").to(rig.topic("sums"))
    return topology


def added_up(rows: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The oracle of `sums`."""
    total: Counter[str] = Counter()
    for key, n in rows:
        total[key] += n
    return dict(total)


def family(rig: Rig) -> eddy.Topology:
    """The README's program: table `nodes`, node to parent, to the number of descendants in `descendants`."""
    topology = eddy.Topology(rig.name)
    parents = topology.table(rig.topic("nodes"), key=eddy.String, value=eddy.String, name="nodes")
    descendants(parents).to(rig.topic("descendants"))
    return topology
