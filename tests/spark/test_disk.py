"""`eddy verify --disk`: states on disk beside their changelogs; damage is found, named and left as it is."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import eddy
from eddy.cli import main
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark import verify_disk
from eddy.connectors.spark.verification.disk_comparison import DiskComparison
from eddy.connectors.spark.verification.disk_verdict import DiskVerdict
from eddy.errors import ConfigurationError, StateError, StateInUseError
from eddy.state.rocksdb import RocksDBStore
from tests.spark.rig import TREE, Rig, ancestors

S, N = eddy.String, eddy.Int64
COMPACTED = {"cleanup.policy": "compact"}


def family() -> eddy.Topology:
    """A recursion, a table whose own topic restores it, a processor's store, and one without a changelog."""
    topology = eddy.Topology("family")
    ancestors(topology.table("nodes", S, S)).group_by_key().count("descendants").to("descendants")
    topology.table("names", S, S).to("named")
    topology.store("seen", S, N)
    topology.store("lost", S, N, changelog=False)
    topology.stream("notes", S, S).process_values(Seen, ["seen", "lost"], "counting", N).to("counted")
    return topology


class Seen:
    """Counts the records of each key."""

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context, self.seen = context, context.store("seen")

    def process(self, record: eddy.Record[str, str]) -> None:
        count = (self.seen.get(record.key) or 0) + 1
        self.seen.put(record.key, count)
        self.context.forward(record.replace(value=count))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    topics = [TopicSpec(name, 2) for name in ("nodes", "descendants", "named", "notes", "counted")]
    rig = Rig(tmp_path, family, [*topics, TopicSpec("names", 2, COMPACTED)])
    rig.write("nodes", TREE)
    rig.write("names", [(b"a", b"Ann"), (b"b", b"Bob"), (b"a", None), (b"c", b"Cid")])
    rig.write("notes", [(b"a", b"x"), (b"b", b"x"), (b"a", b"y")])
    rig.work()
    yield rig
    rig.close()


def store_of(rig: Rig) -> Path:
    """The directory of the only store."""
    (found,) = (rig.state / "family").iterdir()
    return found


def changed(rig: Rig, *changes: tuple[bytes, bytes | None]) -> None:
    """Change rows of the store, as no worker does."""
    with closing(RocksDBStore(store_of(rig), "family")) as store:
        store.write(changes)


def rows(rig: Rig) -> dict[bytes, bytes]:
    """All rows of states in the store."""
    with closing(RocksDBStore(store_of(rig), "family")) as store:
        return {key: value for key, value in store.scan(b"") if key < b"\xff"}


def verify(rig: Rig, **options: Any) -> DiskVerdict:
    return DiskComparison(family(), rig.log, rig.state, **{"wait_s": 0.0, **options}).run()


def differing(verdict: DiskVerdict) -> dict[str, tuple[int, int, int]]:
    """By state, the numbers of missing, extra and different rows."""
    parts = (part for store in verdict.stores for part in store.compared if part.differing)
    return {part.name: (part.missing, part.extra, part.differing - part.missing - part.extra) for part in parts}


def test_what_a_worker_left_on_disk_is_equal(rig: Rig) -> None:
    before = rows(rig)
    verdict = verify_disk(family(), rig.log, rig.state)
    assert (verdict.status, verdict.word, differing(verdict)) == (0, "equal", {}), list(verdict.lines())
    (store,) = verdict.stores
    compared = {part.name: part.keys for part in store.compared}
    assert compared["nodes"] == 4
    assert compared["names"] == 2
    assert compared["seen"] == 2
    assert sum(compared.values()) == sum(not row.startswith(b"lost\0") for row in before)
    assert store.notes == {"store 'lost'": "not compared: it has no changelog"}
    assert rows(rig) == before


def test_each_row_that_is_lost_or_changed_is_found_and_named(rig: Rig) -> None:
    kept = {row: value for row, value in rows(rig).items() if not row.startswith(b"lost\0")}
    for row, value in kept.items():
        name = row.split(b"\0")[0].decode()
        changed(rig, (row, None))
        assert differing(verify(rig)) == {name: (1, 0, 0)}
        changed(rig, (row, value + b"\0"))
        assert differing(verify(rig)) == {name: (0, 0, 1)}
        changed(rig, (row, value))
    assert verify(rig).status == 0


def test_rows_are_shown_as_values_with_their_partition(rig: Rig) -> None:
    home = rig.home(b"e")
    prefix = b"nodes\0" + home.to_bytes(2, "big")
    changed(rig, (prefix + b"e", b"x"), (prefix + b"new", b"y"))
    verdict = verify(rig)
    assert (verdict.status, differing(verdict)) == (1, {"nodes": (0, 1, 1)})
    lines = list(verdict.lines())
    assert lines[0] == "family: different, states on disk beside their changelogs"
    assert f"    'e': expected 'd', found 'x', in partition {home}" in lines
    assert f"    'new': expected nothing, found 'y', in partition {home}" in lines


def test_a_store_that_is_behind_is_equal_but_for_the_keys_that_a_start_replaces(rig: Rig, tmp_path: Path) -> None:
    behind = shutil.copytree(rig.state, tmp_path / "behind")
    rig.write("nodes", [(b"e", b"a"), (b"g", b"e"), (b"b", None)])
    rig.write("names", [(b"b", b"Bea"), (b"c", None)])
    rig.work()
    verdict = DiskComparison(family(), rig.log, behind, wait_s=0.0).run()
    assert (verdict.status, differing(verdict)) == (0, {}), list(verdict.lines())
    moved = {part.name: part.moved for store in verdict.stores for part in store.compared}
    assert (moved["nodes"], moved["names"], moved["seen"]) == (3, 2, 0)
    assert "store nodes: 5 rows, all equal, 3 changed since and replaced when a worker starts" in list(verdict.lines())


def test_rows_whose_tombstones_may_be_gone_are_not_compared(rig: Rig) -> None:
    a_day_later = {"wall": lambda: time.time() + 25 * 3600}
    row = b"nodes\0" + rig.home(b"z").to_bytes(2, "big") + b"z"
    changed(rig, (row, b"y"))
    assert differing(verify(rig)) == {"nodes": (0, 1, 0)}
    behind = verify(rig, **a_day_later)
    assert "tombstones of its rows may be gone" in behind.stores[0].notes["store 'nodes'"]
    changed(rig, (row, None), (b"nodes\0" + rig.home(b"e").to_bytes(2, "big") + b"e", b"y"))
    assert differing(verify(rig, **a_day_later)) == {"nodes": (0, 0, 1)}


def test_a_log_that_was_compacted_is_enough(rig: Rig) -> None:
    for n in range(20):
        rig.write("names", [(b"b", b"%d" % n)])
        rig.work()
    rig.log.compact(drop_tombstones=True)
    assert verify(rig).status == 0
    changed(rig, (b"names\0" + rig.home(b"b", "names").to_bytes(2, "big") + b"b", b"18"))
    assert differing(verify(rig)) == {"names": (0, 0, 1)}


def test_a_store_that_is_in_use_is_refused(rig: Rig) -> None:
    with closing(RocksDBStore(store_of(rig), "family")), pytest.raises(StateInUseError, match=r"is in use by .*Stop"):
        verify(rig)


def test_what_is_no_store_of_this_application_and_log_is_refused(rig: Rig, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no store of states in '.*empty'; .*--disk DIR"):
        DiskComparison(family(), rig.log, tmp_path / "empty").run()
    (tmp_path / "other").mkdir()
    other = Rig(tmp_path / "other", family, [TopicSpec(name, 2) for name in rig.log.topics() if "-" not in name])
    with pytest.raises(ConfigurationError, match="it has not run on this log"):
        DiskComparison(family(), other.log, rig.state).run()
    other.work()
    with pytest.raises(StateError, match="it belongs to another incarnation of application 'family'"):
        DiskComparison(family(), other.log, rig.state).run()
    other.close()


def test_a_store_ahead_of_its_changelog_is_undetermined(rig: Rig) -> None:
    end = rig.log.end_offsets([TopicPartition("family-nodes-changelog", 0)])
    ((tp, offset),) = end.items()
    changed(rig, (b"\xffoffset\0family-nodes-changelog\0" + bytes(4), (offset + 1).to_bytes(8, "big")))
    verdict = verify(rig)
    assert (verdict.status, verdict.word) == (2, "could not tell")
    assert verdict.stores[0].undetermined == {
        "store 'nodes'": f"it is at offset {offset + 1} of '{tp.topic}' partition 0, which ends at {offset}: it "
        "belongs to another log, or the topic was made anew"
    }


def test_an_open_transaction_in_a_changelog_is_waited_for_and_named(rig: Rig) -> None:
    producer = rig.log.producer(None)
    producer.begin()
    producer.send("family-nodes-changelog", 1, [b"z"], [b"z"], [0])
    producer.flush()
    verdict = verify(rig)
    producer.abort()
    producer.close()
    assert verdict.status == 2
    assert "is open at offset" in verdict.stores[0].undetermined["store 'nodes'"]
    assert verify(rig).status == 0


@pytest.mark.parametrize("where", [lambda rig: rig.state, lambda rig: rig.state / "family", store_of])
def test_a_folder_of_states_an_applications_folder_and_a_copy_will_do(
    rig: Rig, tmp_path: Path, where: Callable[[Rig], Path]
) -> None:
    copied = shutil.copytree(where(rig), tmp_path / "copied")
    assert DiskComparison(family(), rig.log, copied).run().status == 0


def test_each_store_of_the_folder_is_compared(rig: Rig) -> None:
    other = shutil.copytree(store_of(rig), rig.state / "family" / "other")
    with closing(RocksDBStore(other, "family")) as store:
        store.write([(b"nodes\0" + rig.home(b"e").to_bytes(2, "big") + b"e", None)])
    verdict = verify(rig)
    assert (verdict.status, differing(verdict)) == (1, {"nodes": (1, 0, 0)})
    assert {store.path.name: any(part.differing for part in store.compared) for store in verdict.stores}["other"]
    assert len(verdict.stores) == 2


PROGRAM = """\
import eddy

topology = eddy.Topology("family")
topology.table("nodes", eddy.String, eddy.String).to("copy")
"""


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "family.py").write_text(PROGRAM)
    (tmp_path / "nodes.tsv").write_text("leaf\ttwig\ntwig\ttree\n")
    assert run("produce", "nodes", "nodes.tsv").exit_code == 0
    assert run("run", "family.py", "--until-idle").exit_code == 0
    equal = run("verify", "family.py", "--disk", ".eddy/state")
    assert (equal.exit_code, equal.stdout.splitlines()[0]) == (
        0,
        "family: equal, states on disk beside their changelogs",
    ), equal.output
    (path,) = (tmp_path / ".eddy" / "state" / "family").iterdir()
    with closing(RocksDBStore(path, "family")) as store:
        store.write([(b"nodes\0\0\0leaf", b"branch")])
    wrong = run("verify", "family.py", "--disk", ".eddy/state", "--format", "json")
    found = json.loads(wrong.stdout)
    assert (wrong.exit_code, found["status"], found["verdict"], found["computed_by"]) == (
        1,
        1,
        "different",
        "changelogs",
    )
    (part,) = found["compared"]
    assert (part["name"], part["rows"], part["different"]) == ("nodes", 2, 1)
    assert part["directory"] == str(Path(".eddy") / "state" / "family" / path.name)
    assert part["samples"] == [{"key": "'leaf'", "expected": "'twig'", "found": "'branch'", "remark": ""}]
    refused = run("verify", "family.py", "--disk", ".eddy/state", "--repair")
    assert (refused.exit_code, "without Spark; leave out --repair" in refused.stderr) == (2, True)
    missing = run("verify", "family.py", "--disk", ".eddy/log", "--format", "json")
    assert (missing.exit_code, json.loads(missing.stdout)["error"]["code"]) == (2, "CONNECTOR_CONFIGURATION")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)
