"""Verdicts: what is the same in another writing is not a difference, and a record in the wrong place is one."""

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark import inputs
from eddy.connectors.spark.verification.verifying import last_cut
from eddy.errors import ConfigurationError
from eddy.runtime.quiescence import Cut
from tests.seeds import in_turn
from tests.spark.rig import Rig, plant

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N, F = eddy.String, eddy.Int64, eddy.Float64
TOPICS = [TopicSpec("in", 1), *(TopicSpec(name, 3) for name in ("words", "sums", "plain", "means", "kept", "last"))]


def sums() -> eddy.Topology:
    """Sums of floats over a table, plainly written and not, and a relation with such a sum in its rows."""
    topology = eddy.Topology("sums")
    groups = topology.table("in", S, F).group_by(lambda key, x: (key[0], x), S, F)
    total = groups.reduce(lambda a, x: a + x, lambda a, x: a - x, "total")
    total.to("sums", value=F)
    pair = groups.aggregate(
        lambda: (0, 0.0), lambda _, x, a: (a[0] + 1, a[1] + x), lambda _, x, a: (a[0] - 1, a[1] - x), "pair"
    )
    pair.map_values(lambda a: a[1]).to("plain")
    pair.map_values(lambda a: {"n": a[0], "sum": [a[1]]}, value=eddy.Json()).to("means", value=eddy.Json())
    total.to_relation().join(pair, lambda key, x, a: (key, (x, a))).group_by_key().count("met").to("kept")
    return topology


WAYS = {"i": 1, "f": 1.0, "b": True}


def twins() -> eddy.Topology:
    """Rows whose keys and values are equal and written in three ways."""
    topology = eddy.Topology("twins")
    rows = topology.table("in", S, N).to_relation()
    rows = rows.map(lambda key, n: (WAYS.get(key[0], key), WAYS.get(key[0], n)), key=eddy.Json(), value=eddy.Json())
    rows.group_by_key().count("all").to("kept", key=eddy.Json())
    rows.distinct("once").group_by_key().count("some").to("plain", key=eddy.Native)
    return topology


def last_word() -> eddy.Topology:
    topology = eddy.Topology("last-word")
    topology.stream("words", S, S).group_by_key().reduce(lambda _, word: word, "last").to("last", value=S)
    topology.table("in", S, S).to("kept", value=S)
    return topology


@pytest.fixture
def rig_of(tmp_path: Path, spark: Any) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(topology: Callable[[], eddy.Topology], one_task: int = 1_000_000) -> Rig:
        made.append(Rig(tmp_path, topology, TOPICS, spark))
        made[0].one_task = one_task
        return made[0]

    yield make
    made[0].close()


def cut_now(rig: Rig, *topics: str) -> Cut:
    """The last cut, with what has come into some topics since."""
    cut = last_cut(rig.log, f"{rig.topology().name}-cuts")
    assert cut is not None
    now = {t: Cut.by_topic(rig.log.end_offsets(TopicPartition(t, p) for p in range(3)))[t] for t in topics}
    return Cut(cut.inputs, cut.outputs | now)


def put(rig: Rig, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
    """A record that somebody writes where he likes."""
    producer = rig.log.producer(None)
    producer.begin()
    producer.send(topic, partition, [key], [value], [0])
    producer.commit({}, None)
    producer.close()


@pytest.mark.parametrize("one_task", [*in_turn([1_000_000, 0], 2)], ids=["in-one-task", "step-by-step"])
def test_sums_of_floats_are_equal_to_a_tolerance_that_is_told(rig_of: Callable[..., Rig], one_task: int) -> None:
    rig = rig_of(sums, one_task)
    rng = random.Random(3)
    for _ in range(3):
        drawn = {f"{group}{n}": rng.uniform(-1e3, 1e3) for group in "ab" for n in range(9)}
        rig.write("in", [(key.encode(), F.encode(x)) for key, x in drawn.items()])
        rig.work()
    rig.write("in", [(b"a%d" % n, F.encode(0.1 * (n + 1))) for n in range(9)])  # 4.5, and 4.500000000000228
    rig.work()
    exact = rig.verify(tolerance=0.0)
    assert exact.status == 1
    verdict = rig.verify()
    lines = "\n".join(verdict.lines())
    assert (verdict.status, verdict.word) == (0, "equal"), lines
    near = {part.name for part in verdict.compared if part.near}
    assert near >= {part.name for part in exact.compared if part.differing} >= {"sums", "plain", "means", "total"}
    assert re.search(r"sink sums: 2 keys, all equal, [12] of them to 1e-09, being floats\n", lines), lines
    plant(rig, "UPDATE records SET value = ?", "sums", b"a", F.encode(4.5 + 1e-6))
    plant(rig, "UPDATE records SET value = ?", "plain", b"a", F.encode(4.5 - 1e-6))
    wrong = rig.verify()
    assert {part.name: part.differing for part in wrong.compared if part.differing} == {"sums": 1, "plain": 1}


@pytest.mark.parametrize("one_task", [*in_turn([1_000_000, 0], 2)], ids=["in-one-task", "step-by-step"])
def test_keys_and_values_that_are_equal_may_be_written_differently(rig_of: Callable[..., Rig], one_task: int) -> None:
    rig = rig_of(twins, one_task)
    for key in (b"i1", b"f1", b"b1", b"f2", b"x"):
        rig.write("in", [(key, N.encode(1))])
        rig.work()
    rig.write("in", [(b"i1", None)])
    rig.work()
    verdict = rig.verify()
    assert verdict.status == 0, list(verdict.lines())
    assert {part.name: part.keys for part in verdict.compared}["kept"] == 2
    put(rig, "kept", rig.home(b"1.0", "kept"), b"1.0", N.encode(3))  # the same again, otherwise written
    plant(rig, "UPDATE records SET value = ?", "kept", b"1", N.encode(2))  # and what it was before
    verdict = rig.verify(cut=cut_now(rig, "kept"))
    assert verdict.status == 0, list(verdict.lines())
    plant(rig, "UPDATE records SET value = ?", "kept", b'"x"', N.encode(3))
    wrong = rig.verify(cut=cut_now(rig, "kept"))
    assert (wrong.status, sum(part.differing for part in wrong.compared)) == (1, 1), list(wrong.lines())
    assert "    'x': expected 1, found 3" in list(wrong.lines())


def test_a_record_in_the_wrong_partition_is_found_and_named(rig_of: Callable[..., Rig]) -> None:
    rig = rig_of(sums)
    rig.write("in", [(b"a1", F.encode(0.5)), (b"b1", F.encode(1.5)), (b"c1", F.encode(2.5))])
    rig.work()
    home = {key: rig.home(key, "sums") for key in (b"a", b"b", b"c")}
    away = {key: (at + 1) % 3 for key, at in home.items()}
    put(rig, "sums", away[b"a"], b"a", F.encode(0.5))  # the right value, where nobody looks for it
    put(rig, "sums", away[b"b"], b"b", None)  # takes nothing away, in its partition
    put(rig, "sums", away[b"b"], b"b", None)
    verdict = rig.verify(cut=cut_now(rig, "sums"), repair=True)
    assert (verdict.status, verdict.repaired.refused[:11]) == (2, "sink 'sums'"), list(verdict.lines())
    assert {(part.name, part.differing, part.misplaced) for part in verdict.compared if part.differing} == {
        ("sums", 1, 1)
    }
    lines = list(verdict.lines())
    assert (
        f"    'a': expected 0.5, found 0.5, and a record of the key in partition {away[b'a']}, "
        f"while the key's partition is {home[b'a']}"
    ) in lines


def test_a_changelogs_row_and_a_streams_record_in_the_wrong_partition_are_found(rig_of: Callable[..., Rig]) -> None:
    rig = rig_of(streams)
    rig.write("words", [(b"a", b"x"), (b"b", b"y")])
    rig.work()
    before = rig.verify()
    assert before.status == 0
    changelogs = [topic for topic in rig.log.topics() if topic.endswith("-changelog")]
    for topic in changelogs:
        partition, key, value = rig.rows(topic)[0]
        put(rig, topic, (partition + 1) % 3, key or b"", value)
    put(rig, "kept", (rig.home(b"a", "kept") + 1) % 3, b"a", b"x")
    verdict = rig.verify(cut=cut_now(rig, "kept", *changelogs))
    found = {(part.what, part.name) for part in verdict.compared if part.misplaced == part.differing == 1}
    stores = {("store", name) for name in ("last", "once", "counted")}
    assert (verdict.status, found) == (1, {("sink", "kept"), *stores}), list(verdict.lines())


def streams() -> eddy.Topology:
    """A fold, a stream that is passed on, and a relation that a join remembers."""
    topology = eddy.Topology("words")
    words = topology.stream("words", S, S)
    words.to("kept", value=S)
    last = words.group_by_key().reduce(lambda _, word: word, "last")
    last.to("last", value=S)
    last.to_relation().distinct("once").group_by_key().count("counted").to("sums")
    return topology


@pytest.mark.parametrize("one_task", [*in_turn([1_000_000, 0], 2)], ids=["in-one-task", "step-by-step"])
def test_records_are_folded_in_the_order_of_their_partition_whatever_their_times(
    rig_of: Callable[..., Rig], one_task: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a partition is read in many stretches, by several tasks."""
    monkeypatch.setattr(inputs, "RECORDS_A_RANGE", 3)
    rig = rig_of(last_word, one_task)
    producer = rig.log.producer(None)
    producer.begin()
    count = 60
    producer.send("words", 0, [b"k"] * count, [b"%d" % n for n in range(count)], [1_000 - n for n in range(count)])
    producer.send("in", 0, [b"k"] * count, [b"%d" % n for n in range(count)], [1_000 - n for n in range(count)])
    producer.commit({}, None)
    producer.close()
    rig.work()
    verdict = rig.verify()
    assert verdict.status == 0, list(verdict.lines())


def test_what_commutes_has_to_be_a_fold_of_a_stream(rig_of: Callable[..., Rig]) -> None:
    rig = rig_of(last_word)
    rig.write("words", [(b"a", b"x")])
    rig.work()
    with pytest.raises(ConfigurationError, match=r"step 'lsat', .*, does not exist; .*The folds of streams are: last$"):
        rig.verify(commutes=["lsat"])
    with pytest.raises(ConfigurationError, match=r"step '.*', .*, is not a fold of a stream; .*: last$"):
        rig.verify(commutes=["last", next(iter(rig.topology().plan.sinks())).name])
    assert rig.verify(commutes=["last"]).status == 0
