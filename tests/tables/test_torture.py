"""Workers, table servers and brokers are killed at any moment while input keeps coming.

Each version that a server calls exact is compared, row by row, with the tables that the inputs before its offsets make.
"""

import contextlib
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import eddy
from eddy.connectors.broker import Broker
from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.errors import ConnectorError
from tests.kafka import OwnBroker
from tests.serve.conftest import fetch
from tests.simulation.world import STEPS
from tests.tables.child import BEFORE_WRITE, WRITTEN, Order, Shown
from tests.waiting import PATIENCE_S, wait_for

ROOT = Path(__file__).parents[2]
KEYS = 500
"""By table: so many that a row that was lost is not soon written again."""
MOMENTS = [BEFORE_WRITE, WRITTEN, "random"]
Tables = dict[str, dict[str, int | str]]


class Child:
    """A process; of a server, what it has shown up to now."""

    def __init__(self, order: Order, errors: Path) -> None:
        self.port, self.shown = 0, list[Shown]()
        command = [sys.executable, "-m", "tests.tables.child", msgspec.json.encode(order).decode()]
        with errors.open("ab") as file:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file
            )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                return  # it was killed as it wrote
            if line.startswith(b'{"port"'):
                self.port = msgspec.json.decode(line)["port"]
            else:
                self.shown.append(msgspec.json.decode(line, type=Shown))

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """End it, if it has not ended; all that it has said is read then."""
        self.process.kill()
        self.process.wait()
        self._thread.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Arena:
    """One application with a producer that never rests, one worker and one server."""

    def __init__(self, name: str, folder: Path, bootstrap: str, seed: int) -> None:
        self.name, self.folder, self.bootstrap = name, folder, bootstrap
        self.rng = random.Random(seed)
        self.log: Log = self._open()
        topics = [f"{name}-transfers", f"{name}-people"]
        self.log.create_topics([TopicSpec(topics[0], 1), TopicSpec(topics[1], 1, {"cleanup.policy": "compact"})])
        self.inputs = [TopicPartition(topic, 0) for topic in topics]
        self.shown: list[Shown] = []
        self.kills = 0
        self._stop, self._turns = threading.Event(), 0
        self._feed = threading.Thread(target=self._feeding)
        self.worker, self.server = self.start("worker"), self.start("server")

    def _open(self) -> Log:
        return eddy.kafka(self.bootstrap) if self.bootstrap else eddy.open_log(self.folder / "log")

    def start(self, role: str, moment: str = "", time: int = 1) -> Child:
        order = Order(
            role=role,
            name=self.name,
            state_dir=str(self.folder / role),
            path=str(self.folder / "log"),
            bootstrap=self.bootstrap,
            moment=moment,
            time=time,
        )
        return Child(order, self.folder / f"{role}.txt")

    def _feeding(self) -> None:
        log, rng = self._open(), random.Random(self.rng.random())
        while not self._stop.wait(rng.uniform(0.0, 0.03)):
            with contextlib.suppress(ConnectorError), contextlib.closing(log.producer(None)) as producer:
                producer.begin()
                for _ in range(rng.randrange(1, 5)):
                    transfer = [f"p{rng.randrange(KEYS)}", f"q{rng.randrange(KEYS)}", rng.randrange(100)]
                    producer.send(self.inputs[0].topic, 0, [b"t"], [eddy.Json().encode(transfer)], [0])
                    person, team = f"k{rng.randrange(KEYS)}", f"t{rng.randrange(5)}"
                    value = None if rng.random() < 0.2 else team.encode()
                    producer.send(self.inputs[1].topic, 0, [person.encode()], [value], [0])
                producer.commit({}, None)
            self._turns += 1
        log.close()

    def feed(self, turns: int) -> None:
        """Wait for some more transactions."""
        aim = self._turns + turns
        wait_for(lambda: self._turns >= aim, PATIENCE_S, "the producer")

    def kill_worker(self, moment: str) -> None:
        """Kill the worker as it is, and the next one at a step of an epoch."""
        self.worker.kill()
        doomed = self.start("worker", moment, self.rng.randrange(1, 4))
        wait_for(lambda: not doomed.alive, PATIENCE_S, f"a worker at '{moment}'")
        doomed.kill()
        assert doomed.process.returncode == -9, (self.folder / "worker.txt").read_text()
        self.worker = self.start("worker")
        self.kills += 2

    def kill_server(self, moment: str) -> None:
        """Kill the server as it is, and the next one at a moment of its own, or whenever."""
        self._bury()
        if moment == "random":
            self.server = self.start("server")
            threading.Event().wait(self.rng.uniform(0.0, 3.0))
        else:
            self.server = self.start("server", moment, 4 + self.kills // 4 % 9)
            wait_for(lambda: not self.server.alive, PATIENCE_S, f"a server {moment}")
            assert self.server.process.wait() == -9, (self.folder / "server.txt").read_text()
        self._bury()
        self.server = self.start("server")
        self.kills += 2

    def _bury(self) -> None:
        self.server.kill()
        self.shown += self.server.shown

    def one_more_exact(self) -> None:
        """Wait until the server shows an exact version under load, by which its restart has ended well."""

        def seen() -> bool:
            assert self.server.alive, (self.folder / "server.txt").read_text()
            assert self.worker.alive, (self.folder / "worker.txt").read_text()
            return any(version.exact for version in list(self.server.shown))

        wait_for(seen, PATIENCE_S, "an exact version")

    def settle(self) -> None:
        """End the input; then the server shows all of it, exact, in its last version and over HTTP."""
        self._stop.set()
        self._feed.join()
        records = self._inputs()
        last = {tp.topic: [offsets[-1] + 1] for tp, offsets, _, _ in records}

        def whole() -> bool:
            assert self.server.alive, (self.folder / "server.txt").read_text()
            shown = self.server.shown[-1:]
            return bool(shown) and shown[0].exact and all(shown[0].inputs[t][0] >= last[t][0] for t in last)

        wait_for(whole, PATIENCE_S, "all input, exact")
        payees = fetch(self.server.port, "/v1/tables/payees").json
        assert payees["exact"]
        assert {row["key"]: row["value"] for row in payees["rows"]} == self.server.shown[-1].tables["payees"]
        self._bury()
        self.worker.kill()
        self._check(records)

    def _inputs(self) -> list[tuple[TopicPartition, list[int], list[bytes], list[bytes | None]]]:
        """All committed records. Nothing is compacted: no worker was closed, and the topics are small."""
        found = []
        for tp in self.inputs:
            end = self.log.end_offsets([tp])[tp]
            records = self.log.read(tp, 0, end, 1_000_000)
            assert records.next_offset == end
            found.append((tp, list(records.offsets), list(records.keys), list(records.values)))
        return found  # type: ignore[return-value]  # none is without a key

    def _check(self, records: list[tuple[TopicPartition, list[int], list[bytes], list[bytes | None]]]) -> None:
        exact = sorted((s for s in self.shown if s.exact), key=lambda shown: sum(map(sum, shown.inputs.values())))
        for shown in self.shown:
            assert shown.counts == {name: len(rows) for name, rows in shown.tables.items()}
        made, taken = Oracle(), [0, 0]
        for shown in exact:
            assert shown.inputs, "exact without inputs"
            for index, (tp, offsets, keys, values) in enumerate(records):
                end = shown.inputs[tp.topic][0]
                while taken[index] < len(offsets) and offsets[taken[index]] < end:
                    made.take(index, keys[taken[index]].decode(), values[taken[index]])
                    taken[index] += 1
            assert shown.tables == made.tables(), shown.inputs
        assert len({str(shown.inputs) for shown in exact}) >= self.kills
        assert taken == [len(offsets) for _, offsets, _, _ in records]

    def __enter__(self) -> "Arena":
        self._feed.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._feed.join()
        self.worker.kill()
        self.server.kill()
        self.log.close()


class Oracle:
    """The tables, record by record."""

    def __init__(self) -> None:
        self.payers: dict[str, int] = {}
        self.payees: dict[str, int] = {}
        self.people: dict[str, str] = {}

    def take(self, index: int, key: str, value: bytes | None) -> None:
        """A record of the transfers (0), or of the people (1)."""
        if index == 0:
            payer, payee, amount = msgspec.json.decode(value or b"")
            self.payers[payer] = self.payers.get(payer, 0) - amount
            self.payees[payee] = self.payees.get(payee, 0) + amount
        elif value is None:
            self.people.pop(key, None)
        else:
            self.people[key] = value.decode()

    def tables(self) -> Tables:
        """All of them."""
        teams: dict[str, int | str] = {}
        for team in self.people.values():
            teams[team] = int(teams.get(team, 0)) + 1
        return {"payers": {**self.payers}, "payees": {**self.payees}, "people": {**self.people}, "teams": teams}


Open = Callable[..., Arena]


@pytest.fixture
def arena(name: str, tmp_path: Path) -> Iterator[Open]:
    with contextlib.ExitStack() as stack:
        yield lambda bootstrap="", seed=1: stack.enter_context(Arena(name, tmp_path, bootstrap, seed))


def torture(arena: Arena, turns: int, others: list[Callable[[], None]] | None = None) -> None:
    """Faults in turn: of the worker at each step, of the server at each moment, and `others`."""
    arena.one_more_exact()
    for turn in range(turns):
        arena.feed(5)
        arena.kill_worker(STEPS[(turn * 7 + 5) % len(STEPS)])
        arena.kill_server(MOMENTS[turn % len(MOMENTS)])
        if others:
            others[turn % len(others)]()
        arena.one_more_exact()
    arena.settle()


def test_nothing_is_lost_doubled_or_exact_when_it_is_not(arena: Open) -> None:
    torture(arena(), 2)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_many_kills_on_the_embedded_log(arena: Open) -> None:
    """EDDY_KILLS=100 for another number of turns, of four kills each."""
    torture(arena(seed=2), int(os.environ.get("EDDY_KILLS", "15")))


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_many_kills_on_kafka_whose_broker_is_killed_too(arena: Open, own_broker: OwnBroker) -> None:
    broker: Broker = own_broker()
    broker.start()

    def outage() -> None:
        broker.kill()
        broker.start()

    torture(arena(broker.bootstrap, 3), int(os.environ.get("EDDY_KILLS", "15")), [lambda: None, lambda: None, outage])
