"""Tables over HTTP: answers, pages, streams, versions, and requests that make no sense or take too much."""

import contextlib
import http.client
import json
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import eddy
from eddy.connectors.local import LocalLog
from eddy.live.streams.limits import Limits
from eddy.serve import table_pages as http_module
from eddy.serve.endpoint import Endpoint, endpoint_of
from eddy.serve.http_server import HttpServer
from eddy.serve.table_pages import tables_app
from eddy.serve.table_server import Served, served
from tests.serve.conftest import Page, fetch
from tests.tables.conftest import produce
from tests.tables.topologies import people
from tests.waiting import PATIENCE_S, wait_for


@dataclass
class Site:
    log: LocalLog
    name: str
    server: Served

    def get(self, path: str, headers: dict[str, str] | None = None, **query: object) -> Page:
        return fetch(self.server.port, path + ("?" + urlencode(query) if query else ""), headers=headers)

    def error(self, path: str, **query: object) -> tuple[int, str]:
        page = self.get(path, **query)
        return page.status, page.json["code"]

    def write(self, rows: Any) -> str:
        written = produce(self.log, f"{self.name}-people", rows)
        return self.server.tables.wait(written, exact=True, timeout_s=PATIENCE_S).token


@pytest.fixture
def site(local: LocalLog, name: str) -> Iterator[Site]:
    topology = people(name)
    eddy.create_topics(topology, local)
    with eddy.run(topology, local), served(endpoint_of("0"), topology, local) as server:
        server.tables.wait(timeout_s=PATIENCE_S)
        yield Site(local, name, server)


def test_rows_and_tables_are_answered_with_their_version(site: Site) -> None:
    token = site.write({"a/b": b"ada", "ä": b"bob"})
    tables = site.get("/v1/tables", at_least=token)
    assert [(t["name"], t["kind"], t["rows"]) for t in tables.json["tables"]] == [
        ("people", "source", 2),
        ("counts", "state", 2),
        (f"{site.name}-twice", "output", 2),
    ]
    row = site.get("/v1/tables/people/a/b")
    assert (row.status, row.json["key"], row.json["value"], row.json["exact"]) == (200, "a/b", "ada", True)
    assert site.get(f"/v1/tables/people/{quote('ä')}", at_least=row.json["version"]).json["value"] == "bob"
    assert site.get("/v1/tables/counts/ada").json["value"] == 1
    assert site.get("/v1/tables/people/x").status == 404
    tag = row.headers["ETag"]
    assert site.get("/v1/tables/people/a/b", {"If-None-Match": tag}).status == 304
    site.write({"a/b": b"eve"})
    again = site.get("/v1/tables/people/a/b", {"If-None-Match": tag})
    assert (again.status, again.json["value"]) == (200, "eve")


def test_pages_follow_one_another_and_a_stream_is_of_one_version(site: Site) -> None:
    keys = [f"k{n:04}" for n in range(2_500)]
    site.write(dict.fromkeys(keys, b"x"))
    found, after = [], {}
    while True:
        page = site.get("/v1/tables/people", limit=700, **after).json
        found += [row["key"] for row in page["rows"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert found == keys
    ranged = site.get("/v1/tables/people", **{"from": "k0010", "to": "k0013"}).json["rows"]
    assert [row["key"] for row in ranged] == ["k0010", "k0011", "k0012"]
    assert len(site.get("/v1/tables/people", prefix="k12").json["rows"]) == 100
    lines = site.get("/v1/tables/people", {"Accept": "application/x-ndjson"}).text.splitlines()
    assert json.loads(lines[0])["exact"] is True
    assert [json.loads(line)["key"] for line in lines[1:-1]] == keys
    assert json.loads(lines[-1]) == {"end": True}


def test_requests_that_make_no_sense_are_refused(site: Site) -> None:
    assert site.error("/v1/tables/nothing") == (404, "QUERY_TABLE")
    assert site.error("/v1/tables/nothing/key") == (404, "QUERY_TABLE")
    assert site.error("/v1/tables/people", limit="many") == (400, "QUERY")
    assert site.error("/v1/tables/people", limit="-1") == (400, "QUERY")
    assert site.error("/v1/tables/people", at_least="no version") == (400, "QUERY")
    assert site.error("/v1/tables/counts", prefix="5") == (400, "QUERY"), "a number is not a prefix"
    lines = {"Accept": "application/x-ndjson"}
    assert fetch(site.server.port, "/v1/tables/counts?prefix=5", headers=lines).status == 400
    version = site.server.tables.version
    later = eddy.Version({t: [o + 9 for o in at] for t, at in version.offsets.items()}, version.inputs, True)
    assert site.error("/v1/tables/people", at_least=later.token, wait=0) == (503, "QUERY_NOT_READY")
    assert fetch(site.server.port, "/v1/tables", "POST").status == 405
    assert fetch(site.server.port, "/v1/tables", headers={"Host": "elsewhere.example"}).status == 403


@pytest.mark.slow
def test_ten_megabytes_of_query_string_and_clients_that_read_nothing_disturb_nobody(site: Site) -> None:
    site.write({f"k{n:06}": b"x" * 100 for n in range(20_000)})
    with (
        contextlib.suppress(OSError),
        contextlib.closing(socket.create_connection(("127.0.0.1", site.server.port))) as s,
    ):
        s.settimeout(PATIENCE_S)
        s.sendall(b"GET /v1/tables?x=" + b"x" * 10_000_000)
        assert b" 400 " in s.recv(100)
    head = b"GET /v1/tables/people HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n\r\n"
    idle = [socket.create_connection(("127.0.0.1", site.server.port)) for _ in range(20)]
    for connection in idle:
        connection.sendall(head)
    for n in range(20):
        site.write({f"k{n:06}": b"new"})
        assert site.get(f"/v1/tables/people/k{n:06}").json["value"] == "new"
    for connection in idle:
        connection.close()


def test_a_page_and_a_stream_have_an_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.write({f"k{n:05}": b"x" * 1_000 for n in range(12_000)})
    page = site.get("/v1/tables/people", limit=1_000_000).json
    assert (len(page["rows"]), page["next"]) == (10_000, "k09999")
    monkeypatch.setattr(http_module, "MAX_PAGE_BYTES", 100_000)
    page = site.get("/v1/tables/people", limit=5_000).json
    assert 90 <= len(page["rows"]) <= 110
    assert site.get("/v1/tables/people", after=page["next"]).json["rows"][0]["key"] == f"k{len(page['rows']):05}"
    monkeypatch.setattr(http_module, "MAX_STREAM_S", 0.0)
    lines = site.get("/v1/tables/people", {"Accept": "application/x-ndjson"}).text.splitlines()
    assert "not read within 0 s" in json.loads(lines[-1])["error"]
    monkeypatch.setattr(http_module, "MAX_WAIT_S", 0.0)
    later = eddy.Version({f"{site.name}-twice": [1_000_000]}, {}, True).token
    assert site.error("/v1/tables/people", at_least=later, wait=1_000) == (503, "QUERY_NOT_READY")


def test_connections_that_ask_nothing_shut_nobody_out(local: LocalLog, name: str) -> None:
    topology = people(name)
    eddy.create_topics(topology, local)
    limits = Limits(requests=2, connections=1)
    with eddy.run(topology, local), served(endpoint_of("0"), topology, local, limits=limits) as server:
        kept = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) for _ in range(20)]
        assert fetch(server.port, "/healthz").status == 200
        assert fetch(server.port, "/metrics").status == 200
        for connection in kept:
            connection.close()


def test_tables_are_served_with_tls(local: LocalLog, name: str, tmp_path: Path) -> None:
    topology, key, certificate = people(name), tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-days", "1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    eddy.create_topics(topology, local)
    with eddy.run(topology, local), served(endpoint_of("0"), topology, local, tls=(certificate, key)) as server:
        trust = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=PATIENCE_S, context=trust)
        with contextlib.closing(connection):
            for _ in range(2):
                connection.request("GET", "/healthz")
                assert json.loads(connection.getresponse().read()) == {"ok": True, "reason": ""}
    with (
        pytest.raises(eddy.ConfigurationError, match=r"certificate '.*key\.pem' .* cannot be used"),
        served(endpoint_of("0"), topology, local, tls=(key, key)),
    ):
        pass


def test_health_readiness_and_figures(site: Site) -> None:
    assert site.get("/healthz").json == {"ok": True, "reason": ""}
    assert site.get("/readyz").json == {"ready": True, "reason": ""}
    text = site.get("/metrics").text
    assert 'eddy_views_rows{table="people"} 0.0' in text
    assert "eddy_views_exact 1.0" in text
    assert "eddy_views_pending_records 0.0" in text
    site.write({"a": b"ada"})

    def told(wanted: str) -> bool:
        return wanted in site.get("/metrics").text

    wait_for(lambda: told('eddy_views_lag_offsets{table="people"} 0.0'), PATIENCE_S, "a look at the ends")
    assert told('eddy_views_rows{table="counts"} 1.0')
    figures = dict(re.findall(r"^eddy_views_(\w+) (\S+)$", site.get("/metrics").text, re.MULTILINE))
    assert float(figures["records_total"]) >= 3
    assert float(figures["bytes_total"]) > 0
    assert 1 <= float(figures["exact_versions_total"]) <= float(figures["versions_total"])
    assert float(figures["version_age_seconds"]) >= 0
    site.server.tables.rows.say("catching up")
    assert site.get("/readyz").status == 503
    assert site.error("/v1/tables") == (503, "QUERY_NOT_READY")


def test_a_connection_serves_many_requests(site: Site) -> None:
    site.write({"a": b"ada"})
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", site.server.port, timeout=PATIENCE_S)
    ) as connection:
        for _ in range(50):
            connection.request("GET", "/v1/tables/people/a")
            assert json.loads(connection.getresponse().read())["value"] == "ada"


def test_a_browser_asks_for_leave_without_the_token(local: LocalLog, name: str) -> None:
    topology = people(name)
    eddy.create_topics(topology, local)
    endpoint, page = Endpoint("127.0.0.1", 0, b"0123456789abcdef"), "https://app.example"
    asks = {"Origin": page, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    with served(endpoint, topology, local, cors=[page]) as server:
        leave = fetch(server.port, "/v1/tables", "OPTIONS", asks)
        assert (leave.status, leave.headers["Access-Control-Allow-Origin"]) == (200, page)
        assert fetch(server.port, "/v1/tables", headers={"Origin": page}).status == 401
        shown = {"Origin": page, "Authorization": "Bearer 0123456789abcdef"}
        assert fetch(server.port, "/v1/tables", headers=shown).headers["Access-Control-Allow-Origin"] == page


def test_a_token_is_asked_for_and_tables_can_be_withheld(local: LocalLog, name: str) -> None:
    topology = people(name)
    eddy.create_topics(topology, local)
    endpoint = Endpoint("127.0.0.1", 0, b"0123456789abcdef")
    with eddy.run(topology, local), served(endpoint, topology, local) as server:
        assert fetch(server.port, "/v1/tables").status == 401
        assert fetch(server.port, "/healthz").status == 200
        server.tables.wait(produce(local, f"{name}-people", {"a": b"ada", "b": b"bob"}), timeout_s=PATIENCE_S)
        shown = {"Authorization": "Bearer 0123456789abcdef"}
        assert fetch(server.port, "/v1/tables", headers=shown).status == 200

        def authorize(request: object, table: str) -> Any:
            return (lambda key, value: key != "b") if table == "people" else False

        app = Starlette(routes=[Mount("/tables", tables_app(server.tables, authorize))])
        listener = socket.create_server(("127.0.0.1", 0))
        mounted = HttpServer(app, listener)
        mounted.start()
        port = listener.getsockname()[1]
        assert [t["name"] for t in fetch(port, "/tables/v1/tables").json["tables"]] == ["people"]
        assert [row["key"] for row in fetch(port, "/tables/v1/tables/people").json["rows"]] == ["a"]
        assert fetch(port, "/tables/v1/tables/people/b").status == 404
        assert fetch(port, "/tables/v1/tables/counts").status == 403
        mounted.stop()
