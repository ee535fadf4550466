"""What a conformance case is: a program, what comes in, and what has to come out, on every engine.

A case is data. `batches` are lists of (topic, key, value), each given to the engine as a whole and
taken to its end before the next one; `expected` is what the sinks hold at the end: a dict for a
table (the latest value of each key), a list for a stream (in any order).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import eddy

S, N, Native = eddy.String, eddy.Int64, eddy.Native
Record = tuple[str, Any, Any]


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[eddy.Topology], None]
    batches: list[list[Record]]
    expected: dict[str, dict[Any, Any] | list[tuple[Any, Any]]]

    def topology(self, prefix: str = "") -> eddy.Topology:
        topology = eddy.Topology(prefix + self.name)
        self.build(topology)
        return topology

    def matching(self, topology: eddy.Topology, prefix: str = "") -> list[str]:
        """The topics of the batches that match a pattern of the topology, which has this prefix in its names."""
        topics = dict.fromkeys(topic for batch in self.batches for topic, _, _ in batch)
        patterns = [node.pattern for node in topology.plan.patterns()]
        return [topic for topic in topics if any(pattern.fullmatch(prefix + topic) for pattern in patterns)]


CASES: list[Case] = []


def case(
    batches: list[list[Record]], **expected: dict[Any, Any] | list[tuple[Any, Any]]
) -> Callable[[Callable[[eddy.Topology], None]], Callable[[eddy.Topology], None]]:
    """Make a case of a function that builds a topology; it is called like the function."""

    def add(build: Callable[[eddy.Topology], None]) -> Callable[[eddy.Topology], None]:
        CASES.append(Case(build.__name__.replace("_", "-"), build, batches, expected))
        return build

    return add


def of(topic: str, *records: tuple[Any, Any]) -> list[Record]:
    """Records of one topic."""
    return [(topic, key, value) for key, value in records]


def plus(total: int, n: int) -> int:
    return total + n


def less(total: int, n: int) -> int:
    return total - n
