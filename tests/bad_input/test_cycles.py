"""A cycle that never was: no prefix of the records has one, but a worker reads partitions at different paces."""

import pytest

import eddy
from eddy.partitioner import partition_of
from tests.bad_input.rig import Rig


def family(rig: Rig) -> eddy.Topology:
    """How many descendants everybody has."""
    topology = eddy.Topology(rig.name)
    parents = topology.table(rig.topic("nodes"), eddy.String, eddy.String, name="nodes")
    rows = parents.to_relation().map(lambda node, parent: (parent, 1))
    rows.recursively(
        lambda rows: rows.join(parents, lambda _, one, parent: (parent, one)), name="ancestors"
    ).group_by_key().count("below").to(rig.topic("descendants"), value=eddy.Int64)
    return topology


def placed(letter: str, partition: int) -> str:
    """A name that begins with `letter`, of a node whose records lie in a partition of four."""
    return next(name for n in range(99) if partition_of((name := f"{letter}{n}").encode(), 4) == partition)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("leaves", [3_000, pytest.param(250_000, marks=pytest.mark.long)])
def test_two_subtrees_change_places_and_nothing_is_left_out(rig: Rig, leaves: int, count: int) -> None:
    topology = family(rig)
    rig.create("nodes", "descendants", partitions=4)
    a, b, c = placed("a", 0), placed("b", 1), placed("c", 2)
    below = [name for n in range(8 * leaves) if partition_of((name := f"leaf{n}").encode(), 4) == 1][:leaves]
    records = [(b, a), (c, b), *((leaf, b) for leaf in below), (b, "root"), (a, c)]
    rig.write("nodes", [(key, value.encode()) for key, value in records])
    workers = [
        rig.worker(topology, eddy.Config(max_epoch_records=max(1_000, leaves // 10)), member=str(n))
        for n in range(count)
    ]
    rig.share(*workers)
    rig.settle(*workers, timeout_s=240)
    counts = {"root": len(below) + 3, b: len(below) + 2, c: 1}
    assert rig.table("descendants", eddy.Int64) == counts
    assert [worker.held() for worker in workers] == [{}] * count
    assert all(worker.statistics.skipped == 0 for worker in workers)


@pytest.mark.parametrize("count", [1, 2])
def test_a_cycle_that_lasts_is_held_and_mended(rig: Rig, count: int) -> None:
    topology = family(rig)
    rig.create("nodes", "descendants", partitions=4)
    workers = [rig.worker(topology, eddy.Config(), member=str(n)) for n in range(count)]
    rig.share(*workers)
    a, b, c = placed("a", 0), placed("b", 1), placed("c", 2)
    rig.write("nodes", [(key, value.encode()) for key, value in [(a, b), (b, c), (c, a), ("x", "y"), ("y", "z")]])
    rig.settle(*workers)
    assert rig.table("descendants", eddy.Int64) == {"y": 1, "z": 2}
    assert any(worker.held() for worker in workers)
    rig.write("nodes", [(c, b"x")])
    rig.settle(*workers)
    assert rig.table("descendants", eddy.Int64) == {b: 1, c: 2, "x": 3, "y": 4, "z": 5}
    assert [worker.held() for worker in workers] == [{}] * count
