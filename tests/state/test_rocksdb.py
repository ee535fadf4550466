"""What a RocksDB store does with bad directories, bad blocks, full disks and killed processes."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from eddy.errors import StateError, StateInUseError
from eddy.state.rocksdb import RocksDBStore
from eddy.state.store_directory import remove_store
from tests.at_once import errors_of
from tests.children import Child
from tests.disk import files_no_longer_than
from tests.waiting import PATIENCE_S

ROWS_A_BATCH = 50
CACHE_BYTES = 1 << 20  # memtables of 64 kB, so that a few batches reach an SST file


def open_store(path: Path) -> RocksDBStore:
    return RocksDBStore(path, "app", CACHE_BYTES)


def batch(number: int) -> list[tuple[bytes, bytes | None]]:
    """50 rows of 100 bytes that do not compress to nothing."""
    return [(b"%06d/%02d" % (number, row), b"%0100d" % (number * row)) for row in range(ROWS_A_BATCH)]


def batches_in(store: RocksDBStore) -> list[int]:
    """The numbers of the batches in the store, each of which must be whole."""
    keys = [key for key, _ in store.scan(b"")]
    numbers = sorted({int(key[:6]) for key in keys})
    assert keys == [key for number in numbers for key, _ in batch(number)]
    return numbers


def files_of(directory: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in directory.iterdir()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store of 200 batches in several SST files."""
    store = open_store(tmp_path / "state")
    for number in range(200):
        store.write(batch(number))
    store.close()
    assert list((tmp_path / "state").glob("*.sst"))
    return tmp_path / "state"


def test_another_application_is_refused_and_nothing_is_written(path: Path) -> None:
    before = files_of(path)
    with pytest.raises(StateError, match=r"belongs to application 'app', not to 'other'; .* Choose another"):
        RocksDBStore(path, "other")
    assert files_of(path) == before
    store = open_store(path)
    assert batches_in(store) == list(range(200))
    store.close()


def test_a_directory_with_foreign_files_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(StateError, match=r"holds files that eddy did not make \('thesis.txt', 1 in all\)"):
        open_store(tmp_path)
    assert files_of(tmp_path) == {"thesis.txt": b"years of work"}


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(StateError, match="holds files that eddy did not make"):
        open_store(tmp_path / "state")
    assert (tmp_path / "state").read_text() == "a file"


@pytest.mark.parametrize("raw_mode", [True, False], ids=["raw", "pickling"])
def test_a_rocksdb_of_somebody_else_is_refused_and_nothing_is_written(tmp_path: Path, raw_mode: bool) -> None:
    theirs = Rdict(str(tmp_path / "theirs"), Options(raw_mode=raw_mode))
    theirs[b"key"] = b"value"
    theirs.close()
    before = files_of(tmp_path / "theirs")
    with pytest.raises(StateError, match="holds files that eddy did not make"):
        open_store(tmp_path / "theirs")
    assert files_of(tmp_path / "theirs") == before


def test_a_store_whose_maker_was_killed_before_it_wrote_the_owner_is_taken(tmp_path: Path) -> None:
    Rdict(str(tmp_path / "state"), Options(raw_mode=True)).close()
    open_store(tmp_path / "state").close()
    with pytest.raises(StateError, match="belongs to application 'app'"):
        RocksDBStore(tmp_path / "state", "other")


def test_a_store_in_use_by_the_same_process_is_refused(path: Path) -> None:
    first = open_store(path)
    with pytest.raises(StateError, match="in use by another store of this process"):
        open_store(path)
    first.write(batch(200))
    first.close()


def test_a_store_in_use_by_another_process_is_refused_until_that_one_ends(path: Path) -> None:
    with child("print('open', flush=True); sys.stdin.read()", path) as holder:
        assert holder.next_line() == "open"
        with pytest.raises(
            StateInUseError, match=rf"in use by another process, {holder.process.pid};.*Stop the other one"
        ):
            open_store(path)
        holder.give("")
        holder.ends()
    open_store(path).close()


COMPACTS_FOR_EVER = """
while True:
    for number in range(20):
        store.write([(b"%06d/%02d" % (number, row), b"%0100d" % (number * row)) for row in range(50)])
    store._live().flush()
    store._live().compact_range(None, None)
    print("again", flush=True)
"""

OPENS = """
import collections, pathlib, sys
from eddy.state.rocksdb import RocksDBStore
from eddy.state.store_directory import remove_store
path, told = pathlib.Path(sys.argv[1]), collections.Counter()
for attempt in range(150):
    try:
        RocksDBStore(path, "app").close() if attempt % 2 else remove_store(path)
        told["opened"] += 1
    except Exception as error:
        told[f"{type(error).__name__}{'' if 'Delete' not in str(error) else ', delete it'}"] += 1
print(dict(told))
"""


def test_a_store_that_is_written_and_compacted_all_the_time_is_in_use_and_never_damaged(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with child(COMPACTS_FOR_EVER, state) as holder:
        assert holder.next_line() == "again"
        command = [sys.executable, "-c", OPENS, str(state)]
        others = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        assert [other.communicate(timeout=PATIENCE_S)[0] for other in others] == ["{'StateInUseError': 150}\n"] * 2
        assert holder.kill()
    store = open_store(state)
    assert len(list(store.scan(b""))) == 20 * ROWS_A_BATCH
    store.close()


MAKES = """
import pathlib, sys, time
from eddy.state.rocksdb import RocksDBStore
from eddy.errors import StateInUseError
path, deadline = pathlib.Path(sys.argv[1]), time.monotonic() + 120
for number in range(20):
    while True:
        assert time.monotonic() < deadline, number
        try:
            store = RocksDBStore(path / str(number), "app", 1 << 20)
        except StateInUseError:
            continue
        store.write([(sys.argv[2].encode(), b"was here")])
        store.close()
        break
"""


def test_processes_that_make_a_store_at_once_take_turns(tmp_path: Path) -> None:
    members = ["a", "b", "c"]
    commands = [[sys.executable, "-c", MAKES, str(tmp_path), member] for member in members]
    others = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    assert [(other.communicate(timeout=PATIENCE_S)[1], other.returncode) for other in others] == [("", 0)] * 3
    for folder in tmp_path.iterdir():
        store = open_store(folder)
        assert [key.decode() for key, _ in store.scan(b"")] == members
        store.close()


def test_processes_that_make_and_remove_a_store_at_the_same_moment_are_refused_only_as_in_use(tmp_path: Path) -> None:
    imports = "from eddy.state.rocksdb import RocksDBStore\nfrom eddy.state.store_directory import remove_store"
    action = 'RocksDBStore(path, "app", 1 << 20).close(); remove_store(path)'
    assert not errors_of(action, imports, tmp_path, times=80, processes=3)


def test_a_folder_with_a_lock_of_another_program_is_not_removed(tmp_path: Path) -> None:
    for name in ("LOCK", "letter"):
        (tmp_path / name).write_text("ours")
    with pytest.raises(StateError, match="holds files that eddy did not make"):
        remove_store(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LOCK", "letter"]


@pytest.mark.parametrize("left", [["LOCK"], ["LOCK", "rocksdict-config.json"], ["rocksdict-config.json", "000009.sst"]])
def test_what_a_killed_removal_left_is_removed(path: Path, tmp_path: Path, left: list[str]) -> None:
    open_store(path).close()
    for file in path.iterdir():
        if file.name not in left:
            file.unlink()
    for name in left:
        (path / name).touch()
    remove_store(path)
    assert not path.exists()


def test_a_refusal_within_the_process_leaves_the_lock_against_others(path: Path) -> None:
    """A record lock is lost where any descriptor of its file is closed, so a second attempt may not open it."""
    first = open_store(path)
    with pytest.raises(StateInUseError, match="another store of this process"):
        open_store(path)
    with pytest.raises(StateInUseError, match="another store of this process"):
        remove_store(path)
    other = subprocess.run([sys.executable, "-c", OPENS, str(path)], capture_output=True, text=True, timeout=PATIENCE_S)
    assert other.stdout == "{'StateInUseError': 150}\n", other.stderr
    first.close()


def test_a_store_that_nobody_closed_lets_go_when_it_is_forgotten(path: Path) -> None:
    forgotten = open_store(path)
    del forgotten
    gc.collect()
    open_store(path).close()


def first_of(path: Path, pattern: str) -> Path:
    return sorted(path.glob(pattern))[0]


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 0xFF
    file.write_bytes(content)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("*.sst", Path.unlink),
        ("*.sst", truncate),
        ("MANIFEST-*", flip),
        ("MANIFEST-*", Path.unlink),
        ("CURRENT", Path.unlink),
        ("CURRENT", flip),
    ],
    ids=["no sst", "short sst", "flipped manifest", "no manifest", "no current", "flipped current"],
)
def test_a_damaged_directory_is_refused_as_it_was_found(
    path: Path, pattern: str, damage: Callable[[Path], None]
) -> None:
    damage(first_of(path, pattern))
    before = files_of(path)
    with pytest.raises(StateError, match=r"is damaged .*nothing was changed. Delete the directory") as refusal:
        open_store(path)
    assert str(path) in str(refusal.value)
    assert files_of(path) == before


def test_a_flipped_block_ends_a_scan_with_an_error_and_not_in_silence(path: Path) -> None:
    flip(first_of(path, "*.sst"))
    store = open_store(path)
    rows = store.scan(b"")
    with pytest.raises(StateError, match=r"is damaged \(Corruption.*Delete the directory"):
        list(rows)
    with pytest.raises(StateError, match="is damaged"):
        next(rows)
    store.close()
    open_store(path).close()  # neither the scan nor its error holds the lock


def test_a_flipped_block_is_told_to_who_asks_for_its_keys(path: Path) -> None:
    flip(first_of(path, "*.sst"))
    store = open_store(path)
    with pytest.raises(StateError, match=r"is damaged \(Corruption"):
        store.get_many([key for number in range(200) for key, _ in batch(number)])
    store.close()


def test_each_of_many_open_scans_keeps_its_own_end(path: Path) -> None:
    store = open_store(path)
    scans = [store.scan(b"%06d/" % number) for number in range(200)]
    assert [list(rows) for rows in scans] == [batch(number) for number in range(200)]
    store.close()


@pytest.mark.parametrize("steps", [0, 1], ids=["not begun", "begun"])
def test_close_releases_the_lock_while_a_scan_is_open(path: Path, steps: int) -> None:
    store = open_store(path)
    rows = store.scan(b"")
    for _ in range(steps):
        next(rows)
    store.close()
    again = open_store(path)
    with pytest.raises(StateError, match="was closed"):
        next(rows)
    assert batches_in(again) == list(range(200))
    again.close()


def child(body: str, path: Path) -> Child:
    """A process that runs `body` with the store of `path` open as `store`."""
    head = "import sys, pathlib; from eddy.state.rocksdb import RocksDBStore; "
    head += f"store = RocksDBStore(pathlib.Path(sys.argv[1]), 'app', {CACHE_BYTES})\n"
    return Child(path.parent, [sys.executable, "-c", head + body, path])


WRITES_FOR_EVER = """
for number in range(1_000_000):
    store.write([(b"%06d/%02d" % (number, row), b"%0100d" % (number * row)) for row in range(50)])
    print(number, flush=True)
"""


def test_a_killed_process_loses_no_write_that_returned_and_half_of_none(tmp_path: Path) -> None:
    with child(WRITES_FOR_EVER, tmp_path / "state") as writer:
        writer.wait_for(lambda: "300" in writer.lines(), "300 writes")
        writer.kill()
        returned = int(writer.lines()[-1])
    store = open_store(tmp_path / "state")
    assert batches_in(store) in (list(range(returned + 1)), list(range(returned + 2)))
    store.close()


OPENS_WITHOUT_EDDY = """
import sys, rocksdict
db = rocksdict.Rdict(sys.argv[1], rocksdict.Options(raw_mode=True))
print("open", flush=True)
sys.stdin.read()
"""


def test_a_process_that_took_no_lock_but_that_of_rocksdb_itself_has_the_store_alone(path: Path) -> None:
    """As a worker of an earlier version does."""
    with Child(path.parent, [sys.executable, "-c", OPENS_WITHOUT_EDDY, path]) as holder:
        assert holder.next_line() == "open"
        with pytest.raises(StateInUseError, match=f"another process, {holder.process.pid};"):
            open_store(path)
        holder.give("")
        holder.ends()
    open_store(path).close()


def fill(store: RocksDBStore) -> int:
    """Write batches until one is refused; its number."""
    taken = []

    def write_for_ever() -> None:
        for number in count():
            store.write(batch(number))
            taken.append(number)

    with pytest.raises(StateError, match=r"a write was refused .*had no effect; .*Free space"):
        write_for_ever()
    return len(taken)


def test_a_refused_write_leaves_nothing_and_later_ones_go_on(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    early = store.scan(b"")
    with files_no_longer_than(30_000):
        refused = fill(store)
    with pytest.raises(StateError, match="opened anew after a refused write"):
        next(early)
    assert batches_in(store) == list(range(refused))
    store.write(batch(refused))
    store.flush()
    store.close()
    store = open_store(tmp_path / "state")
    assert batches_in(store) == list(range(refused + 1))
    store.close()


def test_a_store_that_vanished_while_it_was_refused_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    with files_no_longer_than(30_000):
        fill(store)
    for file in (tmp_path / "state").iterdir():
        file.unlink()
    with pytest.raises(StateError, match="earlier writes are missing"):
        store.get_many([b"000000/00"])
    store.close()


FULL_DISK = """
import pathlib, sys
from test_rocksdb import batch, batches_in, fill, open_store
disk = pathlib.Path(sys.argv[1])
(disk / "filler").write_bytes(bytes(5 << 20))
store = open_store(disk / "state")
refused = fill(store)
(disk / "filler").unlink()
store.write(batch(refused))
assert batches_in(store) == list(range(refused + 1))
store.close()
print("refused, then taken")
"""


def test_a_full_disk_refuses_a_write_and_takes_it_once_there_is_room(tmp_path: Path) -> None:
    """On a file system of 8 MB, which a mount namespace of its own takes along when the process ends."""
    inside = f'mount -t tmpfs -o size=8m eddy-test {tmp_path} && exec {sys.executable} -c "$0" {tmp_path}'
    run = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inside, FULL_DISK],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    if "unshare" in run.stderr or "mount:" in run.stderr:
        pytest.skip(f"a file system of one's own needs rights that this user does not have: {run.stderr}")
    assert run.stdout == "refused, then taken\n", run.stderr


def test_the_bounds_on_memory_and_files_hold_after_a_reopen(path: Path) -> None:
    store = open_store(path)
    options = max(path.glob("OPTIONS-*")).read_text()  # RocksDB writes there what is in force
    for line in (
        "write_buffer_size=65536",
        "max_write_buffer_number=2",
        "max_open_files=256",
        "paranoid_checks=true",
        "cache_index_and_filter_blocks=true",
        "filter_policy=bloomfilter",
        "level0_stop_writes_trigger=1073741824",
    ):
        assert f"  {line}" in options, line
    database = store._live()  # private: figures of RocksDB
    assert database.property_int_value("rocksdb.block-cache-capacity") == CACHE_BYTES
    assert (path / "rocksdict-config.json").read_text().startswith('{"raw_mode":true')
    store.close()


def test_the_stores_of_a_process_share_one_cache(path: Path, tmp_path: Path) -> None:
    figure = 3 << 20  # of no other test's stores
    first, second = RocksDBStore(path, "app", figure), RocksDBStore(tmp_path / "second", "app", figure)
    database = second._live()  # private: figures of RocksDB
    before = database.property_int_value("rocksdb.block-cache-usage")
    batches_in(first)
    assert database.property_int_value("rocksdb.block-cache-usage") > before + 100_000
    first.close()
    second.close()
