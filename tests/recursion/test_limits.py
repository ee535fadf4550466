"""Limits of mutually recursive bindings: what a limit returns, when it is an error, and when the error goes."""

from collections import Counter
from typing import Any

import pytest

import eddy
from eddy import TopologyTestDriver
from tests.naive import Bag
from tests.recursion import blocks
from tests.recursion.programs import PROGRAMS, Edit
from tests.recursion.rig import Rig, watch

assert blocks
CHAIN: list[Edit] = [("roots", 0, 0), *(("edges", n, (n, n + 1, 1)) for n in range(3))]
"""0 → 1 → 2 → 3, which the fourth iteration completes, so that the fifth changes nothing."""


def rig(name: str) -> Rig:
    topology, watched = PROGRAMS[name].topology()
    watch(topology, watched)
    return Rig(topology)


def depths(running: Rig) -> dict[int, int]:
    rows: Bag = running.left["watch-depth"]
    assert set(rows.values()) <= {1}
    return dict(rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", blocks.LIMITS)
class TestReturn:
    def test_it_is_the_state_after_so_many_iterations(self, limit: int) -> None:
        running = rig(f"depths-return-at-{limit}")
        running.epoch(CHAIN)
        assert set(depths(running)) == {(n, n) for n in range(min(limit, 4))}

    def test_it_is_so_however_the_data_came(self, limit: int) -> None:
        running = rig(f"depths-return-at-{limit}")
        for edit in reversed(CHAIN):
            running.epoch([edit])
        running.epoch([("edges", 9, (0, 2, 1))])
        running.epoch([("edges", 9, None)])
        assert set(depths(running)) == {(n, n) for n in range(min(limit, 4))}


@pytest.mark.parametrize("limit", blocks.LIMITS)
class TestError:
    def test_it_is_one_if_the_last_iteration_changed_anything(self, limit: int) -> None:
        """Even if another iteration would not: a chain of 4 nodes needs limit 5."""
        running = rig(f"depths-hold-at-{limit}")
        running.epoch(CHAIN)
        assert bool(running.left["watch-errors"]) == (limit < 5)
        assert bool(depths(running)) == (limit >= 5)

    def test_the_error_tells_what_the_last_iteration_changed(self, limit: int) -> None:
        running = rig(f"depths-hold-at-{limit}")
        running.epoch(CHAIN)
        n = limit - 1
        told = {("depth", (n, n)): 1, ("seen", (n, 0)): 1} if limit < 5 else {}
        assert running.left["watch-errors"] == Counter(told)

    def test_it_goes_when_the_data_is_mended_and_all_is_withheld_until_then(self, limit: int) -> None:
        running = rig(f"depths-hold-at-{limit}")
        short = limit - 1  # so many nodes are at rest in time
        running.epoch([("roots", 0, 0 if short else None), *(("edges", n, (n, n + 1, 1)) for n in range(short - 1))])
        assert set(depths(running)) == {(n, n) for n in range(short)}
        for edits in ([("edges", 50, (0, 50, 1)), ("roots", 0, 0)], [("edges", n, (n, n + 1, 1)) for n in range(9)]):
            running.epoch(edits)  # the first one is in time from limit 3 on
        assert running.left["watch-errors"]
        assert not depths(running), "withheld"
        running.replay()
        assert "binding 'depth' still changed in its last iteration" in running.circuit.held()["block", 0]
        out = running.epoch([("edges", 51, (50, 52, 1))])
        assert not out["watch-depth"].rows, "withheld"
        assert not out["watch-seen"].rows, "withheld"
        running.epoch([("roots", 0, None)])
        assert not running.left["watch-errors"]
        assert depths(running) == {}
        running.epoch([*(("edges", n, None) for n in range(max(0, limit - 2), 9)), ("edges", 51, None)])
        if limit > 2:
            running.epoch([("roots", 0, 0)])
            assert set(depths(running)) == {(n, n) for n in range(limit - 1)} | {(50, 1)}


def test_what_is_undone_leaves_no_error() -> None:
    running = rig("depths-hold-at-4")
    running.epoch(CHAIN[:3])
    before = running.states()
    running.step(CHAIN)
    running.undo()
    assert running.states() == before
    running.epoch([])
    assert not running.left["watch-errors"]


def flipping(**bound: Any) -> eddy.Topology:
    """Sets that flip for ever, while there is a root; and the roots, counted."""
    topology = eddy.Topology("flip")
    roots = topology.table("roots", eddy.Native, eddy.Native).to_relation().map(lambda _, node: (node, 0))
    roots.group_by_key().count("counted")
    x = roots.filter(lambda k, v: k < 0).recursively(
        lambda x: roots.filter(lambda k, v: k > 0).minus(x, "other"), "x", **bound
    )
    watch(topology, {"x": x})
    return topology


def looping(**bound: Any) -> Rig:
    return Rig(flipping(**bound))


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 11])
def test_a_flip_is_returned_as_it_is_after_its_last_iteration(limit: int) -> None:
    running = looping(limit=limit, on_limit="return")
    running.epoch([("roots", 0, 3), ("roots", 1, 7)])
    assert running.left["watch-x"] == (Counter({(3, 0): 1, (7, 0): 1}) if limit % 2 else Counter())
    running.epoch([("roots", 0, None)])
    assert running.left["watch-x"] == (Counter({(7, 0): 1}) if limit % 2 else Counter())


def test_a_flip_is_withheld_and_goes_with_the_data() -> None:
    running = looping(limit=20)
    running.epoch([("roots", 0, -1), ("roots", 1, 1)])
    assert not running.left["watch-x"], "withheld whole, since it is at one owner"
    assert "recursively 'x'" in running.circuit.held()["x", 0]
    running.epoch([("roots", 1, None)])
    assert not running.circuit.held()
    running.epoch([("roots", 0, None)])
    assert not running.stored()


def relation_only(topology: eddy.Topology) -> eddy.Topology:
    """Without the sink that only a rig can read."""
    topology.plan.nodes = [node for node in topology.plan.nodes if not node.name.startswith("watch-")]
    return topology


@pytest.mark.parametrize("policy", ["fail", "skip", "dead-letter"])
def test_a_worker_goes_on_past_a_flip_and_leaves_no_record_out(policy: Any) -> None:
    with TopologyTestDriver(relation_only(flipping(limit=20)), eddy.Config(on_error=policy)) as driver:
        roots = driver.input("roots")
        roots.pipe_all([("a", 0), ("b", 1), ("c", 0), ("d", -1)])
        assert driver.store("counted").all() == {0: 2, 1: 1, -1: 1}
        assert list(driver.worker.circuit.held()) == [("x", 0)]
        roots.pipe("b", 0)
        assert not driver.worker.circuit.held()
        assert driver.store("counted").all() == {0: 3, -1: 1}
        assert driver.worker.statistics.skipped == 0
