"""What the clients show under an exact version is that version, in all queries: of a bank in which money moves.

They open and close queries and move windows at random, while their connection is cut now and then.
"""

import asyncio
import json
import random
import subprocess
import time
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest

from eddy.client import Client, RemoteView
from tests.client.node import NODE, ROOT, needed
from tests.client.proxy import Proxy
from tests.live.server.bank import ACCOUNTS, Bank, Question, questions, window
from tests.waiting import in_time

PATIENCE_S = 60.0


class Desk:
    """Views of one client, each with its question and that of its former window."""

    def __init__(self, bank: Bank, client: Client, seed: int) -> None:
        self._bank, self._client, self._draw = bank, client, random.Random(seed)
        self._views: dict[RemoteView, tuple[AsyncExitStack, Question, Question | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self) -> None:
        """All that is shown is compared."""
        for view, (_, question, former) in self._views.items():
            if view.version is not None and view.version.exact:
                self._bank.check(question, view.version.token, view.rows, former)

    async def open(self) -> None:
        question, stack = questions(self._draw), AsyncExitStack()
        shown = (question["skip"], question["limit"]) if "limit" in question else None
        view = await stack.enter_async_context(self._client.live(question["name"], window=shown, **question["args"]))
        self._views[view] = stack, question, None
        self.check()
        self._tasks.add(asyncio.create_task(self._follow(view)))

    async def _follow(self, view: RemoteView) -> None:
        async for _ in view:
            self.check()

    async def close(self) -> None:
        stack, _, _ = self._views.pop(self._draw.choice(list(self._views)))
        await stack.aclose()

    async def move(self) -> None:
        view = self._draw.choice(list(self._views))
        stack, question, former = self._views[view]
        if former is None:
            moved = {**question, **window(self._draw)}
            self._views[view] = stack, moved, question
            await view.window(moved["skip"], moved["limit"])

    async def act(self) -> None:
        action = self._draw.random()
        if action < 0.5 and len(self._views) < 6:
            await self.open()
        elif action < 0.75 and len(self._views) > 1:
            await self.close()
        else:
            await self.move()

    async def end(self) -> None:
        while self._views:
            await self.close()
        await asyncio.gather(*self._tasks)  # raises what a check has found


def follow(seed: int, actions: int) -> Bank:
    async def run(bank: Bank, proxy: Proxy) -> None:
        draw = random.Random(seed)
        async with Client(f"http://127.0.0.1:{proxy.port}", retry_s=0.01) as client, asyncio.timeout(PATIENCE_S):
            desk = Desk(bank, client, seed)
            await desk.open()
            for _ in range(actions):
                await desk.act()
                await asyncio.sleep(draw.uniform(0.0, 0.04))  # pause: the pace of the changes
                if draw.random() < 0.05:
                    proxy.cut()
            await desk.end()

    with ExitStack() as stack:
        bank = Bank(stack, seed)
        bank.transfer(5)
        proxy = Proxy(bank.server.port)
        stack.callback(proxy.close)
        with bank.open_for_business(), in_time("the client"):
            asyncio.run(run(bank, proxy))
        return bank


def test_client_shows_each_version_as_it_is() -> None:
    assert follow(1, 100).checked > 50  # each question that is opened, at least


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_clients_show_each_version_as_it_is() -> None:
    for seed in range(2, 12):
        follow(seed, 400)


def follow_on_node(seed: int, actions: int) -> Bank:
    with ExitStack() as stack:
        bank, draw = Bank(stack, seed), random.Random(seed)
        bank.transfer(5)
        proxy = Proxy(bank.server.port)
        stack.callback(proxy.close)
        script = str(ROOT / "tests/client/node_bank.mjs")
        order = json.dumps({"seed": seed, "actions": actions, "accounts": ACCOUNTS})
        command = [needed(NODE, "node", "nodejs"), script, f"http://127.0.0.1:{proxy.port}", order]
        stack.enter_context(bank.open_for_business())
        node = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert node.stdout is not None
        cut_at = time.monotonic() + 0.5
        for line in node.stdout:
            said: dict[str, Any] = json.loads(line)
            bank.check(said["question"], said["token"], said["rows"], said["former"])
            if time.monotonic() > cut_at:
                proxy.cut()
                cut_at += draw.uniform(0.3, 1.5)
        assert node.wait(PATIENCE_S) == 0
        return bank


def test_client_in_javascript_shows_each_version_as_it_is() -> None:
    assert follow_on_node(1, 100).checked > 50  # each question that is opened, at least


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_clients_in_javascript_show_each_version_as_it_is() -> None:
    for seed in range(2, 12):
        follow_on_node(seed, 400)
