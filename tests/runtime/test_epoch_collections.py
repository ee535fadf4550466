"""Python's collector runs between epochs, and the cycles of authors' functions do not fill the memory."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import eddy
from eddy.cli import collector as own
from eddy.runtime import epoch_collections
from eddy.runtime.epoch_collections import without_collections


class Knot:
    """An object in a cycle of its own."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def as_python_sets_it() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)
    gc.freeze()


def knotted(alive: list[int], most: int) -> eddy.Topology:
    """A topology whose function leaves a cycle for each record, and notes the most that are there."""
    topology = eddy.Topology("knots")
    there: weakref.WeakSet[Knot] = weakref.WeakSet()

    def tie(value: int) -> int:
        for _ in range(most):
            there.add(Knot())
        alive[0] = max(alive[0], len(there))
        return value

    topology.stream("in", value=eddy.Int64).map_values(tie, value=eddy.Int64).to("out", value=eddy.Int64)
    return topology


def test_no_collection_falls_into_an_epoch() -> None:
    kept: list[Any] = []

    def keep(value: int) -> int:
        kept.extend([value] for _ in range(100))
        return value

    topology = eddy.Topology("lists")
    topology.stream("in", value=eddy.Int64).map_values(keep, value=eddy.Int64).to("out", value=eddy.Int64)
    fell: list[str] = []
    with eddy.TopologyTestDriver(topology) as driver:
        note = lambda phase, info: fell.append("epoch" if driver.worker.in_epoch else "between")  # noqa: E731
        gc.callbacks.append(note)
        try:
            for _ in range(20):
                driver.input("in").pipe_all([(None, n) for n in range(50)])
                [[n] for n in range(1_000)]
        finally:
            gc.callbacks.remove(note)
    assert len(kept) == 20 * 50 * 100
    assert "epoch" not in fell
    assert fell.count("between") >= 20
    assert gc.get_threshold() == (700, 10, 10)


def test_cycles_of_many_epochs_do_not_add_up() -> None:
    alive = [0]
    with eddy.TopologyTestDriver(knotted(alive, 10)) as driver:
        for _ in range(200):
            driver.input("in").pipe_all([(None, n) for n in range(20)])
    assert 200 <= alive[0] < 4_000


def test_cycles_of_one_long_epoch_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_collections, "MOST_ALLOCATED", 5_000)
    alive = [0]
    with eddy.TopologyTestDriver(knotted(alive, 100)) as driver:
        driver.input("in").pipe_all([(None, n) for n in range(1_000)])
    assert 1_000 <= alive[0] < 20_000


def test_spans_of_several_workers_may_overlap() -> None:
    one, other = without_collections(), without_collections()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert gc.get_threshold()[0] == epoch_collections.MOST_ALLOCATED
    other.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 10, 10)


def test_thresholds_that_a_program_sets_are_kept() -> None:
    with without_collections():
        gc.set_threshold(900, 5, 5)
    assert gc.get_threshold() == (900, 5, 5)
    gc.set_threshold(0)
    with without_collections():
        assert gc.get_threshold()[0] == 0
    gc.set_threshold(5_000_000)
    with without_collections():
        assert gc.get_threshold()[0] == 5_000_000


@pytest.mark.slow
def test_an_own_collector_visits_kept_objects_once_and_finds_their_cycles_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(own, "thread_time", lambda: now[0])
    monkeypatch.setattr(own, "_KEPT_AT_REST", 10_000)  # private: a million takes long
    collector = own.OwnCollector()
    collector.collect_all()
    young, old = Knot(), Knot()
    refs = [weakref.ref(young), weakref.ref(old)]
    del young
    collector.after_epoch(at_rest=False)
    assert refs[0]() is not None  # it is not due
    now[0] += 1
    collector.after_epoch(at_rest=False)
    assert refs[0]() is None
    del old
    kept = [[n] for n in range(20_000)]
    now[0] += 1
    collector.after_epoch(at_rest=False)
    assert refs[1]() is not None  # frozen
    now[0] += 1
    collector.after_epoch(at_rest=True)
    assert refs[1]() is None
    assert len(kept) == 20_000
