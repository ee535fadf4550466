"""Only jars that are what `jars.txt` says are ever run, and they are kept whole or not at all."""

import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from eddy import ConnectorError
from eddy.connectors.broker import Broker, kafka_version
from eddy.connectors.broker.jars import check, find_jars, kept_folder, locked_jars
from tests.connectors.broker.conftest import FakeJava

COPY = "cp {jars}/*.jar jars/"


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jars_folder: Path) -> Path:
    """A cache that holds nothing yet; where the jars are going to be."""
    monkeypatch.delenv("EDDY_KAFKA_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert kept_folder() != jars_folder
    return kept_folder()


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_lock_names_each_jar_once_with_its_hash() -> None:
    jars = locked_jars()
    assert len({jar.file for jar in jars}) == len(jars) > 40
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in jars)
    assert {jar.revision for jar in jars if jar.organisation == "org.apache.kafka"} == {kafka_version()}


def test_jars_are_fetched_once_and_kept(cold: Path, fake_java: FakeJava, jars_folder: Path) -> None:
    fake_java(COPY.format(jars=jars_folder))
    found = find_jars()
    assert found.version == kafka_version()
    assert {path.parent for path in found.files} == {cold}
    assert sorted(path.name for path in cold.parent.iterdir()) == [cold.name, f"{cold.name}.lock"]
    fake_java("exit 1")
    assert find_jars() == found


def test_jar_with_a_flipped_byte_is_refused_where_it_arrives(
    cold: Path, fake_java: FakeJava, jars_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(jars_folder, tmp_path / "served")
    victim = locked_jars()[7]
    flip(tmp_path / "served" / victim.file)
    fake_java(COPY.format(jars=tmp_path / "served"))
    with pytest.raises(ConnectorError, match=rf"{victim.file}: its SHA-256 is .*; {victim.sha256} is needed"):
        find_jars()
    assert not cold.exists()


def test_nothing_runs_with_a_kept_jar_that_has_changed(
    cold: Path, fake_java: FakeJava, jars_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(jars_folder, cold)
    flip(cold / locked_jars()[-1].file)
    fake_java(f"touch {tmp_path}/ran")
    with pytest.raises(ConnectorError, match=rf"{locked_jars()[-1].file}: .* fetches it again: rm -r {cold}"):
        Broker(tmp_path / "broker").start()
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "broker" / "data").exists()


def test_a_jar_that_is_not_in_the_lock_is_not_run(cold: Path, jars_folder: Path) -> None:
    shutil.copytree(jars_folder, cold)
    (cold / "stranger.jar").write_bytes(b"")
    assert "stranger.jar" not in {path.name for path in find_jars().files}


def test_missing_jar_is_named(jars_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(jars_folder, tmp_path / "jars")
    (tmp_path / "jars" / locked_jars()[0].file).unlink()
    with pytest.raises(ConnectorError, match=rf"{locked_jars()[0].file}: its SHA-256 is of no file"):
        check(tmp_path / "jars", locked_jars())


def test_two_at_once_fetch_once(cold: Path, fake_java: FakeJava, jars_folder: Path, tmp_path: Path) -> None:
    fake_java(f"echo fetched >> {tmp_path}/fetched; {COPY.format(jars=jars_folder)}")
    both = [threading.Thread(target=find_jars) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert (tmp_path / "fetched").read_text() == "fetched\n"
    check(cold, locked_jars())


def test_killed_while_fetching_leaves_nothing_in_the_way(
    cold: Path, fake_java: FakeJava, jars_folder: Path, tmp_path: Path
) -> None:
    # The one that pretends to be Ivy copies a part, and then kills the process that has called it.
    some = " ".join(str(jars_folder / jar.file) for jar in locked_jars()[:20])
    fake_java(f"cp {some} jars/; kill -9 $PPID")
    code = "from eddy.connectors.broker.jars import find_jars; find_jars()"
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert not cold.exists()
    fake_java(COPY.format(jars=jars_folder))
    check(find_jars().files[0].parent, locked_jars())
    assert sorted(path.name for path in cold.parent.iterdir()) == [cold.name, f"{cold.name}.lock"]


def test_what_did_not_arrive_is_told_and_may_be_tried_again(cold: Path, fake_java: FakeJava) -> None:
    fake_java("exit 1")
    with pytest.raises(
        ConnectorError, match=f"{len(locked_jars())} jars, such as .*, did not come .* --jars DIR"
    ) as told:
        find_jars()
    assert told.value.retriable
    assert not cold.exists()


def test_pyspark_is_named_where_it_is_missing(
    cold: Path, fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java()
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "site-packages" not in entry])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    with pytest.raises(ConnectorError, match=r"pip install 'eddy-streams\[spark\]'; .* --jars DIR"):
        find_jars()


def test_folder_of_the_users_own_is_taken_as_it_is(
    cold: Path, jars_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libs = tmp_path / "libs"
    libs.mkdir()
    (libs / "kafka_2.13-4.3.0.jar").write_bytes(b"")
    (libs / "kafka-clients-4.3.0.jar").write_bytes(b"")
    assert find_jars(libs).version == "4.3.0"
    assert find_jars(libs).files == (libs / "kafka-clients-4.3.0.jar", libs / "kafka_2.13-4.3.0.jar")


def test_folder_without_kafka_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.jar").write_bytes(b"")
    with pytest.raises(ConnectorError, match=r"of 1 jars none is kafka_2\.13-VERSION\.jar"):
        find_jars(tmp_path)
