"""Nested time of more iterations than are in memory at once: rows, traces, and that past iterations are dropped.

The rows are compared with distances by breadth, the traces with those of a worker.
"""

import random
from collections import deque
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark import frames
from eddy.connectors.spark.loops import nested_loops
from tests.seeds import in_turn, of_today
from tests.spark.rig import Rig, check_backfill

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64
TOPICS = [TopicSpec(topic, 2) for topic in ("links", "roots", "depths")]


def least_depths() -> eddy.Topology:
    """The least number of links from a root to each node."""
    topology = eddy.Topology("depths")
    starts = topology.table("roots", S, S).to_relation().map(lambda node, _: (node, 0), key=S, value=N)
    links = topology.table("links", S, S).to_relation().map(lambda link, _: tuple(link.split("-")), key=S, value=S)

    def step(depths: Any) -> Any:
        offers = depths.join(links, lambda _, depth, to: (to, depth + 1), "hop", S, N)
        return starts.union(offers).reduce(lambda node, offered: (min(offered),), "least")

    block = topology.mutually_recursive(step, name="block", serdes={"depths": (S, N)})
    block.depths.group_by_key(S, N).sum("depth").to("depths")
    return topology


def drawn(rng: random.Random, levels: int) -> set[str]:
    """A chain, some of whose nodes have links back, or to others."""
    chain = {f"c{n}-c{n + 1}" for n in range(levels)}
    back = {f"c{n}-c{rng.randrange(n)}" for n in rng.sample(range(1, levels), 6)}
    return chain | back | {f"c{rng.randrange(levels)}-x{n}" for n in range(12)}


def distances(links: set[str]) -> dict[bytes, bytes]:
    """By breadth from "c0", as keys and values of the topic."""
    found, queue = {"c0": 0}, deque(["c0"])
    while queue:
        node = queue.popleft()
        for to in [link.split("-")[1] for link in links if link.split("-")[0] == node]:
            if to not in found:
                found[to] = found[node] + 1
                queue.append(to)
    return {node.encode(): depth.to_bytes(8, "big") for node, depth in found.items()}


def fed(folder: Path, spark: Any, links: set[str]) -> Rig:
    rig = Rig(folder, least_depths, TOPICS, spark)
    rig.one_task = 0
    rig.write("roots", [(b"c0", b"")])
    rig.write("links", [(link.encode(), b"") for link in sorted(links)])
    return rig


@pytest.mark.parametrize("few", [*in_turn([True, False], 2)], ids=["few records", "many records"])
def test_past_iterations_are_merged_and_dropped(
    few: bool, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(of_today(1)[0])
    if not few:  # as of more than 50,000 records
        monkeypatch.setattr(frames, "_FEW_RECORDS", -1)  # private: so many records take minutes
    monkeypatch.setattr(nested_loops, "_MERGED", 3)  # private: so that few iterations are merged often
    links = drawn(rng, 12)
    rig, scratch = (fed(tmp_path / name, spark, links) for name in ("rig", "scratch"))
    scratch.work()
    kept: list[int] = []
    drop = frames.Frames.drop

    def counted(self: Any, gone: Any) -> None:
        kept.append(len(self._kept) + len(self._settled))  # private: what the program does not see
        drop(self, gone)

    monkeypatch.setattr(frames.Frames, "drop", counted)
    then = {"links": [(b"c3-c4", None), (b"c0-c6", b"")]}
    check_backfill(rig, scratch, then)
    *during, _ = kept
    assert len(during) >= 3
    assert max(during[1:]) <= during[0], kept
    monkeypatch.setattr(frames.Frames, "drop", drop)
    verdict = rig.verify()
    assert (verdict.status, verdict.undetermined) == (0, {}), list(verdict.lines())
    assert {"hop-left", "least", "least-made"} <= {part.name for part in verdict.compared}, list(verdict.lines())
    found = {key: value for key, (_, value) in rig.latest("depths").items()}
    assert found == distances((links - {"c3-c4"}) | {"c0-c6"})
    for one in (rig, scratch):
        one.close()
