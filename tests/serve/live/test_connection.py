"""One stream of events by itself: which events are due, whatever threads have done meanwhile."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import eddy
from eddy.serve.live.connection import Connection
from eddy.serve.live.events import Asked
from eddy.serve.live.limits import Limits
from eddy.serve.live.publisher import Publisher
from tests.serve.live.families import nodes
from tests.serve.live.test_live import PATIENCE_S, Loaded, Running
from tests.waiting import wait_for


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
