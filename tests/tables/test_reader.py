"""What a reader goes on from, what it reads anew, and when a version is exact: stepped by the test."""

import itertools
import logging
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.state.memory import MemoryStore
from eddy.state.rocksdb import RocksDBStore
from eddy.state.store import Store
from eddy.tables import pending_records, reading
from eddy.tables.catalog import catalog_of
from eddy.tables.open_table import OpenTable
from eddy.tables.served_rows import ServedRows
from eddy.tables.table_reader import TableReader
from tests.tables.conftest import produce
from tests.tables.topologies import bank, people

COMPACT = {"cleanup.policy": "compact"}


class Desk:
    """A worker and a reader, each stepped by the test. `now` is the reader's time."""

    def __init__(self, log: LocalLog, topology: eddy.Topology, config: eddy.Config | None = None) -> None:
        self.log, self.topology, self.config = log, topology, config or eddy.Config()
        self.store: Store = MemoryStore()
        self.now, self.wall = 1_000.0, 1_000_000.0
        eddy.create_topics(topology, log)
        self.open()

    def open(self) -> None:
        self.catalog = catalog_of(self.topology, self.log)
        self.rows = ServedRows(self.store, list(self.catalog.tables))
        self.reader = TableReader(
            self.catalog, self.log, self.rows, max_wait_s=5.0, clock=lambda: self.now, wall=lambda: self.wall
        )

    def work(self) -> None:
        with closing(eddy.Worker(self.topology, self.log, self.config)) as worker:
            worker.run_until_idle()

    def read(self) -> None:
        """Step until there is nothing new."""
        self.reader.step(0.0)
        while self.reader.step(0.0) or self.rows.hindrance:
            pass

    def table(self, name: str) -> dict[Any, Any]:
        return dict(OpenTable(self.catalog.table(name), self.rows).all())

    def counts_agree(self) -> bool:
        return all(len(self.table(name)) == self.rows.counts[name] for name in self.catalog.tables)


@pytest.fixture
def desk(local: LocalLog, name: str) -> Desk:
    """The people's topic is compacted, so that the table is read there."""
    local.create_topics([TopicSpec(f"{name}-people", 1, COMPACT)])
    return Desk(local, people(name))


def topic(desk: Desk) -> str:
    return f"{desk.topology.name}-people"


def test_a_restart_goes_on_from_what_is_stored(desk: Desk) -> None:
    produce(desk.log, topic(desk), {f"k{n}": b"ada" for n in range(10)})
    desk.work()
    desk.read()
    taken, version = desk.reader.figures.records, desk.rows.version
    assert version.exact
    assert taken == 10 + 2  # the people, and one row in each of the other tables
    desk.open()
    desk.read()
    assert desk.reader.figures.records == 0
    assert desk.rows.version.exact
    assert (desk.rows.version.offsets, desk.rows.version.inputs) == (version.offsets, version.inputs)
    produce(desk.log, topic(desk), {"k3": None, "x": b"bob"})
    desk.work()
    desk.read()
    assert desk.table("counts") == {"ada": 9, "bob": 1}
    assert desk.counts_agree()


def test_a_store_on_disk_is_gone_on_from(local: LocalLog, name: str, tmp_path: Path) -> None:
    desk = Desk(local, people(name))
    desk.store = RocksDBStore(tmp_path / "tables", name)
    desk.open()
    produce(local, topic(desk), {f"k{n}": b"ada" for n in range(2_500)})
    desk.work()
    desk.read()
    desk.store.close()
    desk.store = RocksDBStore(tmp_path / "tables", name)
    desk.open()
    desk.read()
    assert desk.reader.figures.records == 0
    assert len(desk.table("people")) == 2_500
    assert desk.table("counts") == {"ada": 2_500}
    desk.store.close()


LIKE_ONE = [True, 1, 1.0, False, 0, (True, "x"), (1, "x"), (False,), (0,), "true"]


@given(
    batches=st.lists(st.dictionaries(st.sampled_from(range(len(LIKE_ONE))), st.none() | st.integers(0, 2)), max_size=4),
    json=st.booleans(),
)
def test_keys_that_are_equal_in_python_are_one_row(batches: list[dict[int, int | None]], json: bool) -> None:
    topology = eddy.Topology("app")
    serde: Any = eddy.Json() if json else eddy.Native
    table: Any = topology.table("in", key=serde, value=eddy.Int64)
    table.to_relation().map(lambda key, value: (key, 1)).group_by_key(serde).count("counts")
    with closing(eddy.open_log()) as log:
        log.create_topics([TopicSpec("in", 1, COMPACT)])
        desk, wanted = Desk(log, topology), dict[Any, int]()
        for batch in batches:
            rows = [(LIKE_ONE[n], value) for n, value in batch.items() if not (json and isinstance(LIKE_ONE[n], tuple))]
            producer = log.producer(None)
            producer.begin()
            values = [None if value is None else eddy.Int64.encode(value) for _, value in rows]
            producer.send("in", 0, [serde.encode(key) for key, _ in rows], values, [0] * len(rows))
            producer.commit({}, None)
            for key, value in rows:
                wanted.pop(key, None)
                if value is not None:
                    wanted[key] = value
            desk.work()
            desk.read()
            assert desk.table("in") == wanted
            assert desk.table("counts") == dict.fromkeys(wanted, 1)
            assert desk.counts_agree()
            for key in LIKE_ONE:
                if not (json and isinstance(key, tuple)):
                    assert OpenTable(desk.catalog.table("in"), desk.rows).get(key) == wanted.get(key)
                    assert OpenTable(desk.catalog.table("counts"), desk.rows).get(key, 0) == (key in wanted)


def test_a_cut_before_the_ends_that_were_read_does_not_count(desk: Desk) -> None:
    produce(desk.log, topic(desk), {"a": b"ada"})
    desk.work()
    produce(desk.log, topic(desk), {"b": b"bob"})  # after the cut
    desk.read()
    assert desk.table("people") == {"a": "ada", "b": "bob"}
    assert not desk.rows.version.exact
    desk.work()
    desk.read()
    assert desk.rows.version.exact


def test_rows_stop_at_the_cut_and_go_on_without_one_after_a_while(desk: Desk) -> None:
    produce(desk.log, topic(desk), {"a": b"ada"})
    desk.work()
    desk.read()
    produce(desk.log, topic(desk), {"b": b"bob"})
    desk.read()
    assert desk.rows.version.exact
    assert desk.table("people") == {"a": "ada"}
    desk.now += 4.0
    desk.read()
    assert desk.rows.version.exact
    desk.now += 2.0
    desk.read()
    assert not desk.rows.version.exact
    assert desk.table("people") == {"a": "ada", "b": "bob"}
    assert desk.rows.version.inputs == {topic(desk): [2]}, "what the counts are made of"
    desk.work()
    desk.read()
    assert desk.rows.version.exact
    assert desk.table("counts") == {"ada": 1, "bob": 1}


@pytest.mark.parametrize("late", [False, True])
def test_cut_before_the_ends_does_not_count_where_the_reader_has_fallen_back(
    local: LocalLog, name: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records before such a cut may have been compacted away, because of later ones: the second state of "a" here."""
    local.create_topics([TopicSpec(f"{name}-people", 1, COMPACT)])
    desk = Desk(local, people(name), eddy.Config(max_epoch_records=1))
    produce(local, topic(desk), {"a": b"ada"})
    desk.work()
    desk.read()
    people_, cuts = TopicPartition(topic(desk), 0), TopicPartition(desk.catalog.internal.cuts, 0)
    produce(local, topic(desk), {"a": b"eve"} | {f"k{n}": b"bob" for n in range(20)})
    desk.work()
    cut = local.end_offsets([people_])[people_]
    produce(local, topic(desk), {"a": b"bob"})
    monkeypatch.setattr(reading, "POLL_RECORDS", 1)
    follower = desk.reader.reading and desk.reader.reading.follower
    assert follower is not None
    follower.pause([people_, cuts])  # a client's queue may be as long
    for _ in range(15):
        desk.now += 1.0 if late else 0.01
        desk.reader.step(0.0)
    follower.resume([people_, cuts])
    monkeypatch.undo()
    desk.reader.step(0.0)
    version = desk.rows.version
    at_the_cut = version.exact and version.inputs == {topic(desk): [cut]}
    assert at_the_cut is not late
    desk.work()
    desk.read()
    assert desk.rows.version.exact
    assert (desk.table("people")["a"], desk.table("counts")["bob"]) == ("bob", 21)


def test_after_a_long_silence_a_cut_before_the_ends_does_not_count(desk: Desk) -> None:
    """The process may have been stopped, so that records before the cut were compacted away."""
    produce(desk.log, topic(desk), {"a": b"ada"})
    desk.work()
    desk.read()
    produce(desk.log, topic(desk), {"a": b"eve"})
    desk.work()  # a cut, and beyond it a record that supersedes one before it
    produce(desk.log, topic(desk), {"a": b"bob"})
    desk.now += 6.0
    desk.reader.step(0.0)
    desk.reader.step(0.0)
    assert desk.rows.version.inputs == {topic(desk): [2]}
    desk.work()
    desk.read()
    assert desk.rows.version.exact
    assert (desk.table("people"), desk.table("counts")) == ({"a": "bob"}, {"bob": 1})


@pytest.mark.parametrize("configs", [COMPACT, {}], ids=["topic", "changelog"])
@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_records_that_the_application_leaves_out_are_left_out(
    local: LocalLog, name: str, policy: Any, configs: dict[str, str]
) -> None:
    local.create_topics([TopicSpec("numbers", 1, configs)])
    topology = eddy.Topology(name)
    numbers = topology.table("numbers", key=eddy.String, value=eddy.Int64)
    numbers.to_relation().map(lambda key, value: (100 // value, 1)).group_by_key().count("counts")
    desk = Desk(local, topology, eddy.Config(on_error=policy))
    encode = eddy.Int64.encode
    rows = [("a", encode(5)), ("a", encode(0)), ("b", b"no"), ("b", encode(50)), ("c", encode(0))]
    produce(local, "numbers", rows)
    desk.work()
    desk.read()
    assert desk.rows.version.exact
    assert desk.table("numbers") == {"a": 5, "b": 50}
    assert desk.table("counts") == {20: 1, 2: 1}
    assert desk.counts_agree()


def test_a_record_that_is_left_out_after_it_was_shown_has_its_table_read_anew(
    local: LocalLog, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    local.create_topics([TopicSpec("numbers", 1, COMPACT)])
    topology = eddy.Topology(name)
    numbers = topology.table("numbers", key=eddy.String, value=eddy.Int64)
    numbers.to_relation().map(lambda key, value: (100 // value, 1)).group_by_key().count("counts")
    desk = Desk(local, topology, eddy.Config(on_error="skip"))
    produce(local, "numbers", {"a": eddy.Int64.encode(5)})
    desk.work()
    desk.read()
    produce(local, "numbers", {"a": eddy.Int64.encode(0)})
    desk.read()
    desk.now += 6.0
    desk.read()
    assert desk.table("numbers") == {"a": 0}
    with caplog.at_level(logging.WARNING, "eddy.tables"):
        desk.work()
        desk.read()
    assert "table 'numbers' is read anew: the application has rejected records that were applied" in caplog.text
    assert desk.rows.version.exact
    assert desk.table("numbers") == {"a": 5}


def made_anew(desk: Desk) -> None:
    """A topic of the user's that has other records, and more of them."""
    desk.log.delete_topics([topic(desk)])
    desk.log.create_topics([TopicSpec(topic(desk), 1, COMPACT)])
    produce(desk.log, topic(desk), {f"new{n}": b"eve" for n in range(40)})


def shorter(desk: Desk) -> None:
    desk.log.delete_topics([topic(desk)])
    desk.log.create_topics([TopicSpec(topic(desk), 1, COMPACT)])
    produce(desk.log, topic(desk), {"new": b"eve"})


def cut_off(desk: Desk) -> None:
    """Records that were not taken in are gone."""
    produce(desk.log, topic(desk), {"gone": b"eve"})
    desk.log.delete_records(desk.log.end_offsets([TopicPartition(topic(desk), 0)]))
    produce(desk.log, topic(desk), {"new": b"eve"})


@pytest.mark.parametrize(
    ("harm", "said", "left"),
    [
        (made_anew, "has other records than the applied ones", 40),
        (shorter, "ends at offset 2, before 11: it was made anew", 1),
        (cut_off, "records were deleted in between", 1),
    ],
)
@pytest.mark.parametrize("running", [False, True])
def test_what_cannot_be_gone_on_with_is_read_anew(
    desk: Desk, harm: Any, said: str, left: int, running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    produce(desk.log, topic(desk), {f"k{n}": b"ada" for n in range(10)})
    desk.work()
    desk.read()
    harm(desk)
    if running:
        desk.reader.close()
    else:
        desk.open()
    with caplog.at_level(logging.WARNING, "eddy.tables"):
        desk.read()
    assert "table 'people' is read anew" in caplog.text
    assert said in caplog.text
    assert desk.counts_agree()
    assert set(desk.table("people").values()) == {"eve"}
    assert len(desk.table("people")) == left
    assert not desk.rows.version.exact


def test_a_reset_application_has_its_states_read_anew(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    produce(desk.log, topic(desk), {f"k{n}": b"ada" for n in range(10)})
    desk.work()
    desk.read()
    internal = desk.catalog.internal
    desk.log.delete_group(desk.topology.name)
    desk.log.delete_topics([*internal.changelogs, *internal.exchanges, internal.cuts, internal.plan])
    with pytest.raises(eddy.ConnectorError):
        desk.reader.step(0.0)
    desk.reader.step(0.0)
    assert "has not run yet" in desk.rows.hindrance
    produce(desk.log, topic(desk), {"x": b"bob"})
    desk.work()
    with caplog.at_level(logging.WARNING, "eddy.tables"):
        desk.read()
    assert "table 'counts' is read anew" in caplog.text
    assert desk.table("counts") == {"ada": 10, "bob": 1}
    assert desk.rows.version.exact


def test_old_rows_are_read_anew_where_deletions_may_be_gone(desk: Desk) -> None:
    local = desk.log
    produce(local, topic(desk), {"a": b"ada", "b": b"bob"})
    desk.work()
    desk.read()
    produce(local, topic(desk), {"a": None})
    desk.work()
    local.compact(drop_tombstones=True)
    desk.wall += 13 * 3600
    desk.open()
    desk.read()
    assert desk.table("people") == {"b": "bob"}
    assert desk.table("counts") == {"bob": 1}
    assert desk.counts_agree()


@pytest.mark.parametrize("seed", range(3))
def test_every_version_that_is_exact_keeps_the_sum_whenever_readers_and_workers_stop(
    local: LocalLog, name: str, seed: int
) -> None:
    rng = random.Random(seed)
    desk = Desk(local, bank(name), eddy.Config(max_epoch_records=7))
    exact = 0
    worker = eddy.Worker(desk.topology, local, desk.config)
    for number in range(150):
        doing = rng.random()
        if doing < 0.4:
            rows = {f"{number}-{n}": eddy.Json().encode([f"p{n}", f"q{n}", rng.randrange(9)]) for n in range(5)}
            produce(local, f"{name}-transfers", rows)
        elif doing < 0.8:
            worker.step()
        elif doing < 0.85:
            worker.close()
            worker = eddy.Worker(desk.topology, local, desk.config)
        elif doing < 0.9:
            desk.open()
            local.compact()
        desk.now += rng.choice([0.0, 0.0, 3.0])
        desk.reader.step(0.0)
        if desk.rows.version.exact and not desk.rows.hindrance:
            exact += 1
            assert sum(desk.table("payers").values()) + sum(desk.table("payees").values()) == 0
            assert desk.counts_agree()
    worker.run_until_idle()
    worker.close()
    desk.read()
    assert desk.rows.version.exact
    assert exact > 10


@pytest.fixture
def crowd(local: LocalLog, name: str, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Twelve partitions and little memory, so that one large transaction pauses its partition."""
    monkeypatch.setattr(pending_records, "MAX_BYTES", 8 << 20)
    monkeypatch.setattr(reading, "POLL_BYTES", 2 << 20)
    topology = eddy.Topology(name)
    for table in ("a", "b", "c"):
        topology.table(f"{name}-{table}", key=eddy.String, value=eddy.Bytes, name=table)
    eddy.create_topics(topology, local, 4)
    desk = Desk(local, topology)
    produce(local, f"{name}-b", {"first": b"row"}, 4)
    desk.work()
    desk.read()
    assert desk.rows.version.exact
    return desk


def hot_rows(desk: Desk) -> dict[str, bytes | None]:
    """Rows of one partition: more bytes than its share, and fewer than half of all."""
    keys = (f"k{number}" for number in itertools.count())
    ours = (key for key in keys if desk.log.partitioner(key.encode(), 4) == 0)
    return dict.fromkeys(itertools.islice(ours, 7_000), b"x" * 500)


def test_a_paused_partition_goes_on_after_a_long_silence(crowd: Desk) -> None:
    for _ in range(8):
        crowd.now += 2
        crowd.reader.step(0.0)
    rows = hot_rows(crowd)
    produce(crowd.log, f"{crowd.topology.name}-a", rows, 4)
    crowd.work()
    for _ in range(50):
        crowd.now += 0.5
        crowd.reader.step(0.0)
    assert len(crowd.table("a")) == len(rows)


@pytest.mark.slow
def test_a_paused_partition_goes_on_while_cuts_keep_coming(crowd: Desk) -> None:
    rows = hot_rows(crowd)
    crowd.now += 1
    crowd.reader.step(0.0)
    produce(crowd.log, f"{crowd.topology.name}-a", rows, 4)
    crowd.work()
    for number in range(30):
        produce(crowd.log, f"{crowd.topology.name}-b", {f"b{number}": b"row"}, 4)
        crowd.work()
        crowd.now += 0.5
        crowd.reader.step(0.0)
    assert len(crowd.table("a")) == len(rows)
