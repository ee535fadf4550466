"""A backfill that gets SIGKILL, with its JVM and Python workers, in each of its stages, and is run again.

One stage a day; all of them, one after the other, in the long form.

    EDDY_KILLS=50 pytest -m long tests/spark/test_kill.py

kills at as many random moments more.
"""

import os
import random
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from eddy.cli.load import load
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.runtime.worker import Worker
from tests.seeds import DAY, on_days
from tests.spark.jobs import QUICK_TO_START, SPARK, Job, eddy
from tests.spark.rig import latest_of, rows_of, write

pytestmark = [pytest.mark.xdist_group("spark-jobs"), pytest.mark.timeout(1200)]

PROGRAM = """\
import eddy

topology = eddy.Topology("{name}")
words = topology.stream("{name}-words", eddy.String, eddy.String)
words.filter(lambda key, word: word.isupper()).to("{name}-loud")
words.group_by(lambda key, word: word.lower(), key=eddy.String).count("counts").to("{name}-counts")
"""
FIRST = [(b"%d" % n, b"W%d" % (n * 7 % 50_000)) for n in range(60_000)]
THEN = [(b"%d" % n, b"%c%d" % (b"wW"[n % 2], n * 11)) for n in range(200)]
PARTITIONS = 4
PATIENCE_S = 600.0
WRITES = {"write changelogs": {"counts-changelog": 50_000}, "write outputs": {"loud": 60_000, "counts": 50_000}}
"""The stages that write, with the topics and how many records come into them."""
STAGES = {"embedded": ("compute", "begin", *WRITES, "finish"), "kafka": (*WRITES, "finish")}
MOMENTS_S = {"compute": 3.0, "begin": 0.1, "finish": 0.1}
"""Of the others, in how many seconds they are killed at a random moment."""


class Application:
    """Words that are filtered and counted, on a log of which `where` are the options."""

    def __init__(self, folder: Path, name: str, log: Log, *where: str | Path) -> None:
        self.folder, self.name, self.log, self.where = folder, name, log, where
        self.program = folder / f"{name}.py"
        self.program.write_text(PROGRAM.format(name=name))
        kept = {"retention.ms": "-1"}
        log.create_topics(TopicSpec(self.topic(topic), PARTITIONS, kept) for topic in ("words", "loud", "counts"))
        self.write(FIRST)

    def topic(self, name: str) -> str:
        return f"{self.name}-{name}"

    def write(self, words: list[tuple[bytes, bytes]]) -> None:
        write(self.log, self.topic("words"), words)

    def backfill(self, rng: random.Random) -> Job:
        """A backfill, started: in one task, or step by step."""
        options = f"spark.driver.extraJavaOptions={QUICK_TO_START} -Djava.io.tmpdir={self.folder}"
        way = rng.choice([(), ("--one-task", "0")])
        return eddy(self.folder, "backfill", self.program, *self.where, *SPARK, "--spark-conf", options, *way)

    def work(self) -> None:
        worker = Worker(load(str(self.program)).topology, self.log)
        worker.run_until_idle()
        worker.close()

    def held(self) -> dict[str, object]:
        """What the output and the changelog of the table hold, and every record of the stream."""
        tables = {topic: latest_of(self.log, self.topic(topic)) for topic in ("counts", "counts-changelog")}
        return {**tables, "loud": rows_of(self.log, self.topic("loud"))}

    def appended(self, stage: str) -> int:
        """How many offsets there are in the topics of a stage."""
        partitions = [TopicPartition(self.topic(topic), p) for topic in WRITES[stage] for p in range(PARTITIONS)]
        known = self.log.topics({partition.topic for partition in partitions})
        return sum(self.log.end_offsets(p for p in partitions if p.topic in known).values())

    def kill(self, stage: str, rng: random.Random) -> bool:
        """Kill a backfill at a random moment of a stage. Returns whether it was in the midst of writing."""
        job = self.backfill(rng)
        try:
            job.wait_for(lambda: f" {stage}\n" in job.said().out, stage, PATIENCE_S, pause_s=0.002)
            if stage in WRITES:
                enough = rng.uniform(0, 0.6) * sum(WRITES[stage].values())
                job.wait_for(lambda: self.appended(stage) > enough, f"records of {stage}", PATIENCE_S, pause_s=0.002)
            else:
                time.sleep(rng.uniform(0, MOMENTS_S[stage]))  # pause: a random moment
        finally:
            assert job.kill() or job.process.returncode == 0, job.last_words()  # it may have been quicker than the kill
        if stage not in WRITES:
            return False
        there = sum(len(rows_of(self.log, self.topic(topic), to_the_end=False)) for topic in WRITES[stage])
        return 0 < there < sum(WRITES[stage].values())


@contextmanager
def log_of(where: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Log, str, str | Path]]:
    if where == "kafka":
        kafka = request.getfixturevalue("broker")
        with closing(KafkaLog(KafkaSettings.of(kafka))) as log:
            yield log, "--bootstrap", kafka
    else:
        with closing(LocalLog(folder / "log", busy_timeout_s=30.0)) as log:
            yield log, "--data", folder / "log"


@on_days({0}, 3)
def test_killed_in_a_stage_it_goes_on_when_run_again(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    rng = random.Random(DAY)
    check_kills("embedded", [STAGES["embedded"][DAY % len(STAGES["embedded"])]], rng, tmp_path, request)


@pytest.mark.long
@pytest.mark.parametrize("where", STAGES)
def test_killed_in_every_stage_it_goes_on_when_run_again(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(where)
    more = rng.choices(STAGES[where][:-1], k=int(os.environ.get("EDDY_KILLS", "0")))
    midst = check_kills(where, [*more, *STAGES[where]], rng, tmp_path, request)
    assert midst > 0, "no kill left a part of what is to be written"


def check_kills(
    where: str, stages: list[str], rng: random.Random, tmp_path: Path, request: pytest.FixtureRequest
) -> int:
    """Kill a backfill in each of these stages, then let it end. Returns how many kills were in the midst of writing."""
    name = f"kill-{uuid.uuid4().hex[:8]}"
    with log_of(where, tmp_path, request) as (log, *options):
        application = Application(tmp_path, name, log, *options)
        midst = sum(application.kill(stage, rng) for stage in stages)
        done, said = application.backfill(rng).wait()
        assert done == 0, said
        application.write(THEN)
        application.work()
        assert application.held() == from_scratch(tmp_path, name)
    return midst


def from_scratch(folder: Path, name: str) -> dict[str, object]:
    """What a worker makes of it that took in everything."""
    with closing(LocalLog(None)) as log:
        application = Application(folder, name, log)
        application.work()
        application.write(THEN)
        application.work()
        return application.held()
