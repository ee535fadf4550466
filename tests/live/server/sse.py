"""A client of live queries over HTTP: the buckets of its queries, made of events alone."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec

from eddy.live.dataflow.patch import Buckets, Op
from eddy.live.query.nested import nested
from eddy.live.query.shapes import LevelShape, shape_of
from tests.waiting import WaitTimeoutError, in_time

__all__ = ["Client", "TornError", "asked"]

_PAUSE_S = 0.1
_ops = msgspec.json.Decoder(list[Op]).decode


class TornError(Exception):
    """The connection has ended."""


def asked(id_: str, name: str, *, skip: int | None = None, limit: int | None = None, **args: Any) -> dict[str, Any]:
    """A question."""
    window = {key: value for key, value in (("skip", skip), ("limit", limit)) if value is not None}
    return {"id": id_, "name": name, "args": args, **window}


class Client:
    """One client that connects as often as it likes. `step` takes one event in."""

    def __init__(self, port: int, patience_s: float = 30.0, headers: dict[str, str] | None = None) -> None:
        self.port, self._patience_s, self.headers = port, patience_s, headers or {}
        self.path = "/v1/live"
        self.asked: dict[str, dict[str, Any]] = {}
        self.last_id = ""
        self.stream = self.server = ""
        self.version: dict[str, Any] = {}
        self.views: dict[str, Buckets] = {}
        self.roots: dict[str, tuple[str, Any]] = {}
        self.whole: set[str] = set()
        self.states: dict[str, str] = {}
        self.errors: dict[str, dict[str, str]] = {}
        self.snapshots = self.events = 0
        self.reason = ""
        self._socket: socket.socket | None = None
        self._lines: Iterator[bytes] = iter(())

    def connect(self) -> None:
        """Connect, and ask for all queries. Raises: TornError; AssertionError with the answer where it is not a
        stream.
        """
        self.close()
        query = urlencode([("query", json.dumps(each)) for each in self.asked.values()])
        headers = self.headers | ({"Last-Event-ID": self.last_id} if self.last_id else {})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self._patience_s)
        try:
            connection.request("GET", f"{self.path}?{query}", headers={"Accept": "text/event-stream", **headers})
            self._socket = connection.sock
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise TornError from error
        if response.status != 200:
            body = response.read()
            response.close()
            self.close()
            raise AssertionError((response.status, body))
        self._lines = iter(response)
        self.reason = ""

    def close(self) -> None:
        """Disconnect, in the middle of whatever comes."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._socket = None
        self._lines = iter(())

    def post(self, **change: Any) -> tuple[int, Any]:
        """Change the queries of the stream. Returns status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self._patience_s)
        try:
            headers = {"Content-Type": "application/json", **self.headers}
            with in_time("an answer to a change"):
                connection.request("POST", f"/v1/live/{self.stream}", json.dumps(change).encode(), headers)
                answer = connection.getresponse()
                body = answer.read()
            return answer.status, json.loads(body) if body else None
        finally:
            connection.close()

    def ask(self, *questions: dict[str, Any]) -> None:
        """Ask for more queries on the open stream."""
        status, body = self.post(open=list(questions))
        assert status == 204, body
        self.asked.update((each["id"], each) for each in questions)

    def move(self, id_: str, skip: int | None, limit: int | None) -> None:
        """Move a window."""
        window = {key: value for key, value in (("skip", skip), ("limit", limit)) if value is not None}
        status, body = self.post(window=[{"id": id_, **window}])
        assert status == 204, body
        left = {key: value for key, value in self.asked[id_].items() if key not in {"skip", "limit"}}
        self.asked[id_] = left | window

    def step(self) -> str:
        """Take one event, or a comment, in. Returns its kind. Raises: TornError; WaitTimeoutError."""
        fields: dict[str, str] = {}
        try:
            for line in self._lines:
                text = line.decode().rstrip("\n")
                if not text:
                    break
                name, _, value = text.partition(":")
                fields[name] = value.removeprefix(" ")
            else:
                raise TornError
        except TimeoutError as error:
            raise WaitTimeoutError(f"not in {self._patience_s:g} s: an event, or a comment") from error
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            raise TornError from error
        if "event" not in fields:
            return ""
        self.events += 1
        getattr(self, f"_{fields['event']}")(json.loads(fields["data"]))
        self.last_id = fields["id"]
        return fields["event"]

    def _hello(self, data: Any) -> None:
        self.stream, self.server = data["connection"], data["server"]

    def _snapshot(self, data: Any) -> None:
        id_ = data["query"]
        if "shape" in data:
            self.snapshots += 1
            self.views[id_] = Buckets()
            self.roots[id_] = data["root"], shape_of(msgspec.convert(data["shape"], list[LevelShape]))
            self.whole.discard(id_)
        self.views[id_].apply(_ops(json.dumps(data["ops"])))
        if "more" not in data:
            self.whole.add(id_)
            self.states[id_] = "complete"

    def _patch(self, data: Any) -> None:
        for id_, ops in data["queries"].items():
            self.views[id_].apply(_ops(json.dumps(ops)))
        self.version = data["version"]

    def _state(self, data: Any) -> None:
        self.states[data["query"]] = data["state"]
        if data["state"] == "unknown":
            self.whole.discard(data["query"])
        else:
            self.whole.add(data["query"])

    def _error(self, data: Any) -> None:
        self.errors[data["query"]] = data["error"]
        self.asked.pop(data["query"], None)

    def _bye(self, data: Any) -> None:
        self.reason = data["reason"]

    def rows(self, id_: str) -> Any:
        """The nested rows of a query."""
        root, shape = self.roots[id_]
        return nested(self.views[id_].entries, shape, root)

    def until(self, done: Any, again: bool = False) -> None:
        """Take events in until `done()`; connect again where the stream ends, if `again`.

        Raises: TornError where it ends and may not; WaitTimeoutError.
        """
        watch = threading.Timer(self._patience_s, self.close)
        watch.daemon = True
        watch.start()
        try:
            while not done():
                try:
                    self.step()
                except TornError as error:
                    if not watch.is_alive():
                        raise WaitTimeoutError(f"not in {self._patience_s:g} s: the events") from error
                    if not again:
                        raise
                    try:
                        self.connect()
                    except TornError:
                        threading.Event().wait(_PAUSE_S)
        finally:
            watch.cancel()
