"""Rows that are shown under an exact version are those of that version, in all queries of a stream.

Clients open and close queries, move windows, read late, are cut off and come back, while money moves in a bank whose
entries and balances are queries of one stream.
"""

import http.client
import itertools
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from eddy.live.query.named import Claims
from eddy.live.streams.caller import Caller
from eddy.live.streams.events import Asked, LastEvent, WindowChange
from eddy.live.streams.limits import Limits
from eddy.live.streams.publisher import Publisher
from eddy.live.streams.stream_connection import Connection
from eddy.live.streams.subscription import Subscription
from tests.live.server.bank import Bank, Question, queries, questions, window
from tests.live.server.plain_reader import PlainReader
from tests.waiting import Deadline, wait_for

PATIENCE_S = 60.0


class Shower:
    """The questions that a reader has asked, by id; what it shows is checked."""

    def __init__(self, bank: Bank) -> None:
        self.bank, self.draw = bank, random.Random(1)
        self.asked: dict[str, Question] = {}
        self._former: dict[str, Question] = {}
        self.ids = (f"q{number}" for number in itertools.count())
        self.reader = PlainReader(self.shown)

    def shown(self, id_: str, token: str, rows: Any) -> None:
        if id_ in self.asked:
            self.bank.check(self.asked[id_], token, rows, self._former.get(id_))

    def open(self) -> dict[str, Any]:
        id_ = next(self.ids)
        self.asked[id_] = questions(self.draw)
        return {"id": id_, **self.asked[id_]}

    def close(self) -> str:
        id_ = self.draw.choice(sorted(self.asked))
        del self.asked[id_]
        self.reader.close(id_)
        return id_

    def move(self) -> dict[str, Any]:
        """A window of one query that has not moved before: which of two it shows may be told by its rows."""
        id_ = self.draw.choice(sorted(self.asked))
        if id_ not in self._former:
            self._former[id_] = self.asked[id_]
            self.asked[id_] = {**self.asked[id_], **window(self.draw)}
        return {"id": id_, **{name: self.asked[id_].get(name) for name in ("skip", "limit")}}


class Late(Shower):
    """A stream by itself, whose events are taken when the test likes."""

    def __init__(self, bank: Bank, limits: Limits) -> None:
        super().__init__(bank)
        server = bank.server.tables.live_server()
        server.restarts.most = 1_000
        self._publisher = Publisher(server, limits)
        self._caller = Caller(queries, Claims(), lambda table: True, server)
        self.connection = self.connected()
        self.figures = self._publisher.figures
        self.states = 0

    def connected(self) -> Connection:
        return Connection(self._publisher, "server", self._caller.query, lambda: None)

    def events(self) -> bool:
        """Take what is due once. Returns whether there was something."""
        data = self.connection.events()
        self.states += data.count(b"event: state")
        self.reader.feed(data)
        while self.connection.to_resend:
            self.connection.show_again(self.connection.to_resend.popleft())
        return bool(data)

    def begin(self) -> None:
        asked = msgspec.convert(self.open(), Asked)
        self.connection.asked[asked.id] = asked
        assert self.connection.open(asked)

    def end(self) -> None:
        id_ = self.close()
        self.connection.asked.pop(id_)
        self.connection.drop(id_)

    def window(self) -> None:
        assert self.connection.move(msgspec.convert(self.move(), WindowChange))

    def come_back(self) -> None:
        """The connection breaks; another one goes on from the last event."""
        former, self.connection = self.connection, self.connected()
        record = former.close()
        asked = [msgspec.convert({"id": id_, **question}, Asked) for id_, question in self.asked.items()]
        self.connection.asked = {each.id: each for each in asked}
        last = LastEvent.of(self.reader.last_id)
        left = asked if last is None else self.connection.resume(last, record, asked)
        self.connection.unknown += [each.id for each in left]
        for each in left:
            assert self.connection.open(each)

    def begin_anew(self) -> None:
        """All queries begin anew, as after an error in the middle of a batch."""
        with self._publisher.server.lock:
            self._publisher.server.begin_anew()

    def arrived(self) -> None:
        """Take events until everything that was written is shown exactly: until then rows may be earlier ones."""
        token, deadline = self.bank.arrive(), Deadline(PATIENCE_S)
        exact = {"token": token, "exact": True}
        while self.events() or self.reader.version != exact or self.reader.known != self.asked.keys():
            deadline.check("the last version")
        for id_, question in self.asked.items():
            self.bank.check(question, token, self.reader.rows(id_))


def read_late(seed: int, steps: int, limits: Limits) -> tuple[Late, Bank]:
    with ExitStack() as stack:
        bank = Bank(stack, seed)
        late, draw = Late(bank, limits), bank.draw
        bank.transfer(5)
        for _ in range(3):
            late.begin()
        for _ in range(steps):
            action = draw.random()
            if action < 0.3:
                for _ in range(draw.choice([1, 1, 12])):
                    bank.transfer(draw.choice([1, 1, 5]))
                    if draw.random() < 0.7:
                        bank.arrive()
            elif action < 0.7:
                late.events()
            elif action < 0.82 and len(late.asked) < 6:
                late.begin()
            elif action < 0.88 and len(late.asked) > 2:
                late.end()
            elif action < 0.96:
                late.window()
            elif action < 0.99:
                late.come_back()
            else:
                late.begin_anew()
        late.arrived()
        late.begin_anew()
        bank.transfer(5)
        late.arrived()
        late.connection.close()
        return late, bank


LIMITS = [Limits(retain_ops=60), Limits()]


@pytest.mark.parametrize("limits", LIMITS, ids=["few patches are kept", "many"])
@pytest.mark.slow
def test_late_stream_shows_each_version_as_it_is(limits: Limits) -> None:
    late, bank = read_late(1, 250, limits)
    assert bank.checked > 200
    assert late.states > 3
    assert late.figures.snapshots > 10
    assert late.figures.resumed > 10
    assert late.figures.summed > 0 or limits is LIMITS[0]


def test_client_that_comes_back_is_told_that_its_rows_are_known_again() -> None:
    with ExitStack() as stack:
        bank = Bank(stack, 1)
        late, server = Late(bank, LIMITS[1]), bank.server.tables.live_server()
        bank.transfer(5)
        late.begin()
        late.arrived()
        with server.lock:  # nothing is computed anew before the client is told
            server.begin_anew()
            server._report_state()  # private: the moment between the two
            assert late.events()
            assert late.reader.unknown == late.asked.keys()
        wait_for(lambda: server.state == "complete", missing="the rows of all queries")
        late.come_back()
        late.arrived()
        assert (late.figures.resumed, late.figures.snapshots) == (1, 1)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("limits", LIMITS, ids=["few patches are kept", "many"])
def test_late_streams_show_each_version_as_it_is(limits: Limits) -> None:
    for seed in range(2, 40):
        read_late(seed, 400, limits)


def not_told(self: Connection, state: Any, unknown: list[str], was: Any) -> Iterator[bytes]:
    """In place of `Connection._states`."""
    yield from ()


def not_caught_up(self: Connection, pair: tuple[Subscription, Any], *, whole: bool = False) -> list[Any] | None:
    """In place of `Connection._caught_up`: rows are sent as they were when the query was opened."""
    kept = CAUGHT_UP(self, pair, whole=whole)
    return None if kept is None else []


CAUGHT_UP = Connection._caught_up  # private: planted


@pytest.mark.parametrize(
    ("method", "planted"), [("_states", not_told), ("_caught_up", not_caught_up)], ids=["not told", "not caught up"]
)
def test_wrong_stream_is_found(method: str, planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, method, planted)
    with pytest.raises((AssertionError, IndexError)):
        read_late(1, 250, LIMITS[0])


class Wired(Shower):
    """The same over HTTP."""

    def __init__(self, bank: Bank, stack: ExitStack) -> None:
        super().__init__(bank)
        self._posts = http.client.HTTPConnection("127.0.0.1", bank.server.port, timeout=PATIENCE_S)
        self._connection = http.client.HTTPConnection("127.0.0.1", bank.server.port, timeout=PATIENCE_S)
        stack.callback(self._posts.close)
        stack.callback(self._connection.close)
        self._lines: Iterator[bytes] = iter(())

    def connect(self) -> None:
        """Come, or come back."""
        self._connection.close()
        query = [("query", json.dumps({"id": id_, **question})) for id_, question in self.asked.items()]
        self._connection.request("GET", f"/v1/live?{urlencode(query)}", headers={"Last-Event-ID": self.reader.last_id})
        self._lines = iter(self._connection.getresponse())
        self.step()

    def step(self) -> None:
        """Take an event in."""
        block = b"".join(itertools.takewhile(lambda line: line != b"\n", self._lines))
        self.reader.feed(block.removesuffix(b"\n"))

    def change(self, **change: Any) -> None:
        self._posts.request("POST", f"/v1/live/{self.reader.stream}", json.dumps(change))
        answer = self._posts.getresponse()
        assert (answer.read(), answer.status) == (b"", 204)


def read_over_http(seed: int, steps: int) -> Bank:
    with ExitStack() as stack:
        bank = Bank(stack, seed)
        bank.transfer(5)
        wired = Wired(bank, stack)
        wired.open()
        wired.connect()
        with bank.open_for_business():
            for _ in range(steps):
                action = wired.draw.random()
                if action < 0.85:
                    wired.step()
                elif action < 0.9 and len(wired.asked) < 6:
                    wired.change(open=[wired.open()])
                elif action < 0.93 and len(wired.asked) > 1:
                    wired.change(close=[wired.close()])
                elif action < 0.97:
                    wired.change(window=[wired.move()])
                else:
                    wired.connect()
        token, deadline = bank.arrive(), Deadline(PATIENCE_S)
        while wired.reader.version["token"] != token or wired.reader.whole < wired.asked.keys():
            deadline.check("the last version")
            wired.step()
        assert not wired.reader.errors
        return bank


@pytest.mark.slow
def test_reader_of_the_documentation_shows_each_version_as_it_is() -> None:
    assert read_over_http(1, 400).checked > 300


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_readers_of_the_documentation_show_each_version_as_it_is() -> None:
    for seed in range(2, 20):
        read_over_http(seed, 1_000)
