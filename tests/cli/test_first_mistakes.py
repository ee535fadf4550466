"""What a new user gets wrong on the command line: the message names the place, the value and the fix."""

import json
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

import eddy
from eddy.cli.load import load
from tests.cli.conftest import Command, Start
from tests.waiting import PATIENCE_S, quickest, wait_for

MARK = b"\xef\xbb\xbf"
HOST = "nowhere.invalid:9092"


@pytest.mark.parametrize(
    ("file", "content", "shown"),
    [
        ("a.tsv", b"k\tv\n", "k\tv\n"),
        ("a.csv", b"k,v\n", "k\tv\n"),
        ("q.csv", b'"k",v\n', "k\tv\n"),
        ("a.jsonl", b'{"key": "k", "value": "v"}\n', "k\tv\n"),
        ("a.txt", b"v\n", "\tv\n"),
    ],
)
def test_byte_order_mark_is_no_part_of_the_first_record(
    run: Command, folder: pathlib.Path, file: str, content: bytes, shown: str
) -> None:
    (folder / file).write_bytes(MARK + content)
    run("produce", "t", file)
    assert run("consume", "t").stdout == shown
    assert run("produce", "stdin", "--format", file.rpartition(".")[2].replace("txt", "lines"), stdin=MARK + content)
    assert run("consume", "stdin").stdout == shown


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("a.tsv", b"k\tcaf\xe9\n", r"line 1: the value b'caf\\xe9' is not UTF-8: byte 0xe9 at character 4"),
        ("a.csv", b"k,v\nk,caf\xe9\n", r"line 2: the value b'caf\\xe9' is not UTF-8: byte 0xe9 at character 4"),
        ("a.jsonl", b'{"key": "k", "value": "caf\xe9"}\n', r"line 1: b'.*' is not UTF-8: byte 0xe9 at character 27"),
        ("a.txt", b"x" * 200 + b"\xe9\n", r"line 1: the value b'x{40}\.\.\.' is not UTF-8: byte 0xe9 at character 201"),
    ],
)
def test_file_in_another_encoding_is_told(
    run: Command, folder: pathlib.Path, file: str, content: bytes, said: str
) -> None:
    (folder / file).write_bytes(content)
    told = run("produce", "t", file, status=1).stderr
    assert re.search(rf"error \[DATA\]: {re.escape(file)}: {said}; a file in UTF-8 is needed", told), told
    assert "Convert it: iconv -f LATIN1 -t UTF-8" in told
    assert "surrogates" not in told


def test_file_in_utf_16_is_named(run: Command, folder: pathlib.Path) -> None:
    (folder / "a.tsv").write_bytes("k\tv\n".encode("utf-16"))
    assert "Convert it: iconv -f UTF-16 -t UTF-8" in run("produce", "t", "a.tsv", status=1).stderr


@pytest.mark.parametrize("command", [("topics", "list"), ("consume", "t"), ("get", "family.py", "descendants")])
def test_name_of_a_broker_that_does_not_resolve_is_told_at_once(start: Start, command: tuple[str, ...]) -> None:
    """Not after the 13 s for which a broker that does not answer is waited for, whatever a process costs to start."""

    def attempt() -> float:
        began = time.monotonic()
        start("version").ends()
        start_s, began = time.monotonic() - began, time.monotonic()
        told = start(*command, "--bootstrap", HOST).ends(75).errors
        assert f"error [CONNECTOR]: kafka {HOST}: " in told
        assert "no broker answers: the name 'nowhere.invalid' cannot be resolved: " in told
        assert "check the address: --bootstrap HOST:PORT" in told
        return time.monotonic() - began - start_s

    quickest(attempt, 10.0)


class TestBeforeTheFirstRun:
    """The application has topics and no worker has run."""

    def test_get_names_the_worker(self, run: Command) -> None:
        run("topics", "create", "nodes", "descendants")
        told = run("get", "family.py", "descendants", "ann", "--timeout", "0.5", status=1).stderr
        assert "has not run yet; " in told
        assert "Start a worker: eddy run FILE" in told

    def test_get_says_why_it_waits_and_answers_after_the_first_run(
        self, run: Command, start: Start, take_in: Callable[[eddy.Topology], None]
    ) -> None:
        run("produce", "nodes", stdin="leaf\ttwig\n")
        run("topics", "create", "descendants")
        asked = start("get", "family.py", "descendants", "twig")
        asked.wait_to_say(
            "waiting, up to 60 s: tables: topic 'family-cuts' does not exist: the application has not run yet; "
        )
        take_in(load("family.py").topology)
        assert json.loads(asked.ends(0).out) == {"key": "twig", "value": 1}

    def test_serve_names_the_worker(self, run: Command, start: Start) -> None:
        run("topics", "create", "nodes", "descendants")
        server = start("serve", "family.py", "--http", "0")
        server.wait_to_say("the application has not run yet; start a worker: eddy run family.py")
        server.signal(signal.SIGTERM)
        server.ends(0)

    def test_wait_names_the_worker(self, run: Command) -> None:
        run("produce", "nodes", stdin="leaf\ttwig\n")
        run("topics", "create", "descendants")
        told = run("wait", "family.py", "--timeout", "0.2", status=1).stderr
        assert "the present version of the application must have run on this log. Start it: eddy run …" in told

    @pytest.mark.parametrize(
        "command", [("serve", "family.py", "--http", "0"), ("get", "family.py", "descendants"), ("status", "family.py")]
    )
    def test_missing_log_is_told(self, run: Command, command: tuple[str, ...]) -> None:
        told = run(*command, status=1).stderr
        assert "local log .eddy/log: there is no such directory; " in told
        assert "eddy produce and eddy run make one; or name it: --data DIR" in told

    def test_wait_for_a_missing_log_says_who_makes_it(self, run: Command) -> None:
        told = run("wait", "family.py", "--timeout", "0.2", status=1).stderr
        assert "not quiescent after 0.2 s: there is no log in .eddy/log yet; eddy produce and eddy run make one" in told
        told = run("wait", "family.py", "--timeout", "3.5", status=1).stderr
        assert told.count("there is no log in .eddy/log yet") == 2
        assert told.startswith("waiting, up to 3.5 s: there is no log")


@pytest.mark.parametrize("module", ["platform", "logging", "click"])
def test_ctrl_c_while_modules_are_imported_ends_quietly(folder: pathlib.Path, start: Start, module: str) -> None:
    there = "import pathlib, time\npathlib.Path('there').touch()\n"
    # A module of the current directory is found first. Its sleeps are short: a signal just before one does not end it.
    (folder / f"{module}.py").write_text(f"{there}for _ in range({20 * int(2 * PATIENCE_S)}): time.sleep(0.05)")
    process = start("topics", "list")
    wait_for((folder / "there").exists)
    process.signal(signal.SIGINT)
    assert process.ends(130).errors == ""


def test_little_is_imported_before_signals_are_handled() -> None:
    """Python's own handler, which shows a traceback, is in place until then."""
    code = f"import sys; sys.path[:0] = {sys.path!r}; import eddy.cli"
    command = [sys.executable, "-I", "-S", "-X", "importtime", "-c", code]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    names = [line.rpartition("|")[2].strip() for line in listed.splitlines()]
    early = names[: names.index("eddy.cli.importing")]
    assert not {"typing", "logging", "contextlib", "threading", "collections.abc", "click"} & {*early}
