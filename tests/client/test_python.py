"""The Python client: rows by patches through broken connections, many queries on one, refusals."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eddy.client import Client, ClientError
from tests.client.proxy import Proxy
from tests.client.site import Site, folders_site, tree
from tests.client.test_live_trees import storm

PATIENCE_S = 60.0


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        made = folders_site(stack)
        made.serve()
        yield made


def test_view_is_the_servers_after_a_storm_and_three_cuts(site: Site) -> None:
    site.write({f"f{number}": {"name": f"{number}"} for number in range(20)})
    proxy = Proxy(site.port)

    def changes() -> None:
        storm(site, proxy, 300)
        site.write({"last": {"name": "the last one"}})

    async def follow() -> object:
        async with Client(f"http://127.0.0.1:{proxy.port}", retry_s=0.01) as client, client.live("tree") as view:
            writer = threading.Thread(target=changes)
            writer.start()
            async with asyncio.timeout(PATIENCE_S):
                async for version in view:
                    if any(row["id"] == "last" for row in view.rows):
                        assert version == view.version
                        break
            await asyncio.to_thread(writer.join)
            return view.rows

    assert asyncio.run(follow()) == site.views.read(tree())
    proxy.close()


def test_many_queries_share_a_connection_and_come_and_go(site: Site) -> None:
    site.write({"home": {"name": "home"}, "ada": {"name": "ada", "parent": "home"}, "eve": {"name": "eve"}})

    async def follow() -> None:
        async with Client(f"http://127.0.0.1:{site.port}") as client:
            async with client.live("tree", window=(0, 1)) as first:
                assert [row["name"] for row in first.rows] == ["eve"]
                async with client.live("below", parent="home") as number:
                    assert number.rows == 1
                    with pytest.raises(ClientError, match="nowhere"):
                        await client.live("secret").__aenter__()
                    await first.window(1, 1)
                    async with asyncio.timeout(PATIENCE_S):
                        async for _ in first:
                            if first.rows[0]["name"] == "home":
                                break
                assert number.state == "closed"
            async with client.live("below", parent="home") as again:
                assert again.rows == 1

    asyncio.run(follow())


def test_refusal_of_the_connection_is_the_error_of_its_queries(tmp_path: Path) -> None:
    with ExitStack() as stack:
        site = folders_site(stack)
        site.token = tmp_path / "token"
        site.token.write_text("0123456789abcdef")
        url = site.serve()

        async def ask(token: str) -> object:
            async with Client(url, token=token) as client, client.live("tree") as view:
                return view.rows

        assert asyncio.run(ask("0123456789abcdef")) == []
        with pytest.raises(ClientError, match="a token is needed") as caught:
            asyncio.run(ask("another"))
        assert caught.value.code == "HTTP_401"
