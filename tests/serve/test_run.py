"""`eddy run --http` as operators have it: processes of their own, told apart by their exit status."""

import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.children import Child, without_settings
from tests.serve.conftest import Page, fetch

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "family.py"

Run = Callable[..., Child]


@pytest.fixture
def run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Start `eddy run family.py` in a folder of its own."""
    shutil.copy(EXAMPLE, tmp_path)
    said = tmp_path_factory.mktemp("said")

    def begin(*arguments: str) -> Child:
        command = [sys.executable, "-W", "error", "-m", "eddy", "run", "family.py", "--log-format", "json", *arguments]
        return stack.enter_context(Child(said, command, cwd=tmp_path, env=without_settings()))

    with ExitStack() as stack:
        yield begin


def told(process: Child, status: int) -> list[dict[str, str]]:
    return [json.loads(line) for line in process.ends(status).errors.splitlines()]


def test_worker_serves_until_it_is_stopped(run: Run) -> None:
    worker = run("--http", "0")
    port = int(worker.wait_to_say(r"http://127\.0\.0\.1:(\d+)")[1])

    def answered(path: str) -> Page:
        """The page, once its status is 200; until then it is 503."""
        pages: list[Page] = []

        def shown() -> bool:
            pages.append(fetch(port, path))
            assert pages[-1].status in (200, 503), pages[-1].text
            return pages[-1].status == 200

        worker.wait_for(shown, path, pause_s=0.05)
        return pages[-1]

    page = answered("/readyz")
    assert page.json == {"state": "RUNNING", "reason": ""}
    assert "eddy_records_total 0.0" in fetch(port, "/metrics").text
    page = answered("/v1/tables")
    assert [table["name"] for table in page.json["tables"]] == ["nodes", "descendants"]
    assert fetch(port, "/v1/tables/nodes/nobody").status == 404
    assert 'eddy_views_rows{table="nodes"} 0.0' in fetch(port, "/metrics").text
    worker.signal(signal.SIGTERM)
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
