"""Queries without a client: those that were read once go soon, and what idle ones hold has a bound of bytes."""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import eddy
from eddy.live.streams import publisher as publisher_module
from eddy.live.streams.limits import Limits
from eddy.live.streams.publisher import Publisher
from tests.live.server.families import nodes
from tests.live.server.sse import asked
from tests.live.server.test_http import Site, queries
from tests.waiting import PATIENCE_S, wait_for

ROWS = 1_000
BOUND = 200_000


@queries.query
def after(least: str, top: int = 3) -> eddy.Query:
    """A window of rows that no other query sorts."""
    return nodes.where(nodes.id > least).order_by(-nodes.parent).limit(top)


def site_of(stack: ExitStack, **limits: Any) -> Site:
    site = Site(stack, Limits(**{"idle_bytes": BOUND, "read_linger_s": 600.0, "linger_s": 600.0, **limits}))
    site.write({f"n{n:04}": f"p{n * 7 % 97:02}" for n in range(ROWS)})
    return site


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def read_many(site: Site, draw: random.Random) -> None:  # private: the bytes of each
    for _ in range(40):
        least = f"n{draw.randrange(ROWS):04}"
        found = site.get(f"/v1/queries/after?least={least}").json["rows"]
        assert found == site.answer(after(least))
        with site.publisher.server.lock:
            idle = list(site.publisher._idle)
            assert (
                publisher_module._held_bytes(idle[:-1]) <= BOUND + 150_000
            )  # the bound, and the one before the latest


def test_idle_queries_hold_no_more_than_their_bytes(stack: ExitStack) -> None:
    site = site_of(stack)
    read_many(site, random.Random(0))
    assert 1 < site.publisher.idle < 20
    wait_for(lambda: site.publisher.idle_bytes > 0, PATIENCE_S)
    assert "eddy_live_idle_bytes" in site.get("/metrics").text


def test_bound_that_is_not_kept_is_found(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publisher, "_too_large", lambda self, idle: [])  # private: planted
    with pytest.raises(AssertionError):
        read_many(site_of(stack), random.Random(0))


def test_query_that_was_read_once_goes_soon_and_one_of_a_stream_stays(stack: ExitStack) -> None:
    site = site_of(stack, idle_bytes=1 << 30, read_linger_s=0.3)
    client = site.client(asked("a", "after", least="n0700"))
    client.until(lambda: "a" in client.whole)
    client.close()
    site.get("/v1/queries/after?least=n0300")
    site.get("/v1/queries/after?least=n0700")  # a stream has carried it: reading it changes nothing
    wait_for(lambda: site.publisher.queries == 1, PATIENCE_S)
    (left,) = site.publisher._published.values()  # private: which one is left
    assert left.select == after("n0700").syntax
