"""Backfill: a worker goes on right behind it, and all is as if it had taken in everything itself."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark.session import ONE_TASK
from eddy.errors import ConfigurationError, DataError
from eddy.runtime.own_positions import topic_id
from tests.children import KilledError
from tests.seeds import in_turn, on_days
from tests.spark.rig import Rig, ancestors, check_backfill, plant

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64
COMPACTED = {"cleanup.policy": "compact"}
TOPICS = [
    TopicSpec("nodes", 3, COMPACTED),
    TopicSpec("words", 3),
    TopicSpec("edges", 3),
    TopicSpec("descendants", 3),
    TopicSpec("counts", 3),
    TopicSpec("loud", 3),
    TopicSpec("reached", 1),
]


def everything() -> eddy.Topology:
    """A table that its topic restores, waves, a count, an aggregate, a stream, and nested time."""
    topology = eddy.Topology("all")
    ancestors(topology.table("nodes", S, S)).group_by_key().count("descendants").to("descendants")
    words = topology.stream("words", S, S)
    words.filter(lambda key, word: word.isupper()).to("loud")
    words.group_by(lambda key, word: word.lower(), key=S).count("counts").to("counts")
    edges = topology.table("edges", S, S).to_relation().map(lambda _, edge: (edge[0], edge[1]), key=S, value=S)
    start = topology.constant([("a", "a")], "start", S, S)
    reached = start.recursively(
        lambda x: x.join(edges, lambda at, _, to: (to, to), "step", S, S).distinct("once"), "reach"
    )
    reached.group_by_key().count("reached").to("reached")
    return topology


def without_loops() -> eddy.Topology:
    """A table that its topic restores, counts, and a stream: refusals and dead letters are those of any topology."""
    topology = words_alone()
    parents = topology.table("nodes", S, S)
    parents.group_by(lambda node, parent: (parent, node), key=S, value=S).count("children").to("descendants")
    return topology


def words_alone() -> eddy.Topology:
    """A count and a stream, whose records must not be there twice."""
    topology = eddy.Topology("all")
    words = topology.stream("words", S, S)
    words.filter(lambda key, word: word.isupper()).to("loud")
    words.group_by(lambda key, word: word.lower(), key=S).count("counts").to("counts")
    return topology


def more_words() -> eddy.Topology:
    """The same, changed."""
    topology = words_alone()
    topology.stream("edges", S, S).group_by_key().count("more").to("descendants")
    return topology


FIRST: dict[str, list[tuple[bytes | None, bytes | None]]] = {
    "nodes": [(b"b", b"a"), (b"c", b"b"), (b"d", b"b"), (b"e", b"d"), (b"f", b"a"), (b"f", b"e"), (b"c", None)],
    "words": [(b"1", b"to"), (b"1", b"BE"), (b"2", b"or"), (None, b"TO"), (b"3", b"be")],
    "edges": [(b"1", b"ab"), (b"2", b"bc"), (b"3", b"ca"), (b"4", b"de")],
}
THEN: dict[str, list[tuple[bytes | None, bytes | None]]] = {
    "nodes": [(b"d", b"f"), (b"b", None), (b"g", b"d"), (b"f", b"a")],
    "words": [(b"1", b"be"), (b"4", b"NOT")],
    "edges": [(b"2", None), (b"5", b"ad")],
}


def fed(folder: Path, spark: Any, topology: Callable[[], eddy.Topology] = everything) -> Rig:
    rig = Rig(folder, topology, TOPICS, spark)
    for topic, records in FIRST.items():
        rig.write(topic, records)
    return rig


@pytest.fixture(params=[*in_turn([ONE_TASK, 0], 2)], ids=["in-one-task", "step-by-step"])
def rig(tmp_path: Path, spark: Any, request: pytest.FixtureRequest) -> Iterator[Rig]:
    rig = fed(tmp_path / "backfilled", spark)
    rig.one_task = request.param
    yield rig
    rig.close()


@pytest.fixture
def plain(rig: Rig) -> Rig:
    """The same with a topology that takes Spark less time."""
    rig.topology = without_loops
    return rig


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Rig]:
    rig = fed(tmp_path / "scratch", None)
    rig.work()
    yield rig
    rig.close()


@on_days({0, 1}, 4)
def test_a_worker_goes_on_behind_it_as_from_scratch(rig: Rig, scratch: Rig) -> None:
    assert check_backfill(rig, scratch, THEN).left_out == 0
    assert rig.verify().status == 0


def test_killed_at_every_stage_it_goes_on_when_run_again(tmp_path: Path, spark: Any) -> None:
    rig, scratch = (fed(tmp_path / name, spark, words_alone) for name in ("backfilled", "scratch"))
    scratch.work()
    for last in ("compute", "begin", "write changelogs", "write outputs", "finish"):

        def kill(stage: str, last: str = last) -> None:
            if stage == last:
                raise KilledError

        with pytest.raises(KilledError):
            rig.backfill(stage=kill)
    with pytest.raises(ConfigurationError, match="a backfill of it has begun and not finished"):
        rig.work()
    with pytest.raises(ConfigurationError, match=r"'loud' holds records already.* Go on .*: without --replace"):
        rig.backfill(replace=True)
    check_backfill(rig, scratch, THEN)
    rig.close()
    scratch.close()


def test_it_does_not_go_on_with_a_topic_that_was_made_anew(tmp_path: Path, spark: Any) -> None:
    """Neither where that happened after a kill nor where it happens while the results are written."""
    rig = fed(tmp_path, spark, words_alone)

    def make_anew(stage: str) -> None:
        if stage == "write outputs":
            rig.log.delete_topics(["words"])
            rig.log.create_topics([TopicSpec("words", 3)])
            rig.write("words", [*FIRST["words"], *THEN["words"]])

    refused = pytest.raises(
        ConfigurationError, match=r"topic 'words' was deleted and made anew .*Begin anew: --replace"
    )
    with refused:
        rig.backfill(stage=make_anew)
    positions = [TopicPartition("words", p) for p in range(3)]
    before = rig.held()
    with refused:
        rig.backfill()
    assert (rig.held(), rig.log.committed("all", positions)) == (before, {})
    rig.log.delete_topics(["loud"])
    rig.log.create_topics([TopicSpec("loud", 3)])
    rig.backfill(replace=True)
    rig.work()
    assert rig.verify().status == 0
    assert {key: N.decode(row) for key, (_, row) in rig.latest("counts").items()} == {
        b"to": 2,
        b"be": 3,
        b"or": 1,
        b"not": 1,
    }
    rig.close()


def test_killed_behind_its_commit_it_finds_that_all_is_done(tmp_path: Path, spark: Any) -> None:
    rig = fed(tmp_path, spark, words_alone)
    first = rig.backfill()
    assert not first.already
    before = rig.held(), rig.log.committed("all", [TopicPartition("words", p) for p in range(3)])
    assert {topic_id(position) for position in before[1].values()} == {rig.log.topic_ids(["words"])()["words"]}
    rig.write("words", THEN["words"])  # what comes meanwhile is the worker's
    again = rig.backfill()
    assert (again.already, again.cut.inputs, again.written) == (True, first.cut.inputs, {})
    assert (rig.held(), rig.log.committed("all", [TopicPartition("words", p) for p in range(3)])) == before
    rig.topology = more_words
    with pytest.raises(ConfigurationError, match="has run on this log and has positions, a plan, changelogs"):
        rig.backfill()
    rig.topology = words_alone
    rig.work()
    with pytest.raises(ConfigurationError, match="has run on this log and has positions, a plan, changelogs"):
        rig.backfill()
    assert rig.verify().status == 0
    rig.close()


def test_where_there_is_state_it_is_refused_unless_told_to_replace_it(plain: Rig, tmp_path: Path) -> None:
    plain.work()
    with pytest.raises(
        ConfigurationError, match=r"has run on this log and has positions, a plan, changelogs.*--replace"
    ):
        plain.backfill()
    worker = eddy.Worker(plain.topology(), plain.log)
    worker.step()
    with pytest.raises(ConfigurationError, match="a worker of it runs on this log"):
        plain.backfill(replace=True)
    worker.close()
    plain.write("nodes", [(b"d", None), (b"e", None), (b"f", None)])
    with pytest.raises(ConfigurationError, match="topic 'loud' holds records already"):
        plain.backfill(replace=True)
    plain.log.delete_topics(["loud"])
    plain.log.create_topics([TopicSpec("loud", 3)])
    plain.backfill(replace=True)
    assert plain.latest("descendants").keys() == {b"a"}
    plain.state = tmp_path / "new-state"
    plain.work()
    assert plain.verify().status == 0


def test_bad_input_is_named_and_nothing_is_written(plain: Rig) -> None:
    plain.write("nodes", [(b"x", b"\xff")])
    topics = set(plain.log.topics())
    with pytest.raises(
        DataError, match=r"topic 'nodes' partition \d offset \d+ key b'x': the value b'\\xff' is not a valid string"
    ):
        plain.backfill()
    plain.log.delete_records({TopicPartition("words", 0): 1})
    with pytest.raises(ConfigurationError, match=r"topic 'words' partition 0 begins at offset 1.*--input words="):
        plain.backfill()
    assert set(plain.log.topics()) == topics
    done = plain.backfill(on_error="dead-letter", retained_only=True)
    assert done.left_out == 1
    ((_, key, value),) = plain.rows("all-dead-letter")
    assert (key, value) == (b"x", b"\xff")


def test_dead_letters_of_which_a_kill_left_some_are_all_there_when_it_goes_on(plain: Rig) -> None:
    plain.write("words", [(b"1", b"\xfe"), (b"1", b"\xff")])

    def kill(stage: str) -> None:
        if stage == "finish":
            raise KilledError

    with pytest.raises(KilledError):
        plain.backfill(on_error="dead-letter", stage=kill)
    plant(plain, "DELETE FROM records", "all-dead-letter", b"1")  # as if killed behind the first
    assert [value for _, _, value in plain.rows("all-dead-letter")] == [b"\xfe"]
    assert plain.backfill(on_error="dead-letter").left_out == 2
    assert [value for _, _, value in plain.rows("all-dead-letter")] == [b"\xfe", b"\xff"]
