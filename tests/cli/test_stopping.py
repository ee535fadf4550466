"""Asking `eddy run` to stop, whatever it is at: it hears it within a second, and ends as the documents say."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eddy.cli.signals import Stopped, StopRequest, stop_on_signals
from tests import waiting
from tests.children import Child
from tests.cli.conftest import Start
from tests.kafka import OwnBroker
from tests.waiting import PATIENCE_S, quickest

ROOT = pathlib.Path(__file__).resolve().parents[2]
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


def wait_for(condition: Callable[[], object]) -> None:
    waiting.wait_for(condition, PATIENCE_S)


def ends(process: Child, status: int) -> str:
    """The messages of a process that ends with `status`, though its work takes longer than this waits."""
    said = process.ends(status).errors
    assert "Traceback" not in said
    return said


def stopped(process: Child, number: signal.Signals) -> float:
    """Seconds from a signal to the end of a process that is asked to stop."""
    began = time.monotonic()
    process.signal(number)
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
        process.signal(number)
        ends(process, status)


@BOTH
@pytest.mark.parametrize("outside", [f"{THERE}; time.sleep({2 * PATIENCE_S})", f"{THERE}\nwhile True: pass"])
def test_it_is_heard_while_the_program_is_imported(
    folder: pathlib.Path, start: Start, number: signal.Signals, outside: str
) -> None:
    process = start("run", program(folder, outside=outside))
    wait_for((folder / "there").exists)
    process.signal(number)
    assert f"stopped by {number.name} before it had started" in ends(process, 0)


@BOTH
def test_it_is_heard_while_nothing_comes(folder: pathlib.Path, start: Start, number: signal.Signals) -> None:
    def attempt() -> float:
        process = start("run", program(folder))
        process.wait_to_say("runs on")
        began = time.monotonic()
        process.signal(number)
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
        process.wait_to_say("not started yet")
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


def has_open(process: Child, file: pathlib.Path) -> bool:
    with contextlib.suppress(FileNotFoundError):  # what it closes while we look
        links = pathlib.Path(f"/proc/{process.process.pid}/fd").iterdir()
        return any(os.readlink(link) == str(file.resolve()) for link in links)
    return False


def in_an_epoch(folder: pathlib.Path, start: Start, *options: str) -> Child:
    """A worker whose epoch does not end by itself."""
    (folder / "in.tsv").write_text("a\tb\n")
    ends(start("produce", "in", "in.tsv"), 0)
    process = start("run", program(folder, inside=f"{THERE}; time.sleep({2 * PATIENCE_S})"), *options)
    wait_for((folder / "there").exists)
    return process


def test_stop_that_takes_too_long_ends_the_worker_and_says_so(folder: pathlib.Path, start: Start) -> None:
    process = in_an_epoch(folder, start, "--shutdown-timeout", "0.5")
    process.signal(signal.SIGTERM)
    assert "not stopped within 0.5 s after SIGTERM; killed" in ends(process, os.EX_TEMPFAIL)


@BOTH
def test_second_signal_ends_a_worker_at_once(folder: pathlib.Path, start: Start, number: signal.Signals) -> None:
    process = in_an_epoch(folder, start)
    process.signal(number)  # of two at a time that differ the lesser number may be told first
    process.insist(number)
    ends(process, 128 + number)


@pytest.mark.parametrize(("words", "status"), [(["run", "stops.py"], 0), (["wait", "stops.py"], 130)])
def test_interrupt_is_heard_where_the_one_who_started_it_ignores_it(
    folder: pathlib.Path, start: Start, words: list[str], status: int
) -> None:
    """As a shell that is not interactive does with what it starts by `&`."""
    ignore = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    program(folder, outside=THERE)
    command = [sys.executable, "-c", ignore, sys.executable, "-m", "eddy", *words]
    with Child(folder, command) as process:
        wait_for((folder / "there").exists)
        process.signal(signal.SIGINT)
        ends(process, status)


def test_stop_ends_within_its_deadline_where_the_broker_stands_still(
    folder: pathlib.Path, start: Start, own_broker: OwnBroker
) -> None:
    """Nothing that would be closed is answered any more, and an epoch may be open."""
    broker = own_broker()
    broker.start()
    kafka = ["--bootstrap", broker.bootstrap]
    ends(start("topics", "create", "in", "out", "--partitions", "4", *kafka), 0)
    process = start("run", program(folder), "--shutdown-timeout", "20", "--processes", "2", *kafka)
    process.wait_to_say("runs on")
    feed = start("produce", "in", *kafka)
    feed.give("a\tb\n" * 5_000)
    ends(feed, 0)
    broker.pause()
    try:
        process.signal(signal.SIGTERM)
        status = process.ended()  # a transaction would wait longer for its broker
        assert status in (0, os.EX_TEMPFAIL), process.last_words()
    finally:
        broker.resume()


IN_ORDER = {"early", "between two steps", "abandoned", "in silence"}
GROUPS = """
import eddy
topology = eddy.Topology("{name}")
rows = topology.table("{name}-in", key=eddy.String, value=eddy.String, name="rows")
groups = rows.group_by(lambda key, value: (value, key), key=eddy.String, value=eddy.String)
groups.count("counts").to("{name}-out")
"""


class TestWhileItStartsAndRestores:
    """A handler of signals that raises inside a call of Kafka's client would end one run in forty with an error."""

    @pytest.fixture
    def stopped_often(self, folder: pathlib.Path, start: Start, broker: str) -> Callable[[int], dict[str, list[float]]]:
        """Stop runs of an application with states on Kafka."""
        name = f"stopped-{uuid.uuid4().hex[:8]}"
        (folder / "groups.py").write_text(GROUPS.format(name=name))
        kafka = ["--bootstrap", broker]
        ends(start("topics", "create", f"{name}-in", f"{name}-out", "--partitions", "4", *kafka), 0)
        rows = "".join(f"k{n}\tv{n % 5_000}\n" for n in range(30_000))
        feed = start("produce", f"{name}-in", *kafka)
        feed.give(rows)
        ends(feed, 0)
        ends(start("run", "groups.py", "--until-idle", *kafka), 0)

        def run(times: int) -> dict[str, list[float]]:
            command = [sys.executable, "-m", "tests.cli.stopped_often", str(times), "7", "1.5"]
            done = subprocess.run(
                [*command, "run", str(folder / "groups.py"), *kafka], cwd=ROOT, stdout=subprocess.PIPE, check=True
            )
            return json.loads(done.stdout)  # type: ignore[no-any-return]

        return run

    def test_every_stop_is_an_end_in_order(self, stopped_often: Callable[[int], dict[str, list[float]]]) -> None:
        assert stopped_often(12).keys() <= IN_ORDER

    @pytest.mark.long
    @pytest.mark.timeout(3_600)
    def test_every_one_of_a_thousand_stops_is_an_end_in_order(
        self, stopped_often: Callable[[int], dict[str, list[float]]]
    ) -> None:
        assert stopped_often(1_000).keys() <= IN_ORDER


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
    assert done.stderr.startswith("a client: not closed within 0.01 s; abandoned")
    assert ("eddy 0." in done.stdout) is (word == "version")


def test_stop_from_another_thread_interrupts_what_waits() -> None:
    with stop_on_signals() as stop:
        threading.Timer(0.1, stop.ask, ["somebody"]).start()
        with pytest.raises(Stopped), stop.interrupts():
            threading.Event().wait(PATIENCE_S)
        assert str(stop) == "somebody"


@pytest.mark.parametrize("planted", [False, True])
def test_stop_raises_nothing_among_calls_of_clients(planted: bool) -> None:
    """Whoever works with clients looks for a stop between calls: an exception inside one would break it."""
    with stop_on_signals() as stop, stop.abandons():
        with pytest.raises(Stopped) if planted else contextlib.nullcontext():
            try:
                stop._may_raise = planted  # private: the mistake of a handler that raises wherever the main thread is
                stop.ask("somebody")
                for _ in range(30):
                    signal.raise_signal(signal.SIGURG)
                    time.sleep(0.01)  # pause: the time in which a signal could interrupt
            finally:
                stop._may_raise = False  # private: as above
        with pytest.raises(Stopped):
            stop.check()


ABANDONS = """
import threading, time
from eddy.cli.signals import stop_on_signals
finished = []
with stop_on_signals() as stop, stop.abandons(lambda: bool(finished)):
    stop.ask("somebody")
    time.sleep(1.5)
    print("finished", flush=True)
    finished.append("now")
    threading.Event().wait(60)
"""


def test_stop_ends_what_does_not_look_for_it_but_nothing_that_has_to_be_finished() -> None:
    command = [sys.executable, "-c", ABANDONS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout) == (0, "finished\n"), done.stderr
    assert "stopped by somebody, inside a call that cannot be interrupted" in done.stderr


@BOTH
def test_no_signal_is_lost_while_handlers_are_set(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    install = signal.signal

    def interrupted(which: int, handler: Any) -> Any:
        before = install(which, handler)
        if which == number and isinstance(getattr(handler, "__self__", None), StopRequest):
            signal.raise_signal(number)
        return before

    monkeypatch.setattr(signal, "signal", interrupted)
    with stop_on_signals() as stop:
        assert stop
        assert str(stop) == number.name


def test_handlers_are_as_before_when_it_is_over() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGURG)
    before = [signal.getsignal(number) for number in numbers]
    with stop_on_signals():
        pass
    assert [signal.getsignal(number) for number in numbers] == before
    assert signal.set_wakeup_fd(-1) == -1
