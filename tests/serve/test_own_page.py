"""A page of the user's own beside eddy's: which files are served, and to whom."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.errors import ConfigurationError
from eddy.serve.endpoint import endpoint_of
from eddy.serve.table_server import served
from tests.serve.conftest import fetch
from tests.topology.programs import family


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "own"
    (made / "parts").mkdir(parents=True)
    (made / "index.html").write_text("<h1>Ours</h1>")
    (made / "parts" / "list.js").write_text("export {};")
    (made / ".env").write_text("secret")
    (made / ".git").mkdir()
    (made / ".git" / "config").write_text("secret")
    (tmp_path / "outside.txt").write_text("secret")
    (made / "link.txt").symlink_to(tmp_path / "outside.txt")
    return made


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef")
    return file


@pytest.fixture
def port(log: LocalLog, folder: Path, token: Path) -> Iterator[int]:
    with eddy.run(family(), log), served(endpoint_of("0", token), family(), log, own_page=folder) as server:
        yield server.port


def test_its_files_are_open_to_all_and_nothing_else_is(port: int) -> None:
    for path, kind in (
        ("/page/", "text/html"),
        ("/page/index.html", "text/html"),
        ("/page/parts/list.js", "javascript"),
    ):
        page = fetch(port, path)
        assert page.status == 200, path
        assert kind in page.headers["Content-Type"]
    assert fetch(port, "/page/").text == "<h1>Ours</h1>"
    assert fetch(port, "/page").headers["Location"].endswith("/page/")
    hidden = ["/page/.env", "/page/.git/config", "/page/link.txt", "/page/../outside.txt", "/page/%2e%2e/outside.txt"]
    for path in [*hidden, "/page/nothing", "/page/parts/%2e%2e/%2e%2e/token", "/page//etc/passwd"]:
        page = fetch(port, path)
        assert (page.status, "secret" in page.text, "0123456789" in page.text) == (404, False, False), path
    assert fetch(port, "/page/index.html", "POST").status == 405
    assert fetch(port, "/v1/tables").status == 401
    assert fetch(port, "/pages").status == 401
    assert fetch(port, "/page.css").status == 200
    assert "<h1>Ours" not in fetch(port, "/").text


def test_a_folder_without_a_page_is_refused_and_nothing_listens(log: LocalLog, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    told = "it has no index.html; a folder with one is needed"
    with pytest.raises(ConfigurationError, match=told), served(endpoint_of("0"), family(), log, own_page=tmp_path):
        pass
    assert set(threading.enumerate()) <= before
