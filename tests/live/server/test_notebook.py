"""Live views in notebooks: as HTML that follows, and as frames."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import eddy
from eddy.live.server.notebook import html_of, keep_shown
from tests.tables.conftest import produce
from tests.waiting import PATIENCE_S, wait_for

folders = eddy.live_table("folders", key="id")


def children(folder: Any) -> eddy.Query:
    return folders.where(folders.parent == folder.id).nest(children=children)


tree = folders.where(folders.parent.is_null()).nest(children=children)


class Shelf:
    """Folders, in open tables."""

    def __init__(self, stack: ExitStack) -> None:
        self.log = eddy.open_log()
        stack.callback(self.log.close)
        topology = eddy.Topology("shelf")
        topology.table("folders", key=eddy.String, value=eddy.Json())
        eddy.create_topics(topology, self.log)
        stack.enter_context(eddy.run(topology, self.log))
        self.tables = stack.enter_context(eddy.open_tables(topology, self.log))

    def write(self, rows: dict[str, Any]) -> None:
        pairs = {key: json.dumps(row).encode() for key, row in rows.items()}
        self.at = produce(self.log, "folders", pairs)


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    with ExitStack() as stack:
        yield Shelf(stack)


def test_rows_are_tables_in_tables_and_never_markup(shelf: Shelf) -> None:
    shelf.write({"home": {"name": "<b>home</b>"}, "ada": {"name": "ada", "parent": "home"}})
    with shelf.tables.live(tree) as view:
        view.wait(shelf.at, exact=True)
        shown = view._repr_html_()
    assert shown.count("<table>") == 2
    assert "&lt;b&gt;home&lt;/b&gt;" in shown
    assert "<b>" not in shown
    assert shown.endswith("<small>exact</small></div>")
    assert "not open" in view._repr_html_()


def test_wide_tree_is_shown_in_part() -> None:
    rows: list[dict[str, Any]] = [{"id": f"{n}"} for n in range(120)]
    for _ in range(3):
        rows = [{"id": f"{n}", "below": rows} for n in range(120)]
    shown = html_of(rows, "exact")
    assert 1_000 <= shown.count("<tr>") < 1_200
    assert "… 20 more rows" in shown
    assert "… 120 rows" in shown


def test_frame_has_the_rows_and_their_columns(shelf: Shelf) -> None:
    shelf.write({"a": {"size": 1}, "b": {"size": 2}})
    with shelf.tables.live(folders.order_by(-folders.size)) as view, shelf.tables.live(folders.count()) as number:
        view.wait(shelf.at, exact=True)
        assert view.to_pandas().to_dict("records") == [{"id": "b", "size": 2}, {"id": "a", "size": 1}]
        assert number.to_pandas().to_dict("records") == [{"value": 2}]


@pytest.fixture
def cell() -> Iterator[list[str]]:
    """The HTML that a notebook's cell has shown, one after the other."""
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance()
    shown: list[str] = []
    publish = shell.display_pub.publish
    shell.display_pub.publish = lambda data, *args, **options: shown.append(data.get("text/html", ""))
    yield shown
    shell.display_pub.publish = publish
    type(shell).clear_instance()


def test_cell_follows_the_view_while_it_is_open(shelf: Shelf, cell: list[str]) -> None:
    with shelf.tables.live(folders) as view:
        view._ipython_display_()
        shelf.write({"new": {"name": "a new folder"}})
        wait_for(lambda: "a new folder" in cell[-1], PATIENCE_S, "the new row in the cell")


def test_cell_shows_the_error_that_has_ended_its_view(cell: list[str]) -> None:
    states = ["rows", "open"]
    keep_shown(lambda: states[0], lambda: "open" in states, lambda function: int, lambda: True)
    states[:] = ["live query: the server has stopped"]
    wait_for(lambda: cell == ["rows", "live query: the server has stopped"], PATIENCE_S, "the error in the cell")


def test_patch_that_comes_while_rows_are_drawn_is_shown_too(cell: list[str]) -> None:
    rows, told, is_open = ["first"], list[Callable[[Any], None]](), [True]

    def patch(row: str) -> None:
        rows.append(row)
        told[0](None)

    def drawn() -> str:
        now = rows[-1]
        if now == "second":
            patch("third")
        return now

    keep_shown(drawn, lambda: bool(is_open), lambda function: told.append(function) or told.clear)  # type: ignore[func-returns-value]
    assert cell == ["first"]
    patch("second")
    wait_for(lambda: cell[-1] == "third", PATIENCE_S, "the last row in the cell")
    is_open.clear()
    wait_for(lambda: not told, PATIENCE_S, "the end of listening")
    assert cell == ["first", "second", "third"]  # nothing is drawn again without a patch
