"""A schema registry over HTTP, in this process: the part of Confluent's public REST API that serdes use.

It stands for somebody else's server, so that a test can take it away, let it hang and see what it is asked. Of
compatibility it knows one rule: in a later Avro version each new field has a default. `apicurio.py` is a real one.

Source: "Schema Registry API Reference", docs.confluent.io.
"""

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Answer = tuple[int, Any]


@dataclass
class Registry:
    """Schemas by id, versions by subject, and the requests that came. `status` is the answer to all, if it is set.

    Older registries have no `guids`.
    """

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    status: int | None = None
    hangs: threading.Event | None = None
    user: str | None = None
    guids: bool = True
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        with self._lock:
            self.asked.append(f"{method} {path}")
            if self.status is not None:
                return self.status, {"error_code": 50001, "message": "Error in the backend data store"}
            for form, handle in self._routes(method):
                if found := re.fullmatch(form, path):
                    return handle(*map(unquote, found.groups()), body)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _routes(self, method: str) -> list[tuple[str, Callable[..., Answer]]]:
        if method == "POST":
            return [("/subjects/([^/]+)/versions", self._register), ("/subjects/([^/]+)", self._look_up)]
        return [
            (r"/schemas/ids/(\d+)", self._schema),
            (r"/schemas/guids/([0-9a-f-]+)", self._schema_of_guid),
            ("/subjects/([^/]+)/versions/([^/]+)", self._version),
            ("/subjects", lambda body: (200, sorted(self.subjects))),
        ]

    def _register(self, subject: str, body: dict[str, Any]) -> Answer:
        schema = _schema_in(body)
        known = [number for number, one in self.schemas.items() if one == schema]
        versions = self.subjects.setdefault(subject, [])
        if not set(known) & set(versions) and not all(_reads(schema, self.schemas[number]) for number in versions):
            text = f"Schema being registered is incompatible with an earlier schema for subject '{subject}'"
            return 409, {"error_code": 409, "message": text}
        number = known[0] if known else len(self.schemas) + 1
        self.schemas[number] = schema
        if number not in versions:
            versions.append(number)
        return 200, self._ids(number)

    def _look_up(self, subject: str, body: dict[str, Any]) -> Answer:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        for version, number in enumerate(self.subjects[subject], 1):
            if self.schemas[number] == _schema_in(body):
                return 200, {"subject": subject, "version": version, **self._known(number)}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _schema(self, number: str, body: dict[str, Any]) -> Answer:
        found = self.schemas.get(int(number))
        return (200, found) if found else (404, {"error_code": 40403, "message": f"Schema {number} not found"})

    def _schema_of_guid(self, guid: str, body: dict[str, Any]) -> Answer:
        return self._schema(str(uuid.UUID(guid).int), body)

    def _version(self, subject: str, version: str, body: dict[str, Any]) -> Answer:
        versions = self.subjects.get(subject)
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        at = len(versions) if version == "latest" else int(version)
        if not 0 < at <= len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        number = versions[at - 1]
        return 200, {"subject": subject, "version": at, **self._known(number)}

    def _known(self, number: int) -> dict[str, Any]:
        return {**self._ids(number), **self.schemas[number]}

    def _ids(self, number: int) -> dict[str, Any]:
        return {"id": number, **({"guid": str(uuid.UUID(int=number))} if self.guids else {})}


def _schema_in(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": body["schema"],
        "schemaType": body.get("schemaType", "AVRO"),
        "references": body.get("references") or [],
    }


def _reads(schema: dict[str, Any], older: dict[str, Any]) -> bool:
    """Whether each field that an older record does not have has a default."""
    new, old = json.loads(schema["schema"]), json.loads(older["schema"])
    if schema["schemaType"] != "AVRO" or not isinstance(new, dict) or not isinstance(old, dict):
        return True
    known = {part["name"] for part in old.get("fields", ())}
    return all("default" in part for part in new.get("fields", ()) if part["name"] not in known)


class Server:
    """The registry on a port of this machine, which it keeps while it is away."""

    def __init__(self) -> None:
        self.registry = Registry()
        self._server = self._begin(0)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def _begin(self, port: int) -> ThreadingHTTPServer:
        registry = self.registry

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._handle({})

            def do_POST(self) -> None:
                self._handle(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _handle(self, body: dict[str, Any]) -> None:
                if registry.hangs is not None:
                    registry.hangs.wait()
                    return
                if registry.user is not None and self.headers["Authorization"] != registry.user:
                    status, made = 401, {"error_code": 401, "message": "Unauthorized"}
                else:
                    status, made = registry.answer(self.command, urlsplit(self.path).path, body)
                data = json.dumps(made).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return server

    def go_away(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def come_back(self) -> None:
        self._server = self._begin(self.port)


@contextmanager
def served() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        if server.registry.hangs is not None:
            server.registry.hangs.set()
        server.go_away()
