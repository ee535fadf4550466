"""mode="agents": Faust reads and balances the sources; results are those of an oracle, whatever befalls the workers."""

import random
from pathlib import Path

import pytest

from tests.faust.conftest import Start
from tests.faust.family import Family, descendants, tree
from tests.faust.rig import PATIENCE_S
from tests.waiting import wait_for

HERE = Path(__file__).parent


def test_descendants_are_counted_through_loops_and_joined_with_a_table_of_faust_s(start: Start, family: Family) -> None:
    parents = tree(300)
    family.write(parents)
    worker = start("descendants", HERE, NAME=family.name)
    family.wait_for(descendants(parents), worker)
    moved = parents | {"5": "0", "9": "1"}
    family.write({"5": "0", "9": "1"})
    family.vote("0", "0", "5", "0")
    counts = descendants(moved)
    family.wait_for(counts, worker)
    family.wait_for({node: counts[node] * votes for node, votes in {"0": 3, "5": 1}.items()}, worker, topic="weighted")
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
