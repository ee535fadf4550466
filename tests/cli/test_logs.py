"""Which log a command works on, and what is said where the options do not fit."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

import eddy
from eddy.cli.load import load
from tests.cli.conftest import Command

NOBODY = "127.0.0.1:1"
"""An address at which no broker is."""


@pytest.mark.parametrize(
    "options",
    [["--bootstrap", NOBODY], ["--config", "client.properties"], ["--set", f"bootstrap.servers={NOBODY}"]],
)
def test_both_kinds_of_log_at_a_time_are_a_mistake(run: Command, folder: pathlib.Path, options: list[str]) -> None:
    (folder / "client.properties").touch()
    told = run("topics", "--data", "log", *options, status=2).stderr
    assert "--data names the embedded log, and --bootstrap, --config and --set a Kafka cluster" in told


def test_command_line_goes_before_the_environment(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    run("produce", "t", stdin="a\t1\n")
    monkeypatch.setenv("EDDY_BOOTSTRAP", NOBODY)
    monkeypatch.setenv("EDDY_DATA", ".eddy/log")
    assert run("consume", "t", "--data", ".eddy/log").stdout == "a\t1\n"
    told = run("consume", "t", "--set", "group.id=x", status=78).stderr
    assert (
        told == "error [CONNECTOR_CONFIGURATION]: --set: group.id cannot be set; the group is the application's name\n"
    )


def test_settings_without_a_broker_are_told_where_they_come_from(run: Command, folder: pathlib.Path) -> None:
    (folder / "client.properties").write_text("\nbootstrap.servers=here\n")
    told = run("status", "family.py", "--config", "client.properties", status=78).stderr
    assert "settings client.properties line 2: bootstrap.servers is 'here'; servers as HOST:PORT are needed" in told
    assert "Name them: --bootstrap HOST:PORT" in run("topics", "--set", "client.id=x", status=78).stderr
    assert "does not exist" in run("topics", "--config", "gone", status=2).stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--processes", "2"], "--processes needs Kafka (--bootstrap); on the embedded log one process runs all."),
        (["--bootstrap", NOBODY, "--partitions", "2"], "on Kafka: eddy topics create NAME --partitions N"),
        (["--bootstrap", NOBODY, "--processes", "9", "--http", "65530"], "9 workers need as many ports"),
        (["--member", ""], "1 to 100 of the characters A-Z a-z 0-9 . _ - are needed"),
        (["--member", "a/b"], "1 to 100 of the characters A-Z a-z 0-9 . _ - are needed"),
        (["--member", ".."], "not . or .. alone"),
        (["--member", "a" * 101], "1 to 100 of the characters A-Z a-z 0-9 . _ - are needed"),
    ],
)
def test_run_refuses_what_does_not_fit(run: Command, options: list[str], said: str) -> None:
    told = run("run", "family.py", *options, status=2).stderr
    assert said in " ".join(told.split())


def test_topics_are_created_as_asked_for(run: Command) -> None:
    configs = ("--topic-config", "cleanup.policy=compact", "--topic-config", "max.message.bytes=4194304")
    told = run("topics", "create", "a", "b", "--partitions", "3", *configs).stderr
    assert told == "topic 'a' made with 3 partitions\ntopic 'b' made with 3 partitions\n"
    assert [line.split() for line in run("topics").stdout.splitlines()[1:]] == [
        ["a", "compact", "3", "0"],
        ["b", "compact", "3", "0"],
    ]
    assert "exists already" in run("topics", "create", "c", "a", status=1).stderr
    assert run("topics", "create", "c", "a", "--if-not-exists").stderr == "topic 'c' made with 1 partition\n"
    assert "KEY=VALUE is needed" in run("topics", "create", "d", "--topic-config", "x", status=2).stderr
    assert "--replication needs Kafka" in run("topics", "create", "d", "--replication", "3", status=2).stderr


def test_topics_of_an_application_are_listed_with_their_use(
    run: Command, take_in: Callable[[eddy.Topology], None]
) -> None:
    run("produce", "other", stdin="a\tb\n")
    assert [line.split() for line in run("topics", "family.py").stdout.splitlines()[1:]] == [
        ["nodes", "source", "missing", "-", "-"],
        ["descendants", "sink", "missing", "-", "-"],
    ]
    take_in(load("family.py").topology)
    listed = {line.split()[0]: line.split()[1] for line in run("topics", "list", "family.py").stdout.splitlines()[1:]}
    assert listed == {
        "nodes": "source",
        "descendants": "sink",
        "family-ancestors-changelog": "changelog",
        "family-ancestors-held-changelog": "changelog",
        "family-ancestors-reached-changelog": "changelog",
        "family-descendants-changelog": "changelog",
        "family-nodes-changelog": "changelog",
        "family-ancestors-loop": "loop",
        "family-cuts": "cuts",
        "family-plan": "plan",
        "family-dead-letter": "dead",
    }


def test_without_the_client_library_kafka_is_refused_and_the_embedded_log_works(folder: pathlib.Path) -> None:
    (folder / "missing").mkdir()
    (folder / "missing" / "confluent_kafka.py").write_text("raise ImportError('it is not installed here')")
    environment = os.environ | {"PYTHONPATH": "missing"}

    def command(*arguments: str) -> tuple[int, str]:
        words = [sys.executable, "-m", "eddy", *arguments]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return done.returncode, done.stderr

    assert command("produce", "t")[0] == 0
    status, told = command("topics", "--bootstrap", NOBODY)
    assert status == 78
    assert "Install it: pip install 'eddy-streams[kafka]'" in told
