"""What all commands share: help, documentation, exit statuses, environment variables."""

import pathlib
import re
from collections.abc import Callable

import click
import pytest
from click.testing import Result

import eddy
from eddy.cli import main
from eddy.cli.exits import exit_status

Command = Callable[..., Result]

DOCUMENT = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
every_command = pytest.mark.parametrize("name", main.commands)


@every_command
def test_help_says_what_it_does_with_an_example(run: Command, name: str) -> None:
    shown = run(name, "--help").stdout
    assert re.search(rf"(?s)\n  Examples?:\n    .*eddy {name}", shown), shown
    undocumented = [p.opts[0] for p in main.commands[name].params if isinstance(p, click.Option) and not p.help]
    assert set(undocumented) <= {"--format"}


@every_command
def test_document_has_a_section_with_every_option(name: str) -> None:
    section = DOCUMENT.partition(f"\n## eddy {name}\n")[2].partition("\n## ")[0]
    assert f"```sh\neddy {name}" in section or f"&& eddy {name}" in section
    options = [p for p in main.commands[name].params if isinstance(p, click.Option)]
    spellings = [spelling for option in options for spelling in (*option.opts, *option.secondary_opts)]
    assert [spelling for spelling in spellings if not re.search(rf"`{spelling}\b", section)] == []


def test_document_names_no_command_that_does_not_exist() -> None:
    assert re.findall(r"^## eddy (\w+)$", DOCUMENT, re.MULTILINE) == list(main.commands)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (eddy.TopologyError("x"), 78),
        (eddy.PlanChangedError("x"), 78),
        (eddy.ConnectorError("x", retriable=True), 75),
        (eddy.FencedError("x"), 75),
        (eddy.ConnectorError("x"), 1),
        (eddy.DataError("x"), 1),
        (eddy.StateError("x"), 1),
    ],
)
def test_exit_status_tells_whose_fault_it_is(error: eddy.EddyError, status: int) -> None:
    assert exit_status(error) == status


def test_kafka_is_refused_by_name(run: Command) -> None:
    told = run("run", "family.py", "--bootstrap", "localhost:9092", status=2).stderr
    assert "the Kafka connector is not in this version of eddy" in told


def test_environment_names_the_log(run: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("EDDY_DATA", str(tmp_path / "elsewhere"))
    run("produce", "t", stdin="a\t1\n")
    monkeypatch.delenv("EDDY_DATA")
    assert run("consume", "t", "--data", "elsewhere").stdout == "a\t1\n"


def test_directory_of_something_else_is_refused_as_it_is(run: Command, folder: pathlib.Path) -> None:
    told = run("produce", "t", "--data", ".", stdin="a\t1\n", status=1).stderr
    assert told.startswith("error [CONNECTOR]: local log .: holds 1 other files ('family.py', …)")


def test_version_is_printed(run: Command) -> None:
    assert re.fullmatch(r"eddy \d+\.\d+\.\d+\S* \(Python 3\.\S+\)\n", run("version").stdout)
