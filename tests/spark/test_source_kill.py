"""A job that writes a frame gets SIGKILL, with its JVM and Python workers, while it writes, and is run again."""

import functools
import random
import sys
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.connectors.spark.source.job_writing import JOBS
from eddy.serde import Int64
from tests.children import ROOT
from tests.seeds import DAY, on_days
from tests.spark.jobs import QUICK_TO_START, Job
from tests.spark.rig import rows_of

pytestmark = [pytest.mark.xdist_group("spark-jobs"), pytest.mark.timeout(1200)]

PROGRAM = f"""\
import sys

sys.path.insert(0, {str(ROOT)!r})
from eddy.connectors.spark import local_session, register

tasks, topic, option, where = sys.argv[1:]
spark = local_session("local[2]", "1g", {{"spark.driver.extraJavaOptions": "{QUICK_TO_START}"}})
register(spark)
numbers = spark.range(300_000).selectExpr("concat('key ', id % 70000) AS key", "id AS value").repartition(int(tasks))
options = {{option: where, "topic": topic, "job": topic, "value": "int64"}}
numbers.write.format("eddy").options(**options).mode("append").save()
spark.stop()
"""
ROWS = 300_000
PATIENCE_S = 480.0


def killed(job: Job, written: Callable[[], int], enough: int) -> None:
    """Kill a job when it has written so many offsets."""
    try:
        job.wait_for(lambda: written() > enough, "rows of the job", PATIENCE_S, pause_s=0.002)
    finally:
        assert job.kill() or job.process.returncode == 0, job.last_words()  # it may have been quicker than the kill


@on_days({1}, 3)
@pytest.mark.parametrize("where", ["data", pytest.param("bootstrap", marks=pytest.mark.long)])
def test_killed_in_the_midst_of_writing_it_writes_the_rest(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rng, topic = random.Random(DAY), f"killed-{uuid.uuid4().hex[:8]}"
    at = str(tmp_path / "log") if where == "data" else request.getfixturevalue("broker")
    local = functools.partial(LocalLog, Path(at), busy_timeout_s=30.0)
    open_log: Callable[[], Log] = local if where == "data" else lambda: KafkaLog(KafkaSettings.of(at))
    program = tmp_path / "job.py"
    program.write_text(PROGRAM)
    with closing(open_log()) as log:
        log.create_topics([TopicSpec(topic, 2)])
        parts = [TopicPartition(topic, p) for p in range(2)]

        def offsets() -> int:
            return sum(log.end_offsets(parts).values())

        part_ways = 0
        for tasks in (1, 3):
            # The job leaves more than a transaction to be written, so that the kill is in the midst of it.
            enough = offsets() + rng.randrange(60_000)
            killed(Job(tmp_path, sys.executable, program, str(tasks), topic, where, at), offsets, enough)
            part_ways += 0 < len(rows_of(log, topic, to_the_end=False)) < ROWS
        assert part_ways > 0, "no kill left a part of the rows"
        status, said = Job(tmp_path, sys.executable, program, "2", topic, where, at).wait()
        assert status == 0, said
        found = rows_of(log, topic)
        assert sorted(Int64.decode(value or b"") for _, _, value in found) == [*range(ROWS)]
        assert all(partition == log.partitioner(key or b"", 2) for partition, key, _ in found[:1_000])
        assert JOBS in log.topics([JOBS])
