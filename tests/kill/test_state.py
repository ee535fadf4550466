"""A full disk, damage, loss or the wrong state directory: an answer is right, or there is none."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kill.conftest import Build
from tests.kill.nursery import FILL_DISK
from tests.kill.rig import Rig
from tests.kill.test_kill import STEPS
from tests.seeds import in_turn

DAMAGES_A_FILE = 3


def files_of(rig: Rig) -> list[Path]:
    return sorted(path for path in rig.state.rglob("*") if path.is_file())


def contents(rig: Rig) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in files_of(rig) if not path.name.startswith("LOG")}


@pytest.mark.parametrize("step", [*in_turn(STEPS, 3)])
def test_a_full_disk_ends_the_worker_with_a_message_and_loses_nothing(build: Build, step: str) -> None:
    rig = build("materials")
    rig.produce(10)
    rig.settle()
    rig.produce(30)
    outcome = rig.run(step, 2, FILL_DISK)
    assert outcome.status == 1
    assert "room" in outcome.errors
    if step == "committed":  # the next thing written is the store
        assert f"state '{rig.state}" in outcome.errors
    rig.settle()


def check_refused(rig: Rig, words: str) -> None:
    """A run ends with these words, and touches nothing."""
    before = contents(rig)
    outcome = rig.run()
    assert outcome.status == 1
    assert words in outcome.errors
    assert contents(rig) == before


def test_the_state_of_another_application_is_refused_and_not_touched(build: Build) -> None:
    other, rig = build("countdown"), build("materials")
    other.produce(10)
    other.settle()
    (rig.state / "countdown").rename(rig.state / "materials")
    rig.produce(10)
    check_refused(rig, "belongs to application 'countdown', not to 'materials'")


def test_a_directory_of_something_else_is_refused_and_not_touched(build: Build) -> None:
    rig = build("materials")
    (rig.state / "materials" / "0").mkdir(parents=True)
    (rig.state / "materials" / "0" / "thesis.txt").write_text("irreplaceable")
    check_refused(rig, "holds files that eddy did not make")


def test_a_state_directory_that_is_gone_is_restored(build: Build) -> None:
    rig = build("permissions")
    rig.produce(40)
    rig.settle()
    shutil.rmtree(rig.state)
    rig.produce(10)
    rig.settle()


def test_an_older_copy_of_a_state_directory_is_brought_up_to_date(build: Build, tmp_path: Path) -> None:
    rig = build("permissions")
    rig.produce(40)
    rig.settle()
    shutil.copytree(rig.state, tmp_path / "copy")
    rig.produce(40)
    rig.settle()
    shutil.rmtree(rig.state)
    shutil.move(tmp_path / "copy", rig.state)
    rig.produce(10)
    rig.settle()


def test_the_state_directory_of_another_log_is_refused(build: Build, tmp_path: Path) -> None:
    ahead, rig = build("permissions", folder=tmp_path / "ahead"), build("permissions", folder=tmp_path / "new")
    ahead.produce(100)
    ahead.settle()
    shutil.copytree(ahead.state, rig.state)
    rig.produce(10)
    outcome = rig.run()
    assert outcome.status == 1
    assert "another log" in outcome.errors


def flip(rig: Rig, data: bytearray) -> None:
    """Change a byte."""
    data[rig.rng.randrange(len(data))] ^= 1 << rig.rng.randrange(8)


def flip_many(rig: Rig, data: bytearray) -> None:
    """Overwrite a stretch."""
    start = rig.rng.randrange(len(data))
    data[start : start + 64] = rig.rng.randbytes(len(data[start : start + 64]))


def truncate(rig: Rig, data: bytearray) -> None:
    """Cut the end off."""
    del data[rig.rng.randrange(len(data)) :]


def remove(rig: Rig, data: bytearray) -> None:
    """Leave no byte."""
    data.clear()


@pytest.mark.parametrize("damage", [*in_turn([flip, flip_many, truncate, remove], 2)])
def test_damage_is_named_or_mended_and_never_makes_a_wrong_answer(
    build: Build, damage: Callable[[Rig, bytearray], None], tmp_path: Path
) -> None:
    rig = build("materials", seed=3)
    for _ in range(3):  # each start leaves a table file of what the last one had in its log
        rig.produce(40)
        rig.settle()
    whole = tmp_path / "whole"
    shutil.copytree(rig.state, whole)
    refused = 0
    for path in files_of(rig):
        for _ in range(DAMAGES_A_FILE if path.suffix in {".sst", ".log"} else 1):
            shutil.rmtree(rig.state)
            shutil.copytree(whole, rig.state)
            data = bytearray(path.read_bytes())
            if data:
                damage(rig, data)
            path.write_bytes(data)
            rig.produce(3)
            refused += not take_in_or_name_the_damage(rig)
    assert refused, "no damage was noticed: were these the right files?"


def take_in_or_name_the_damage(rig: Rig) -> bool:
    """Run; where the damage is named, do as the message says. Returns whether the state could be used."""
    outcome = rig.run()
    if outcome.status == 0:
        rig.check_outputs()
        return True
    assert outcome.status == 1, outcome
    assert "state " in outcome.errors, outcome.errors
    shutil.rmtree(rig.state)
    rig.settle()
    return False
