"""`eddy serve` and `eddy get` as processes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eddy.connectors.broker import free_port
from tests.serve.conftest import fetch
from tests.waiting import PATIENCE_S, wait_for

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "family.py"

Eddy = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def eddy_(tmp_path: Path) -> Iterator[Eddy]:
    """Start a command of eddy in a folder of its own, which has family.py."""
    shutil.copy(EXAMPLE, tmp_path)
    started: list[subprocess.Popen[str]] = []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EDDY_")}

    def begin(*arguments: str, given: str | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "eddy", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.PIPE}
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes)
        started.append(process)
        if given is not None:
            assert process.stdin is not None
            process.stdin.write(given)
            process.stdin.close()
            process.stdin = None
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def done(process: subprocess.Popen[str]) -> str:
    out, messages = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, messages
    return out


def wait_for_page(
    server: subprocess.Popen[str], port: int, path: str, holds: Callable[[Any], bool] = lambda page: True
) -> None:
    """Wait until a page is answered with status 200 and has what is wanted. Fails where the server ends before."""

    def shown() -> bool:
        page = fetch(port, path)
        assert server.poll() is None, page.text
        return page.status == 200 and holds(page.json)

    wait_for(shown, PATIENCE_S, path, pause_s=0.05)


def test_tables_are_served_shown_and_watched(eddy_: Eddy) -> None:
    done(eddy_("produce", "nodes", given="bob\tann\ncid\tbob\n"))
    done(eddy_("run", "family.py", "--until-idle"))
    rows = [json.loads(line) for line in done(eddy_("get", "family.py", "descendants")).splitlines()]
    assert rows == [{"key": "ann", "value": 2}, {"key": "bob", "value": 1}]
    assert json.loads(done(eddy_("get", "family.py", "nodes", "cid"))) == {"key": "cid", "value": "bob"}
    missing = eddy_("get", "family.py", "nodes", "nobody")
    assert missing.communicate(timeout=PATIENCE_S) == ("", "table 'nodes': there is no row with the key 'nobody'.\n")
    assert missing.returncode == 1
    traced = done(eddy_("trace", "family.py", "descendants", "ann"))
    assert '  ⋈ "bob" = "ann"   nodes (row of topic nodes)' in traced
    assert traced.endswith("served at this version: 2, as computed here from the inputs\n")
    unknown = eddy_("trace", "family.py", "sons", "ann")
    assert "no step 'sons'; a table (descendants, nodes), or another step" in unknown.communicate(timeout=PATIENCE_S)[1]

    server = eddy_("serve", "family.py", "--http", "0")
    assert server.stderr is not None
    port = next(int(found[1]) for line in server.stderr if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)))
    wait_for_page(server, port, "/readyz")
    assert fetch(port, "/v1/tables/descendants/ann").json["value"] == 2
    watch = eddy_("get", "family.py", "descendants", "--prefix", "a", "--watch")
    assert watch.stdout is not None
    assert json.loads(watch.stdout.readline()) == {"key": "ann", "value": 2}
    done(eddy_("produce", "nodes", given="dan\tbob\n"))
    done(eddy_("run", "family.py", "--until-idle"))
    assert json.loads(watch.stdout.readline()) == {"key": "ann", "value": 3}
    wait_for_page(server, port, "/v1/tables/descendants/ann", lambda row: row["value"] == 3)
    server.send_signal(signal.SIGTERM)
    server.communicate(timeout=PATIENCE_S)
    assert server.returncode == 0


def test_a_server_that_was_killed_goes_on_where_it_was(eddy_: Eddy) -> None:
    lines = [f"n{n}\tn{n // 2}\n" for n in range(2, 3_000)]
    done(eddy_("produce", "nodes", given="".join(lines[:1_500])))
    done(eddy_("run", "family.py", "--until-idle"))
    for attempt, part in enumerate((lines[1_500:2_000], lines[2_000:2_500], lines[2_500:])):
        server = eddy_("serve", "family.py", "--http", "0")
        assert server.stderr is not None
        port = next(int(found[1]) for line in server.stderr if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)))
        done(eddy_("produce", "nodes", given="".join(part)))
        worker = eddy_("run", "family.py", "--until-idle")
        if attempt < 2:
            worker.kill()
            server.kill()
            continue
        done(worker)
        wait_for_page(server, port, "/v1/tables/descendants/n1", lambda row: row["exact"] and row.get("value") == 2_998)
        rows = fetch(port, "/v1/tables/nodes?limit=10000").json
        assert {row["key"]: row["value"] for row in rows["rows"]} == dict(line.split() for line in lines)
        assert rows["exact"]


def test_server_waits_for_brokers_that_are_away_until_it_is_stopped(eddy_: Eddy) -> None:
    server = eddy_("serve", "family.py", "--http", "0", "--bootstrap", f"127.0.0.1:{free_port()}")
    assert server.stderr is not None
    assert any("not started yet; trying for 300 s" in line for line in server.stderr)
    server.send_signal(signal.SIGTERM)
    _, messages = server.communicate(timeout=PATIENCE_S)
    assert server.returncode == 0, messages
    assert "stopped by SIGTERM" in messages


def test_certificate_and_key_belong_together(eddy_: Eddy) -> None:
    server = eddy_("serve", "family.py", "--tls-cert", "cert.pem")
    _, messages = server.communicate(timeout=PATIENCE_S)
    assert server.returncode == 2
    assert "--tls-cert and --tls-key belong together" in messages
