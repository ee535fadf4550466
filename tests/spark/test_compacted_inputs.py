"""A topic that was compacted below the cut: what is lost is named, what is there is compared, and nothing else is."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark.compacted_inputs import compacted_below
from eddy.connectors.spark.frames import Frames
from eddy.connectors.spark.verification.verifying import last_cut
from eddy.errors import ConfigurationError
from tests.seeds import of_today
from tests.spark.rig import Rig, plant

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64
COMPACTED = {"cleanup.policy": "compact"}
TOPICS = [
    *(TopicSpec(name, 2, COMPACTED) for name in ("people", "words")),
    *(TopicSpec(name, 2) for name in ("notes", "towns", "loud", "cried")),
]
Record = tuple[bytes, bytes | None]


def people() -> eddy.Topology:
    """How many people live in each town, and words cried out, from topics that are compacted; loud notes."""
    topology = eddy.Topology("people")
    homes = topology.table("people", S, S)
    homes.group_by(lambda name, town: (town, name), key=S, value=S).count("towns").to("towns")
    topology.stream("notes", S, S).map_values(str.upper, value=S).to("loud")
    topology.stream("words", S, S).map_values(str.upper, value=S).to("cried")
    return topology


@pytest.fixture
def rig(tmp_path: Path, spark: Any) -> Iterator[Rig]:
    rig = Rig(tmp_path, people, TOPICS, spark)
    yield rig
    rig.close()


def cut_of(rig: Rig) -> Any:
    cut = last_cut(rig.log, "people-cuts")
    assert cut is not None
    return cut


def test_what_was_compacted_below_the_cut_is_no_difference(rig: Rig) -> None:
    rig.write("people", [(b"ann", b"rome"), (b"bob", b"rome"), (b"cid", b"bonn")])
    rig.work()
    before = cut_of(rig)
    rig.write("people", [(b"ann", b"rome")])  # her town stays, so its count has no later record
    rig.work()
    assert rig.verify(cut=before).status == 0
    rig.log.compact("people")
    ends = rig.log.end_offsets([TopicPartition("people", p) for p in range(2)])
    verdict = rig.verify(cut=before, repair=True)
    lines = "\n".join(verdict.lines())
    assert (verdict.status, verdict.word) == (2, "could not tell"), lines
    assert "    'rome': expected 1, found 2" in lines
    home = rig.home(b"ann", "people")
    assert f"could not tell: topic 'people': compacted below the cut: in partition {home}" in lines
    assert "1 keys have records after it alone" in lines
    assert "not repaired, nothing was written: topic 'people': compacted below the cut" in lines
    assert rig.log.end_offsets(ends) == ends
    assert rig.verify().status == 0  # the last cut: nothing newer has replaced anything


def test_what_differs_elsewhere_is_a_difference_still(rig: Rig) -> None:
    rig.write("people", [(b"ann", b"rome"), (b"bob", b"rome")])
    rig.write("notes", [(b"1", b"hush")])
    rig.work()
    before = cut_of(rig)
    rig.write("people", [(b"ann", b"rome")])
    rig.work()
    rig.log.compact("people")
    plant(rig, "UPDATE records SET value = ?", "loud", b"1", b"SHH")
    verdict = rig.verify(cut=before)
    assert (verdict.status, verdict.word) == (1, "different"), list(verdict.lines())


def test_a_table_that_nothing_newer_has_touched_is_compared(rig: Rig) -> None:
    rig.write("people", [(b"ann", b"bonn"), (b"ann", b"rome"), (b"bob", b"rome")])
    rig.work()
    rig.log.compact("people")
    rig.write("people", [(b"dan", b"oslo")])  # new, and not compacted yet: bob may have been before, or not
    assert rig.verify().status == 0
    plant(rig, "UPDATE records SET value = ?", "towns", b"rome", N.encode(5))
    rig.work()
    assert rig.verify().status == 1


def test_a_streams_topic_that_was_compacted_is_named(rig: Rig) -> None:
    rig.write("words", [(b"1", b"a"), (b"1", b"b")])
    rig.work()
    home, before = rig.home(b"1", "words"), cut_of(rig)
    assert rig.verify().status == 0
    rig.log.compact("words")
    verdict = rig.verify(cut=before)
    lines = "\n".join(verdict.lines())
    assert (verdict.status, verdict.word) == (2, "could not tell"), lines
    assert f"topic 'words': compacted below the cut: in partition {home} 2 offsets before the cut's 3" in lines


def test_a_killed_backfill_does_not_go_on_from_other_records(rig: Rig) -> None:
    """Of ann's record the newer one is left, which is after the offset at which the backfill began."""

    def kill(stage: str) -> None:
        if stage == "write outputs":
            raise InterruptedError

    rig.write("people", [(b"ann", b"rome"), (b"bob", b"rome"), (b"cid", b"bonn")])
    with pytest.raises(InterruptedError):
        rig.backfill(stage=kill)
    rig.write("people", [(b"ann", b"oslo")])
    rig.log.compact("people")
    topics = [TopicPartition(topic, p) for topic in ("people-towns-changelog", "towns") for p in range(2)]
    before = rig.log.end_offsets(topics)
    with pytest.raises(ConfigurationError, match=r"'people' may have lost records .*1 keys .* Begin anew: --replace"):
        rig.backfill()
    assert rig.log.end_offsets(topics) == before
    rig.backfill(replace=True)
    rig.work()
    assert rig.verify().status == 0
    assert {key: N.decode(row) for key, (_, row) in rig.latest("towns").items()} == {b"rome": 1, b"bonn": 1, b"oslo": 1}


def written(rng: random.Random, rig: Rig, topic: str, kept: dict[tuple[int, int], Record]) -> None:
    """Records of few keys in one transaction, noted by place."""
    keys = [b"%d" % rng.randrange(6) for _ in range(rng.randrange(1, 6))]
    rows = [(key, None if rng.random() < 0.2 else b"%d" % rng.randrange(9)) for key in keys]
    rig.write(topic, rows)
    for partition in range(2):
        tp = TopicPartition(topic, partition)
        found = rig.log.read(tp, 0, rig.log.end_offsets([tp])[tp], 10_000)
        for offset, *row in zip(found.offsets, found.keys, found.values, strict=True):
            kept[partition, offset] = (row[0] or b"", row[1])


def left(rig: Rig, topic: str, ends: list[int]) -> dict[tuple[int, int], Record]:
    """The records that a topic still has before a cut, by place."""
    rows = {}
    for partition, end in enumerate(ends):
        found = rig.log.read(TopicPartition(topic, partition), 0, end, 10_000) if end else None
        for offset, *row in [] if found is None else zip(found.offsets, found.keys, found.values, strict=True):
            rows[partition, offset] = (row[0] or b"", row[1])
    return rows


def table(records: dict[tuple[int, int], Record]) -> dict[bytes, bytes]:
    """The last value of each key."""
    last = {key: value for _, (key, value) in sorted(records.items())}
    return {key: value for key, value in last.items() if value is not None}


def test_each_topic_that_has_lost_what_counted_is_named(tmp_path: Path, spark: Any) -> None:
    """Where tombstones are dropped, too, any offset after the cut may have been one."""
    (seed,) = of_today(1)
    rng, count = random.Random(seed), 60
    topology, kinds = eddy.Topology("many"), ("stream", "table", "table without tombstones")
    for number in range(count):
        (topology.table if number % 3 else topology.stream)(f"in-{number}", S, S)
    rig = Rig(tmp_path, people, [TopicSpec(f"in-{n}", 2, COMPACTED) for n in range(count)], spark)
    cut, lost, there = {}, set(), set()
    for number in range(count):
        topic, kept = f"in-{number}", dict[tuple[int, int], Record]()

        def go_on(times: int, number: int = number, kept: dict[tuple[int, int], Record] = kept) -> None:
            for _ in range(times):
                if rng.random() < 0.4:
                    rig.log.compact(f"in-{number}", drop_tombstones=number % 3 == 2)
                else:
                    written(rng, rig, f"in-{number}", kept)

        go_on(rng.randrange(1, 4))
        cut[topic] = list(rig.log.end_offsets(TopicPartition(topic, p) for p in range(2)).values())
        go_on(rng.randrange(4))
        before = {place: row for place, row in kept.items() if place[1] < cut[topic][place[0]]}
        now = left(rig, topic, cut[topic])
        same = table(now) == table(before) if number % 3 else now == before
        (there if same else lost).add(topic)
    found: set[str] = set()
    for kind, age_s in enumerate((0.0, 0.0, None)):
        sources = [source for source in topology.plan.sources() if int(source.topic[3:]) % 3 == kind]
        named = compacted_below(Frames(spark), rig.log, rig.open_log, sources, cut, age_s).keys()
        of_kind = {source.topic for source in sources}
        assert lost & of_kind <= named <= of_kind, f"seed {seed}, {kinds[kind]}"
        found |= named
    rig.close()
    tables = {topic for topic in there if int(topic[3:]) % 3 == 1}
    assert lost, f"seed {seed}"
    assert len(tables & found) < len(tables) / 2, f"seed {seed}: {tables & found}"
