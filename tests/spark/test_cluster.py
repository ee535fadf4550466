"""A cluster of Spark's own: a master and workers in processes of their own, and Kafka.

Both workers compute; one is killed with all of its processes, and the answers are right.
"""

import contextlib
import os
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import eddy
from eddy.cli.load import load
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.log import TopicSpec
from tests.spark.jobs import QUICK_TO_START, Job
from tests.spark.rig import latest_of, write

pytestmark = [pytest.mark.xdist_group("spark-jobs"), pytest.mark.timeout(1200), pytest.mark.long]

ROOT = Path(__file__).parents[2]
CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEPLOY = "org.apache.spark.deploy"
LOCAL = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": QUICK_TO_START,
    "PYSPARK_PYTHON": sys.executable,
}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_TO_START,
    "spark.pyspark.python": sys.executable,
}
LEVELS = 40
WARNING = "without a folder for checkpoints"
PATIENCE_S = 300.0
PROGRAM = """\
import eddy

topology = eddy.Topology("{name}")
parents = topology.table("{name}-nodes", eddy.String, eddy.String)
above = parents.to_relation().map(lambda node, parent: (parent, 1))
above = above.recursively(lambda rows: rows.join(parents, lambda _, one, parent: (parent, one)), "ancestors")
above.group_by_key().count("descendants").to("{name}-descendants")
"""


class Cluster:
    """A master, and workers with one core each; each is a process of its own session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.master = self._started("master.Master", "--port", "0")
        found = self._wait(self.master, r"Starting Spark master at (spark://\S+)")
        self.url = found[1]
        self.workers = {name: self.worker(name) for name in ("one", "two")}

    def worker(self, name: str) -> Job:
        """A worker with its folder."""
        words = "--port", "0", "--cores", "1", "--memory", "1g", "--work-dir", self.folder / name, self.url
        worker = self._started("worker.Worker", *words)
        self._wait(worker, r"(Successfully registered with master)")
        return worker

    def _started(self, name: str, *words: str | Path) -> Job:
        given = f"{DEPLOY}.{name}", "--host", "127.0.0.1", "--webui-port", "0", *words
        return Job(self.folder, CLASS, *given, **LOCAL)

    def _wait(self, job: Job, text: str) -> re.Match[str]:
        job.wait_for(lambda: re.search(text, job.said().out), text, PATIENCE_S)
        found = re.search(text, job.said().out)
        assert found
        return found

    def computed(self, name: str) -> int:
        """How many tasks the executors of a worker have finished."""
        said = [path.read_text(errors="replace") for path in (self.folder / name).glob("app-*/*/stderr")]
        return sum(text.count("Finished task") for text in said)

    def submitted(self, folder: Path, *words: str | Path, checkpoints: Path | None = None) -> Job:
        """A job of the example, perhaps with a folder for checkpoints that all workers share."""
        settings = SETTINGS | ({"spark.checkpoint.dir": str(checkpoints)} if checkpoints else {})
        confs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        options = ["--master", self.url, "--driver-memory", "1g", "--driver-java-options", QUICK_TO_START, *confs]
        job = ROOT / "examples" / "spark" / "job.py"
        submit = Path(sys.executable).with_name("spark-submit")
        return Job(folder, submit, *options, job, *words, **LOCAL)

    def close(self) -> None:
        for job in (*self.workers.values(), self.master):
            job.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    os.makedirs(tmp_path / "cluster")
    with contextlib.closing(Cluster(tmp_path / "cluster")) as cluster:
        yield cluster


def test_a_worker_of_the_cluster_is_killed_and_the_answers_are_right(
    broker: str, cluster: Cluster, tmp_path: Path
) -> None:
    name = f"cluster-{uuid.uuid4().hex[:8]}"
    program = tmp_path / "family.py"
    program.write_text(PROGRAM.format(name=name))
    with contextlib.closing(KafkaLog(KafkaSettings.of(broker))) as log:
        log.create_topics(TopicSpec(f"{name}-{topic}", 2, {"retention.ms": "-1"}) for topic in ("nodes", "descendants"))
        nodes = [(f"n{number}", f"n{number - 1}") for number in range(1, LEVELS)] + [("leaf", "n7")]
        write(log, f"{name}-nodes", [(node.encode(), parent.encode()) for node, parent in nodes])
        given = program, "--bootstrap", broker
        job = cluster.submitted(tmp_path, "backfill", *given, "--one-task", "0", checkpoints=tmp_path / "checkpoints")
        both = lambda: all(cluster.computed(name) > 3 for name in cluster.workers)  # noqa: E731
        job.wait_for(both, "tasks on both workers", PATIENCE_S)
        assert "write changelogs" not in job.said().out
        assert cluster.workers["one"].kill()
        status, said = job.wait()
        assert (status, WARNING in said) == (0, False), said
        counts = {f"n{number}": LEVELS - 1 - number + (number <= 7) for number in range(LEVELS - 1)}
        expected = {node.encode(): count for node, count in counts.items()}
        found = {key: int.from_bytes(value, "big") for key, (_, value) in latest_of(log, f"{name}-descendants").items()}
        assert found == expected
        topology = load(str(program)).topology
        with contextlib.closing(eddy.Worker(topology, log, eddy.Config(state_dir=tmp_path / "state"))) as worker:
            write(log, f"{name}-nodes", [(b"leaf", None)])
            worker.run_until_idle()
            worker.step()
        cluster.workers["three"] = cluster.worker("three")
        status, said = cluster.submitted(tmp_path, "verify", *given).wait()
        assert (status, WARNING in said) == (0, True), said
        assert f"sink {name}-descendants: {LEVELS - 1} keys, all equal" in said
        assert cluster.computed("two") > 0
        assert cluster.computed("three") > 0
