"""What a worker does at its start about what may pass: a folder of states that is taken, a broker that is away."""

import pathlib
import re
import signal
import time

from eddy.connectors.broker import free_port
from tests.cli.conftest import Command, Start
from tests.kafka import OwnBroker
from tests.waiting import quickest


def test_folder_that_a_paused_worker_holds_is_free_once_that_one_has_gone(
    start: Start, run: Command, folder: pathlib.Path
) -> None:
    run("produce", "nodes", stdin="leaf\ttwig\n")
    holder = start("run", "family.py")
    holder.wait_to_say(" runs on ")
    holder.signal(signal.SIGSTOP)
    told = run("run", "family.py", "--data", "another", "--until-idle", status=75).stderr
    assert f"state '.eddy/state/family/0': is in use by another process, {holder.process.pid};" in told
    assert "error [STATE_IN_USE]" in told
    assert "Delete" not in told
    holder.kill()
    run("run", "family.py", "--until-idle")
    assert set(run("consume", "descendants", "--latest", "--value-type", "int64").stdout.splitlines()) == {"twig\t1"}


WAITS = "not started yet; trying for {} s: kafka 127.0.0.1:{}: no broker answers: "


def test_broker_that_stays_away_is_waited_for_as_long_as_a_worker_tries(start: Start) -> None:
    port, began = free_port(), time.monotonic()
    told = start("run", "family.py", "--bootstrap", f"127.0.0.1:{port}", "--retry", "8").ends(75).errors
    assert time.monotonic() - began > 8.0
    assert told.count(" no broker answers: ") == 2  # once when it begins to wait, and once as the error
    assert WAITS.format("8", port) in told
    assert f"error [CONNECTOR]: kafka 127.0.0.1:{port}: no broker answers: " in told


def test_stop_is_heard_while_a_broker_is_waited_for(start: Start) -> None:
    port = free_port()

    def attempt() -> float:
        worker = start("run", "family.py", "--bootstrap", f"127.0.0.1:{port}")
        worker.wait_to_say(re.escape(WAITS.format("300", port)))
        began = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert "stopped by SIGTERM before it had started" in worker.ends().errors
        return time.monotonic() - began

    quickest(attempt, 2.0)  # a second, and the end of the process


def test_worker_starts_by_itself_once_the_broker_does(
    start: Start, run: Command, folder: pathlib.Path, own_broker: OwnBroker
) -> None:
    broker = own_broker(port=free_port())
    broker.start()
    on_broker = ("--bootstrap", broker.bootstrap)
    run("topics", "create", "nodes", "descendants", *on_broker)
    run("produce", "nodes", *on_broker, stdin="leaf\ttwig\n")
    broker.kill()
    worker = start("run", "family.py", "--until-idle", *on_broker)
    worker.wait_to_say(" no broker answers: ")

    def attempt() -> float:
        began = time.monotonic()
        told = start("wait", "family.py", "--timeout", "2", *on_broker).ends(1).errors
        assert "not quiescent after 2 s: kafka " in told
        assert " no broker answers: " in told
        return time.monotonic() - began

    quickest(attempt, 8.0)  # with the start of a process
    broker.start()
    assert "idle: all input is processed; 1 records in" in worker.ends().errors
    assert run("consume", "descendants", "--latest", "--value-type", "int64", *on_broker).stdout == "twig\t1\n"
