"""Topics that are not as they have to be: missing, of another shape, changed by hand, deleted under way."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions

import eddy
from eddy.connectors.log import TopicSpec
from eddy.errors import ConfigurationError, ConnectorError, EddyError, StateError
from eddy.runtime.internal_topics import internal_topics
from tests.bad_input.administrator import created_by
from tests.bad_input.conftest import MakeRig
from tests.bad_input.rig import Rig
from tests.bad_input.topologies import added_up, echo, family, sums
from tests.descendants import counted

QUICK_NEWS = ("topic.metadata.refresh.interval.ms=300", "topic.metadata.propagation.max.ms=1000")
NODES = {"leaf": "twig", "twig": "branch", "branch": "tree", "bud": "twig"}


def grow(rig: Rig, topic: str, partitions: int) -> None:
    for future in rig.admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result()
    rig.wait(lambda: rig.log.topics([topic])[topic].partitions == partitions)


@pytest.fixture
def families(rig: Rig) -> Rig:
    """The family has run, and is written: loop and changelogs are there."""
    rig.create("nodes", "descendants", partitions=2)
    rig.write("nodes", NODES.items())
    rig.run(family(rig))
    assert rig.table("descendants", eddy.Int64) == counted(NODES)
    return rig


@pytest.mark.parametrize("stem", ["in", "out"])
def test_a_missing_topic_of_the_users_is_named(rig: Rig, stem: str) -> None:
    rig.create("out" if stem == "in" else "in")
    with pytest.raises(ConfigurationError, match=rf"{rig.topic(stem)}.*do not exist"):
        rig.worker(echo(rig))
    assert not [topic for topic in rig.log.topics() if topic.startswith(f"{rig.name}-")]


@pytest.mark.parametrize("stem", ["ancestors-loop", "descendants-changelog", "plan", "dead-letter"])
def test_an_internal_topic_of_another_shape_is_refused(rig: Rig, stem: str) -> None:
    rig.create("nodes", "descendants", partitions=2)
    configs = {} if stem in {"ancestors-loop", "dead-letter"} else {"cleanup.policy": "compact"}
    rig.log.create_topics([TopicSpec(f"{rig.name}-{stem}", 3, configs)])
    with pytest.raises(ConfigurationError, match=rf"'{rig.name}-{stem}' has 3 partitions"):
        rig.worker(family(rig))


DELETES = {"cleanup_policy": "delete"}
DRIFTS = {
    "changelog-deletes": ("descendants-changelog", DELETES, "cleanup.policy=delete"),
    "changelog-forgets": ("descendants-changelog", {"delete_retention_ms": "1000"}, "delete.retention.ms=1000"),
    "loop-compacts": ("ancestors-loop", {"cleanup_policy": "compact"}, "cleanup.policy=compact"),
    "loop-expires": ("ancestors-loop", {"retention_ms": "60000"}, "retention.ms=60000"),
    "times-of-arrival": ("ancestors-loop", {"message_timestamp_type": "LogAppendTime"}, "timestamp.type=LogAppendTime"),
    "plan-deletes": ("plan", DELETES, "cleanup.policy=delete"),
    "cuts-delete": ("cuts", DELETES, "cleanup.policy=delete"),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_a_drifted_internal_topic_is_refused_and_taken_when_set_back(families: Rig, drift: str) -> None:
    stem, configs, told = DRIFTS[drift]
    topic = f"{families.name}-{stem}"
    before = families.log.topics([topic])[topic].configs
    families.configure(topic, **configs)
    with pytest.raises(ConfigurationError, match=rf"'{topic}' has .*{re.escape(told)}"):
        families.worker(family(families))
    families.configure(topic, **{name: before[name.replace("_", ".")] for name in configs})
    families.write("nodes", [("sprout", "bud")])
    families.run(family(families))
    assert families.table("descendants", eddy.Int64) == counted({**NODES, "sprout": "bud"})


@pytest.mark.parametrize("stem", ["ancestors-loop", "nodes-changelog", "descendants-changelog"])
def test_an_internal_topic_that_vanished_is_not_made_anew(families: Rig, stem: str) -> None:
    families.log.delete_topics([f"{families.name}-{stem}"])
    with pytest.raises(ConfigurationError, match=rf"'{families.name}-{stem}' is missing, or"):
        families.worker(family(families))
    assert families.log.topics([f"{families.name}-{stem}"]) == {}


def test_a_changelog_remade_by_hand_is_refused(rig: Rig, tmp_path: Path) -> None:
    """An empty one in place of the one that had the rows: the store knows that there were more."""
    config = eddy.Config(state_dir=tmp_path)
    rig.create("nodes", "descendants", partitions=2)
    rig.write("nodes", NODES.items())
    rig.run(family(rig), config)
    topic = f"{rig.name}-descendants-changelog"
    spec = rig.log.topics([topic])[topic]
    rig.log.delete_topics([topic])
    rig.log.create_topics([spec])
    with pytest.raises(StateError, match=topic):
        rig.settle(rig.worker(family(rig), config))


@pytest.mark.parametrize("partitions", [3, 4])
def test_a_source_that_grew_is_refused_at_the_next_start(families: Rig, partitions: int) -> None:
    grow(families, families.topic("nodes"), partitions)
    with pytest.raises(EddyError, match=rf"(?s)partitions=2.*partitions={partitions}"):
        families.worker(family(families))


def test_a_source_without_states_behind_it_may_grow_between_two_runs(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.create("in", "out")
    rig.write("in", [("a", "1")])
    rig.run(echo(rig))
    grow(rig, rig.topic("in"), 3)
    rig = make_rig()
    rows = [(f"k{n}", str(n)) for n in range(20)]
    rig.write("in", rows)
    rig.run(echo(rig))
    assert sorted(rig.rows("out")) == sorted([("a", "1"), *rows])


def ends_with(rig: Rig, worker: eddy.Worker, error: type[EddyError], told: str) -> None:
    """Step until the worker gives up."""

    def stepped() -> bool:
        worker.step(0.05)
        return False

    with pytest.raises(error, match=told):
        rig.wait(stepped)


def test_a_source_that_grows_under_way_ends_the_worker(make_rig: MakeRig) -> None:
    """Keys move to other partitions than their rows are in: from then on results would be wrong."""
    rig = make_rig(*QUICK_NEWS)
    rig.create("in", "sums", partitions=2)
    rows = [(f"k{n}", n) for n in range(20)]
    rig.write("in", rows)
    worker = rig.worker(sums(rig))
    rig.settle(worker)
    grow(rig, rig.topic("in"), 5)
    make_rig().write("in", rows)
    ends_with(rig, worker, ConfigurationError, rf"'{rig.topic('in')}' has grown")
    once = added_up(rows)  # what it still took lay where it belongs, and is right
    assert all(total in (once[key], 2 * once[key]) for key, total in rig.table("sums", eddy.Int64).items())


GONE: dict[str, Callable[[Rig], str]] = {
    "source": lambda rig: rig.topic("nodes"),
    "loop": lambda rig: f"{rig.name}-ancestors-loop",
    "changelog": lambda rig: f"{rig.name}-descendants-changelog",
    "sink": lambda rig: rig.topic("descendants"),
}


@pytest.mark.parametrize("gone", GONE)
def test_a_topic_that_is_deleted_under_way_ends_the_worker_and_is_not_made_anew(make_rig: MakeRig, gone: str) -> None:
    rig = make_rig(*QUICK_NEWS)
    rig.create("nodes", "descendants", partitions=2)
    rig.write("nodes", NODES.items())
    worker = rig.worker(family(rig), eddy.Config(retry_s=5.0))
    rig.settle(worker)
    topic = GONE[gone](rig)
    rig.log.delete_topics([topic])
    if gone != "source":
        rig.write("nodes", [("sprout", "bud")])
    ends_with(rig, worker, ConnectorError, topic)
    worker.close()
    assert rig.log.topics([topic]) == {}
    with pytest.raises(ConfigurationError, match=topic):
        rig.worker(family(rig))


class TestTopicsMadeByAnAdministrator:
    def test_missing_ones_are_listed_with_all_that_they_need(self, rig: Rig) -> None:
        rig.create("nodes", "descendants", partitions=2)
        with pytest.raises(ConfigurationError) as refused:
            rig.worker(family(rig), eddy.Config(create_topics=False))
        assert not [topic for topic in rig.log.topics() if topic.startswith(f"{rig.name}-")]
        rig.log.create_topics(created_by(str(refused.value)))
        rig.write("nodes", NODES.items())
        rig.run(family(rig), eddy.Config(create_topics=False))
        assert rig.table("descendants", eddy.Int64) == counted(NODES)

    def test_one_that_is_missing_is_listed_alone(self, families: Rig) -> None:
        families.log.delete_topics([f"{families.name}-cuts"])
        with pytest.raises(ConfigurationError) as refused:
            families.worker(family(families), eddy.Config(create_topics=False))
        assert [spec.name for spec in created_by(str(refused.value))] == [f"{families.name}-cuts"]


def test_the_names_of_internal_topics_are_those_of_the_tests(families: Rig) -> None:
    worker = families.worker(family(families))
    names = {spec.name for spec in internal_topics(families.name, worker.circuit).specs()}
    assert {f"{families.name}-{stem}" for stem, _, _ in DRIFTS.values()} <= names
    assert {topic for topic in families.log.topics() if topic.startswith(f"{families.name}-")} == names
