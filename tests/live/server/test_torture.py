"""Clients that come and go at random, and servers, workers and brokers that are killed, while rows change.

A client's views are made of events alone. At each exact version they are the naive answers over the rows that were
written before its offsets: nothing is lost, doubled or torn. On one server a client that comes back gets no snapshot.
"""

import base64
import contextlib
import os
import random
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

import eddy
from eddy.connectors.broker import free_port
from eddy.connectors.log import Log
from eddy.errors import ConnectorError
from eddy.live.streams.limits import Limits
from tests.kafka import OwnBroker
from tests.live.query.oracle import answer
from tests.live.server.child import Order
from tests.live.server.families import TREE, Written, family, nodes, tables_of
from tests.live.server.sse import Client, asked
from tests.live.server.test_http import Site
from tests.tables.arena import Arena
from tests.tables.conftest import produce
from tests.waiting import PATIENCE_S

MOST_BYTES = 1 << 20
"""Of a store with the rows of this family, with its logs."""
NAMES = [f"n{n}" for n in range(25)]
QUESTIONS = [asked("tree", "tree"), asked("root", "below", parent="root"), asked("n1", "below", parent="n1", top=3)]


class History:
    """The rows that were written, by the offset after each transaction."""

    def __init__(self) -> None:
        self._ends = [0]
        self._states: list[dict[str, str]] = [{}]

    @property
    def end(self) -> int:
        return self._ends[-1]

    def add(self, rows: Written, end: int) -> None:
        changed = (self._states[-1] | rows).items()
        self._states.append({key: value for key, value in changed if value is not None})
        self._ends.append(end)

    def answers(self, offset: int) -> dict[str, Any]:
        """The answers over the transactions that end at this offset, or before it."""
        tables = tables_of(self._states[bisect_left(self._ends, offset + 1) - 1])
        below_n1 = nodes.where(nodes.parent == "n1").order_by(nodes.id).limit(3)
        below_root = nodes.where(nodes.parent == "root").order_by(nodes.id).limit(20)
        found = {"tree": TREE, "root": below_root, "n1": below_n1}
        return {name: answer(query, tables) for name, query in found.items()}


class Watcher(Client):
    """A client that compares its views with the answers at each exact version."""

    def __init__(self, port: int, history: History) -> None:
        super().__init__(port, PATIENCE_S)
        self.asked = {each["id"]: each for each in QUESTIONS}
        self._history = history
        self.offset = self.exact = 0

    def _patch(self, data: Any) -> None:
        super()._patch(data)
        if data["version"]["exact"] and self.whole == self.asked.keys():
            token = data["version"]["token"]
            inputs = msgspec.msgpack.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))["i"]
            self.offset = inputs["nodes"][0]
            self.exact += 1
            assert {id_: self.rows(id_) for id_ in self.asked} == self._history.answers(self.offset)


def some_rows(draw: random.Random) -> Written:
    chosen = draw.sample(range(len(NAMES)), draw.randint(1, 4))
    return {NAMES[n]: draw.choice(["root", *NAMES[:n], None]) for n in chosen}


def come_and_go(times: int, seed: int) -> None:
    draw, history = random.Random(seed), History()
    with ExitStack() as stack:
        site = Site(stack, Limits(retain_s=600.0))
        client = Watcher(site.server.port, history)
        stack.callback(client.close)

        def write() -> None:
            rows = some_rows(draw)
            at = produce(site.log, "nodes", {k: None if v is None else v.encode() for k, v in rows.items()})
            history.add(rows, at["nodes"][0])

        write()
        client.connect()
        client.until(lambda: client.whole == client.asked.keys())
        for _ in range(times):
            for _ in range(draw.randint(0, 2)):
                write()
            for _ in range(draw.randint(0, 2)):  # hello and a version come in any case
                client.step()
            client.close()
            for _ in range(draw.randint(0, 2)):
                write()
            client.connect()
        client.until(lambda: client.offset >= history.end)
        assert client.snapshots == len(QUESTIONS)
        assert site.publisher.figures.snapshots == len(QUESTIONS)
        assert client.exact > times // 10


def test_client_that_comes_and_goes_sees_everything_once_and_no_snapshot() -> None:
    come_and_go(15, 1)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_client_that_comes_and_goes_a_thousand_times() -> None:
    come_and_go(1_000, 2)


class Family(Arena):
    """A family, whose worker may be inside the test."""

    def __init__(
        self, folder: Path, bootstrap: str, seed: int, *, worker_inside: bool = False, table_rows: int = 1_000_000
    ) -> None:
        self.history, self.port = History(), free_port()
        name, path = f"family-{seed}-{self.port}", str(folder / "log")
        order = Order(name=name, path=path, bootstrap=bootstrap, port=self.port, table_rows=table_rows)
        super().__init__(folder, order, seed)
        eddy.create_topics(family(name), self.log)
        self._inside = ExitStack() if worker_inside else None

    def kill(self, role: str) -> None:
        assert self.children[role].kill(), self.children[role].last_words()

    def write(self, log: Log, rng: random.Random) -> None:
        rows = some_rows(rng)
        encoded = [(key, None if value is None else value.encode()) for key, value in rows.items()]
        while not self.stopping.is_set():  # a transaction that may have been committed is looked for, not written again
            try:
                at = produce(log, "nodes", encoded)
                self.history.add(rows, at["nodes"][0])
                return
            except ConnectorError as error:
                if not error.retriable:
                    raise

    def query_files(self) -> list[os.stat_result]:
        """The files of queries on disk."""
        folder, found = self.folder / "server" / self.order.name / "~queries", []
        for path in folder.glob("*"):
            with contextlib.suppress(FileNotFoundError):  # it goes as the store is opened
                found.append(path.stat())
        return found

    def __enter__(self) -> Self:
        self.start("server")
        if self._inside is None:
            self.start("worker")
        else:
            self._inside.enter_context(eddy.run(family(self.order.name), self.log))
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        if self._inside is not None:
            self._inside.close()
        super().__exit__()


def torture(arena: Family, kills: int, others: list[Callable[[], None]] | None = None) -> None:
    """Kill the server, in turn with others, and let the client come back; its views are right at each exact version."""
    client = Watcher(arena.port, arena.history)
    with contextlib.closing(client):
        client.until(lambda: client.exact > 0, again=True)
        for turn in range(kills):
            arena.feed(arena.rng.randint(1, 5))
            for _ in range(arena.rng.randint(0, 5)):
                client.step()
            former = client.server
            arena.kill("server")
            if others:
                others[turn % len(others)]()
            arena.start("server")
            seen = client.exact
            client.until(lambda: client.exact > seen and client.server != former, again=True)  # noqa: B023
        arena.stop_feeding()
        client.until(lambda: client.offset >= arena.history.end, again=True)


def test_servers_are_killed_and_nothing_is_lost_doubled_or_torn(tmp_path: Path) -> None:
    with Family(tmp_path, "", 1, worker_inside=True) as arena:
        torture(arena, 1)


def torture_on_disk(folder: Path, kills: int, seed: int) -> None:
    """The same with queries on disk; the server is also killed as soon as it has files, while it loads."""
    with Family(folder, "", seed, worker_inside=True, table_rows=5) as arena:
        sizes: list[int] = []

        def all_since(began: int) -> bool:
            files = arena.query_files()
            return bool(files) and all(file.st_mtime_ns >= began for file in files)

        def loading() -> None:
            assert arena.query_files()
            for _ in range(arena.rng.randint(1, 3)):
                began = time.time_ns()
                arena.start("server")
                client = Client(arena.port, PATIENCE_S)
                client.asked = {each["id"]: each for each in QUESTIONS}
                with contextlib.closing(client):  # nothing is left of the one before once there is something new
                    client.until(lambda: all_since(began), again=True)  # noqa: B023
                sizes.append(sum(file.st_size for file in arena.query_files()))
                arena.kill("server")

        torture(arena, kills, [loading])
        assert max(sizes) < MOST_BYTES


def test_servers_with_queries_on_disk_are_killed_and_leave_nothing(tmp_path: Path) -> None:
    torture_on_disk(tmp_path, 2, 4)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_servers_with_queries_on_disk_are_killed_many_times(tmp_path: Path) -> None:
    torture_on_disk(tmp_path, int(os.environ.get("EDDY_KILLS", "30")), 5)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_servers_and_workers_are_killed_many_times(tmp_path: Path) -> None:
    """EDDY_KILLS=100 for another number."""
    with Family(tmp_path, "", 2) as arena:

        def worker() -> None:
            arena.kill("worker")
            arena.start("worker")

        torture(arena, int(os.environ.get("EDDY_KILLS", "30")), [lambda: None, worker])


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_servers_workers_and_brokers_are_killed_many_times(tmp_path: Path, own_broker: OwnBroker) -> None:
    broker = own_broker()
    broker.start()
    with Family(tmp_path, broker.bootstrap, 3) as arena:

        def worker() -> None:
            arena.kill("worker")
            arena.start("worker")

        def outage() -> None:
            broker.kill()
            broker.start()

        torture(arena, int(os.environ.get("EDDY_KILLS", "15")), [lambda: None, worker, outage])
