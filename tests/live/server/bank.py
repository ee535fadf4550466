"""A bank: entries are written in pairs that make 0, balances are their sums. What each version has is known.

Everybody that shows rows under an exact version calls `Bank.check`: the rows are compared with those that were written
up to the version, in plain Python, and the entries with the balances that are shown under the same version.
"""

import base64
import contextlib
import json
import random
import threading
import uuid
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import msgspec

import eddy
from eddy.live.streams.limits import Limits
from eddy.serve.endpoint import endpoint_of
from eddy.serve.table_server import Served, served
from tests.tables.conftest import produce
from tests.waiting import PATIENCE_S

__all__ = ["ACCOUNTS", "Bank", "Question", "questions"]

ACCOUNTS = "abcdef"
_MOST = 25
entries = eddy.live_table("entries", key="id")
balances = eddy.live_table("balances", key="account", value="sum")
queries = eddy.Queries()
Question = dict[str, Any]
"""Name, arguments, and perhaps skip and limit, as a client asks."""


@queries.query
def log() -> eddy.Query:
    return entries.order_by(entries.id)


@queries.query
def accounts() -> eddy.Query:
    return balances.order_by(balances.account)


@queries.query
def of(account: str) -> eddy.Query:
    return entries.where(entries.account == account).order_by(entries.id)


@queries.query
def statements() -> eddy.Query:
    return balances.order_by(balances.account).nest(
        entries=lambda row: entries.where(entries.account == row.account).order_by(entries.id)
    )


def questions(draw: random.Random) -> Question:
    """A question at random."""
    name = draw.choice(["log", "accounts", "of", "statements"])
    question: Question = {"name": name, "args": {"account": draw.choice(ACCOUNTS)} if name == "of" else {}}
    return question | window(draw) if draw.random() < 0.3 else question


def window(draw: random.Random) -> Question:
    """A window at random."""
    return {"skip": draw.randrange(4), "limit": draw.randrange(1, 9)}


Entries = dict[str, dict[str, Any]]
Change = tuple[str, dict[str, Any] | None]


def after(entries: Entries, changes: list[Change]) -> Entries:
    """The entries after some changes."""
    return {key: row for key, row in (entries | dict(changes)).items() if row is not None}


def answer(question: Question, written: Entries) -> list[dict[str, Any]]:
    """The rows of a question."""
    rows = [{"id": id_, **written[id_]} for id_ in sorted(written)]
    sums = {name: sum(row["amount"] for row in rows if row["account"] == name) for name in ACCOUNTS}
    totals: list[dict[str, Any]] = [{"account": name, "sum": total} for name, total in sums.items() if total]
    if question["name"] == "of":
        rows = [row for row in rows if row["account"] == question["args"]["account"]]
    elif question["name"] == "accounts":
        rows = totals
    elif question["name"] == "statements":
        rows = [each | {"entries": [row for row in rows if row["account"] == each["account"]]} for each in totals]
    skip, limit = question.get("skip") or 0, question.get("limit")
    return rows[skip:] if limit is None else rows[skip : skip + limit]


class Bank:
    """The bank on a log in memory, its worker, and a server of its queries."""

    def __init__(self, stack: ExitStack, seed: int, limits: Limits | None = None) -> None:
        self.draw = random.Random(seed)
        self.log = stack.enter_context(closing(eddy.open_log()))
        topology = eddy.Topology(f"bank{uuid.uuid4().hex[:8]}")
        topology.table("entries", key=eddy.String, value=eddy.Json()).group_by(
            lambda id_, entry: (entry["account"], entry["amount"]), key=eddy.String, value=eddy.Int64
        ).aggregate(
            int,
            lambda account, amount, total: (total + amount) or None,
            lambda account, amount, total: (total - amount) or None,
            "balances",
            value=eddy.Int64,
        )
        eddy.create_topics(topology, self.log)
        stack.enter_context(eddy.run(topology, self.log))
        self._ends, self._written, self._changes = [0], [Entries()], [list[Change]()]
        self._lock = threading.Lock()
        self._number = 0
        self.checked = 0
        self._shown: dict[str, dict[str, list[Any]]] = {}
        self.server: Served = stack.enter_context(
            served(endpoint_of("0"), topology, self.log, queries=queries, limits=limits)
        )
        self.server.tables.wait(exact=True, timeout_s=PATIENCE_S)

    def transfer(self, times: int = 1) -> None:
        """Write so many transactions: money moves, moves otherwise, or not at all."""
        for _ in range(times):
            written, draw, rows = self._written[-1], self.draw, dict[str, dict[str, Any] | None]()
            for _ in range(draw.randint(1, 3)):
                old = draw.choice(sorted(written)) if written and draw.random() < len(written) / _MOST else None
                self._number += old is None
                pair = f"{self._number:05}" if old is None else old[:-1]
                giver, taker = draw.sample(ACCOUNTS, 2)
                amount = draw.randint(1, 99)
                gone = old is not None and draw.random() < 0.7
                rows[pair + "-"] = None if gone else {"account": giver, "amount": -amount}
                rows[pair + "+"] = None if gone else {"account": taker, "amount": amount}
            with self._lock:  # a reader may see it before the producer knows where it ends
                encoded = {key: None if row is None else json.dumps(row).encode() for key, row in rows.items()}
                self.end = produce(self.log, "entries", encoded)
                self._ends.append(self.end["entries"][0])
                self._written.append(after(written, list(rows.items())))
                self._changes.append(list(rows.items()))

    @contextlib.contextmanager
    def open_for_business(self) -> Iterator[None]:
        """Money moves meanwhile."""
        closed = threading.Event()

        def transfers() -> None:
            while not closed.wait(0.004):
                self.transfer(self.draw.choice([1, 1, 5]))

        teller = threading.Thread(target=transfers)
        teller.start()
        try:
            yield
        finally:
            closed.set()
            teller.join()

    def arrive(self) -> str:
        """Wait until the server has everything exactly; returns the version."""
        return self.server.tables.wait(self.end, exact=True, timeout_s=PATIENCE_S).token

    def _at(self, offset: int) -> Entries:
        """The entries before an offset; a worker that is late may cut in the middle of a transaction."""
        with self._lock:
            place = bisect_right(self._ends, offset)
            written = self._written[place - 1]
            if place == len(self._ends):
                return written
            changes = self._changes[place]
            begin = self._ends[place] - len(changes)
            return after(written, changes[: max(0, offset - begin)])

    def check(self, question: Question, token: str, rows: Any, former: Question | None = None) -> None:
        """Rows that are shown under an exact version; of the `former` window where the other one may not be there."""
        inputs = msgspec.msgpack.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))["i"]
        written = self._at(inputs["entries"][0])
        wanted = [answer(each, written) for each in (question, former) if each is not None]
        if rows not in wanted:
            ends = [end for end, each in zip(self._ends, self._written, strict=True) if answer(question, each) == rows]
            raise AssertionError(f"{question}: {rows}, not {wanted}, at {inputs}; they are those at {ends}")
        self.checked += 1
        if "limit" in question:
            return
        shown = self._shown.setdefault(token, {})
        shown[question["name"]] = rows
        if shown.keys() >= {"log", "accounts"}:
            sums = {each["account"]: each["sum"] for each in shown["accounts"]}
            for entry in shown["log"]:
                sums[entry["account"]] = sums.get(entry["account"], 0) - entry["amount"]
            assert not any(sums.values()), (token, shown)
