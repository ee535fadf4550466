"""`eddy run --http` as operators have it: processes of their own, told apart by their exit status."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.serve.conftest import Page, fetch
from tests.waiting import PATIENCE_S, wait_for

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "family.py"

Run = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Start `eddy run family.py` in a folder of its own."""
    shutil.copy(EXAMPLE, tmp_path)
    started: list[subprocess.Popen[str]] = []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EDDY_")}

    def begin(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-m", "eddy", "run", "family.py", "--log-format", "json", *arguments]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def told(process: subprocess.Popen[str], status: int) -> list[dict[str, str]]:
    _, messages = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status, messages
    return [json.loads(line) for line in messages.splitlines()]


def test_worker_serves_until_it_is_stopped(run: Run) -> None:
    worker = run("--http", "0")
    assert worker.stderr is not None
    port = next(int(found[1]) for line in worker.stderr if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)))

    def answered(path: str) -> Page:
        """The page, once its status is 200; until then it is 503."""
        pages: list[Page] = []

        def shown() -> bool:
            pages.append(fetch(port, path))
            assert (pages[-1].status in (200, 503), worker.poll()) == (True, None), pages[-1].text
            return pages[-1].status == 200

        wait_for(shown, PATIENCE_S, path, pause_s=0.05)
        return pages[-1]

    page = answered("/readyz")
    assert page.json == {"state": "RUNNING", "reason": ""}
    assert "eddy_records_total 0.0" in fetch(port, "/metrics").text
    page = answered("/v1/tables")
    assert [table["name"] for table in page.json["tables"]] == ["nodes", "descendants"]
    assert fetch(port, "/v1/tables/nodes/nobody").status == 404
    assert 'eddy_views_rows{table="nodes"} 0.0' in fetch(port, "/metrics").text
    worker.send_signal(signal.SIGTERM)
    messages = told(worker, 0)
    assert [message["message"] for message in messages][-1].startswith("stopped by SIGTERM; 0 records in")
    assert f"tables on http://127.0.0.1:{port}/v1/tables" in [message["message"] for message in messages]
    assert {message["logger"] for message in messages} <= {"eddy.cli", "eddy.monitor"}, "the server says nothing"


def test_port_that_is_taken_ends_it_at_once_to_be_tried_again(run: Run) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        last = told(run("--http", str(other.getsockname()[1])), os.EX_TEMPFAIL)[-1]
    assert "the port is taken by another process" in last["message"]


def test_network_without_a_token_is_a_wrong_setting(run: Run) -> None:
    last = told(run("--http", "0.0.0.0:0"), os.EX_CONFIG)[-1]
    assert last["code"] == "CONNECTOR_CONFIGURATION"
    assert "--http-token-file" in last["message"]
