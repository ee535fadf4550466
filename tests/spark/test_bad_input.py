"""What backfill and verify refuse, by the commands: the message with the fix, exit status 2, and nothing written."""

import os
import re
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.errors import PySparkException

import eddy
from eddy.cli import main
from eddy.cli.load import load
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark.session import ONE_TASK, driver_errors
from eddy.errors import ConnectorError
from tests.seeds import in_turn
from tests.spark.jobs import eddy as eddy_job
from tests.spark.rig import Rig

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

PROGRAM = """\
import eddy

topology = eddy.Topology("people")
ages = topology.table("ages", eddy.String, eddy.Int64)
names = topology.table("names", eddy.String, eddy.String)
names.join(ages, lambda name, age: f"{name}, {age}", value=eddy.String, name="both").to("both")
"""
TOPICS = ("ages", "names", "both")
COMMANDS = ("backfill", "verify")


def rig_in(folder: Path, spark: Any) -> Rig:
    """A program in a folder with its log."""
    program = folder / "people.py"
    program.write_text(PROGRAM)
    rig = Rig(folder, lambda: load(str(program)).topology, [TopicSpec(topic, 2) for topic in TOPICS], spark)
    rig.write("names", [(b"%d" % n, b"name of %d" % n) for n in range(6)])
    rig.write("ages", [(b"%d" % n, (30 + n).to_bytes(8, "big")) for n in (0, 1, 4, 5)])
    return rig


@pytest.fixture
def rig(tmp_path: Path, spark: Any) -> Iterator[Rig]:
    rig = rig_in(tmp_path, spark)
    yield rig
    rig.close()


def spoil(rig: Rig) -> None:
    """Ages of "2" and "3" do not decode, and a name."""
    rig.write("ages", [(b"2", b"two"), (b"3", b"three"), (b"\xff", (1).to_bytes(8, "big"))])


def run(rig: Rig, command: str, *words: str) -> Result:
    return CliRunner().invoke(main, [command, str(rig.path.parent / "people.py"), "--data", str(rig.path), *words])


def everything(rig: Rig) -> dict[str, list[int]]:
    """The topics, and where they end."""
    ends = {name: [TopicPartition(name, p) for p in range(spec.partitions)] for name, spec in rig.log.topics().items()}
    return {name: list(rig.log.end_offsets(partitions).values()) for name, partitions in ends.items()}


def refused(rig: Rig, command: str, *words: str) -> str:
    """What is said to a command that ends with 2 and writes nothing."""
    before = everything(rig)
    ended = run(rig, command, *words)
    assert ended.exit_code == 2, ended.output
    assert everything(rig) == before
    assert "Traceback" not in ended.output
    return ended.output


def worked_or_not(rig: Rig, command: str) -> None:
    """There has to be a worker's work before it can be verified."""
    if command == "verify":
        rig.work()


@pytest.mark.parametrize("command", COMMANDS)
def test_records_that_are_kept_no_longer(command: str, rig: Rig) -> None:
    worked_or_not(rig, command)
    rig.log.delete_records({TopicPartition("names", 1): 1})
    said = refused(rig, command)
    assert "topic 'names' partition 1 begins at offset 1: records before it were deleted" in said
    assert "--input names=FILES.parquet" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_topics_that_are_joined_with_other_numbers_of_partitions(command: str, rig: Rig) -> None:
    worked_or_not(rig, command)
    again(rig, "ages", 3)
    said = refused(rig, command)
    assert "not co-partitioned: 'names' has 2 partitions, 'ages' has 3" in said
    assert "repartition(3)" in said


@pytest.mark.parametrize("gone", ["its records", "its topic"])
def test_a_cut_that_is_gone(gone: str, rig: Rig) -> None:
    rig.work()
    cuts = TopicPartition("people-cuts", 0)
    if gone == "its topic":
        rig.log.delete_topics([cuts.topic])
    else:
        rig.log.delete_records({cuts: rig.log.end_offsets([cuts])[cuts]})
    said = refused(rig, "verify", "--timeout", "0.1")
    assert re.search(r"verify of application 'people': there was no cut .* eddy run …", said), said


def test_topics_that_were_made_anew_after_the_cut(rig: Rig) -> None:
    rig.work()
    again(rig, "both", 2)
    said = refused(rig, "verify")
    assert "could not tell: sink 'both': partition 0 of its topic ends at offset 0, before the cut's" in said
    again(rig, "names", 2)
    said = refused(rig, "verify")
    assert "topic 'names' was deleted and made anew, and the results have records" in said
    assert "eddy reset …" in said


def test_topics_with_other_numbers_of_partitions_than_the_states(rig: Rig) -> None:
    rig.work()
    for topic in ("ages", "names"):
        again(rig, topic, 3)
    rig.write("names", [(b"1", b"one")])
    rig.write("ages", [(b"1", (1).to_bytes(8, "big"))])
    assert "--replace" in refused(rig, "backfill")
    assert "topic 'ages' was deleted and" in refused(rig, "verify")
    assert run(rig, "backfill", "--replace").exit_code == 0
    assert rig.log.topics()["people-ages-changelog"].partitions == 3
    assert rig.latest("both").keys() == {b"1"}


def test_a_changelog_with_another_number_of_partitions(rig: Rig) -> None:
    rig.log.create_topics([TopicSpec("people-ages-changelog", 1)])
    said = refused(rig, "backfill")
    assert "internal topic 'people-ages-changelog' has 1 partitions, 2 are needed" in said


def again(rig: Rig, topic: str, partitions: int) -> None:
    """Make a topic anew with another number of partitions."""
    rig.log.delete_topics([topic])
    rig.log.create_topics([TopicSpec(topic, partitions)])


@pytest.mark.parametrize("rows", [*in_turn([str(ONE_TASK), "0"], 2)], ids=["in-one-task", "step-by-step"])
@pytest.mark.parametrize("command", COMMANDS)
def test_records_that_do_not_decode_where_they_are_not_left_out(command: str, rows: str, rig: Rig) -> None:
    worked_or_not(rig, command)
    spoil(rig)
    if command == "verify":
        rig.work(on_error="skip")
    said = refused(rig, command, "--one-task", rows)
    assert "topic 'ages' partition" in said
    assert "the value b't" in said or r"key b'\xff'" in said


@pytest.mark.parametrize("rows", [*in_turn([str(ONE_TASK), "0"], 2)], ids=["in-one-task", "step-by-step"])
@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_as_many_records_are_left_out_as_by_a_worker(
    policy: str, rows: str, rig: Rig, tmp_path: Path, spark: Any
) -> None:
    (tmp_path / "other").mkdir()
    scratch = rig_in(tmp_path / "other", spark)
    for one in (rig, scratch):
        spoil(one)
    done = run(rig, "backfill", "--on-error", policy, "--one-task", rows)
    assert (done.exit_code, "3 records were rejected" in done.output) == (0, True), done.output
    worker = eddy.Worker(rig.topology(), scratch.log, eddy.Config(state_dir=scratch.state, on_error=policy))
    worker.run_until_idle()
    assert worker.statistics.skipped == 3
    worker.close()
    assert rig.held() == scratch.held()
    assert sorted(rig.rows("people-dead-letter")) == sorted(scratch.rows("people-dead-letter"))
    checked = run(rig, "verify", "--on-error", policy, "--one-task", rows)
    assert (checked.exit_code, "3 records were rejected" in checked.output) == (0, True), checked.output
    scratch.close()


@pytest.mark.parametrize("command", [*in_turn(COMMANDS, 2)])
def test_without_java(command: str, rig: Rig, tmp_path: Path) -> None:
    worked_or_not(rig, command)
    assert "Java 17 or later is needed. Install one: apt-get install" in in_a_process(
        rig, command, JAVA_HOME="/nowhere"
    )


@pytest.mark.parametrize(("package", "command"), [*in_turn(product(["pyspark", "pyarrow", "pandas"], COMMANDS), 5)])
def test_without_a_package(command: str, package: str, rig: Rig, tmp_path: Path) -> None:
    worked_or_not(rig, command)
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / f"{package}.py").write_text(f"raise ImportError('no {package} here')")
    path = os.pathsep.join([str(tmp_path / "absent"), *filter(None, sys.path)])
    said = in_a_process(rig, command, PYTHONPATH=path)
    assert f"the package {package} is not installed; no {package} here. pip install 'eddy-streams[spark]'" in said


@pytest.mark.parametrize(
    ("memory", "why"), [*in_turn([("100m", "System memory .* must be at least"), ("much", "Java gateway")], 2)]
)
def test_a_driver_that_has_no_memory_to_start(memory: str, why: str, rig: Rig) -> None:
    rig.work()
    said = in_a_process(rig, "verify", "--memory", memory)
    assert re.search(f"spark: it does not start: .*{why}", said), said
    assert f"where {memory} of memory is said to be too little or too much, write --memory 2g" in said


def test_a_driver_that_cancels_its_jobs_as_it_ends_has_ended() -> None:
    told = "spark: its driver has ended, or does not answer .*; the job has failed"
    with pytest.raises(ConnectorError, match=told), driver_errors():
        raise PySparkException("Job 3 cancelled because SparkContext was shut down")


@pytest.mark.parametrize("command", [*in_turn(COMMANDS, 2)])
def test_a_driver_whose_memory_ends_at_work(command: str, rig: Rig) -> None:
    rig.write("names", [(b"%d" % n, b"x" * 1_000_000) for n in range(60)])
    worked_or_not(rig, command)
    before, folder = everything(rig), rig.path.parent
    little = "spark.driver.extraJavaOptions=-XX:MaxDirectMemorySize=32m"
    job = eddy_job(folder, command, folder / "people.py", "--data", rig.path, "--spark-conf", little)
    status, said = job.wait()
    assert status == 2, said
    assert "OutOfMemory" in said
    assert "spark: its driver has ended, or does not answer" in said
    assert "Where they say OutOfMemory, give it more: --memory 8g" in said
    assert everything(rig) == before


def in_a_process(rig: Rig, command: str, *words: str, **environment: str) -> str:
    """What a command says in an environment where Spark cannot start: with 2, and nothing is written."""
    before, folder = everything(rig), rig.path.parent
    status, said = eddy_job(folder, command, folder / "people.py", "--data", rig.path, *words, **environment).wait()
    assert (status, "Traceback" in said) == (2, False), said
    assert everything(rig) == before
    return said
