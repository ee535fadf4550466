"""A reader of a stream that does as docs/live-queries.md says, and shares no code with eddy."""

import json
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["PlainReader"]


class PlainReader:
    """The queries of one stream. `shown(id, token, rows)` is called after each event, for all that it shows exactly."""

    def __init__(self, shown: Callable[[str, str, Any], None]) -> None:
        self._shown = shown
        self.stream = self.last_id = ""
        self.version: dict[str, Any] = {}
        self.whole: set[str] = set()
        self.unknown: set[str] = set()
        self.errors: dict[str, Any] = {}
        self.events = 0
        self._buckets: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self._coming: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self._roots: dict[str, str] = {}

    def feed(self, data: bytes) -> None:
        """Some whole events."""
        for block in data.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if "event" in fields:
                self.take(fields["event"], json.loads(fields["data"]), fields["id"])

    def take(self, kind: str, data: Any, id_: str) -> None:
        """One event."""
        self.events += 1
        getattr(self, f"_{kind}")(data)
        self.last_id = id_
        if self.version.get("exact"):
            for query in self.known:
                self._shown(query, self.version["token"], self.rows(query))

    @property
    def known(self) -> set[str]:
        """The queries that have rows of the version, if it is exact."""
        return self.whole - self.unknown

    def close(self, query: str) -> None:
        """It is closed: events of it may still come."""
        self.whole.discard(query)

    def rows(self, query: str) -> Any:
        """The rows of a query with their nests."""
        return list(self._nested(self._buckets[query], self._roots[query]))

    def _nested(self, buckets: dict[str, list[dict[str, Any]]], id_: str) -> Iterator[dict[str, Any]]:
        for entry in buckets.get(id_, []):
            nests = {name: list(self._nested(buckets, below)) for name, below in entry.get("below", {}).items()}
            yield entry["row"] | nests

    def _hello(self, data: Any) -> None:
        self.stream = data["connection"]

    def _snapshot(self, data: Any) -> None:
        query = data["query"]
        if "root" in data:
            self._coming[query], self._roots[query] = {}, data["root"]
            self.whole.discard(query)
        _apply(self._coming[query], data["ops"])
        if not data.get("more"):
            self._buckets[query] = self._coming.pop(query)
            self.whole.add(query)
            self.unknown.discard(query)
            self.version = data["version"]

    def _patch(self, data: Any) -> None:
        for query, ops in data["queries"].items():
            if query in self._buckets:
                _apply(self._buckets[query], ops)
        self.version = data["version"]

    def _state(self, data: Any) -> None:
        (self.unknown.add if data["state"] == "unknown" else self.unknown.discard)(data["query"])

    def _error(self, data: Any) -> None:
        self.errors[data["query"]] = data["error"]
        self.whole.discard(data["query"])

    def _bye(self, data: Any) -> None:
        pass


def _apply(buckets: dict[str, list[dict[str, Any]]], ops: list[dict[str, Any]]) -> None:
    """One patch: rows leave by falling index, arrive by rising index, and change."""
    before = {op["bucket"]: list(buckets.get(op["bucket"], [])) for op in ops}
    leaving = [(op["bucket"], op["index"] if op["type"] == "remove" else op["before"]) for op in ops if _leaves(op)]
    for bucket, index in sorted(leaving, reverse=True):
        del buckets[bucket][index]
    arriving = [op for op in ops if op["type"] in {"insert", "move"}]
    for op in sorted(arriving, key=lambda op: (op["bucket"], op["index"])):
        entry = before[op["bucket"]][op["before"]] if op["type"] == "move" else op
        buckets.setdefault(op["bucket"], []).insert(op["index"], entry)
    for op in ops:
        if op["type"] == "set":
            buckets[op["bucket"]][op["index"]] = op
        elif op["type"] == "drop":
            buckets.pop(op["bucket"], None)


def _leaves(op: dict[str, Any]) -> bool:
    return op["type"] in {"remove", "move"}
