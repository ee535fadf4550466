"""examples/web.py as a client sees it."""

import contextlib
import importlib.util
import json
import socket
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.waiting import PATIENCE_S, in_time, wait_for

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "web.py"


def ask(url: str, body: Any = None) -> Any:
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode())
    with in_time(f"an answer to {url}"), urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


def test_a_web_application_reads_its_own_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_DATA", str(tmp_path / "log"))
    spec = importlib.util.spec_from_file_location("web_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    web = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(web)
    server = uvicorn.Server(uvicorn.Config(web.app, log_config=None, ws="none", loop="asyncio", http="h11"))
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            wait_for(lambda: server.started, PATIENCE_S, "the server")
            site = f"http://127.0.0.1:{listener.getsockname()[1]}"
            for node, parent in [("bob", "ann"), ("cid", "bob"), ("dan", "cid")]:
                version = ask(f"{site}/nodes", {"node": node, "parent": parent})["version"]
            assert ask(f"{site}/tree/bob?at_least={version}") == {"parent": "ann", "descendants": 2, "exact": True}
            assert ask(f"{site}/tables/v1/tables/descendants/ann")["value"] == 3
        finally:
            server.should_exit = True
            wait_for(lambda: not thread.is_alive(), PATIENCE_S, "the end of the server")
