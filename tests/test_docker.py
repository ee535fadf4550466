"""The image cannot be built here; what it says is held against the code instead."""

import re
import tomllib
from pathlib import Path

from click.testing import CliRunner

from eddy.cli import main
from eddy.cli.options import data_option, state_option

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")


def instructions(word: str) -> list[str]:
    return re.findall(rf"^{word} (.+)$", TEXT, flags=re.MULTILINE)


def test_what_is_copied_from_the_repository_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    sources = [path for line in instructions("COPY") if "--from" not in line for path in line.split()[:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source not in ignored


def test_the_entry_point_is_a_script_of_the_package() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert instructions("ENTRYPOINT") == ['["eddy"]']
    assert "eddy" in scripts
    assert CliRunner().invoke(main, ["--help"]).exit_code == 0


def test_the_variables_it_sets_are_read_by_the_command_line() -> None:
    (line,) = instructions("ENV")
    variables = {pair.split("=")[0] for pair in line.split() if pair.startswith("EDDY_")}
    options = [option(lambda: None).__click_params__[0] for option in (data_option, state_option)]  # type: ignore[attr-defined]
    assert variables == {option.envvar for option in options}


def test_it_runs_as_a_user_of_its_own_on_a_python_that_the_package_takes() -> None:
    assert instructions("USER") == ["eddy"]
    assert f"useradd --system --uid 10001 --home-dir /data {instructions('USER')[0]}" in TEXT
    minors = {int(minor) for minor in re.findall(r"^FROM python:3\.(\d+)-slim", TEXT, flags=re.MULTILINE)}
    assert len(minors) == 1
    assert min(minors) >= 11
