"""The commands on Kafka, as a user has them: from the first topic to the reset, with several workers."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial

import pytest

import eddy
from eddy.connectors.broker import free_port
from tests.children import Child
from tests.cli.conftest import Command, Start
from tests.kafka import ADMIN, USERS, Secured
from tests.serve.conftest import fetch
from tests.waiting import PATIENCE_S, wait_for

TREE = "leaf\ttwig\ntwig\tbranch\nbranch\ttree\n"
COUNTS = {"twig\t1", "branch\t2", "tree\t3"}
QUICK = ("--set", "session.timeout.ms=6000")


@pytest.fixture
def name(folder: pathlib.Path, broker: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An application of the test's own: `family.py`, with this name and topics whose names begin with it."""
    monkeypatch.setenv("EDDY_BOOTSTRAP", broker)
    name = f"family-{uuid.uuid4().hex[:8]}"
    source = (folder / "family.py").read_text()
    for before, new in [("Topology", name), ("topology.table", f"{name}-in"), ("descendants.to", f"{name}-out")]:
        source, found = re.subn(rf'{before}\("\w+"', f'{before}("{new}"', source)
        assert found == 1
    (folder / "family.py").write_text(source)
    return name


def table(run: Command, name: str) -> set[str]:
    return set(run("consume", f"{name}-out", "--latest", "--value-type", "int64").stdout.splitlines())


def second_worker(supervisor: Child) -> int:
    """The process of the second of two workers, once both have said something."""
    for number in range(2):
        supervisor.wait_to_say(rf"\[{number}\] ")
    return int(supervisor.wait_to_say(r"worker 1 started, process (\d+)")[1])


def test_journey_of_a_newcomer_with_two_workers(start: Start, run: Command, name: str) -> None:
    told = run("produce", f"{name}-in", stdin=TREE, status=78).stderr
    assert f"Create it: eddy topics create {name}-in --partitions N" in told
    told = start("run", "family.py").ends(78).errors
    assert f"Create them: eddy topics create {name}-in {name}-out --partitions N" in told
    run("topics", "create", f"{name}-in", f"{name}-out", "--partitions", "4")
    run("produce", f"{name}-in", stdin=TREE)
    told = start("run", "family.py", "--processes", "2", "--until-idle", *QUICK).ends().errors
    taken = [
        int(found) for found in re.findall(r"^\[[01]\] .*idle: all input is processed; (\d+) records in", told, re.M)
    ]
    assert len(taken) == 2
    assert sum(taken) >= 3  # what is given up with a partition is taken in again by the other
    assert table(run, name) == COUNTS
    ended = "in the group; a worker that has ended counts until its session ends, after 6 s"
    shown = run("status", "family.py", *QUICK).stdout
    assert re.search(rf"^workers      (none running|[12] {ended})$", shown, re.M), shown
    status = json.loads(run("status", "family.py", "--format", "json").stdout)
    assert (status["application"], status["quiescent"], len(status["partitions"])) == (name, True, 8)
    assert status["session_s"] == 10.0
    run("wait", "family.py", "--timeout", str(PATIENCE_S))
    uses = {line.split()[0]: line.split()[1] for line in run("topics", "family.py").stdout.splitlines()}
    assert (uses[f"{name}-in"], uses[f"{name}-out"], uses[f"{name}-plan"]) == ("source", "sink", "plan")
    assert sorted(entry.name for entry in pathlib.Path(".eddy/state", name).iterdir()) == ["0", "1"]


def two_ports() -> int:
    """A port that is free, and the next one, too."""
    while True:
        port = free_port()
        with suppress(OSError), closing(socket.create_server(("127.0.0.1", port + 1))):
            return port


def test_page_of_each_of_two_workers_shows_both(start: Start, run: Command, name: str) -> None:
    run("topics", "create", f"{name}-in", f"{name}-out", "--partitions", "4")
    port = two_ports()
    start("run", "family.py", "--processes", "2", "--http", str(port), *QUICK)

    def shown(own: int) -> list[tuple[str, str, int]]:
        try:
            workers = fetch(port + own, "/workers").json["workers"]
        except OSError:
            return []
        return [(each["member"], each["state"], len(each["partitions"])) for each in workers]

    for own in range(2):
        expected = [(str(number), "RUNNING", 4) for number in (own, 1 - own)]
        wait_for(lambda own=own, expected=expected: shown(own) == expected, PATIENCE_S, f"both workers at {own}")


def test_reset_waits_for_the_session_and_takes_all_away(start: Start, run: Command, name: str) -> None:
    run("topics", "create", f"{name}-in", f"{name}-out")
    run("produce", f"{name}-in", stdin=TREE)
    start("run", "family.py", "--until-idle", "--log-format", "json", *QUICK).ends()
    state = pathlib.Path(".eddy/state", name)

    def is_over() -> bool:
        shown = run("reset", "family.py", "--dry-run", status=None)
        assert not shown.exit_code or "a worker that has stopped counts until its session has ended" in shown.stderr
        return not shown.exit_code

    wait_for(is_over, missing="the end of the session", pause_s=0.5)
    shown = run("reset", "family.py", "--dry-run")
    internal = {line.split()[0] for line in run("topics", "family.py").stdout.splitlines()[3:]}
    gone = {f"topic {topic}" for topic in internal if not topic.endswith("dead-letter")}
    assert set(shown.stdout.splitlines()) == gone | {f"positions of group {name}", f"directory {state}"}
    run("reset", "family.py", "--yes")
    assert not state.exists()
    left = {found["topic"] for found in json.loads(run("topics", "--format", "json").stdout)}
    assert {topic for topic in left if topic.startswith(name)} == {f"{name}-in", f"{name}-out", f"{name}-dead-letter"}
    start("run", "family.py", "--until-idle").ends()
    assert table(run, name) == COUNTS


@pytest.mark.parametrize("turns", [1, pytest.param(20, marks=pytest.mark.long)])
def test_of_two_workers_with_one_name_the_earlier_ends_and_may_be_started_again(
    start: Start, run: Command, name: str, turns: int
) -> None:
    """One that is paused beyond its session, and takes its name back when it goes on."""
    run("topics", "create", f"{name}-in", f"{name}-out")
    counts = dict.fromkeys(("t", "r"), 0)
    arguments = ("run", "family.py", *QUICK)
    status = partial(run, "status", "family.py", "--format", "json")
    earlier = start(*arguments, "--state", "state-0")
    for turn in range(turns):
        add_leaf(run, name, counts, turn)
        wait_until_idle(run, name, counts)
        earlier.signal(signal.SIGSTOP)
        wait_for(lambda: not json.loads(status().stdout)["workers"], missing="the end of the session", pause_s=0.2)
        later = start(*arguments, "--state", f"state-{turn + 1}")
        add_leaf(run, name, counts, f"{turn} later")
        wait_until_idle(run, name, counts)
        earlier.signal(signal.SIGCONT)
        told = earlier.ends(75).errors
        assert "each worker needs a name of its own" in told or "another worker has started later" in told
        add_leaf(run, name, counts, f"{turn} after")
        wait_until_idle(run, name, counts)
        assert later.running
        earlier = later
    earlier.signal(signal.SIGTERM)
    earlier.ends()


def add_leaf(run: Command, name: str, counts: dict[str, int], leaf: object) -> None:
    run("produce", f"{name}-in", stdin=f"leaf {leaf}\tt\n" + ("" if counts["t"] else "t\tr\n"))
    counts["r"] += 1 if counts["t"] else 2
    counts["t"] += 1


def wait_until_idle(run: Command, name: str, counts: dict[str, int]) -> None:
    run("wait", "family.py", "--timeout", str(PATIENCE_S))
    assert table(run, name) == {f"{key}\t{count}" for key, count in counts.items()}


def test_topics_of_kafka_itself_are_hidden(run: Command, name: str) -> None:
    run("produce", f"{name}-in", "--create", "--partitions", "2", stdin=TREE)
    shown = run("topics").stdout
    assert f"\n{name}-in " in shown
    assert "\n__" not in shown
    assert "\n__" in run("topics", "--all").stdout


def test_topics_that_are_deleted_meanwhile_are_left_out(run: Command, name: str) -> None:
    names = [f"{name}-{number}" for number in range(40)]
    run("topics", "create", *names)
    with closing(eddy.kafka(os.environ["EDDY_BOOTSTRAP"])) as log, ThreadPoolExecutor(1) as pool:
        deleted = pool.submit(lambda: [log.delete_topics([one]) for one in names])
        while not deleted.done():
            run("topics")
        deleted.result()
    assert name not in run("topics").stdout


def test_killed_worker_is_started_again_and_all_stop_together(start: Start, run: Command, name: str) -> None:
    run("topics", "create", f"{name}-in", f"{name}-out", "--partitions", "2")
    supervisor = start("run", "family.py", "--processes", "2", "--member", "a")
    victim = second_worker(supervisor)
    run("produce", f"{name}-in", stdin=TREE)
    run("wait", "family.py", "--timeout", str(PATIENCE_S))
    os.kill(victim, signal.SIGKILL)
    supervisor.wait_to_say(r"worker 1 ended by SIGKILL.*worker 1 started.*\[1\] ")
    run("produce", f"{name}-in", stdin="bud\ttwig\n")
    run("wait", "family.py", "--timeout", str(PATIENCE_S))
    assert table(run, name) == {"twig\t2", "branch\t3", "tree\t4"}
    assert sorted(entry.name for entry in pathlib.Path(".eddy/state", name).iterdir()) == ["a-0", "a-1"]
    supervisor.signal(signal.SIGTERM)
    told = supervisor.ends().errors
    assert told.count("stopped by the supervisor") == 2
    assert "2 workers have ended: stopped by SIGTERM" in told


def test_workers_end_with_their_supervisor_however_it_ends(start: Start, run: Command, name: str) -> None:
    run("topics", "create", f"{name}-in", f"{name}-out", "--partitions", "2")
    supervisor = start("run", "family.py", "--processes", "2", "--log-format", "json", stdout=subprocess.PIPE)
    for words in ("worker 0 started", "worker 1 started", " runs on "):
        supervisor.wait_to_say(words)
    supervisor.process.kill()
    supervisor.process.communicate(timeout=PATIENCE_S)  # the end of stdout is the end of all who have it


def test_missing_topics_are_named_with_what_an_administrator_runs(start: Start, run: Command, name: str) -> None:
    run("topics", "create", f"{name}-in", f"{name}-out")
    told = start("run", "family.py", "--no-create-topics").ends(78).errors
    assert f"--create --topic {name}-ancestors-loop --partitions 1" in told
    assert f"--group {name}" in told


def test_broker_that_does_not_answer_is_a_temporary_failure(start: Start, folder: pathlib.Path, broker: str) -> None:
    settings = "socket.connection.setup.timeout.ms=1000"
    told = start("topics", "--bootstrap", "127.0.0.1:1", "--set", settings).ends(75).errors
    assert "\nerror [CONNECTOR]: kafka 127.0.0.1:1: " in f"\n{told}"


def test_login_comes_from_a_file_for_java_and_is_never_shown(
    run: Command, folder: pathlib.Path, secured_broker: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "client.properties").write_text(
        f"bootstrap.servers={secured_broker.bootstrap}\n"
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        f'  username="{ADMIN}" password="${{env:PASSWORD}}";\n'
    )
    monkeypatch.setenv("PASSWORD", USERS[ADMIN])
    run("topics", "--config", "client.properties")
    monkeypatch.setenv("PASSWORD", "hunter2")
    failed = run("topics", "--config", "client.properties", status=78)
    assert "hunter2" not in failed.output


LIVE = """
from datetime import timedelta

import eddy

topology = eddy.Topology("{name}")
signs = topology.stream("{name}-in", key=eddy.String, value=eddy.String)
signs.to_table("live", expire_after=timedelta(seconds={after_s}), expire_by="wall clock").to("{name}-out")
"""


def test_rows_expire_by_tick_without_any_input_though_one_of_two_workers_is_killed(
    start: Start, run: Command, name: str, folder: pathlib.Path
) -> None:
    (folder / "live.py").write_text(LIVE.format(name=name, after_s=20))
    run("topics", "create", f"{name}-in", f"{name}-out", "--partitions", "4")
    supervisor = start("run", "live.py", "--processes", "2", "--member", "a", *QUICK)
    victim = second_worker(supervisor)
    run("produce", f"{name}-in", stdin="".join(f"u{n}\there\n" for n in range(20)))
    run("wait", "live.py", "--timeout", str(PATIENCE_S))  # a tick in the future is no work that is left
    there = {f"u{n}\there" for n in range(20)}
    assert (
        set(run("consume", f"{name}-out", "--latest").stdout.splitlines()) <= there
    )  # on a busy machine some are gone
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: not run("consume", f"{name}-out", "--latest").stdout, missing="the last row's end", pause_s=0.2)
    written = run("consume", f"{name}-out", "--format", "jsonl").stdout.splitlines()
    rows = sorted((row["key"], row["value"] or "") for row in map(json.loads, written))
    assert rows == sorted((f"u{n}", value) for n in range(20) for value in ("here", "")), "each came once and went once"
    run("wait", "live.py", "--timeout", str(PATIENCE_S))
    supervisor.signal(signal.SIGTERM)
    supervisor.ends()
