"""Asking `eddy run` to stop, whatever it is at: it hears it within a second, and ends as the documents say."""

import contextlib
import os
import pathlib
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from eddy.cli.signals import Stopped, stop_on_signals
from tests import waiting
from tests.kafka import OwnBroker
from tests.waiting import PATIENCE_S, quickest

HEARD_S = 5.0
"""A second, and the end of a process; the quickest of several attempts counts."""
BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
THERE = 'pathlib.Path("there").touch()'
TOPOLOGY = """
import pathlib, time
import eddy
def wait(value):
    {inside}
    return value
topology = eddy.Topology("stops")
topology.stream("in", key=eddy.String, value=eddy.String).map_values(wait).to("out")
{outside}
"""
Start = Callable[..., subprocess.Popen[str]]


def wait_for(condition: Callable[[], object]) -> None:
    waiting.wait_for(condition, PATIENCE_S)


def ends(process: subprocess.Popen[str], status: int) -> str:
    """The messages of a process that ends with `status`, though its work takes longer than this waits."""
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status, said
    assert "Traceback" not in said
    return said


def stopped(process: subprocess.Popen[str], number: signal.Signals) -> float:
    """Seconds from a signal to the end of a process that is asked to stop."""
    began = time.monotonic()
    process.send_signal(number)
    ends(process, 0)
    return time.monotonic() - began


def program(folder: pathlib.Path, inside: str = "pass", outside: str = "") -> str:
    (folder / "stops.py").write_text(TOPOLOGY.format(inside=inside, outside=outside))
    return "stops.py"


@BOTH
def test_it_is_heard_while_eddy_is_imported(folder: pathlib.Path, start: Start, number: signal.Signals) -> None:
    (folder / "rich.py").write_text(f"import pathlib, time\n{THERE}\ntime.sleep({2 * PATIENCE_S})")
    for words, status in [(["run", "family.py"], 0), (["topics"], 128 + number)]:
        (folder / "there").unlink(missing_ok=True)
        process = start(*words)  # a module in the current directory goes before one of that name elsewhere
        wait_for((folder / "there").exists)
        process.send_signal(number)
        ends(process, status)


@BOTH
@pytest.mark.parametrize("outside", [f"{THERE}; time.sleep({2 * PATIENCE_S})", f"{THERE}\nwhile True: pass"])
def test_it_is_heard_while_the_program_is_imported(
    folder: pathlib.Path, start: Start, number: signal.Signals, outside: str
) -> None:
    process = start("run", program(folder, outside=outside))
    wait_for((folder / "there").exists)
    process.send_signal(number)
    assert f"stopped by {number.name} before it had started" in ends(process, 0)


@BOTH
def test_it_is_heard_while_nothing_comes(folder: pathlib.Path, start: Start, number: signal.Signals) -> None:
    def attempt() -> float:
        process = start("run", program(folder))
        assert process.stderr is not None
        assert any("runs on" in line for line in process.stderr)
        began = time.monotonic()
        process.send_signal(number)
        assert f"stopped by {number.name}; 0 records in" in ends(process, 0)
        return time.monotonic() - began

    quickest(attempt, HEARD_S)


@pytest.fixture
def mute() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@BOTH
@pytest.mark.parametrize("several", [[], ["--processes", "1"]])
def test_it_is_heard_while_no_broker_answers(
    folder: pathlib.Path, start: Start, mute: str, number: signal.Signals, several: list[str]
) -> None:
    def attempt() -> float:
        process = start("run", program(folder), "--bootstrap", mute, *several)
        assert process.stderr is not None
        assert any("not started yet" in line for line in process.stderr)
        return stopped(process, number)

    quickest(attempt, HEARD_S)


def test_it_is_heard_while_another_process_writes_to_the_log(folder: pathlib.Path, start: Start) -> None:
    """It waits for five seconds, inside a call that cannot be interrupted."""

    def attempt() -> float:
        process = start("run", program(folder))
        wait_for(lambda: has_open(process, file))
        return stopped(process, signal.SIGTERM)

    ends(start("topics", "create", "other"), 0)
    (file,) = (folder / ".eddy/log").glob("*.sqlite3")
    with contextlib.closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN IMMEDIATE")
        quickest(attempt, 4.0)


def has_open(process: subprocess.Popen[str], file: pathlib.Path) -> bool:
    with contextlib.suppress(FileNotFoundError):  # what it closes while we look
        links = pathlib.Path(f"/proc/{process.pid}/fd").iterdir()
        return any(os.readlink(link) == str(file.resolve()) for link in links)
    return False


def in_an_epoch(folder: pathlib.Path, start: Start, *options: str) -> subprocess.Popen[str]:
    """A worker whose epoch does not end by itself."""
    (folder / "in.tsv").write_text("a\tb\n")
    ends(start("produce", "in", "in.tsv"), 0)
    process = start("run", program(folder, inside=f"{THERE}; time.sleep({2 * PATIENCE_S})"), *options)
    wait_for((folder / "there").exists)
    return process


def test_stop_that_takes_too_long_ends_the_worker_and_says_so(folder: pathlib.Path, start: Start) -> None:
    process = in_an_epoch(folder, start, "--shutdown-timeout", "0.5")
    process.send_signal(signal.SIGTERM)
    assert "not stopped within 0.5 s, asked by SIGTERM; ended as it is" in ends(process, os.EX_TEMPFAIL)


@BOTH
def test_second_signal_ends_a_worker_at_once(folder: pathlib.Path, start: Start, number: signal.Signals) -> None:
    process = in_an_epoch(folder, start)
    process.send_signal(signal.SIGTERM)
    while process.poll() is None:  # two at a time may be told as one
        process.send_signal(number)
        time.sleep(0.01)
    ends(process, 128 + number)


@pytest.mark.parametrize(("words", "status"), [(["run", "stops.py"], 0), (["wait", "stops.py"], 130)])
def test_interrupt_is_heard_where_the_one_who_started_it_ignores_it(
    folder: pathlib.Path, start: Start, words: list[str], status: int
) -> None:
    """As a shell that is not interactive does with what it starts by `&`."""
    ignore = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    program(folder, outside=THERE)
    command = [sys.executable, "-c", ignore, sys.executable, "-m", "eddy", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_for((folder / "there").exists)
        process.send_signal(signal.SIGINT)
        ends(process, status)
    finally:
        process.kill()
        process.communicate()


def test_stop_ends_within_its_deadline_where_the_broker_stands_still(
    folder: pathlib.Path, start: Start, own_broker: OwnBroker
) -> None:
    """Nothing that would be closed is answered any more, and an epoch may be open."""
    broker = own_broker()
    broker.start()
    kafka = ["--bootstrap", broker.bootstrap]
    ends(start("topics", "create", "in", "out", "--partitions", "4", *kafka), 0)
    process = start("run", program(folder), "--shutdown-timeout", "20", "--processes", "2", *kafka)
    assert process.stderr is not None
    assert any("runs on" in line for line in process.stderr)
    start("produce", "in", *kafka, stdin=subprocess.PIPE).communicate("a\tb\n" * 5_000, timeout=PATIENCE_S)
    broker.pause()
    try:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE_S)  # a transaction would wait longer for its broker
        assert process.returncode in (0, os.EX_TEMPFAIL), said
    finally:
        broker.resume()


STUCK = """
import sys, threading
from eddy.cli import main
from eddy.connectors.closing import any_abandoned, close_within
assert close_within(lambda: None, "a client that ends", 10.0) and not any_abandoned()
threading.Thread(target=threading.Event().wait).start()  # the interpreter's own end would wait for it
assert not close_within(threading.Event().wait, "a client", 0.01) and any_abandoned()
sys.argv = ["eddy", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(("word", "status"), [("version", 0), ("unknown", 2)])
def test_command_ends_although_a_client_does_not(word: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUCK, word], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == status
    assert done.stderr.startswith("a client: not closed within 0.01 s; left as it is")
    assert ("eddy 0." in done.stdout) is (word == "version")


def test_stop_from_another_thread_interrupts_what_waits() -> None:
    with stop_on_signals() as stop:
        threading.Timer(0.1, stop.ask, ["somebody"]).start()
        with pytest.raises(Stopped), stop.interrupts():
            threading.Event().wait(PATIENCE_S)
        assert str(stop) == "somebody"


def test_stop_interrupts_nothing_that_has_to_be_finished() -> None:
    finished = []

    def finish_and_wait() -> None:
        for _ in range(50):
            time.sleep(0.01)  # reminders come meanwhile
        finished.append("now")
        threading.Event().wait(PATIENCE_S)

    with stop_on_signals() as stop:
        stop.ask("somebody")
        with pytest.raises(Stopped), stop.interrupts(lambda: bool(finished)):
            finish_and_wait()
    assert finished


def test_handlers_are_as_before_when_it_is_over() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGURG)
    before = [signal.getsignal(number) for number in numbers]
    with stop_on_signals():
        pass
    assert [signal.getsignal(number) for number in numbers] == before
    assert signal.set_wakeup_fd(-1) == -1
