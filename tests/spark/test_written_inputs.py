"""Topics that an application reads and writes: records of others in them are kept, and prove no error."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import eddy
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark.verification.verdict_document import document_of
from eddy.errors import ConfigurationError
from tests.spark.rig import Rig

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64
COMPACT = {"cleanup.policy": "compact"}


def looped() -> eddy.Topology:
    """A table that is written from another one, with a count of its values."""
    topology = eddy.Topology("looped")
    topology.table("given", S, S).filter(lambda key, value: value != "").to("nodes")
    topology.table("nodes", S, S).group_by(lambda key, value: (value, key), S, S).count("counts").to("counts", value=N)
    return topology


@pytest.fixture
def rigs(tmp_path: Path, spark: Any) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(settings: dict[str, str]) -> Rig:
        topics = [TopicSpec("given", 2), TopicSpec("nodes", 2, settings), TopicSpec("counts", 2)]
        made.append(Rig(tmp_path / str(len(made)), looped, topics, spark))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.mark.parametrize("settings", [{}, COMPACT])
@pytest.mark.parametrize("replace", [False, True])
def test_a_backfill_that_would_delete_records_of_others_is_refused(
    rigs: Callable[..., Rig], settings: dict[str, str], replace: bool
) -> None:
    rig = rigs(settings)
    rig.write("nodes", [(b"theirs", b"x")])
    rig.write("given", [(b"ours", b"x")])
    if replace:
        rig.work()
    before = rig.rows("nodes")
    with pytest.raises(ConfigurationError, match="topic 'nodes' is an input and an output, and holds records already"):
        rig.backfill(replace=replace)
    assert rig.rows("nodes") == before
    rig.work()
    assert {key: value for key, (_, value) in rig.latest("nodes").items()} == {b"theirs": b"x", b"ours": b"x"}


def test_a_backfill_into_an_empty_topic_is_as_a_worker(rigs: Callable[..., Rig]) -> None:
    rig, scratch = rigs({}), rigs({})
    for one in (rig, scratch):
        one.write("given", [(b"a", b"x"), (b"b", b"x"), (b"c", b"")])
    scratch.work()
    rig.backfill()
    for one in (rig, scratch):
        one.go_on({"given": [(b"a", b""), (b"d", b"y")], "nodes": [(b"e", b"y")]})
    assert rig.latest("counts") == scratch.latest("counts")
    assert rig.latest("nodes") == scratch.latest("nodes")


def test_records_of_others_are_no_difference_and_what_differs_elsewhere_is(
    rigs: Callable[..., Rig], tmp_path: Path
) -> None:
    rig = rigs({})
    rig.write("given", [(b"a", b"x"), (b"b", b"x")])
    rig.work()
    assert (rig.verify().status, rig.verify().undetermined) == (0, {})
    rig.go_on({"nodes": [(b"theirs", b"y")]})
    verdict = rig.verify(mismatches=str(tmp_path / "mismatches"))
    assert verdict.status == 2, list(verdict.lines())
    assert list(verdict.undetermined) == ["sink 'nodes'"]
    assert "1 of its 3 keys differ, such as 'theirs'" in verdict.undetermined["sink 'nodes'"]
    assert {(part.what, part.name) for part in verdict.compared} >= {("sink", "counts"), ("store", "counts")}
    found = json.loads(document_of(verdict).encode())
    assert (found["verdict"], [reason["name"] for reason in found["undetermined"]]) == ("undetermined", ["nodes"])
    assert not (tmp_path / "mismatches").exists()
    rig.write("counts", [(b"x", N.encode(7))])  # by hand, which a cut of the worker includes
    rig.go_on({"given": [(b"d", b"z")]})
    verdict = rig.verify(mismatches=str(tmp_path / "mismatches"))
    assert (verdict.status, list(verdict.undetermined)) == (1, ["sink 'nodes'"])
    rows = pq.read_table(tmp_path / "mismatches").to_pylist()
    assert {row["name"] for row in rows} == {"counts"}
