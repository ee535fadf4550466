"""The example with all of its data, by the commands: backfilled and continued, and verified while it goes on."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain, repeat
from pathlib import Path

import pytest

from eddy.cli.load import load
from eddy.connectors.kafka import KafkaLog, KafkaSettings
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log, TopicSpec
from eddy.connectors.spark.verification.verifying import last_cut
from eddy.runtime.worker import Worker
from tests.kafka import OwnBroker
from tests.spark.jobs import SPARK, Job, eddy, ended
from tests.spark.rig import latest_of, write

pytestmark = [pytest.mark.xdist_group("spark-jobs"), pytest.mark.timeout(1200), pytest.mark.long]

EXAMPLE = Path(__file__).parents[2] / "examples" / "wordnet"
PROGRAM = EXAMPLE / "topology.py"
TOPICS = [TopicSpec("concepts", 4, {"cleanup.policy": "compact"}), TopicSpec("sizes", 4, {"retention.ms": "-1"})]
STATES = ("ancestors", "descendants")
DOG, FURNITURE, BIRD = b"n02084071", "n03405725", "n01503061"
Record = tuple[bytes, bytes | None]


@pytest.fixture(scope="module")
def concepts() -> list[Record]:
    """All of them as records, in shuffled order."""
    printed = subprocess.run([sys.executable, EXAMPLE / "concepts.py"], capture_output=True, check=True).stdout
    rows = map(json.loads, printed.splitlines())
    return [(row["key"].encode(), encoded(row["value"])) for row in rows]


def encoded(concept: dict[str, str]) -> bytes:
    return json.dumps(concept, separators=(",", ":")).encode()


def below(concepts: list[Record], root: str) -> list[str]:
    """A concept and all below it, from the bottom up."""
    children: dict[str | None, list[str]] = {}
    for key, value in concepts:
        children.setdefault(json.loads(value or b"{}").get("parent"), []).append(key.decode())
    found = [root]
    for node in found:
        found += children.get(node, [])
    return found[::-1]


def moves(concepts: list[Record]) -> Iterator[Record]:
    """Dogs become furniture and canines again, for ever, and all birds go, one by one."""
    dog = json.loads(dict(concepts)[DOG] or b"")
    for bird in chain(below(concepts, BIRD), repeat(None)):
        yield DOG, encoded(dog | {"parent": FURNITURE})
        if bird:
            yield bird.encode(), None
        yield DOG, encoded(dog)


def held(log: Log) -> dict[str, dict[bytes | None, tuple[int, bytes]]]:
    """What the output and the changelogs hold, with partitions, as bytes."""
    return {topic: latest_of(log, topic) for topic in ("sizes", *(f"wordnet-{name}-changelog" for name in STATES))}


def from_scratch(records: list[Record]) -> dict[str, dict[bytes | None, tuple[int, bytes]]]:
    """The same of a worker that took in everything, on a log of its own."""
    with closing(LocalLog(None)) as log:
        log.create_topics(TOPICS)
        write(log, "concepts", records)
        with closing(Worker(load(str(PROGRAM)).topology, log)) as worker:
            worker.run_until_idle()
            return held(log)


@contextmanager
def working(folder: Path, kafka: str) -> Iterator[Job]:
    """`eddy run` meanwhile; at the end it has nothing left to do."""
    worker = eddy(folder, "run", PROGRAM, "--bootstrap", kafka, "--state", folder / "state")
    try:
        yield worker
        ended(folder, "wait", PROGRAM, "--bootstrap", kafka, "--timeout", "120")
        status, said = worker.terminate()
        assert status == 0, said
    finally:
        worker.kill()


def taken_in(log: Log) -> int:
    """How far the last cut is."""
    cut = last_cut(log, "wordnet-cuts")
    assert cut is not None
    return sum(map(sum, cut.inputs.values()))


def test_wordnet_backfilled_continued_and_verified_meanwhile_is_as_from_scratch(
    concepts: list[Record], own_broker: OwnBroker, tmp_path: Path
) -> None:
    broker = own_broker()
    broker.start()
    kafka, written = broker.bootstrap, concepts[:80_000]
    with closing(KafkaLog(KafkaSettings.of(kafka))) as log:
        log.create_topics(TOPICS)
        write(log, "concepts", written)
        ended(tmp_path, "backfill", PROGRAM, "--bootstrap", kafka, *SPARK)
        backfilled = taken_in(log)
        with working(tmp_path, kafka) as worker:
            written += concepts[80_000:]
            write(log, "concepts", concepts[80_000:])
            while taken_in(log) == backfilled:
                assert worker.running, worker.last_words()
            verification = eddy(tmp_path, "verify", PROGRAM, "--bootstrap", kafka, *SPARK)
            feed = moves(concepts)
            while verification.running:
                written.append(next(feed))
                write(log, "concepts", written[-1:])
            status, said = verification.wait()
            assert status == 0, said
            assert "wordnet: equal" in said
            assert len(written) > len(concepts) + 20, "input came all the time"
            assert taken_in(log) > backfilled + len(concepts) - 80_000
        assert held(log) == from_scratch(written)
