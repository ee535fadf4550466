"""`backfill --out`: the outputs as files, equal to what a worker writes; the log is left as it is."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import eddy
from eddy.cli import main
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark import backfill_files
from eddy.errors import ConfigurationError, DataError
from tests.children import KilledError
from tests.seeds import in_turn, of_today
from tests.spark.rig import Rig, ancestors

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64
NAMES = "abcdefgh"


class Size(msgspec.Struct, frozen=True):
    node: str
    size: int | None


def family() -> eddy.Topology:
    """A recursion with a struct as its output, a windowed count, and a stream with headers and empty values."""
    topology = eddy.Topology("family")
    sizes = ancestors(topology.table("nodes", S, S)).group_by_key().count("descendants")
    sizes.map_values(lambda size: Size("x" * size, size if size > 1 else None), value=eddy.Struct(Size)).to("sizes")
    notes = topology.stream("notes", S, S)
    notes.to("copies", key=S, value=S)
    windows = eddy.TimeWindows(timedelta(seconds=1), grace=timedelta(0))
    notes.group_by_key().windowed_by(windows).count("windows").to("windows", value=N)
    return topology


def rig_of(folder: Path, spark: Any, partitions: int, rng: random.Random) -> Rig:
    topics = ("nodes", "notes", "sizes", "copies", "windows")
    rig = Rig(folder, family, [TopicSpec(topic, partitions) for topic in topics], spark)
    for name in NAMES[1:]:
        parent = rng.choice(NAMES[: NAMES.index(name)])
        rig.write("nodes", [(name.encode(), None if rng.random() < 0.2 else parent.encode())])
    for time in range(12):
        note = None if rng.random() < 0.3 else rng.choice("xyz").encode()
        rig.write("notes", [(rng.choice(NAMES).encode(), note)], time=1_000 + 300 * time)
    return rig


@pytest.fixture
def rig(tmp_path: Path, spark: Any) -> Iterator[Rig]:
    rig = rig_of(tmp_path, spark, 2, random.Random(1))
    yield rig
    rig.close()


def written(rig: Rig, folder: Path, **options: Any) -> Any:
    given = rig.topology(), rig.spark, rig.log, rig.open_log
    return backfill_files(*given, str(folder), **options)


def ends(rig: Rig) -> dict[str, list[int]]:
    topics = {
        name: [TopicPartition(name, p) for p in range(spec.partitions)] for name, spec in rig.log.topics().items()
    }
    return {name: list(rig.log.end_offsets(parts).values()) for name, parts in topics.items()}


@pytest.mark.parametrize(("seed", "one_task"), [*in_turn([(seed, seed % 2 * 1000) for seed in of_today(4)], 4)])
def test_files_have_the_rows_that_a_worker_writes(seed: int, one_task: int, tmp_path: Path, spark: Any) -> None:
    rng = random.Random(seed)
    rig = rig_of(tmp_path, spark, rng.randrange(1, 4), rng)
    rig.work()
    before, folder = ends(rig), tmp_path / "lake é"
    done = written(rig, folder, one_task=one_task)
    assert ends(rig) == before
    sizes = {key.decode(): msgspec.json.decode(value) for key, (_, value) in rig.latest("sizes").items() if key}
    assert {row["key"]: row["value"] for row in pq.read_table(folder / "sizes").to_pylist()} == sizes
    windows = Counter((key, N.decode(value)) for key, (_, value) in rig.latest("windows").items())
    found = pq.read_table(folder / "windows").to_pylist()
    assert len(found) == len(windows)
    assert Counter(row["value"] for row in found) == Counter(value for _, value in windows.elements())
    assert all(row["key"]["end_ms"] - row["key"]["start_ms"] == 1_000 for row in found)
    notes = Counter((key, value) for _, key, value in rig.rows("notes"))
    copies = pq.read_table(folder / "copies").to_pylist()
    encoded = ((row["key"].encode(), row["value"] and row["value"].encode()) for row in copies)
    assert Counter(encoded) == notes
    times = {round(row["timestamp"].timestamp() * 1000) for row in copies}
    assert times == {1_000 + 300 * time for time in range(12)}
    assert done.written == {"sizes": len(sizes), "windows": len(found), "copies": 12}
    noted = json.loads((folder / "_eddy.json").read_text())
    assert noted == {"application": "family", "inputs": {topic: before[topic] for topic in ("nodes", "notes")}}
    rig.close()


def test_files_that_are_there_are_overwritten_only_where_it_is_said(rig: Rig, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    written(rig, folder)
    worker = eddy.Worker(rig.topology(), rig.log)  # it may run meanwhile
    worker.step()
    rig.write("nodes", [(name.encode(), None) for name in NAMES])
    with pytest.raises(ConfigurationError, match=r"'sizes' is there already; .*: --replace"):
        written(rig, folder)

    def kill(stage: str) -> None:
        if stage == "write files":
            raise KilledError

    with pytest.raises(KilledError):
        written(rig, tmp_path / "killed", stage=kill)
    assert not (tmp_path / "killed").exists()
    assert written(rig, folder, replace=True).written["sizes"] == 0
    assert rig.spark.read.parquet(f"{folder}/sizes").schema.simpleString() == (
        "struct<key:string,value:struct<node:string,size:bigint>>"
    )
    worker.close()


def test_what_cannot_be_written_is_named_and_nothing_is(rig: Rig, tmp_path: Path) -> None:
    before, folder = ends(rig), tmp_path / "lake"
    rig.topology = untyped
    with pytest.raises(ConfigurationError, match=r"type of the values of output 'sizes'; .*\.to\('sizes', value=…\)"):
        written(rig, folder)
    rig.topology = without_outputs
    with pytest.raises(ConfigurationError, match="the topology has no output"):
        written(rig, folder)
    rig.topology = family
    rig.write("nodes", [(b"x", b"\xff")])
    with pytest.raises(DataError, match=r"topic 'nodes' partition \d offset \d+ key b'x'"):
        written(rig, folder, one_task=0)
    assert not folder.exists()
    assert ends(rig).keys() == before.keys()


def untyped() -> eddy.Topology:
    topology = eddy.Topology("family")
    topology.table("nodes", S, S).map_values(lambda value: len(value)).to("sizes")
    return topology


def without_outputs() -> eddy.Topology:
    topology = eddy.Topology("family")
    topology.table("nodes", S, S).group_by(lambda node, parent: (parent, node), key=S, value=S).count("children")
    return topology


PROGRAM = """\
import eddy

topology = eddy.Topology("family")
topology.table("nodes", eddy.String, eddy.String).to("copies")
"""


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_format_without_its_package_is_refused_by_name(form: str, rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "family.py").write_text(PROGRAM)
    given = ["backfill", str(tmp_path / "family.py"), "--data", str(rig.path), "--out", str(tmp_path / "lake")]
    refused = CliRunner().invoke(main, [*given, "--out-format", form])
    assert refused.exit_code == 2
    assert f"no package for the format {form}" in refused.output
    assert "--spark-conf spark.jars.packages=" in refused.output
    assert not (tmp_path / "lake").exists()
    done = CliRunner().invoke(main, [*given, "--out-format", "orc"])
    assert done.exit_code == 0, done.output
    assert f"family: written to {tmp_path}/lake, as of nodes " in done.output
    assert rig.spark.read.orc(f"{tmp_path}/lake/copies").count() == len(rig.latest("nodes"))
