"""What several workers tell each other until they agree on what is held: a few entries for each edge that crosses."""

import random
from collections import Counter
from typing import Any

import msgspec
import pytest

import eddy
from eddy.operators.exchange import Outgoing
from tests.operators.test_recursion import Cluster

N = eddy.Native
MOST = 12
"""Messages for each edge between two owners, and rows, keys and values in them."""
ROOT = 99_999
MOST_ROUNDS = 200_000


def program() -> eddy.Topology:
    """The table "rows" has a row for each node below the seeds, but for those that a cycle reaches."""
    topology = eddy.Topology("app")
    seeds = topology.table("seeds", N, N).to_relation().map(lambda node, _: (node, None), key=N, value=N)
    edges = topology.table("edges", N, N).to_relation().map(lambda _, edge: edge, key=N, value=N)
    x = seeds.recursively(lambda rows: rows.join(edges, lambda _, __, node: (node, None), "below"), "x")
    x.group_by_key().count("rows")
    return topology


class Counted(Cluster):
    """Two workers. Counts the messages between them, and the rows, keys and values in these."""

    def __init__(self) -> None:
        super().__init__(program(), 2)
        self.messages = self.entries = self.rounds = 0
        self.kinds: Counter[str] = Counter()

    def check(self, parents: dict[int, int]) -> None:
        """The messages since the last check are a few for each edge."""
        crossing = sum(home(node) != home(parent) for node, parent in parents.items())
        assert self.messages <= MOST * crossing
        assert self.entries <= MOST * crossing
        self.messages = self.entries = self.rounds = 0
        self.kinds.clear()

    def held(self) -> list[str]:
        return [why for bench in self.workers for why in bench.circuit.held().values()]

    def epoch(self, index: int, inputs: Any) -> None:
        self.rounds += 1
        super().epoch(index, inputs)

    def send(self, topic: str, out: Outgoing) -> None:
        super().send(topic, out)
        for headers in out.batch.headers_of_rows() if out.iteration < 0 else ():
            kind, *fields = msgspec.msgpack.decode(dict(headers)["eddy.agreement"])
            self.messages += 1
            size = sum(map(entries_of, fields))
            self.entries += size
            self.kinds[kind] += size


def entries_of(field: Any) -> int:
    """The bytes strings in a field of a message."""
    return sum(map(entries_of, field)) if isinstance(field, list | tuple) else isinstance(field, bytes)


def shape(kind: str, count: int, rng: random.Random) -> dict[int, int]:
    """The parents of nodes 4, 5, …, below node 3."""
    nodes = range(4, 4 + count)
    match kind:
        case "star":
            return dict.fromkeys(nodes, 3)
        case "chain":
            return {node: node - 1 for node in nodes}
        case _:
            return {node: rng.randrange(max(3, node - 50), node) for node in nodes}


def home(node: int) -> int:
    """The owner of a node."""
    return sum(N.encode(node)) % 2


@pytest.mark.parametrize("lasts", [True, False])
@pytest.mark.parametrize(
    ("kind", "moves"), [("star", "top"), ("star", "all"), ("tree", "top"), ("tree", "all"), ("chain", "top")]
)
@pytest.mark.parametrize(
    "count", [300, pytest.param(3_000, marks=pytest.mark.long), pytest.param(30_000, marks=pytest.mark.long)]
)
def test_messages_are_a_few_for_each_edge_that_crosses(kind: str, moves: str, count: int, lasts: bool) -> None:
    """Nodes move below the cycle 0 → 1 → 2 → 0 as it closes; it `lasts`, or goes with its way from the root."""
    rng = random.Random(count)
    below = shape(kind, count, rng)
    before = {0: ROOT, 1: 0, 2: 1, 3: ROOT} | (dict.fromkeys(below, ROOT) if moves == "all" else below)
    after = before | below | {3: 1}
    cluster = Counted()
    cluster.give("seeds", (ROOT, 1))
    for node, parent in before.items():
        cluster.give("edges", (node, (parent, node)))
    cluster.rest(MOST_ROUNDS)
    assert len(cluster.rows()) == count + 5
    cluster.check(before)

    for node, parent in after.items():
        if parent != before[node]:
            cluster.give("edges", (node, (parent, node)))
    cluster.give("edges", ("closing" if lasts else 0, (2, 0)))
    cluster.rest(MOST_ROUNDS)
    assert cluster.rows() == {ROOT: 1}
    assert len(cluster.held()) == lasts
    cluster.check(after | {0: 2})
