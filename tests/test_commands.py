"""What the pages show of the command line is what it takes: commands, options, settings, variables, links."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from eddy.cli import main
from eddy.connectors.kafka import KafkaSettings
from tests.commandline import parsed, read_by_the_command_line

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *[ROOT / name for name in ("README.md", "SECURITY.md", "docker/README.md", "examples/wordnet/README.md")],
    *sorted((ROOT / "docs").glob("*.md")),
]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
AFTER_A_COMMAND = {"|", "&&", "&", ";", "<", ">"}
ENVIRONMENT = {"FAMILY_PASSWORD": "secret", "FAMILY_CLIENT_SECRET": "secret"}


@pytest.fixture(autouse=True)
def no_settings_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in read_by_the_command_line():
        monkeypatch.delenv(variable, raising=False)


def blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def commands_of(line: str) -> Iterator[list[str]]:
    """The commands of eddy that a line of a shell runs, on this machine or in a container."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    for start, word in enumerate(words):
        first = start == 0 or words[start - 1] in AFTER_A_COMMAND
        if word == "eddy" and (first or words[:2] == ["docker", "run"]) and start + 1 < len(words):
            end = next((at for at in range(start, len(words)) if words[at] in AFTER_A_COMMAND), len(words))
            yield words[start:end]


@each_page
def test_commands_are_those_that_eddy_takes(page: Path) -> None:
    for line in "".join(blocks(page, "sh")).splitlines():
        for words in commands_of(line):
            try:
                parsed(words)
            except click.UsageError as error:
                pytest.fail(f"{line}: {error.format_message()}")


def test_every_command_is_shown_somewhere() -> None:
    shown = {
        words[1] for page in PAGES for line in "".join(blocks(page, "sh")).splitlines() for words in commands_of(line)
    }
    assert set(main.list_commands(click.Context(main))) <= shown


@each_page
def test_variables_are_those_that_the_command_line_reads(page: Path) -> None:
    named = set(re.findall(r"\bEDDY_[A-Z_]+\b", page.read_text(encoding="utf-8")))
    assert named <= read_by_the_command_line() | {"EDDY_EXAMPLES"}


@each_page
def test_settings_are_those_that_eddy_and_its_client_take(page: Path, tmp_path: Path) -> None:
    secret, file = tmp_path / "secret", tmp_path / "kafka.properties"
    secret.write_text("secret")
    for block in blocks(page, "properties"):
        file.write_text(re.sub(r"\$\{file:[^}]+\}", f"${{file:{secret}}}", block))
        settings = KafkaSettings.of(files=[file], environ=ENVIRONMENT)
        for client, given in [
            (confluent_kafka.Consumer, {"group.id": "family"} | settings.for_consumer()),
            (confluent_kafka.Producer, settings.for_producer()),
            (AdminClient, settings.for_admin()),
        ]:
            # The client takes settings one by one, and only then looks for files and servers, which are not there.
            with pytest.raises(confluent_kafka.KafkaException, match="nonsense"):
                client({**given, "nonsense": ""})


@each_page
def test_links_lead_to_files_and_headings_that_there_are(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+://", target):
            continue
        name, _, heading = target.partition("#")
        path = page if not name else page.parent / name
        assert path.exists(), f"{target} is not there"
        if heading:
            titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert heading in {anchor(title) for title in titles}, f"{target}: no such heading"


def anchor(title: str) -> str:
    """What a heading is called in a link."""
    return re.sub(r"[^\w\- ]", "", title.lower().replace("`", "")).replace(" ", "-")
