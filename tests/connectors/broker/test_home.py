"""Processes that start and remove a broker in one folder at the same moment."""

import subprocess
import sys
from pathlib import Path

import pytest

from eddy.connectors.broker.home import Home
from eddy.connectors.broker.process import LOCK, claimed
from eddy.errors import ConnectorError

TIMES = """
import sys
from collections import Counter
from pathlib import Path
from eddy.connectors.broker.home import Home
from eddy.connectors.broker.process import claimed
home, starts, told = Home(Path(sys.argv[1])), sys.argv[2] == "start", Counter()
for _ in range(200):
    try:
        if starts:
            home.make()
            with claimed(home.folder) as lock:
                if lock is not None:
                    home.prepare(9092, "4", {})
        else:
            home.remove()
    except Exception as error:
        told[f"{type(error).__name__}: {error}"] += 1
told = {text: times for text, times in told.items() if "runs, or is being started" not in text}
print(told)
"""


def test_processes_that_start_and_remove_a_broker_at_once_are_refused_only_as_running(tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", TIMES, str(tmp_path / "broker"), what] for what in ("start", "remove") * 2]
    others = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    assert [other.communicate(timeout=120)[0] for other in others] == ["{}\n"] * 4
    Home(tmp_path / "broker").remove()
    assert list(tmp_path.iterdir()) == []


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
