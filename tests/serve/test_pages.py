"""Who may read which page, and what else the server does and does not do."""

import gzip
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

import eddy.serve.page
from eddy.connectors.local import LocalLog
from eddy.serve.endpoint import endpoint_of
from eddy.serve.monitor import monitored
from eddy.serve.page.routes import FILES
from tests.serve.conftest import Ward, fetch, produce
from tests.topology.programs import family
from tests.waiting import PATIENCE_S, quickest

TOKEN = "0123456789abcdef0123456789abcdef"
PROBES = ["/healthz", "/readyz"]
PAGES = [*PROBES, "/metrics", "/topology"]

Admit = Callable[..., Ward]
every_page = pytest.mark.parametrize("path", PAGES)


@pytest.fixture
def guarded(admit: Admit, tmp_path: Path) -> Ward:
    """A worker whose monitor wants a token."""
    (tmp_path / "token").write_text(TOKEN)
    ward = admit(endpoint=endpoint_of("0", tmp_path / "token")).admit()
    ward.settle()
    return ward


@every_page
def test_page_is_read_without_a_token_where_none_was_set(ward: Ward, path: str) -> None:
    ward.settle()
    page = ward.get(path)
    assert page.status == 200
    assert page.headers["Cache-Control"] == "no-store"
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in page.headers
    assert "Server" not in page.headers


@every_page
def test_head_is_answered_without_a_body_and_nothing_else_is_taken(ward: Ward, path: str) -> None:
    ward.settle()
    assert ward.get(path, "HEAD")[::2] == (200, b"")
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert ward.get(path, method).status == 405


def test_page_that_is_not_there_is_not_found(ward: Ward) -> None:
    assert ward.get("/page").status == 404
    assert ward.get("/healthz/").status == 404


@pytest.mark.parametrize("shown", [None, "", "Bearer", f"Bearer {TOKEN}0", f"Basic {TOKEN}", TOKEN, "Bearer äö"])
def test_without_the_token_only_probes_are_answered(guarded: Ward, shown: str | None) -> None:
    headers = {} if shown is None else {"Authorization": shown}
    for path in ("/metrics", "/topology", "/v1/tables", "/healthz/", "//healthz", "/%68ealthz/../metrics"):
        page = guarded.get(path, **headers)
        assert page.status == 401
        assert page.headers["WWW-Authenticate"] == 'Bearer realm="eddy"'
        assert TOKEN not in page.text
    assert [guarded.get(path, **headers).status for path in PROBES] == [200, 200]


@every_page
def test_with_the_token_all_is_answered(guarded: Ward, path: str) -> None:
    for scheme in ("Bearer", "bearer"):
        assert guarded.get(path, Authorization=f"{scheme} {TOKEN}").status == 200


@pytest.mark.parametrize("path", PROBES)
def test_probe_tells_the_error_only_to_who_shows_the_token(guarded: Ward, log: LocalLog, path: str) -> None:
    produce(log, {"leaf": "twig"})
    try:
        with guarded.monitor.watching(guarded.worker):
            guarded.step()
            raise ValueError("key b'leaf'")
    except ValueError:
        pass
    told = {"state": "ERROR", "reason": "failed: ValueError"}
    assert guarded.get(path).json == told
    assert guarded.get(path, Authorization=f"Bearer {TOKEN}").json == told | {"error": "key b'leaf'"}


def test_request_that_names_this_machine_is_answered(ward: Ward) -> None:
    for host in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:8080"):
        assert ward.get("/metrics", Host=host).status == 200


@every_page
def test_request_under_another_name_is_refused(ward: Ward, path: str) -> None:
    for host in ("", "example.org", "localhost.example.org", "127.0.0.1.example.org", "localhost:", "::1"):
        assert ward.get(path, Host=host).status == 403


def test_name_does_not_matter_where_a_token_is_shown(guarded: Ward) -> None:
    assert guarded.get("/healthz", Host="10.0.0.1").status == 200
    assert guarded.get("/metrics", Host="10.0.0.1", Authorization=f"Bearer {TOKEN}").status == 200


def test_topology_is_told_in_four_forms(ward: Ward) -> None:
    text, mermaid = ward.topology.describe(), ward.topology.mermaid()
    found = ward.get("/topology").json
    assert (found["application"], found["text"], found["mermaid"]) == ("family", text, mermaid)
    assert found["picture"] == ward.get("/topology?format=svg").text == ward.topology.picture()
    assert [step["name"] for step in found["steps"]] == [node.name for node in ward.topology.plan.nodes]
    assert ward.get("/topology?format=text").text == text
    assert ward.get("/topology?format=mermaid").text == mermaid
    assert ward.get("/topology?format=xml").status == 400


def test_page_is_open_to_all_and_lets_nothing_in_from_elsewhere(guarded: Ward) -> None:
    for path in FILES:
        page = guarded.get(path)
        assert page.status == 200
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert "unsafe" not in page.headers["Content-Security-Policy"]
        assert guarded.get(path, **{"If-None-Match": page.headers["ETag"]}).status == 304


def test_page_and_client_are_small(ward: Ward) -> None:
    sizes = {}
    for path in FILES:
        if not path.endswith(".d.ts"):
            page, packed = ward.get(path), ward.get(path, **{"Accept-Encoding": "br, gzip"})
            assert packed.headers["Content-Encoding"] == "gzip"
            assert "Content-Encoding" not in page.headers
            assert gzip.decompress(packed.content).decode() == page.text
            assert packed.headers["ETag"] != page.headers["ETag"]
            sizes[path] = len(packed.content)
    assert sizes.pop("/dagre/dagre.js") <= 18_000  # loaded with the first picture
    assert sizes.pop("/client.js") <= 7_000  # which the page's script has, too
    assert sum(sizes.values()) <= 35_000


def code_of(script: Path) -> list[str]:
    """The lines of a script that are no comment, without `import` and `export`, which one script does not need."""
    lines = re.sub(r"^export |^import .*\n", "", script.read_text(), flags=re.MULTILINE).splitlines()
    return [line for line in lines if line and not re.match(r" *(?://|/\*\*| \*|\*/)", line)]


def test_the_scripts_of_the_page_are_one_without_comments(ward: Ward) -> None:
    scripts = sorted(Path(eddy.serve.page.__file__).parent.glob("*.js"))
    sent = ward.get("/page.js").text.splitlines()
    heads = [line for line in sent if re.match(r"const \$\w+ = \(\(\) => \{$", line)]
    assert len(heads) == len(scripts) > 5
    for script in scripts:
        begin = sent.index(f"const ${script.stem} = (() => {{")
        part = sent[begin + 1 : sent.index("})();", begin) - 1]
        assert [line for line in part if line and not re.match(r"const \{ .* \} = \$\w+;$", line)] == code_of(script)
    assert not re.search(r"^import |^export ", "\n".join(sent), re.MULTILINE)


def test_each_script_is_before_those_that_use_it(ward: Ward) -> None:
    made = set[str]()
    for line in ward.get("/page.js").text.splitlines():
        if used := re.match(r"const \{ .* \} = (\$\w+);$", line):
            assert used[1] in made, line
        elif end := re.match(r"const (\$\w+) = \(\(\) => \{$", line):
            made.add(end[1])
    assert len(made) > 5


def test_the_client_is_sent_as_it_is_written_without_its_comments(ward: Ward) -> None:
    code = ward.get("/client.js").text
    assert "export class Connection" in code
    written = (Path(eddy.serve.page.__file__).parent / "client.js").read_text().splitlines()
    lines = [line for line in written if line and not re.match(r" *(?://|/\*\*| \*|\*/)", line)]
    assert [line for line in code.splitlines() if line] == lines


def raw(port: int, request: bytes) -> bytes:
    """Send bytes and read until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(request)
        received = b""
        while part := connection.recv(65_536):
            received += part
        return received


def test_what_is_no_request_is_refused(ward: Ward) -> None:
    assert ward.monitor.port is not None
    assert raw(ward.monitor.port, b"\0\1\2\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert b" 403 " in raw(ward.monitor.port, b"GET /healthz HTTP/1.0\r\n\r\n")


def test_head_without_an_end_is_cut_off(ward: Ward) -> None:
    assert ward.monitor.port is not None
    with socket.create_connection(("127.0.0.1", ward.monitor.port), timeout=PATIENCE_S) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: ")
        with pytest.raises(ConnectionError):
            connection.sendall(b"x" * 100_000_000)


def test_connection_serves_one_request(ward: Ward) -> None:
    assert ward.monitor.port is not None
    asked = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert raw(ward.monitor.port, asked + asked).count(b"HTTP/1.1 200 OK") == 1


def test_of_too_many_connections_that_ask_nothing_the_first_is_cut_off(ward: Ward) -> None:
    assert ward.monitor.port is not None
    held = [socket.create_connection(("127.0.0.1", ward.monitor.port), timeout=PATIENCE_S) for _ in range(65)]
    with suppress(ConnectionResetError):
        assert held[0].recv(1) == b""
    assert ward.get("/healthz").status == 200
    for connection in held:
        connection.close()


def test_connection_that_asks_nothing_ends(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eddy.serve.http_server.ANSWER_S", 0.05)
    assert ward.monitor.port is not None
    with socket.create_connection(("127.0.0.1", ward.monitor.port), timeout=PATIENCE_S) as idle:
        idle.sendall(b"GET /healthz HT")
        with suppress(ConnectionResetError):
            assert idle.recv(1) == b""


def test_server_stops_within_a_second_also_with_an_open_connection() -> None:
    def attempt() -> float:
        with monitored(endpoint_of("0"), family()) as monitor:
            port = monitor.port
            assert port is not None
            ports.append(port)
            assert fetch(port, "/healthz").status == 200
            idle = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
            began = time.monotonic()
        took_s = time.monotonic() - began
        idle.close()
        return took_s

    ports: list[int] = []
    quickest(attempt, 1.0)
    assert "eddy-http" not in {thread.name for thread in threading.enumerate()}
    with closing(socket.socket()) as probe:
        assert probe.connect_ex(("127.0.0.1", ports[-1])) != 0


def test_an_error_of_our_own_shows_no_stack(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("eddy.serve.worker_pages.generate_latest", fail)
    page = ward.get("/metrics")
    assert (page.status, page.text) == (500, "Internal Server Error")


def test_many_readers_do_not_disturb_the_worker(ward: Ward, log: LocalLog) -> None:
    done = threading.Event()
    read: list[dict[str, str]] = []

    def browse() -> None:
        while not done.is_set():
            read.append(json.loads(ward.get("/readyz").text))
            ward.get("/metrics")

    readers = [threading.Thread(target=browse) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 31):
        produce(log, {f"n{number}": f"n{number // 2}"})
        ward.step()
    ward.settle()
    done.set()
    for reader in readers:
        reader.join()
    assert ward.worker.statistics.records == 30
    assert {answer["state"] for answer in read} <= {"CREATED", "RUNNING"}
