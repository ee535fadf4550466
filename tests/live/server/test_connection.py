"""One stream of events by itself: which events are due, whatever threads have done meanwhile."""

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any, cast

import pytest

import eddy
from eddy.live.streams import publisher as publisher_module
from eddy.live.streams import stream_connection as connection_module
from eddy.live.streams.events import Asked, LastEvent, WindowChange
from eddy.live.streams.limits import Limits
from eddy.live.streams.publisher import Publisher
from eddy.live.streams.stream_connection import Connection
from eddy.live.streams.subscription import Subscription
from tests.live.server.families import nodes
from tests.live.server.running import Loaded, Running
from tests.waiting import PATIENCE_S, wait_for

Action = Callable[[], object]
Begins = Callable[[Connection], Action]


@pytest.fixture
def loaded() -> Iterator[Loaded]:
    with ExitStack() as stack:
        yield Loaded(Running(stack), stack)


def query_of(asked: Asked) -> eddy.Query:
    if asked.name == "nothing":
        raise eddy.QueryError("there is none")
    return nodes.where(nodes.parent == asked.name)


def connected(loaded: Loaded) -> Connection:
    return Connection(Publisher(loaded.server, Limits()), "server", query_of, lambda: None)


def opened(connection: Connection, *questions: Asked) -> None:
    for asked in questions:
        connection.asked[asked.id] = asked
        assert connection.open(asked)


def test_rows_of_the_next_query_are_due_at_once_when_those_of_another_were_sent(loaded: Loaded) -> None:
    loaded.show({"a": "x", "b": "y"})
    connection = connected(loaded)
    opened(connection, *(Asked(name, name) for name in "xyz"))
    sent = [connection.events() for _ in range(4)]
    assert [event.count(b"event: snapshot") for event in sent] == [1, 1, 1, 0]
    assert (sent[3].count(b"event: patch"), connection.waiting) == (1, 0)
    assert connection.record().keys() == set("xyz")


def test_failure_of_a_query_that_was_closed_is_not_that_of_another_one_with_its_id(loaded: Loaded) -> None:
    connection = connected(loaded)
    opened(connection, Asked("q", "nothing"))
    connection.asked["q"] = Asked("q", "x")  # closed and asked anew before the failure was told
    connection.drop("q")
    assert b"error" not in connection.events()
    assert connection.open(connection.asked["q"])
    assert b"event: snapshot" in connection.events()
    opened(connection, Asked("r", "nothing"))
    assert b"there is none" in connection.events()
    assert (connection.asked.keys(), connection.ended) == ({"q"}, 1)


class Held:
    """A lock that knows whether this thread holds it."""

    def __init__(self) -> None:
        self._lock, self._by = threading.Lock(), 0

    @property
    def is_mine(self) -> bool:
        return self._by == threading.get_ident()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._by = threading.get_ident()

    def __exit__(self, *error: object) -> None:
        self._by = 0
        self._lock.release()


TRACED = {connection_module.__file__, publisher_module.__file__, __file__}


def interrupted(publisher: Publisher, point: int, action: Action, event: Action) -> bool:
    """Run an action, and the event before its line number `point` where the lock is free; False where it has fewer."""
    lines = itertools.count()
    lock = cast("Held", publisher.lock)
    done = False

    def trace(frame: FrameType, kind: str, _: Any) -> Any:
        nonlocal done
        if frame.f_code.co_filename not in TRACED or isinstance(frame.f_locals.get("self"), Held):
            return None
        if kind == "line" and not lock.is_mine and not done and next(lines) == point:
            done = True
            sys.settrace(None)
            event()
            sys.settrace(trace)
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(former)
    return done


def opens(connection: Connection) -> Action:
    connection.asked["q"] = asked = Asked("q", "x")
    return lambda: connection.open(asked)


def moves(connection: Connection) -> Action:
    opened(connection, Asked("q", "x"))
    while connection.events():
        pass
    return lambda: connection.move(WindowChange("q", 0, 1))


def moves_before_its_rows_were_sent(connection: Connection) -> Action:
    opened(connection, Asked("q", "x"))
    return lambda: connection.move(WindowChange("q", 0, 1))


def shows_again(connection: Connection) -> Action:
    opened(connection, Asked("q", "x"))
    subscription = connection._subscriptions["q"]  # private: as the publisher calls it
    return lambda: connection.show_again(subscription)


def resumes(connection: Connection) -> Action:  # private: the stream before it
    asked = Asked("q", "x")
    former = Connection(connection._publisher, "server", query_of, lambda: None)
    opened(former, asked)
    while former.events():
        pass
    record = former.close()
    connection.asked["q"] = asked
    last = LastEvent("token", "server", "former", connection._publisher.now.number, 9)
    return lambda: connection.resume(last, record, [asked])


def fails(connection: Connection) -> Action:
    connection.asked["q"] = asked = Asked("q", "nothing")
    return lambda: connection.open(asked)


def drops(connection: Connection) -> Action:
    return lambda: connection.drop("q")


def closes(connection: Connection) -> Action:
    return lambda: connection.close()


def check_nothing_is_left(publisher: Publisher, connection: Connection) -> None:  # private: nothing is left
    assert not connection._subscriptions
    assert not connection.waiting
    for published in publisher._published.values():
        assert (published.users, published.subscribers) == (0, {})
    assert publisher.idle == publisher.queries


def check_at_every_point(loaded: Loaded, made: type[Connection], begins: Begins, ends: Begins) -> int:
    """End a connection, or its query, at every point of what another thread does meanwhile; the number of points."""
    publisher = Publisher(loaded.server, Limits())
    publisher.lock = cast("threading.Lock", Held())
    for point in itertools.count():
        connection = made(publisher, "server", query_of, lambda: None)
        found = interrupted(publisher, point, begins(connection), ends(connection))
        if not connection.is_closed:
            connection.close()
        check_nothing_is_left(publisher, connection)
        if not found:
            return point
    raise AssertionError


ENDS = pytest.mark.parametrize("ends", [closes, drops])


BEGINS = [opens, moves, moves_before_its_rows_were_sent, shows_again, resumes, fails]


@ENDS
@pytest.mark.parametrize("begins", BEGINS)
def test_every_query_is_let_go_of_once_wherever_the_stream_closes(loaded: Loaded, begins: Begins, ends: Begins) -> None:
    loaded.show({f"n{number}": "x" for number in range(5)})
    points = check_at_every_point(loaded, Connection, begins, ends)
    assert points > 5


class Looks(Connection):  # private: planted
    """Planted: whether the stream has closed is looked at after the lock was let go of."""

    def open(self, asked: Asked) -> bool:
        published = self._acquired(asked, asked)
        assert published is not None
        subscription = Subscription(self, asked, published)
        with self._publisher.lock:
            self._keep(subscription)
        if self.is_closed:
            self._publisher.release(published)
        else:
            self._show(subscription)
        return True


class Forgets(Connection):  # private: planted
    """Planted: a query that goes on is kept though the stream has closed."""

    def _keep(self, subscription: Subscription) -> bool:
        self._subscriptions[subscription.asked.id] = subscription
        return True


@pytest.mark.parametrize(("wrong", "begins"), [(Looks, opens), (Forgets, opens), (Forgets, resumes)])
def test_a_close_that_is_missed_is_found(loaded: Loaded, wrong: type[Connection], begins: Begins) -> None:
    with pytest.raises(AssertionError):
        check_at_every_point(loaded, wrong, begins, closes)


def test_version_that_changes_nothing_on_a_stream_wakes_it_and_is_told_within_a_second(loaded: Loaded) -> None:
    woken: list[bool] = []
    publisher = Publisher(loaded.server, Limits())
    connection = Connection(publisher, "server", query_of, lambda: woken.append(True))
    loaded.show({"a": "x"})
    opened(connection, Asked("x", "x"))
    wait_for(lambda: not connection.events() and connection.due_s() > 1.0, PATIENCE_S)
    for name in "bc":
        woken.clear()
        loaded.show({name: "elsewhere"})
        wait_for(lambda: woken, PATIENCE_S)
        assert connection.due_s() <= 0.5
        wait_for(lambda: b"event: patch" in connection.events(), PATIENCE_S)
        assert connection.due_s() > 1.0
