"""mode="agents": Faust reads and balances the sources; results are those of an oracle, whatever befalls the workers."""

import random
import signal
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

import eddy
from eddy.connectors.log import TopicPartition
from tests.descendants import counted
from tests.faust.conftest import Start
from tests.faust.family import PARTITIONS, Family, tree
from tests.faust.rig import FaustWorker, Topics, unique
from tests.seeds import in_turn
from tests.waiting import PATIENCE_S, wait_for

HERE = Path(__file__).parent


def pause(worker: FaustWorker) -> None:
    worker.child.signal(signal.SIGSTOP)


def proceed(worker: FaustWorker) -> None:
    worker.child.signal(signal.SIGCONT)


TROUBLES: dict[str, tuple[Callable[[FaustWorker], None], Callable[[FaustWorker], None]]] = {
    "killed": (FaustWorker.kill, FaustWorker.restart),
    "paused": (pause, proceed),
    "stopped": (FaustWorker.demand_end, FaustWorker.restart),
}
"""How a worker goes away, and comes back; each takes the partitions from it, and gives some back."""


@pytest.mark.parametrize(
    ("trouble", "nodes"),
    [
        *in_turn([(trouble, 300) for trouble in TROUBLES], 6),  # on days 0, 1, 2 of each six
        *(pytest.param(trouble, 3_000, marks=pytest.mark.long) for trouble in TROUBLES),
    ],
)
def test_outputs_and_states_are_the_oracle_s_when_one_of_two_workers_goes_away_and_comes_back(
    start: Start, family: Family, tmp_path: Path, trouble: str, nodes: int
) -> None:
    parents, (away, back) = tree(nodes), TROUBLES[trouble]
    half = dict(islice(parents.items(), nodes // 2))
    first, second = (
        start("descendants", HERE, NAME=family.name, EPOCH="50", DATA=str(tmp_path / name)) for name in ("1", "2")
    )
    for worker in (first, second):  # then both are members: Faust's tables count twice what a rebalance interrupts
        worker.wait_for_page("/eddy/readyz")
    family.write(half)
    family.vote("0", "0", "1", "0")
    counts = counted(half)
    family.wait_for({node: counts[node] * votes for node, votes in {"0": 3, "1": 1}.items()}, first, topic="weighted")
    family.write(parents)
    wait_for(lambda: family.counts() != counts, PATIENCE_S, "some counts")
    away(second)
    family.wait_for(counted(parents), first)
    back(second)
    second.wait_for_page("/eddy/readyz")  # it cannot be asked to stop before Faust has its signal handlers
    moved = parents | {"5": "0", "9": "1"}
    family.write({"5": "0", "9": "1"})
    counts = counted(moved)
    family.wait_for(counts, first, second)
    assert family.kept() == counts
    for worker in (first, second):
        worker.demand_end()


def test_one_that_stops_while_its_group_rebalances_ends(start: Start, topics: Topics) -> None:
    name = unique("faust-stops")
    topics.make(1, f"{name}-in", f"{name}-out")
    read = TopicPartition(f"{name}-in", 0)
    worker = start("apps", HERE, NAME=name, MODE="agents", COMMIT_INTERVAL_S="3600")
    topics.write(f"{name}-in", {b"k": b"a"})
    wait_for(lambda: len(topics.read(f"{name}-out")) == 1, missing="a position that Faust has to commit as it stops")
    worker.wait_for_page("/close")
    worker.demand_end()
    assert not topics.log.groups().get(f"{name}-app")
    assert topics.log.committed(f"{name}-app", [read])[read].offset >= 1


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
    family.wait_for(counted(parents), worker)


@pytest.mark.long
def test_a_backlog_takes_bounded_memory(start: Start, topics: Topics) -> None:
    name, records, value = unique("faust-backlog"), 1_000_000, b"x" * 1_000
    topics.make(PARTITIONS, f"{name}-in", f"{name}-out")
    for number in range(0, records, 10_000):
        keys: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        for key in map(eddy.Int64.encode, range(number, number + 10_000)):
            keys[topics.log.partitioner(key, PARTITIONS)].append(key)
        topics.writer.begin()
        for partition, mine in keys.items():
            topics.writer.send(f"{name}-in", partition, mine, [value] * len(mine), [0] * len(mine))
        topics.writer.commit({}, None)
    worker = start("filtering", HERE, NAME=name)
    wait_for(lambda: len(topics.read(f"{name}-out", PARTITIONS)) >= records // 1_000, 300.0, "the records", 1.0)
    kept = {eddy.Int64.encode(number): eddy.Int64.encode(len(value)) for number in range(0, records, 1_000)}
    assert sorted(topics.read(f"{name}-out", PARTITIONS)) == sorted(kept.items())
    status = Path(f"/proc/{worker.child.process.pid}/status").read_text()
    peak_kib = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
    assert peak_kib < 500 * 1_024  # the records alone are 1 GB
