"""The order of a key's records in a stream's output is part of the answer, where the input determines it."""

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark.verification import comparison
from eddy.connectors.spark.verification.verifying import last_cut
from eddy.runtime.quiescence import Cut
from tests.seeds import in_turn, of_today
from tests.spark.rig import Rig

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S = eddy.String
TOPICS = [TopicSpec("in", 3), *(TopicSpec(name, 3) for name in ("spread", "rekeyed")), TopicSpec("one", 1)]


def streams() -> eddy.Topology:
    """A stream that is spread, one whose keys change, and one of a single partition whose keys change."""
    topology = eddy.Topology("streams")
    words = topology.stream("in", S, S)
    words.flat_map_values(lambda word: [] if word == "x" else [word, word.upper()]).to("spread", value=S)
    words.select_key(lambda _, word: word[:1], key=S).to("rekeyed", value=S)
    topology.stream("one", S, S).select_key(lambda key, _: key and key[:1], key=S).to("last", value=S)
    return topology


@pytest.fixture
def rig(tmp_path: Path, spark: Any) -> Iterator[Rig]:
    rig = Rig(tmp_path, streams, [*TOPICS, TopicSpec("last", 3)], spark)
    yield rig
    rig.close()


def fill(rig: Rig, rng: random.Random) -> None:
    for _ in range(3):
        keys = [None, b"a1", b"a2", b"b1", b"c1"]
        for topic in ("in", "one"):
            rig.write(topic, [(rng.choice(keys), rng.choice([b"u", b"v", b"x", b"yz"])) for _ in range(30)])
        rig.work()


def by_key(rig: Rig, topic: str) -> dict[bytes | None, list[bytes]]:
    """The values of each key in their order."""
    found: dict[bytes | None, list[bytes]] = {}
    for _, key, value in rig.rows(topic):
        found.setdefault(key, []).append(value or b"")
    return found


def swap(rig: Rig, topic: str, rng: random.Random) -> tuple[bytes, bytes, bytes]:
    """Change places of two records of one key; returns the key and the values, the one that was first first."""
    key, values = rng.choice([(key, found) for key, found in by_key(rig, topic).items() if key and len(set(found)) > 1])
    one, other = rng.choice([(i, j) for i in range(len(values)) for j in range(i) if values[i] != values[j]])
    partition = rig.home(key, topic)
    tp = TopicPartition(topic, partition)
    records = rig.log.read(tp, 0, rig.log.end_offsets([tp])[tp], 10_000)
    offsets = [offset for offset, found in zip(records.offsets, records.keys, strict=True) if found == key]
    storage = rig.log._storage  # private: no program changes records
    where = "offset = ? AND partition_id = (SELECT id FROM partitions WHERE topic = ? AND partition = ?)"
    with storage.change():
        for at, value in ((one, values[other]), (other, values[one])):
            storage.rows(f"UPDATE records SET value = ? WHERE {where}", (value, offsets[at], topic, partition))
    return key, values[other], values[one]


def check(rig: Rig, one_task: int, seed: int) -> None:
    rng = random.Random(f"order {seed}")
    rig.one_task = one_task
    fill(rig, rng)
    right = rig.verify()
    assert (right.status, right.word) == (0, "equal"), list(right.lines())
    assert list(right.notes) == ["sink 'rekeyed'"]
    expected = {}
    for topic in ("spread", "last"):
        before = by_key(rig, topic)
        key, first, later = swap(rig, topic, rng)
        values = f"expected {first.decode()!r}, found {later.decode()!r} in its place: another order"
        expected[topic] = f"    {key.decode()!r}: {values}"
        assert {key: sorted(map(str, values)) for key, values in before.items()} == {
            key: sorted(map(str, values)) for key, values in by_key(rig, topic).items()
        }
    wrong = rig.verify()
    lines = list(wrong.lines())
    assert {
        part.name: (part.differing, part.examples != []) for part in wrong.compared if part.differing
    } == dict.fromkeys(expected, (1, True)), lines
    assert wrong.status == 1
    assert set(expected.values()) <= set(lines)


@pytest.mark.parametrize("seed", of_today(1))
@pytest.mark.parametrize("one_task", [*in_turn([1_000_000, 0], 2)], ids=["in-one-task", "step-by-step"])
def test_two_records_of_a_key_that_have_changed_places_are_a_difference(rig: Rig, one_task: int, seed: int) -> None:
    check(rig, one_task, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("one_task", [1_000_000, 0])
def test_records_that_have_changed_places_are_a_difference_for_many_seeds(rig: Rig, one_task: int, seed: int) -> None:
    check(rig, one_task, seed)


def test_a_comparison_without_order_is_found(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "in_order", lambda rows, expected, found: rows)
    with pytest.raises(AssertionError):
        check(rig, 1_000_000, 0)


def test_a_lost_record_is_no_other_order(rig: Rig) -> None:
    rig.write("in", [(b"a", b"%d" % n) for n in range(9)])
    rig.work()
    producer = rig.log.producer(None)
    producer.begin()
    producer.send("spread", rig.home(b"a", "spread"), [b"a"], [b"again"], [0])
    producer.commit({}, None)
    producer.close()
    cut = last_cut(rig.log, "streams-cuts")
    assert cut is not None
    tps = [TopicPartition("spread", p) for p in range(3)]
    ends = {"spread": [rig.log.end_offsets(tps)[tp] for tp in tps]}
    wrong = rig.verify(cut=Cut(cut.inputs, cut.outputs | ends))
    assert [line for line in wrong.lines() if line.startswith("    ")] == ["    'a': expected nothing, found 'again'"]


def test_records_that_wait_and_the_age_of_the_cut_are_named(rig: Rig) -> None:
    rig.write("in", [(b"a", b"u")])
    rig.work()
    now = time.time()
    idle = rig.verify(max_age_s=0.0, wall=lambda: now + 3 * 3600)
    assert (idle.status, list(idle.lines())[1]) == (0, "the cut is 3 h old; no records have arrived since")
    rig.write("in", [(b"a", b"u"), (b"b", b"u"), *[(b"c", b"u")] * 4_998])
    waiting = rig.verify(wall=lambda: now + 3 * 3600)
    said = list(waiting.lines())[1]
    assert waiting.status == 0
    waits = (
        r"up to (5,00\d) records have arrived since, and are not compared \(in \1\)"  # with the ends of transactions
    )
    assert re.fullmatch(f"the cut is 3 h old; {waits}", said), said
    late = rig.verify(max_age_s=3600.0, wall=lambda: now + 3 * 3600)
    assert (late.status, late.word) == (2, "could not tell")
    assert any("longer than --max-age allows" in line for line in late.lines())
    assert rig.verify(max_age_s=3600.0, wall=lambda: now + 60).status == 0


def test_a_folder_of_mismatches_is_of_the_last_run(rig: Rig, tmp_path: Path) -> None:
    fill(rig, random.Random(0))
    folder, cut = tmp_path / "mismatches", last_cut(rig.log, "streams-cuts")
    assert rig.verify(mismatches=str(folder)).status == 0
    assert not folder.exists()
    key, one, other = swap(rig, "spread", random.Random(0))
    assert rig.verify(mismatches=str(folder)).status == 1
    rows = rig.spark.read.parquet(str(folder)).collect()
    assert [(bytes(row["key"]), bytes(row["expected"]), bytes(row["found"])) for row in rows] == [(key, one, other)]
    assert cut is not None
    empty = Cut(*({topic: [0] * len(ends) for topic, ends in part.items()} for part in (cut.inputs, cut.outputs)))
    assert rig.verify(mismatches=str(folder), cut=empty).status == 0
    assert not folder.exists()
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(eddy.EddyError, match=r"the folder holds 'notes\.txt', and would be replaced"):
        rig.verify(mismatches=str(folder))
    assert (folder / "notes.txt").exists()
