"""Workers, table servers and brokers are killed at any moment while input keeps coming.

Each version that a server calls exact is compared, row by row, with the tables that the inputs before its offsets make.
"""

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import eddy
from eddy.connectors.broker import Broker
from eddy.connectors.log import Log, TopicPartition, TopicSpec
from eddy.errors import ConnectorError
from tests.children import Child
from tests.kafka import OwnBroker
from tests.serve.conftest import fetch
from tests.simulation.world import STEPS
from tests.tables.arena import Arena
from tests.tables.child import BEFORE_WRITE, WRITTEN, Order, Shown

KEYS = 500
"""By table: so many that a row that was lost is not soon written again."""
MOMENTS = [BEFORE_WRITE, WRITTEN, "random"]
Tables = dict[str, dict[str, int | str]]


class Ledger(Arena):
    """Transfers between people, and the teams of people."""

    order: Order

    def __init__(self, name: str, folder: Path, bootstrap: str, seed: int) -> None:
        super().__init__(folder, Order(name=name, path=str(folder / "log"), bootstrap=bootstrap), seed)
        topics = [f"{name}-transfers", f"{name}-people"]
        self.log.create_topics([TopicSpec(topics[0], 1), TopicSpec(topics[1], 1, {"cleanup.policy": "compact"})])
        self.inputs = [TopicPartition(topic, 0) for topic in topics]
        self.shown: list[Shown] = []
        self.kills = 0
        self.start("worker")
        self.start("server")

    @property
    def worker(self) -> Child:
        return self.children["worker"]

    @property
    def server(self) -> Child:
        return self.children["server"]

    def write(self, log: Log, rng: random.Random) -> None:
        with contextlib.suppress(ConnectorError), contextlib.closing(log.producer(None)) as producer:
            producer.begin()
            for _ in range(rng.randrange(1, 5)):
                transfer = [f"p{rng.randrange(KEYS)}", f"q{rng.randrange(KEYS)}", rng.randrange(100)]
                producer.send(self.inputs[0].topic, 0, [b"t"], [eddy.Json().encode(transfer)], [0])
                person, team = f"k{rng.randrange(KEYS)}", f"t{rng.randrange(5)}"
                value = None if rng.random() < 0.2 else team.encode()
                producer.send(self.inputs[1].topic, 0, [person.encode()], [value], [0])
            producer.commit({}, None)

    def kill_worker(self, moment: str) -> None:
        """Kill the worker as it is, and the next one at a step of an epoch."""
        self.worker.kill()
        self.start("worker", moment=moment, time=self.rng.randrange(1, 4)).ends(-signal.SIGKILL)
        self.start("worker")
        self.kills += 2

    def kill_server(self, moment: str) -> None:
        """Kill the server as it is, and the next one at a moment of its own, or whenever."""
        self._bury()
        if moment == "random":
            self.start("server")
            threading.Event().wait(self.rng.uniform(0.0, 3.0))
        else:
            self.start("server", moment=moment, time=4 + self.kills // 4 % 9).ends(-signal.SIGKILL)
        self._bury()
        self.start("server")
        self.kills += 2

    def _bury(self) -> None:
        self.server.kill()
        self.shown += shown_by(self.server)

    def one_more_exact(self) -> None:
        """Wait until the server shows an exact version under load, by which its restart has ended well."""

        def seen() -> bool:
            assert self.worker.running, self.worker.last_words()
            return any(version.exact for version in shown_by(self.server))

        self.server.wait_for(seen, "an exact version")

    def settle(self) -> None:
        """End the input; then the server shows all of it, exact, in its last version and over HTTP."""
        self.stop_feeding()
        records = self._inputs()
        last = {tp.topic: [offsets[-1] + 1] for tp, offsets, _, _ in records}

        def whole() -> bool:
            shown = shown_by(self.server)
            return bool(shown) and shown[-1].exact and all(shown[-1].inputs[t][0] >= last[t][0] for t in last)

        self.server.wait_for(whole, "all input, exact")
        payees = fetch(msgspec.json.decode(self.server.lines()[0])["port"], "/v1/tables/payees").json
        assert payees["exact"]
        assert {row["key"]: row["value"] for row in payees["rows"]} == shown_by(self.server)[-1].tables["payees"]
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


def shown_by(server: Child) -> list[Shown]:
    """The versions that a server has shown by now."""
    return [msgspec.json.decode(line, type=Shown) for line in server.lines()[1:]]


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


Open = Callable[..., Ledger]


@pytest.fixture
def arena(name: str, tmp_path: Path) -> Iterator[Open]:
    with contextlib.ExitStack() as stack:
        yield lambda bootstrap="", seed=1: stack.enter_context(Ledger(name, tmp_path, bootstrap, seed))


def torture(arena: Ledger, turns: int, others: list[Callable[[], None]] | None = None) -> None:
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
