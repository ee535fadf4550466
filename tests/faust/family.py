"""Trees, an oracle for the number of descendants, and the topics of the app in `descendants.py`."""

import random
from collections.abc import Mapping
from typing import Any

import faust

import eddy
from tests.descendants import descendants
from tests.faust.rig import FaustWorker, Topics, unique
from tests.waiting import PATIENCE_S, wait_for

PARTITIONS = 4


def tree(nodes: int, seed: int = 7) -> dict[str, str]:
    """Node → parent; node 0 is the root."""
    pick = random.Random(seed)
    return {str(node): str(pick.randrange(node)) for node in range(1, nodes)}


def counting(name: str, votes: Any) -> eddy.Topology:
    """Counts all descendants, and multiplies them with the votes in a table of an app."""
    topology = eddy.Topology(f"{name}-family")
    parents = topology.table(f"{name}-nodes", key=eddy.String, value=eddy.String, name="nodes")
    counts = descendants(parents)
    counts.to(f"{name}-descendants", value=eddy.Int64)
    given = eddy.faust.table(topology, votes)
    counts.join(given, lambda count, votes: count * votes, value=eddy.Int64, name="weighted").to(f"{name}-weighted")
    return topology


class Family:
    """The topics of one topology, and the latest counts in its outputs."""

    def __init__(self, topics: Topics) -> None:
        self.topics, self.name = topics, unique("faust-family")
        topics.make(PARTITIONS, f"{self.name}-app-votes-changelog")  # Faust's agents raise until brokers know it
        topics.make(PARTITIONS, *(f"{self.name}-{topic}" for topic in ("nodes", "votes", "descendants", "weighted")))

    def write(self, parents: Mapping[str, str]) -> None:
        rows = {node.encode(): parent.encode() for node, parent in parents.items()}
        self.topics.write(f"{self.name}-nodes", rows, PARTITIONS)

    def vote(self, *nodes: str) -> None:
        for node in nodes:
            self.topics.write(f"{self.name}-votes", {node.encode(): b""}, PARTITIONS)

    def counts(self, topic: str = "descendants") -> dict[str, int]:
        latest = dict(self.topics.read(f"{self.name}-{topic}", PARTITIONS))
        return {k.decode(): eddy.Int64.decode(v) for k, v in latest.items() if k is not None and v is not None}

    def kept(self) -> dict[str, int]:
        """The state of the counts, as its changelog has it."""
        app = faust.App(f"{self.name}-app", broker="kafka://none")
        topology = counting(self.name, app.Table("votes", key_type=str, value_type=int, partitions=PARTITIONS))
        with eddy.open_tables(topology, self.topics.log) as tables:
            tables.wait()
            return dict(tables["descendants"].range())

    def wait_for(self, expected: Mapping[str, int], *workers: FaustWorker, topic: str = "descendants") -> None:
        """Wait until an output has these counts. Fails if a worker ends before."""

        def arrived() -> bool:
            for worker in workers:
                assert worker.child.running, worker.child.last_words()
            return self.counts(topic) == expected

        wait_for(arrived, PATIENCE_S, "the counts", pause_s=0.2)
