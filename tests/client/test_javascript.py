"""The JavaScript client, on Node: its own tests, with random queries whose rows the engine knows."""

import json
import random
from pathlib import Path
from typing import Any

import msgspec

import eddy
from eddy.live.query.nested import nested
from eddy.live.query.shapes import LevelShape, levels_of, shape_of
from tests.client.node import ROOT, run_node
from tests.live.query.random_queries import KEYS, random_changes, random_query, random_row
from tests.live.query.rig import Followed, Rig

_SEEDS = range(60)


def story(seed: int) -> dict[str, Any]:
    """A query's patches through some batches, with the rows after each."""
    draw = random.Random(seed)
    rig = Rig(KEYS, {name: [random_row(draw, name) for _ in range(draw.randrange(25))] for name in KEYS})
    query = random_query(draw)
    followed = Followed(rig.engine, query)
    rig.followed.append(followed)
    followed.ops = list(followed.view.operator.snapshot())
    view, steps = followed.view, []
    for _ in range(8):
        steps.append({"ops": followed.ops, "rows": followed.rows})
        rig.apply(random_changes(draw, rig.rows(), draw.choice([1, 1, 2, 6])))
    return {"query": repr(query), "root": view.operator.root.id, "shape": levels_of(view.shape), "steps": steps}


def test_its_rows_are_the_servers_and_its_connection_survives(tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.json"
    vectors.write_bytes(msgspec.json.encode([story(seed) for seed in _SEEDS]))
    said = run_node(
        "--test", "--test-reporter=tap", str(ROOT / "tests/client/client.test.mjs"), EDDY_VECTORS=str(vectors)
    )
    assert "# fail 0" in said
    assert "# skipped 0" in said


def test_shape_goes_through_json_and_makes_the_same_rows() -> None:
    for seed in _SEEDS:
        draw = random.Random(seed)
        rig = Rig(KEYS, {name: [random_row(draw, name) for _ in range(25)] for name in KEYS})
        followed = Followed(rig.engine, random_query(draw))
        data = json.loads(msgspec.json.encode(levels_of(followed.view.shape)))
        shape = shape_of(msgspec.convert(data, list[LevelShape]))
        assert nested(followed.buckets.entries, shape, followed.view.operator.root.id) == followed.rows


def test_levels_of_a_tree_lead_back() -> None:
    nodes = eddy.live_table("nodes", key="id")

    def children(node: Any) -> eddy.Query:
        return nodes.where(nodes.parent == node.id).nest(children=children)

    followed = Followed(Rig({"nodes": ["id"]}, {"nodes": []}).engine, nodes.nest(children=children))
    assert [level.nests for level in levels_of(followed.view.shape)] == [{"children": 1}, {"children": 1}]
