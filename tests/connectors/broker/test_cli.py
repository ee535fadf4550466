"""`eddy broker` from start to stop, as a person would."""

import os
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eddy.cli import main
from eddy.connectors.broker import Broker, free_port, kafka_version
from eddy.connectors.broker.process import PID
from tests.commandline import commands_of

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
COMMANDS = commands_of(main)["broker"].commands  # type: ignore[attr-defined]

Command = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `eddy broker` in this process and in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, status: int = 0) -> Result:
        result = CliRunner().invoke(main, ["broker", *arguments], catch_exceptions=False)
        assert result.exit_code == status, result.output
        return result

    return invoke


@pytest.fixture
def data(brokers_folder: Path) -> Iterator[Path]:
    """Where a broker may be; none is left there."""
    folder = brokers_folder / uuid.uuid4().hex[:12]
    yield folder
    Broker(folder).kill()


def test_broker_is_started_looked_at_and_stopped(run: Command, data: Path) -> None:
    port = free_port()
    at = ("--data", str(data))
    assert run("status", *at, status=1).stdout == f"not running\ndata      {data}\n"

    started = run("start", *at, "--port", str(port), "--heap", "256", "--set", "num.partitions=3")
    assert started.stdout == f"bootstrap 127.0.0.1:{port}\n"
    assert "\nnum.partitions=3\n" in (data / "server.properties").read_text()
    again = run("start", *at)
    assert (again.stdout, again.stderr) == (started.stdout, "runs already\n")
    shown = rf"running\nbootstrap 127\.0\.0\.1:{port}\npid       \d+\nkafka     {kafka_version()}\ndata      .*\n"
    assert re.fullmatch(shown, run("status", *at).stdout)

    assert run("stop", *at).stderr == "stopped\n"
    run("status", *at, status=1)
    assert (data / "data" / "meta.properties").exists()
    assert run("stop", *at, "--remove").stderr == "did not run\n"
    assert not data.exists()


def test_stale_id_is_not_stopped(run: Command, tmp_path: Path) -> None:
    """The id is that of these tests: they go on."""
    data = tmp_path / ".eddy" / "broker"
    data.mkdir(parents=True)
    (data / PID).write_text(str(os.getpid()))
    assert run("status", status=1).stdout == "not running\ndata      .eddy/broker\n"
    assert run("stop").stderr == "did not run\n"


def test_no_java_is_one_message(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    told = run("start", status=1).stderr.splitlines()[-1]
    assert told.startswith("error [CONNECTOR]: java: there is none on PATH; a Kafka broker needs Java 17 or later. ")


def test_jars_may_be_named_by_option_or_environment(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("EDDY_KAFKA_JARS", "one")
    assert "jars one: of 0 jars none is" in run("start", status=1).stderr
    assert "jars two: of 0 jars none is" in run("start", "--jars", "two", status=1).stderr


def test_folder_that_cannot_be_is_one_message(run: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("start", "stop", "status"):
        told = run(name, "--data", "file/broker", status=1).stderr
        assert told.startswith("error [CONNECTOR]: broker file/broker: [Errno 20] Not a directory")


def test_setting_that_is_none_is_refused(run: Command) -> None:
    assert "many is not KEY=VALUE" in run("start", "--set", "many", status=2).stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_command_has_an_example_and_its_options_are_documented(run: Command, name: str) -> None:
    assert re.search(rf"\n  Example:\n    eddy broker {name}", run(name, "--help").stdout)
    section = DOCUMENT.partition("\n## eddy broker\n")[2].partition("\n## ")[0]
    assert f"eddy broker {name}\n" in section
    options = [spelling for option in COMMANDS[name].params for spelling in option.opts]
    assert [option for option in options if not re.search(rf"`{option}\b", section)] == []
