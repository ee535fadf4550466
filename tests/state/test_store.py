"""What every store promises, held on each backend: examples first, then laws against a plain dict."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eddy.errors import StateError
from eddy.state.memory import MemoryStore
from eddy.state.offsets import RESERVED, decode_offset, encode_offset, offset_key, read_offsets
from eddy.state.rocksdb import RocksDBStore
from eddy.state.store import Store


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = MemoryStore() if request.param == "memory" else RocksDBStore(tmp_path / "state", "app", 1 << 20)
    yield made
    made.close()


def test_each_backend_is_a_store(store: Store) -> None:
    assert isinstance(store, Store)


def test_get_many_gives_values_in_the_order_asked_and_none_for_a_miss(store: Store) -> None:
    store.write([(b"a", b"1"), (b"b", b"2")])
    assert store.get_many([b"b", b"x", b"a", b"b"]) == [b"2", None, b"1", b"2"]
    assert store.get_many([]) == []


def test_an_empty_key_and_an_empty_value_are_kept(store: Store) -> None:
    store.write([(b"", b"root"), (b"a", b"")])
    assert store.get_many([b"", b"a"]) == [b"root", b""]
    assert list(store.scan(b"")) == [(b"", b"root"), (b"a", b"")]


def test_write_deletes_a_key_whose_value_is_none(store: Store) -> None:
    store.write([(b"a", b"1"), (b"b", b"2")])
    store.write([(b"a", None), (b"never", None)])
    assert list(store.scan(b"")) == [(b"b", b"2")]


def test_the_last_change_of_a_key_wins_within_a_batch(store: Store) -> None:
    store.write([(b"a", b"1"), (b"a", None), (b"b", None), (b"b", b"2")])
    assert store.get_many([b"a", b"b"]) == [None, b"2"]


def test_write_changes_nothing_when_its_input_fails_halfway(store: Store) -> None:
    def changes() -> Iterator[tuple[bytes, bytes | None]]:
        yield b"a", b"2"
        raise ValueError("a serde that fails on the second row")

    store.write([(b"a", b"1")])
    with pytest.raises(ValueError, match="second row"):
        store.write(changes())
    assert list(store.scan(b"")) == [(b"a", b"1")]


def test_write_changes_nothing_when_a_key_is_reserved(store: Store) -> None:
    with pytest.raises(StateError, match=r"reserved; keys below .* Put the name of a table before the key"):
        store.write([(b"a", b"1"), (RESERVED + b"owner", b"somebody")])
    assert list(store.scan(b"")) == []


def test_scan_yields_a_prefix_in_key_order(store: Store) -> None:
    store.write([(b"b/2", b""), (b"b/10", b""), (b"a", b""), (b"b", b""), (b"c", b""), (b"b/", b"")])
    assert [key for key, _ in store.scan(b"b/")] == [b"b/", b"b/10", b"b/2"]


def test_scan_many_gives_what_scan_gives_for_each(store: Store) -> None:
    store.write([(key, key) for key in (b"a", b"b", b"b/1", b"b/2", b"c\xff", b"c\xff\xff", b"d")])
    prefixes = [b"c\xff", b"b/", b"x", b"", b"b/", b"a"]
    assert store.scan_many(prefixes) == [list(store.scan(prefix)) for prefix in prefixes]
    assert store.scan_many([]) == []


def test_scan_of_a_prefix_that_ends_with_0xff_stops_at_the_right_key(store: Store) -> None:
    store.write([(b"a\xfe", b""), (b"a\xff", b""), (b"a\xff\xff", b""), (b"a\xff\xff\x00", b""), (b"b", b"")])
    assert [key for key, _ in store.scan(b"a\xff")] == [b"a\xff", b"a\xff\xff", b"a\xff\xff\x00"]
    assert [key for key, _ in store.scan(b"a\xff\xff")] == [b"a\xff\xff", b"a\xff\xff\x00"]


def test_scan_sees_the_store_as_of_its_call(store: Store) -> None:
    store.write([(b"a", b"1"), (b"b", b"1")])
    rows = store.scan(b"")
    store.write([(b"a", b"2"), (b"b", None), (b"c", b"2")])
    assert list(rows) == [(b"a", b"1"), (b"b", b"1")]
    assert list(store.scan(b"")) == [(b"a", b"2"), (b"c", b"2")]


def test_a_finished_scan_stays_finished(store: Store) -> None:
    rows = store.scan(b"")
    assert list(rows) == []
    store.write([(b"a", b"1")])
    store.close()
    assert list(rows) == []


@pytest.mark.parametrize("count", [3, 1_500], ids=["few", "many"])
def test_delete_prefix_deletes_those_keys_and_no_other(store: Store, count: int) -> None:
    inside = [(b"b%05d" % number, b"") for number in range(count)]
    store.write([(b"a", b""), *inside, (b"c", b"")])
    store.delete_prefix(b"b")
    assert list(store.scan(b"")) == [(b"a", b""), (b"c", b"")]


def test_delete_prefix_of_nothing_empties_the_store(store: Store) -> None:
    store.write([(b"\x00", b""), (b"\xff\xfe\xff", b""), *((b"%d" % number, b"") for number in range(1_500))])
    store.delete_prefix(b"")
    assert list(store.scan(b"")) == []


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.get_many([b"a"]),
        lambda store: store.scan(b""),
        lambda store: store.write([]),
        lambda store: store.delete_prefix(b""),
        lambda store: store.flush(),
    ],
    ids=["get_many", "scan", "write", "delete_prefix", "flush"],
)
def test_a_closed_store_says_so_and_may_be_closed_again(store: Store, use: Callable[[Store], object]) -> None:
    store.close()
    store.close()
    with pytest.raises(StateError, match="closed"):
        use(store)


def test_offsets_are_read_back_by_topic_and_partition(store: Store) -> None:
    offsets = {("a", 0): 7, ("a", 0x62000000): 1, ("ab", 0): 2**63 - 1, ("b", 255): 0}
    store.write([(offset_key(*where), encode_offset(offset)) for where, offset in offsets.items()])
    store.write([(b"\xffnot an offset", b"x"), (b"data", b"y")])
    assert read_offsets(store) == offsets


def test_an_offset_that_is_not_eight_bytes_is_refused() -> None:
    with pytest.raises(StateError, match="has 2 bytes; an offset has 8"):
        decode_offset(b"12")


# Few bytes, and those at the borders, so that keys collide, nest and end with 0xff.
_letters = st.lists(st.sampled_from([0x00, 0x01, 0x61, 0xFE, 0xFF]), max_size=4).map(bytes)
_keys = _letters.filter(lambda key: key < RESERVED)
_changes = st.lists(st.tuples(_keys, st.none() | st.binary(max_size=3)), max_size=8)


class MemoryLaws(RuleBasedStateMachine):
    """A store is a dict that is read in key order, and a scan is a copy of it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[bytes, bytes] = {}
        self.scans: list[tuple[Iterator[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]] = []
        self.store: Store = self.open()

    def open(self) -> Store:
        return MemoryStore()

    def expected(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return sorted(row for row in self.rows.items() if row[0].startswith(prefix))

    @rule(changes=_changes)
    def write(self, changes: list[tuple[bytes, bytes | None]]) -> None:
        self.store.write(iter(changes))
        for key, value in changes:
            self.rows.pop(key, None)
            if value is not None:
                self.rows[key] = value

    @rule(prefix=_letters)
    def delete_prefix(self, prefix: bytes) -> None:
        self.store.delete_prefix(prefix)
        for key, _ in self.expected(prefix):
            del self.rows[key]

    @rule(keys=st.lists(_keys, max_size=8))
    def get(self, keys: list[bytes]) -> None:
        assert self.store.get_many(keys) == [self.rows.get(key) for key in keys]

    @rule(prefix=_letters)
    def scan(self, prefix: bytes) -> None:
        assert list(self.store.scan(prefix)) == self.expected(prefix)

    @rule(prefix=_letters)
    def begin_scan(self, prefix: bytes) -> None:
        self.scans.append((self.store.scan(prefix), self.expected(prefix)))

    @precondition(lambda self: self.scans)
    @rule(data=st.data())
    def end_scan(self, data: st.DataObject) -> None:
        rows, expected = self.scans.pop(data.draw(st.integers(0, len(self.scans) - 1)))
        assert list(rows) == expected

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @invariant()
    def holds_the_rows(self) -> None:
        assert list(self.store.scan(b"")) == self.expected(b"")

    def teardown(self) -> None:
        self.store.close()


class RocksDBLaws(MemoryLaws):
    """The same, and what was written is there after the directory is opened again."""

    def __init__(self) -> None:
        self.directory = TemporaryDirectory()
        super().__init__()

    def open(self) -> Store:
        return RocksDBStore(Path(self.directory.name), "app", 1 << 20)

    @rule()
    def reopen(self) -> None:
        self.scans.clear()
        self.store.close()
        self.store = self.open()

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


_laws = settings(max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
TestMemoryLaws = MemoryLaws.TestCase
TestMemoryLaws.settings = _laws
TestRocksDBLaws = RocksDBLaws.TestCase
TestRocksDBLaws.settings = settings(_laws, max_examples=20)


def test_scan_between_gives_the_first_rows_from_start_to_before_stop(store: Store) -> None:
    store.write([(bytes([n]), b"x") for n in range(10)])
    assert [key[0] for key, _ in store.scan_between(b"\x02", b"\x07", 100)] == [2, 3, 4, 5, 6]
    assert [key[0] for key, _ in store.scan_between(b"\x02\x00", b"\x07", 2)] == [3, 4]
    assert store.scan_between(b"\x07", b"\x02", 5) == []


def test_a_snapshot_has_the_pairs_of_its_prefix_as_they_were(store: Store) -> None:
    store.write([(b"a1", b"1"), (b"a2", b"2"), (b"b", b"3")])
    snapshot = store.snapshot(b"a")
    store.write([(b"a1", None), (b"a2", b"new"), (b"a3", b"4")])
    assert snapshot.get_many([b"a1", b"a2", b"a3"]) == [b"1", b"2", None]
    assert snapshot.scan_between(b"a", b"b", 10) == [(b"a1", b"1"), (b"a2", b"2")]
    assert snapshot.scan_between(b"a", b"b", 1) == [(b"a1", b"1")]
    snapshot.close()
    with pytest.raises(StateError, match="closed"):
        snapshot.get_many([b"a1"])
    kept = store.snapshot(b"")
    store.close()  # nothing outlives it that would keep its directory locked
    if isinstance(store, RocksDBStore):
        with pytest.raises(StateError, match="closed"):
            kept.scan_between(b"a", b"b", 1)
