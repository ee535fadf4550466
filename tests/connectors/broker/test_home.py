"""Processes that start and remove a broker in one folder at the same moment."""

from pathlib import Path

import pytest

from eddy.connectors.broker.home import Home
from eddy.connectors.broker.process import LOCK, claimed
from eddy.errors import ConnectorError
from tests.at_once import errors_of

START_AND_REMOVE = """
from eddy.connectors.broker.home import Home
from eddy.connectors.broker.process import claimed

def start_and_remove(home):
    home.make()
    with claimed(home.folder) as lock:
        if lock is not None:
            home.prepare(9092, "4", {})
    home.remove()
"""


@pytest.mark.slow
def test_processes_that_start_and_remove_a_broker_at_once_are_refused_only_as_running(tmp_path: Path) -> None:
    found = errors_of("start_and_remove(Home(path))", START_AND_REMOVE, tmp_path, times=100, processes=4)
    assert [error for error in found if "it has to be stopped first" not in error] == []


def test_folder_that_is_being_started_is_not_removed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with claimed(tmp_path) as lock:
        assert lock is not None
        home.prepare(9092, "4.1", {})
        with pytest.raises(ConnectorError, match="runs, or is being started"):
            home.remove()
    assert home.about() == {"port": 9092, "version": "4.1"}
    (tmp_path / "letter").write_text("ours")
    home.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letter"]


def test_start_that_was_killed_at_its_first_file_does_not_stand_in_the_way(tmp_path: Path) -> None:
    for name in (LOCK, "broker.json.new"):
        (tmp_path / name).touch()
    Home(tmp_path).make()
