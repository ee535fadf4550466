"""The example's job for spark-submit, on a master of this machine: both of its commands, and how they end."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from eddy.cli import main
from eddy.cli.load import load
from eddy.connectors.log import TopicSpec
from tests.spark.jobs import QUICK_TO_START, Job
from tests.spark.rig import Rig, plant

pytestmark = [pytest.mark.xdist_group("spark-jobs"), pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
FAMILY = ROOT / "examples" / "family.py"
SUBMIT = Path(sys.executable).with_name("spark-submit")
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.checkpoint.dir": "checkpoints",
    "spark.pyspark.python": sys.executable,
}


def submitted(folder: Path, *words: str | Path) -> tuple[int, str]:
    """How the job ends with these arguments, and what it says."""
    confs = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    options = ["--master", "local[2]", "--driver-memory", "1g", "--driver-java-options", QUICK_TO_START, *confs]
    job = ROOT / "examples" / "spark" / "job.py"
    return Job(folder, SUBMIT, *options, job, *words, "--one-task", "0", PYSPARK_PYTHON=sys.executable).wait()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, lambda: load(str(FAMILY)).topology, [TopicSpec("nodes", 2), TopicSpec("descendants", 2)])
    rig.write("nodes", [(b"leaf", b"twig"), (b"twig", b"branch"), (b"branch", b"tree")])
    yield rig
    rig.close()


def test_a_backfill_is_submitted(rig: Rig, tmp_path: Path) -> None:
    status, said = submitted(tmp_path, "backfill", FAMILY, "--data", rig.path)
    assert (status, "descendants: 3 records" in said) == (0, True), said
    assert any((tmp_path / "checkpoints").rglob("part-*")), "loops are cut off by reliable checkpoints"


@pytest.mark.long
def test_a_verification_is_submitted(rig: Rig, tmp_path: Path) -> None:
    rig.work()
    plant(rig, "UPDATE records SET value = ?", "descendants", b"tree", (7).to_bytes(8, "big"))
    found = tmp_path / "differences"
    status, said = submitted(tmp_path, "verify", FAMILY, "--data", rig.path, "--mismatches", found.as_uri())
    assert (status, "'tree': expected 3, found 7" in said) == (1, True), said
    assert any(found.glob("*.parquet"))


def test_what_is_said_to_spark_submit_is_not_said_to_the_job(tmp_path: Path) -> None:
    arguments = ["verify", str(FAMILY), "--data", str(tmp_path), "--master", "local[2]"]
    ended = CliRunner().invoke(main, arguments, obj="a session")
    assert ended.exit_code == 2
    assert "--master: the session exists already; pass the option to spark-submit" in ended.output
