"""Local states that are not what they should be, and changelogs that have lost something."""

import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as Partition

import eddy
from eddy.errors import ConfigurationError, StateError
from eddy.runtime.changelog_replay import TOMBSTONES_LAST_S
from eddy.runtime.internal_topics import internal_topics
from tests.bad_input.rig import Rig
from tests.bad_input.topologies import added_up, family, sums
from tests.descendants import counted
from tests.kafka import OwnBroker

ROWS = [(f"k{n % 30}", n) for n in range(60)]
HALF_S = TOMBSTONES_LAST_S / 2


def config_of(folder: Path) -> eddy.Config:
    return eddy.Config(state_dir=folder)


def moved(source: Path, target: Path) -> None:
    """Put a copy of a directory in place of another."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def test_an_older_copy_is_brought_up_to_date(rig: Rig, tmp_path: Path) -> None:
    rig.create("in", "sums", partitions=2)
    config = config_of(tmp_path / "state")
    rig.write("in", ROWS)
    rig.run(sums(rig), config)
    moved(tmp_path / "state", tmp_path / "copy")
    rig.write("in", ROWS)
    rig.run(sums(rig), config)
    moved(tmp_path / "copy", tmp_path / "state")
    rig.write("in", ROWS)
    worker = rig.run(sums(rig), config)
    assert worker.statistics.restored
    assert rig.table("sums", eddy.Int64) == added_up(ROWS * 3)


@pytest.mark.parametrize("copied", ["swapped", "first for both", "none"])
def test_directories_of_other_members_are_no_matter(rig: Rig, tmp_path: Path, copied: str) -> None:
    """A directory says itself what is in it: members may get each other's, the same twice, or none."""
    rig.create("nodes", "descendants", partitions=4)
    config = config_of(tmp_path)
    nodes = {str(n): str(n // 3) for n in range(1, 60)}
    workers = [rig.worker(family(rig), config, member=member) for member in "01"]
    rig.share(*workers)
    rig.write("nodes", nodes.items())
    rig.settle(*workers)
    for worker in workers:
        worker.close()
    first, second = tmp_path / rig.name / "0", tmp_path / rig.name / "1"
    if copied == "swapped":
        moved(first, tmp_path / "aside")
        moved(second, first)
        moved(tmp_path / "aside", second)
    elif copied == "first for both":
        moved(first, second)
    else:
        shutil.rmtree(tmp_path / rig.name)
    changes = {"3": "50", "7": "0", "60": "20"}
    workers = [rig.worker(family(rig), config, member=member) for member in "10"]
    rig.share(*workers)
    rig.write("nodes", changes.items())
    rig.settle(*workers)
    assert rig.table("descendants", eddy.Int64) == counted({**nodes, **changes})


@pytest.mark.parametrize("again", [False, True])
def test_a_directory_of_an_earlier_life_is_refused(rig: Rig, tmp_path: Path, again: bool) -> None:
    """After a reset the states of before would be wrong, whether the new life has begun elsewhere or not."""
    rig.create("in", "sums")
    rig.write("in", ROWS)
    worker = rig.run(sums(rig), config_of(tmp_path / "old"))
    rig.wait(lambda: rig.log.groups()[rig.name] == 0)
    rig.log.delete_topics(spec.name for spec in internal_topics(rig.name, worker.circuit).specs())
    rig.log.delete_group(rig.name)
    if again:
        rig.run(sums(rig), config_of(tmp_path / "new"))
    with pytest.raises(StateError, match=f"'{rig.name}'.*another incarnation"):
        rig.settle(rig.worker(sums(rig), config_of(tmp_path / "old")))
    rig.workers[-1].close()
    rig.run(sums(rig), config_of(tmp_path / "new"))
    assert rig.table("sums", eddy.Int64) == added_up(ROWS)


def test_a_changelog_cut_off_by_hand_is_refused_by_name(rig: Rig, tmp_path: Path) -> None:
    rig.create("in", "sums")
    rig.write("in", ROWS)
    rig.run(sums(rig), config_of(tmp_path))
    topic = f"{rig.name}-sums-changelog"
    rig.configure(topic, cleanup_policy="compact,delete")
    (future,) = rig.admin.delete_records([Partition(topic, 0, 7)]).values()
    future.result()
    with pytest.raises(ConfigurationError, match=rf"'{topic}' has cleanup.policy=compact,delete"):
        rig.worker(sums(rig))
    rig.configure(topic, cleanup_policy="compact")
    with pytest.raises(StateError, match=rf"'{topic}' partition 0 begins at offset 7"):
        rig.settle(rig.worker(sums(rig)))


class TestForgottenDeletions:
    """A changelog forgets that a row was deleted; a store that slept through it would have it for ever."""

    STEMS = ("people-changelog", "sizes-changelog")

    @staticmethod
    def teams(rig: Rig) -> eddy.Topology:
        topology = eddy.Topology(rig.name)
        people = topology.table(rig.topic("people"), eddy.String, eddy.String, name="people")
        sizes = people.group_by(lambda person, team: (team, person), key=eddy.String, value=eddy.String).count("sizes")
        sizes.to(rig.topic("sizes"))
        return topology

    @staticmethod
    def forget(rig: Rig, worker: eddy.Worker, name: bytes) -> None:
        """Let the broker compact until no record of `name` is left in the changelogs."""
        topics = [f"{rig.name}-{stem}" for stem in TestForgottenDeletions.STEMS]
        kept = {topic: spec.configs["delete.retention.ms"] for topic, spec in rig.log.topics(topics).items()}
        for topic in topics:
            rig.configure(topic, delete_retention_ms="0", segment_ms="50", min_cleanable_dirty_ratio="0.01")

        def forgotten() -> bool:
            rig.write("people", [("cid", "blue"), ("eve", "blue"), ("eve", None)])  # what is last is never compacted
            rig.settle(worker)
            return not any(name in (key or b"") for topic in topics for part in rig.records(topic) for key in part.keys)

        rig.wait(forgotten)
        for topic in topics:
            rig.configure(topic, delete_retention_ms=kept[topic])

    @pytest.fixture
    def slept(self, own_broker: OwnBroker, name: str, rigs: list[Rig], tmp_path: Path) -> Rig:
        """The store in `slept` has Ann of team red, who was deleted meanwhile."""
        broker = own_broker(settings={"log.cleaner.backoff.ms": "100"})
        broker.start()
        rig = Rig(name, [f"bootstrap.servers={broker.bootstrap}"])
        rigs.append(rig)
        rig.create("people", "sizes")
        rig.write("people", [("ann", "red"), ("cid", "blue")])
        rig.run(self.teams(rig), config_of(tmp_path / "slept"))
        worker = rig.worker(self.teams(rig))
        rig.write("people", [("ann", None)])
        rig.settle(worker)
        self.forget(rig, worker, b"ann")
        worker.close()
        return rig

    def test_a_store_that_slept_long_is_restored_anew(self, slept: Rig, tmp_path: Path) -> None:
        moved(tmp_path / "slept", tmp_path / "short")
        worker = slept.worker(self.teams(slept), config_of(tmp_path / "short"), wall=lambda: time.time() + HALF_S - 600)
        slept.share(worker)
        assert any(b"ann" in key for key, _ in worker.local_store.scan(b"")), "the danger is there"
        worker.close()
        worker = slept.worker(self.teams(slept), config_of(tmp_path / "slept"), wall=lambda: time.time() + HALF_S + 600)
        slept.share(worker)
        assert not any(b"ann" in key for key, _ in worker.local_store.scan(b""))
        slept.write("people", [("bob", "red")])
        slept.settle(worker)
        assert slept.table("sizes", eddy.Int64) == {"red": 1, "blue": 1}
