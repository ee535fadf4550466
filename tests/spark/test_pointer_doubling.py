"""Recursion along chains by pointer doubling: equal to a worker's and to a walk; not done where it is not proved."""

import functools
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark.loops import linear_loops
from tests.seeds import DAY
from tests.spark.rig import Rig

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64
LOOPS = {
    "kept": lambda _, value, parent: (parent, value),
    "own": lambda node, _, parent: (parent, f"{node}{len(parent)}"),
    "sized": lambda _, value, parent: (parent, value + "'"),
    "shown": lambda _, value, parent: (parent, str(value)[:1]),
    "turning": lambda node, value, parent: (parent, value) if type(value) is object else (f"{parent}0", value),
}
"""Steps of a recursion. The last three use the value: one raises without it, one makes another, one leads elsewhere."""
DOUBLED, REFUSED = ("kept", "own", "swapped", "related"), ("sized", "shown", "turning")


def chains(names: Iterable[str]) -> eddy.Topology:
    """The values that arrive at each node from all nodes below, by some of `LOOPS`; `swapped` has the rows on the right
    of its join, `related` joins a relation.
    """
    topology = eddy.Topology("chains")
    parents = topology.table("nodes", S, S)
    edges = parents.to_relation()
    seed = edges.map(lambda node, parent: (parent, node))

    def add(name: str, op: Any) -> None:
        rows = seed.recursively(op, f"{name}-loop", limit=64)
        rows.map(lambda node, value: (f"{node}/{value}", 0)).group_by_key(S, N).count(f"{name}-count").to(name)

    ops = {name: lambda rows, merge=merge: rows.join(parents, merge) for name, merge in LOOPS.items()}
    ops["swapped"] = lambda rows: edges.join(rows, lambda _, parent, value: (parent, value))
    ops["related"] = lambda rows: rows.join(edges, LOOPS["kept"])
    for name in names:
        add(name, ops[name])
    return topology


def walked(parents: dict[str, str], name: str) -> dict[str, int]:
    """The numbers of a sink, by a walk up from each node."""
    found: Counter[str] = Counter()
    for node, parent in parents.items():
        key, value = parent, node
        while True:
            found[f"{key}/{value}"] += 1
            if key not in parents:
                break
            above = parents[key]
            if name == "turning":
                above += "0"
            value = {"own": f"{key}{len(above)}", "sized": value + "'", "shown": value[:1]}.get(name, value)
            key = above
    return dict(found)


def forest(dice: random.Random, count: int) -> dict[str, str]:
    """Nodes with their parents: chains, and trees of any shape."""
    back = dice.choice([1, 2, 5, count])
    return {f"n{at}": f"n{dice.randint(max(0, at - back), at - 1)}" for at in range(1, count) if dice.random() < 0.97}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Which recursions were computed by pointer doubling."""
    done: dict[str, bool] = {}
    double = linear_loops.doubled

    def doubled(compiler: Any, node: Any, seed: Any) -> Any:
        rows = double(compiler, node, seed)
        done[node.name.removesuffix("-loop")] = rows is not None
        return rows

    monkeypatch.setattr(linear_loops, "doubled", doubled)
    return done


@pytest.mark.parametrize("names", [DOUBLED, REFUSED], ids=["doubled", "refused"])
def test_the_sums_are_those_of_a_walk_and_of_a_worker(
    tmp_path: Path, spark: Any, told: dict[str, bool], names: tuple[str, ...]
) -> None:
    dice = random.Random(f"{DAY} {names}")
    partitions = dice.randint(1, 3)
    topics = [TopicSpec(topic, partitions) for topic in ("nodes", *names)]
    rig = Rig(tmp_path, functools.partial(chains, names), topics, spark)
    parents = forest(dice, dice.choice([8, 20, 50]))
    rows = [(node.encode(), parent.encode()) for node, parent in parents.items()]
    dice.shuffle(rows)
    cut = dice.randint(0, len(rows))
    for part in (rows[:cut], rows[cut:]):
        rig.write("nodes", part)
        rig.work()
    for name in names:
        found = {key.decode(): N.decode(value) for key, (_, value) in rig.latest(name).items()}
        assert found == walked(parents, name), name
    verdict = rig.verify()
    assert (verdict.status, verdict.undetermined) == (0, {}), list(verdict.lines())
    assert told == dict.fromkeys(names, names == DOUBLED)
    rig.close()


@pytest.mark.parametrize("broken", ["a cycle", "two parents", "a way longer than the limit"])
def test_what_is_no_chain_is_computed_wave_by_wave(
    tmp_path: Path, spark: Any, told: dict[str, bool], broken: str
) -> None:
    def graph() -> eddy.Topology:
        topology = eddy.Topology("graph")
        edges = topology.table("edges", S, S).to_relation().map(lambda _, edge: tuple(edge.split(">")), key=S, value=S)
        seed = edges.map(lambda node, parent: (parent, 1), key=S, value=N)
        limit = 4 if broken.startswith("a way") else 64
        rows = seed.recursively(lambda rows: rows.join(edges, LOOPS["kept"], key=S, value=N), "above", limit=limit)
        rows.group_by_key(S, N).count("count").to("below")
        return topology

    more = {"a cycle": ["x>y", "y>x"], "two parents": ["1>x", "x>y"], "a way longer than the limit": []}[broken]
    edges = [*(f"{n}>{n + 1}" for n in range(12)), *more]
    rig = Rig(tmp_path, graph, [TopicSpec("edges", 2), TopicSpec("below", 2)], spark)
    rig.write("edges", [(b"%d" % at, edge.encode()) for at, edge in enumerate(edges)])
    rig.work()
    verdict = rig.verify()
    assert (verdict.status, verdict.undetermined) == (0, {}), list(verdict.lines())
    assert told == {"above": False}
    below = {key.decode(): N.decode(value) for key, (_, value) in rig.latest("below").items()}
    assert below["12"] == 12
    rig.close()
