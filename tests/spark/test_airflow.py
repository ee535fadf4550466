"""The example's DAG, with a stand-in for Airflow alone: the command, its verdict and the webhook are real."""

import json
import runpy
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from eddy.state.rocksdb import RocksDBStore
from tests.spark.rig import Rig

DAG = Path(__file__).parents[2] / "examples" / "airflow" / "verify_family.py"
PROGRAM = """\
import eddy

topology = eddy.Topology("family")
topology.table("nodes", eddy.String, eddy.String).to("copy")
"""
S = eddy.String


def family() -> eddy.Topology:
    topology = eddy.Topology("family")
    topology.table("nodes", S, S).to("copy")
    return topology


class Airflow(ModuleType):
    """The parts of `airflow.sdk` that the example imports: it records the DAG and its tasks."""

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__("airflow.sdk")
        self.settings: dict[str, Any] = {}
        self.tasks: dict[str, Callable[[], Any]] = {}
        self.Variable = type("Variable", (), {"get": staticmethod(variables.__getitem__)})

    def dag(self, **settings: Any) -> Callable[[Callable[[], None]], Callable[[], None]]:
        """Record the settings; the call of the DAG declares its tasks."""
        self.settings = settings
        return lambda declared: declared

    def task(self, function: Callable[[], Any]) -> Callable[[], None]:
        """A call within a DAG declares a task and does not run it."""
        return lambda: self.tasks.update({function.__name__: function})


@pytest.fixture
def alerts() -> Iterator[tuple[str, list[str]]]:
    """The address of a webhook, and the texts that it gets."""
    texts: list[str] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Write nothing to stderr."""

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", texts
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    (tmp_path / "family.py").write_text(PROGRAM)
    rig = Rig(tmp_path, family, [TopicSpec("nodes", 1), TopicSpec("copy", 1)])
    rig.write("nodes", [(b"leaf", b"twig"), (b"twig", b"tree")])
    rig.work()
    yield rig
    rig.close()


@pytest.fixture
def nightly(rig: Rig, alerts: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs the DAG's task, with further words of its command."""

    def run(*words: str) -> Any:
        command = (
            f"{sys.executable} -m eddy verify {rig.path.parent / 'family.py'} --data {rig.path} --disk {rig.state}"
        )
        airflow = Airflow({"eddy_verify": " ".join([command, *words]), "eddy_alert_url": alerts[0]})
        monkeypatch.setitem(sys.modules, "airflow", ModuleType("airflow"))
        monkeypatch.setitem(sys.modules, "airflow.sdk", airflow)
        runpy.run_path(str(DAG))
        assert (airflow.settings["schedule"], airflow.settings["catchup"]) == ("0 3 * * *", False)
        (task,) = airflow.tasks.values()
        return task()

    return run


def test_it_succeeds_where_all_is_equal(nightly: Callable[..., Any], alerts: tuple[str, list[str]]) -> None:
    assert (nightly(), alerts[1]) == ("equal", [])


def test_it_fails_where_something_differs(nightly: Callable[..., Any], rig: Rig, alerts: tuple[str, list[str]]) -> None:
    (path,) = (rig.state / "family").iterdir()
    with closing(RocksDBStore(path, "family")) as store:
        store.write([(b"nodes\0\0\0leaf", b"branch")])
    with pytest.raises(Exception, match=r"family: different\nstore nodes: 1 of 2 differ, as .*'branch'") as failed:
        nightly()
    assert (type(failed.value).__name__, alerts[1]) == ("DifferentError", [])


def test_it_alerts_where_the_verdict_is_undetermined(
    nightly: Callable[..., Any], rig: Rig, alerts: tuple[str, list[str]]
) -> None:
    (path,) = (rig.state / "family").iterdir()
    with closing(RocksDBStore(path, "family")):  # as a worker that runs
        assert nightly() == "undetermined"
    (text,) = alerts[1]
    assert text.startswith("family: undetermined\nstate ")
    assert "is in use by another process" in text


def test_it_fails_where_the_command_has_no_verdict(nightly: Callable[..., Any], alerts: tuple[str, list[str]]) -> None:
    with pytest.raises(Exception, match="it ended with 2, and without a verdict") as failed:
        nightly("--no-such-option")
    assert (type(failed.value).__name__, alerts[1]) == ("NoVerdictError", [])
