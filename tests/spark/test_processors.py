"""Processors on Spark: a backfill refuses them, a verification names them and compares the rest."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from eddy.connectors.spark.session import ONE_TASK
from eddy.errors import ConfigurationError
from tests.spark.rig import Rig, plant

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64


class Counting:
    """Counts the records of each key."""

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context, self.counts = context, context.store("counts")

    def process(self, record: eddy.Record[str, str]) -> None:
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.replace(value=count))


def topology() -> eddy.Topology:
    """Words counted by a processor with an unlogged store, and by eddy's own step."""
    made = eddy.Topology("words")
    made.store("counts", S, N, changelog=False)
    words = made.stream("in", S, S)
    children = words.process_values(Counting, ["counts"], "by-processor", N, children=["counted"])
    children["counted"].to_table("last").to("out")
    words.group_by_key().count("own").to("own")
    return made


@pytest.fixture
def rig(tmp_path: Path, spark: Any) -> Any:
    rig = Rig(tmp_path, topology, [TopicSpec(name, 2) for name in ("in", "out", "own")], spark)
    rig.write("in", [(b"a", b"x"), (b"b", b"x"), (b"a", b"y")])
    yield rig
    rig.close()


@pytest.mark.parametrize("one_task", [0, ONE_TASK])
def test_verify_compares_what_no_processor_makes(rig: Rig, one_task: int) -> None:
    rig.one_task = one_task
    rig.work()
    verdict = rig.verify()
    assert verdict.status == 2, list(verdict.lines())
    assert {(part.what, part.name) for part in verdict.compared} == {("sink", "own"), ("store", "own")}
    assert verdict.undetermined.keys() == {
        "step 'by-processor'",
        "step 'last'",
        "sink 'out'",
        "store 'last'",
        "store 'by-processor-moments'",
    }
    assert "what it keeps in 'counts', without a changelog, is lost" in verdict.undetermined["step 'by-processor'"]
    assert verdict.notes["store 'counts'"] == "not compared: it has no changelog"


def test_what_is_accepted_is_left_out_by_name_and_the_rest_decides(rig: Rig) -> None:
    rig.one_task = 0
    rig.work()
    verdict = rig.verify(accept=["by-processor"])
    assert (verdict.status, verdict.word, verdict.undetermined) == (0, "equal", {}), list(verdict.lines())
    assert {(part.what, part.name) for part in verdict.compared} == {("sink", "own"), ("store", "own")}
    assert verdict.accepted.keys() == {
        "step 'by-processor'",
        "sink 'out'",
        "store 'last'",
        "store 'by-processor-moments'",
    }
    assert "accepted, not compared: sink 'out': it is downstream of step 'by-processor'" in list(verdict.lines())
    downstream = rig.verify(accept=["last"])  # the processor itself remains undetermined
    assert (downstream.status, "step 'by-processor'" in downstream.undetermined) == (2, True)
    plant(rig, "UPDATE records SET value = ?", "own", b"a", N.encode(7))
    wrong = rig.verify(accept=["by-processor", "last"])
    assert (wrong.status, wrong.word) == (1, "different"), list(wrong.lines())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("by-procesor", "does not exist"),
        ("own", "is determined by the input, and is compared"),
        ("words", "does not exist"),
    ],
)
def test_what_is_accepted_has_to_be_undetermined(rig: Rig, name: str, reason: str) -> None:
    rig.work()
    with pytest.raises(ConfigurationError) as refused:
        rig.verify(accept=["by-processor", name])
    assert f"step '{name}', of which --accept says" in str(refused.value)
    assert str(refused.value).endswith(
        f"{reason}; a step that is undetermined is needed. These are: by-processor, last"
    )


def only_a_processor() -> eddy.Topology:
    made = eddy.Topology("words")
    made.store("counts", S, N, changelog=False)
    made.stream("in", S, S).process_values(Counting, ["counts"], "by-processor", N).to("out")
    return made


def test_a_verification_that_compares_nothing_is_not_equal(tmp_path: Path, spark: Any) -> None:
    rig = Rig(tmp_path, only_a_processor, [TopicSpec(name, 2) for name in ("in", "out")], spark)
    rig.write("in", [(b"a", b"x")])
    rig.work()
    verdict = rig.verify(accept=["by-processor"])
    rig.close()
    assert (verdict.status, verdict.compared) == (2, [])
    assert verdict.undetermined == {"application 'words'": "no output and no state is left to compare"}


def test_a_backfill_is_refused_before_anything_is_written(rig: Rig) -> None:
    topics = set(rig.log.topics())
    with pytest.raises(ConfigurationError, match="a worker alone computes step 'by-processor': its calls depend"):
        rig.backfill()
    assert set(rig.log.topics()) == topics


def test_what_depends_on_places_of_records_or_on_times_of_changes_is_left_out_by_name(
    tmp_path: Path, spark: Any
) -> None:
    def with_places() -> eddy.Topology:
        made = eddy.Topology("words")
        words = made.stream("in", S, S).peek(lambda key, value, record: None)  # makes no row, and leaves none out
        words.map_values(lambda value, record: record.offset, "places", N).to("out")
        words.group_by_key().count("own").to("own")
        words.group_by_key().count("often").suppress("calm", until_time_limit=timedelta(hours=1)).to("calm")
        return made

    rig = Rig(tmp_path, with_places, [TopicSpec(name, 2) for name in ("in", "out", "own", "calm")], spark)
    rig.write("in", [(b"a", b"x"), (b"b", b"x"), (b"a", b"y")])
    with pytest.raises(ConfigurationError, match=r"'places'.* reads the places and headers of records"):
        rig.backfill()
    rig.work()
    verdict = rig.verify()
    assert verdict.status == 2, list(verdict.lines())
    compared = {("sink", "own"), ("store", "own"), ("store", "often")}
    assert {(part.what, part.name) for part in verdict.compared} == compared
    assert verdict.undetermined.keys() == {
        *("step 'places'", "sink 'out'", "step 'calm'", "sink 'calm'"),
        *("store 'calm-waiting'", "store 'calm-calendar'"),
    }
    rig.close()
