"""Spaces: maps of bytes that keep to themselves, and leave nothing."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from eddy.errors import StateError, StateInUseError
from eddy.state.spaces import Space, Spaces
from tests.disk import files_no_longer_than


@pytest.fixture(params=["memory", "disk"])
def spaces(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Spaces]:
    made = Spaces() if request.param == "memory" else Spaces(tmp_path / "spaces", "app", 1 << 20)
    yield made
    made.clear()


def test_spaces_do_not_see_one_another(spaces: Spaces) -> None:
    one, other = spaces.make(), spaces.make()
    one.write([(b"a", b"1"), (b"b", b"2"), (b"", b"0")])
    other.write([(b"a", b"3"), (b"\xff", b"4")])
    assert one.get_many([b"a", b"b", b"c"]) == [b"1", b"2", None]
    assert one.between(b"", None, 10) == [(b"", b"0"), (b"a", b"1"), (b"b", b"2")]
    assert one.between(b"a", b"b", 10) == [(b"a", b"1")]
    assert other.between(b"", None, 1) == [(b"a", b"3")]
    snapshot = one.snapshot()
    one.write([(b"a", None)])
    assert (one.get_many([b"a"]), snapshot.get_many([b"a"])) == ([None], [b"1"])
    assert snapshot.between(b"", None, 2) == [(b"", b"0"), (b"a", b"1")]
    snapshot.drop()
    one.drop()
    one.drop()
    assert other.between(b"", None, 10) == [(b"a", b"3"), (b"\xff", b"4")]
    with pytest.raises(StateError, match="this one was dropped"):
        one.get_many([b"a"])
    third = spaces.make()
    assert (len(spaces), third.between(b"", None, 10)) == (2, [])


def test_space_that_its_owner_has_forgotten_is_dropped(spaces: Spaces) -> None:
    spaces.make().write([(b"a", b"1")])
    gc.collect()
    kept = spaces.make()
    assert len(spaces) == 1
    assert kept.between(b"", None, 10) == []


def test_files_are_there_while_a_space_is(tmp_path: Path) -> None:
    path = tmp_path / "spaces"
    spaces = Spaces(path, "app", 1 << 20)
    assert not path.exists()
    one, other = spaces.make(), spaces.make()
    one.drop()
    other.write([(b"a", b"1")])
    assert path.exists()
    with pytest.raises(StateInUseError):
        Spaces(path, "app", 1 << 20)
    other.drop()
    assert not path.exists()
    third = spaces.make()
    third.write([(b"a", b"1")])
    spaces.clear()
    assert not path.exists()
    with pytest.raises(StateError, match="this one was dropped"):
        third.write([(b"a", b"1")])


def test_files_of_a_process_that_was_killed_go_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "spaces"
    former = Spaces(path, "app", 1 << 20)
    space = former.make()
    space.write([(b"a", b"1")])
    assert former._store is not None  # private: as a process leaves it, whose lock ends with it and whose files do not
    former._store.close()  # private: the same
    assert path.exists()
    Spaces(path, "app", 1 << 20)
    assert not path.exists()


def test_files_that_cannot_be_removed_now_go_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "spaces"
    spaces = Spaces(path, "app", 1 << 20)
    spaces.make().write([(b"a", b"1")])

    def refused(path: Path) -> None:
        raise StateError("state 'x': cannot be removed")

    with monkeypatch.context() as patch:
        patch.setattr("eddy.state.spaces.remove_store", refused)
        spaces.clear()
        again = spaces.make()
        assert again.between(b"", None, 1) == []
        again.drop()
    assert path.exists()
    Spaces(path, "app", 1 << 20)
    assert not path.exists()


def fill(space: Space) -> None:
    for number in range(1_000):
        space.write([(b"%d" % number, b"x" * 4_000)])


def test_refused_write_is_an_error_and_the_space_can_go(tmp_path: Path) -> None:
    spaces = Spaces(tmp_path / "spaces", "app", 1 << 20)
    space = spaces.make()
    space.write([(b"a", b"1")])
    with files_no_longer_than(1 << 16), pytest.raises(StateError, match="refused"):
        fill(space)
    space.drop()
    assert not (tmp_path / "spaces").exists()
    assert spaces.make().between(b"", None, 1) == []
    spaces.clear()
