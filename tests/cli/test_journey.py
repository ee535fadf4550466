"""The commands as a user has them: processes of their own, one after the other and side by side."""

import json
import os
import pathlib
import pty
import signal

import pytest

from tests.children import Child
from tests.cli.conftest import Command, Start
from tests.waiting import PATIENCE_S

TREE = "leaf\ttwig\ntwig\tbranch\nbranch\ttree\n"
COUNTS = {("twig", "1"), ("branch", "2"), ("tree", "3")}


SLOW = """
import pathlib, time, eddy

topology = eddy.Topology("slow")

def work(key, value):
    pathlib.Path("begun").touch()
    while not pathlib.Path("end").exists():
        time.sleep(0.01)

topology.stream("in", key=eddy.String, value=eddy.String).peek(work).to("out")
"""


def table_of(out: str) -> set[tuple[str, ...]]:
    return {tuple(line.split("\t")) for line in out.splitlines()}


def test_journey_of_a_newcomer(start: Start, folder: pathlib.Path) -> None:
    (folder / "nodes.tsv").write_text(TREE)
    messages = start("produce", "nodes", "nodes.tsv").ends().errors
    assert messages.endswith("3 records into 'nodes', 0 of them tombstones\n")
    messages = start("run", "family.py", "--until-idle").ends().errors
    assert "topic 'descendants' did not exist: made with 1 partition" in messages
    assert "3 records in, 3 out, 0 rejected" in messages
    out, messages = start("consume", "descendants", "--latest", "--value-type", "int64").ends()
    assert (table_of(out), messages) == (COUNTS, "")
    out = start("status", "family.py").ends().out
    assert "workers      none running\nquiescent    yes" in out
    assert start("wait", "family.py").ends() == ("", "")
    out = start("reset", "family.py", "--yes").ends().out
    assert f"directory {pathlib.Path('.eddy/state/family')}" in out.splitlines()
    start("run", "family.py", "--until-idle").ends()
    out = start("consume", "descendants", "--latest", "--value-type", "int64").ends().out
    assert table_of(out) == COUNTS


def test_others_produce_look_and_wait_while_a_worker_runs(start: Start, run: Command) -> None:
    worker = start("run", "family.py", "--log-format", "json")
    # Before the first run of the application there is nothing to be quiescent, so `wait` waits for it.
    run("wait", "family.py", "--timeout", str(PATIENCE_S))
    run("produce", "nodes", stdin=TREE)
    run("wait", "family.py", "--timeout", str(PATIENCE_S))
    assert table_of(run("consume", "descendants", "--latest", "--value-type", "int64").stdout) == COUNTS
    status = json.loads(run("status", "family.py", "--format", "json").stdout)
    assert (status["workers"], status["quiescent"]) == (1, True)
    refused = run("reset", "family.py", "--yes", status=1)
    assert "a worker runs on this log; a reset needs it stopped" in refused.stderr
    worker.signal(signal.SIGTERM)
    messages = worker.ends().errors
    last = json.loads(messages.splitlines()[-1])
    assert (last["level"], last["message"]) == ("info", "stopped by SIGTERM; 3 records in, 3 out, 0 rejected")
    assert json.loads(run("status", "family.py", "--format", "json").stdout)["workers"] == 0


def test_state_that_a_worker_on_another_log_has_open_is_not_removed(
    start: Start, run: Command, folder: pathlib.Path
) -> None:
    run("produce", "nodes", stdin=TREE)
    start("run", "family.py", "--data", "another-log").wait_to_say("runs on")
    told = run("reset", "family.py", "--yes", status=75).stderr
    assert "error [STATE_IN_USE]: state '.eddy/state/family/0': is in use by another process" in told
    assert (folder / ".eddy" / "state" / "family" / "0" / "CURRENT").exists()


@pytest.fixture
def busy(start: Start, run: Command, folder: pathlib.Path) -> Child:
    """A worker in the midst of an epoch, until there is a file `end`."""
    (folder / "slow.py").write_text(SLOW)
    run("produce", "in", stdin="a\t1\n")
    worker = start("run", "slow.py")
    worker.wait_to_say("runs on")
    worker.wait_for((folder / "begun").exists, "the call of the user's function")
    return worker


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_finishes_the_epoch(
    busy: Child, run: Command, folder: pathlib.Path, number: signal.Signals
) -> None:
    busy.signal(number)
    (folder / "end").touch()
    messages = busy.ends().errors
    assert f"stopped by {number.name}; 1 records in, 1 out" in messages
    assert run("consume", "out").stdout == "a\t1\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_second_signal_ends_at_once_and_loses_nothing(
    busy: Child, start: Start, run: Command, folder: pathlib.Path, number: signal.Signals
) -> None:
    busy.insist(number)
    busy.ends(128 + number)
    assert run("consume", "out").stdout == ""
    (folder / "end").touch()
    run("run", "slow.py", "--until-idle")
    assert run("consume", "out").stdout == "a\t1\n"


def test_progress_line_is_shown_on_a_terminal_and_cleared(start: Start, run: Command) -> None:
    run("produce", "nodes", stdin=TREE)
    terminal, end = pty.openpty()
    worker = start("run", "family.py", stderr=end)
    os.close(end)
    seen = b""
    while b"family: " not in seen or b"records/s" not in seen:
        seen += os.read(terminal, 65_536)
    worker.signal(signal.SIGINT)
    while b"stopped by SIGINT" not in seen:
        seen += os.read(terminal, 65_536)
    worker.ends()
    os.close(terminal)
    assert b"3 records" in seen
    assert b"\x1b[?25h" in seen


def test_follow_prints_what_comes_until_interrupted(start: Start, run: Command) -> None:
    run("produce", "nodes", stdin="old\tx\n")
    reader = start("consume", "nodes", "--follow")
    assert reader.next_line() == "old\tx"
    run("produce", "nodes", stdin="new\ty\n")
    assert reader.next_line() == "new\ty"
    reader.signal(signal.SIGINT)
    assert reader.ends(130) == ("old\tx\nnew\ty\n", "")


@pytest.mark.parametrize("form", ["text", "json"])
def test_data_error_names_the_record_and_the_line_of_the_author(run: Command, folder: pathlib.Path, form: str) -> None:
    (folder / "bad.py").write_text(
        "import eddy\n"
        "topology = eddy.Topology('bad')\n"
        "words = topology.stream('words', key=eddy.String, value=eddy.String)\n"
        "words.map_values(lambda word: word.nothing).to('out')\n"
    )
    run("produce", "words", stdin="a\tb\n")
    messages = run("run", "bad.py", "--until-idle", "--log-format", form, status=1).stderr
    line = messages.splitlines()[-2:] if form == "text" else [json.loads(messages.splitlines()[-1])["message"]]
    told = "\n".join(line)
    assert "topic 'words' partition 0 offset 0 key b'a'" in told
    assert "bad.py:4: words.map_values(lambda word: word.nothing)" in told
    assert "Traceback" not in messages
    messages = run("run", "bad.py", "--until-idle", "--on-error", "dead-letter").stderr
    assert "1 records in, 0 out, 1 rejected" in messages
    letters = run("consume", "bad-dead-letter", "--headers", "--format", "jsonl").stdout
    assert ["eddy.topic", "words"] in json.loads(letters)["headers"]
