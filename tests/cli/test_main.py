"""What all commands share: help, documentation, exit statuses, environment variables."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import click
import pytest

import eddy
from eddy.cli import main
from eddy.cli.exits import exit_status
from eddy.errors import ConfigurationError, IndeterminateCommitError, InvariantError, SlotTakenError
from tests.cli.conftest import Command, Start
from tests.commandline import commands_of

DOCUMENT = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def all_of(group: click.Group, name: str = "") -> dict[str, click.Command]:
    """The commands of a group by their full names; those of a group in it follow it."""
    found: dict[str, click.Command] = {}
    for part, command in commands_of(group).items():
        full = f"{name} {part}".strip()
        found[full] = command
        if isinstance(command, click.Group):
            found |= all_of(command, full)
    return found


COMMANDS = all_of(main)
every_command = pytest.mark.parametrize("name", COMMANDS)


def shown_options(name: str) -> list[click.Option]:
    """The options of a command, without the deprecated ones, which are hidden."""
    return [option for option in COMMANDS[name].params if isinstance(option, click.Option) and not option.hidden]


@every_command
def test_help_says_what_it_does_with_an_example(run: Command, name: str) -> None:
    shown = run(*name.split(), "--help").stdout
    assert re.search(rf"(?s)\n  Examples?:\n    .*eddy {name}", shown), shown
    undocumented = [option.opts[0] for option in shown_options(name) if not option.help]
    assert set(undocumented) <= {"--format"}


@every_command
def test_document_has_a_section_with_every_option(name: str) -> None:
    section = DOCUMENT.partition(f"\n## eddy {name.split()[0]}\n")[2].partition("\n## ")[0]
    assert re.search(rf"(```sh\n|\n|&& |`)eddy {name}\b", section)
    spellings = [spelling for option in shown_options(name) for spelling in (*option.opts, *option.secondary_opts)]
    assert [spelling for spelling in spellings if not re.search(rf"`{spelling}\b", section)] == []


def test_a_command_imports_no_other() -> None:
    said = "import sys\nfrom eddy.cli import main\nmain(['version'], standalone_mode=False)\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    imported = {".".join(name.split(".")[:2]) for name in done.stdout.split() if name.startswith("eddy.")}
    assert imported <= {"eddy.cli", "eddy.connectors", "eddy.errors"}


def test_document_names_no_command_that_does_not_exist() -> None:
    assert re.findall(r"^## eddy (\w+)$", DOCUMENT, re.MULTILINE) == list(commands_of(main))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (eddy.TopologyError("x"), 78),
        (eddy.PlanChangedError("x"), 78),
        (eddy.ConnectorError("x", retriable=True), 75),
        (eddy.FencedError("x"), 75),
        (IndeterminateCommitError("x"), 75),
        (ConfigurationError("x"), 78),
        (SlotTakenError("x"), 75),
        (InvariantError("x"), 70),
        (eddy.ConnectorError("x"), 1),
        (eddy.DataError("x"), 1),
        (eddy.StateError("x"), 1),
        (eddy.StateInUseError("x"), 75),
    ],
)
def test_exit_status_tells_whose_fault_it_is(error: eddy.EddyError, status: int) -> None:
    assert exit_status(error) == status


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


@pytest.mark.parametrize(
    "command",
    [
        ("consume", "nodes"),
        ("consume", "nodes", "--latest", "--format", "jsonl"),
        ("topics",),
        ("status", "family.py"),
        ("describe", "family.py"),
        ("sql", "-t", "nodes=nodes", "-c", "SELECT * FROM nodes"),
        ("--help",),
        ("run", "--help"),
    ],
    ids=" ".join,
)
def test_output_that_nobody_reads_ends_a_command_as_it_ends_other_tools(
    command: tuple[str, ...], run: Command, start: Start
) -> None:
    run("produce", "nodes", stdin="a\tb\n")
    run("run", "family.py", "--until-idle")
    read, write = os.pipe()
    os.close(read)
    process = start(*command, stdout=write)
    os.close(write)
    assert process.ends(141).errors == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_the_caller_closed_change_nothing(closed: str, run: Command, tmp_path: pathlib.Path) -> None:
    run("produce", "nodes", stdin="a\tb\n")
    seen = "import os; print(*(os.readlink(f'/proc/self/fd/{fd}') for fd in range(3)), file=open('seen', 'w'))"
    (tmp_path / "seeing.py").write_text(f"{seen}\n{(tmp_path / 'family.py').read_text()}")
    for command in ("run seeing.py --until-idle", "status seeing.py", "consume descendants", "topics", "version"):
        shell = f"exec {shlex.quote(sys.executable)} -m eddy {command} {closed}"
        done = subprocess.run(shell, shell=True, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stderr)
        assert "Traceback" not in done.stderr
    opened = (tmp_path / "seen").read_text().split()
    assert len(opened) == 3
    assert not [name for name in opened if ".eddy" in name]


@pytest.mark.parametrize("address", ["99999", "localhost:65536", "port", "-1", "1:2:3"])
def test_address_that_is_none_is_a_wrong_use(run: Command, address: str) -> None:
    told = run("run", "family.py", f"--http={address}", status=2).stderr
    assert f"Invalid value for '--http': '{address}' is not an address; PORT or HOST:PORT is needed" in told


@pytest.mark.parametrize("command", ["run", "status", "wait", "describe"])
def test_topology_that_reads_nothing_is_refused(run: Command, folder: pathlib.Path, command: str) -> None:
    (folder / "empty.py").write_text('import eddy\ntopology = eddy.Topology("empty")\n')
    told = run(command, "empty.py", status=78).stderr
    assert told.startswith("error [TOPOLOGY]: topology 'empty': it reads nothing; a source is needed.")
