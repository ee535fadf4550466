"""mode="agents": Faust reads and balances the sources; results are those of an oracle, whatever befalls the workers."""

import random
from collections import Counter
from pathlib import Path

import pytest

import eddy
from tests.faust.conftest import Start
from tests.faust.rig import PATIENCE_S, FaustWorker, Topics, unique
from tests.waiting import wait_for

HERE = Path(__file__).parent
PARTITIONS = 4


def tree(nodes: int, seed: int = 7) -> dict[str, str]:
    """Node → parent; node 0 is the root."""
    pick = random.Random(seed)
    return {str(node): str(pick.randrange(node)) for node in range(1, nodes)}


def descendants(parents: dict[str, str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for node in parents:
        above = parents.get(node)
        while above is not None:
            counts[above] += 1
            above = parents.get(above)
    return counts


class Family:
    """The topics of one topology, and the latest counts in its output."""

    def __init__(self, topics: Topics) -> None:
        self.topics, self.name = topics, unique("faust-agents")
        topics.make(PARTITIONS, f"{self.name}-nodes", f"{self.name}-descendants")

    def write(self, parents: dict[str, str]) -> None:
        rows = {node.encode(): parent.encode() for node, parent in parents.items()}
        self.topics.write(f"{self.name}-nodes", rows, PARTITIONS)

    def counts(self) -> dict[str, int]:
        latest = dict(self.topics.read(f"{self.name}-descendants", PARTITIONS))
        return {k.decode(): eddy.Int64.decode(v) for k, v in latest.items() if k is not None and v is not None}

    def wait_for(self, expected: Counter[str], *workers: FaustWorker) -> None:
        def arrived() -> bool:
            for worker in workers:
                assert worker.process.poll() is None, worker.said.read_text()[-4_000:]
            return self.counts() == expected

        wait_for(arrived, PATIENCE_S, "the counts", pause_s=0.2)


@pytest.fixture
def family(topics: Topics) -> Family:
    return Family(topics)


def test_descendants_are_counted_through_loops_and_faust_acknowledges(start: Start, family: Family) -> None:
    parents = tree(300)
    family.write(parents)
    worker = start("descendants", HERE, NAME=family.name)
    family.wait_for(descendants(parents), worker)
    moved = parents | {"5": "0", "9": "1"}
    family.write({"5": "0", "9": "1"})
    family.wait_for(descendants(moved), worker)
    assert worker.command("wait").returncode == 0
    assert worker.stop() == 0


@pytest.mark.long
def test_killed_over_and_over_it_loses_and_doubles_nothing(start: Start, family: Family) -> None:
    pick, parents = random.Random(3), tree(4_000)
    worker = start("descendants", HERE, NAME=family.name, EPOCH="50")
    nodes = list(parents)
    for turn in range(4):
        family.write({node: parents[node] for node in nodes[turn * 1_000 : (turn + 1) * 1_000]})
        before = len(family.counts())
        wait_for(lambda before=before: len(family.counts()) > before + pick.randrange(200), PATIENCE_S, "some counts")
        worker.kill()
        worker.restart()
    family.wait_for(descendants(parents), worker)


@pytest.mark.long
def test_two_workers_that_come_and_go_share_the_partitions(start: Start, family: Family, tmp_path: Path) -> None:
    parents = tree(3_000)
    nodes = list(parents)
    first = start("descendants", HERE, NAME=family.name, EPOCH="50", DATA=str(tmp_path / "first"))
    family.write({node: parents[node] for node in nodes[:1_000]})
    second = start("descendants", HERE, NAME=family.name, EPOCH="50", DATA=str(tmp_path / "second"))
    second.wait_for_page("/eddy/readyz")
    family.write({node: parents[node] for node in nodes[1_000:2_000]})
    family.wait_for(descendants({node: parents[node] for node in nodes[:2_000]}), first, second)
    second.kill()
    family.write({node: parents[node] for node in nodes[2_000:]})
    family.wait_for(descendants(parents), first)
