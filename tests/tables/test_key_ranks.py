"""Ranks of keys: against a sorted list, on both stores, while the first pass is under way and rows change."""

import random
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import pytest

from eddy.state.memory import MemoryStore
from eddy.state.rocksdb import RocksDBStore
from eddy.state.store import Store
from eddy.tables import key_ranks
from eddy.tables.key_ranks import KeyRanks


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = MemoryStore() if request.param == "memory" else RocksDBStore(tmp_path / "state", "app", 1 << 20)
    yield made
    made.close()


def drawn(rng: random.Random) -> bytes:
    """A key; many keys are close together, so that some runs grow and others do not."""
    spread = rng.choice((30, 1_000, 1_000_000))
    return b"t\x00" + b"%07d" % rng.randrange(spread)


@pytest.mark.parametrize("seed", range(6))
def test_ranks_are_those_of_a_sorted_list_whatever_changes_during_the_pass(
    store: Store, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_ranks, "RUN", 8)
    rng = random.Random(seed)
    keys = {drawn(rng) for _ in range(rng.choice((0, 5, 300)))}
    others = [(b"s\x00x", b""), (b"u\x00x", b"")]  # rows of the tables before it and after it
    store.write([(key, b"") for key in keys] + others)
    ranks = KeyRanks(store, b"t\x00", b"t\x01")
    for _ in range(150):
        if rng.random() < 0.3:
            ranks.extend()
        added = {drawn(rng) for _ in range(rng.choice((0, 1, 3, 60)))} - keys
        removed = set(rng.sample(sorted(keys), min(len(keys), rng.choice((0, 1, 3, 50)))))
        store.write([(key, b"") for key in added] + [(key, None) for key in removed])
        keys = (keys | added) - removed
        ranks.take(sorted(added), sorted(removed))
        check(ranks, sorted(keys), rng)
    while not ranks.whole:
        ranks.extend()
    check(ranks, sorted(keys), rng)
    assert (ranks.counted, ranks.key_at(len(keys))) == (len(keys), None)
    assert ranks.rank(b"t\x01") == len(keys)


def check(ranks: KeyRanks, keys: list[bytes], rng: random.Random) -> None:
    for key in [drawn(rng), *rng.sample(keys, min(len(keys), 3))]:
        if ranks.covers(key):
            assert ranks.rank(key) == bisect_left(keys, key)
    assert ranks.counted <= len(keys)
    for rank in {0, ranks.counted - 1, rng.randrange(ranks.counted + 1)}:
        if 0 <= rank < ranks.counted:
            assert ranks.key_at(rank) == keys[rank]


def test_runs_stay_short_however_the_keys_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer reads one run: its cost is bounded by the length of a run."""
    monkeypatch.setattr(key_ranks, "RUN", 10)
    store = MemoryStore()
    ranks = KeyRanks(store, b"t\x00", b"t\x01")
    ranks.extend()
    read: list[int] = []
    scan = store.scan_between

    def counted(start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        found = scan(start, stop, limit)
        read.append(len(found))
        return found

    for start in range(0, 1_000, 100):
        keys = [b"t\x00%05d" % number for number in range(start, start + 100)]
        store.write([(key, b"") for key in keys])
        ranks.take(keys, [])
    store.scan_between = counted  # type: ignore[method-assign]
    assert [ranks.rank(b"t\x00%05d" % number) for number in range(0, 1_000, 7)] == list(range(0, 1_000, 7))
    assert max(read) <= 20
    gone = [b"t\x00%05d" % number for number in range(1_000) if number % 50]
    store.write([(key, None) for key in gone])
    ranks.take([], gone)
    assert [ranks.key_at(rank) for rank in range(20)] == [b"t\x00%05d" % number for number in range(0, 1_000, 50)]
    assert len(ranks._counts) <= 8  # private: the number of runs is the memory that they take
