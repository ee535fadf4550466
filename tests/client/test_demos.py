"""The demonstrations of live trees."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

import eddy
from tests.client.axe import check_accessible
from tests.client.node import ROOT
from tests.client.site import Site
from tests.serve.conftest import fetch
from tests.tables.conftest import produce
from tests.waiting import PATIENCE_S, wait_for

MEMBERS = ("ann", "cid", "staff", "board")


def named(rows: list[dict[str, Any]], nest: str) -> list[Any]:
    """The ids of rows with those below them in a nest."""
    return [(row["id"], named(row[nest], nest)) if row.get(nest) else row["id"] for row in rows]


def test_permissions_go_through_groups_in_a_cycle_and_end_when_they_are_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    import permissions

    sys.modules.pop("permissions")
    with ExitStack() as stack:
        log = eddy.open_log()
        stack.callback(log.close)
        eddy.create_topics(permissions.topology, log)
        stack.enter_context(eddy.run(permissions.topology, log))
        tables = stack.enter_context(eddy.open_tables(permissions.topology, log))
        inside = {"1": ("ann", "staff"), "2": ("staff", "board"), "3": ("board", "staff"), "4": ("cid", "board")}
        folders = {"home": None, "news": "home", "drafts": "news"}
        write(log, "members", {each: {"name": each} for each in MEMBERS})
        write(log, "memberships", {key: {"member": one, "group": group} for key, (one, group) in inside.items()})
        write(log, "folders", {key: {"name": key, "parent": parent} for key, parent in folders.items()})
        tables.wait(write(log, "grants", {"g": {"member": "staff", "folder": "news"}}), exact=True)
        who = stack.enter_context(tables.live(permissions.who_may_open("drafts")))
        may = stack.enter_context(tables.live(permissions.what_may_open("cid")))
        (drafts,) = who.rows
        assert drafts["granted"] == []
        (news,) = drafts["above"]
        assert named(news["granted"], "people") == [("staff", ["ann", ("board", ["cid", "staff"])])]
        (cid,) = may.rows
        (board,) = cid["groups"]
        (staff,) = board["groups"]
        assert named(staff["opens"], "below") == [("news", ["drafts"])]
        who.wait(write(log, "grants", {"g": None}), exact=True)
        assert who.rows[0]["above"][0]["granted"] == []
        assert may.rows[0]["groups"][0]["groups"][0]["opens"] == []


ROWS = """rows => rows.sort((one, other) => one.dataset.index - other.dataset.index)
    .map(row => `${row.ariaLevel} ${[...row.children].slice(1).map(cell => cell.textContent).join(" ")}`)"""


def test_nouns_that_move_are_marked_and_name_their_record(
    visit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, screenshots: Callable[[Any, str], None]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    import live_nouns

    sys.modules.pop("live_nouns")
    with ExitStack() as stack:
        site = Site(stack, live_nouns.topology, live_nouns.queries)
        url = site.serve()
        parents = {"entity": None, "thing": "entity", "idea": "entity", "cup": "thing", "plan": "idea", "art": "idea"}
        nouns = {noun: {"name": noun, "parent": parent} for noun, parent in parents.items()}
        site.write(nouns)
        site.write({"art": {"name": "art", "parent": "thing"}})
        site.write({"art": {"name": "fine art", "parent": "thing"}})  # a new name is no move
        site.write({"thing": {"name": "thing", "parent": "idea"}})
        site.write({"thing": {"name": "thing", "parent": "entity"}})
        page = visit(f"{url}#/queries/fastest?open-levels=2")
        shown = lambda: page.locator(".row").evaluate_all(ROWS)  # noqa: E731
        thing = "id: thing · descendants: 2 · moves: 2 · moved: from idea, by record nouns-0@13"
        expected = [
            f"1 thing 2 {thing}",
            "2 fine art id: art · descendants: 0 · moved: from idea, by record nouns-0@7",
            "2 cup id: cup · descendants: 0 · moved: never",
            "1 fine art id: art · descendants: 0 · moves: 1 · moved: from idea, by record nouns-0@7",
        ]
        wait_for(lambda: shown() == expected, PATIENCE_S, shown)
        assert page.locator(".row.marked").count() == 0
        site.write({"plan": {"name": "plan", "parent": "cup"}})
        marked = lambda: page.locator(".row.marked").evaluate_all(ROWS)  # noqa: E731
        expected = [
            f"1 thing 2 {thing.replace('2', '3', 1)} changed",
            "2 cup 1 id: cup · descendants: 1 · moved: never changed",
            "3 plan id: plan · descendants: 0 · moved: from idea, by record nouns-0@15 new",
            "1 plan id: plan · descendants: 0 · moves: 1 · moved: from idea, by record nouns-0@15 new",
        ]
        wait_for(lambda: marked() == expected, PATIENCE_S, marked)
        check_accessible(page)
        screenshots(page, "nouns")
        wait_for(lambda: page.locator(".row.marked").count() == 0, PATIENCE_S)
        page.goto(f"{url}#/queries/tree?open-levels=9")
        page.wait_for_selector(".row:has-text('plan')")
        site.write({"plan": {"name": "plan", "parent": "thing"}})
        page.wait_for_selector(".row.marked:has-text('plan'):has-text('moved here'):has-text('from cup')")


def write(log: Any, topic: str, rows: dict[str, Any]) -> dict[str, dict[int, int]]:
    return produce(log, topic, {key: None if row is None else json.dumps(row).encode() for key, row in rows.items()})


@pytest.mark.long
def test_demo_serves_two_pages_until_it_is_stopped() -> None:
    command = [sys.executable, str(ROOT / "examples" / "demo_live.py"), "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stdout is not None
        ports = [int(re.findall(r"localhost:(\d+)", demo.stdout.readline())[0]) for _ in range(4)]
        assert fetch(ports[0], "/v1/queries").json["queries"][0]["name"] == "tree"
        assert ports[0] == ports[1]
        wait_for(lambda: fetch(ports[0], "/v1/queries/fastest").json["rows"], PATIENCE_S, "a noun that moves")
        assert {query["name"] for query in fetch(ports[2], "/v1/queries").json["queries"]} == {
            "who_may_open",
            "what_may_open",
        }
        assert ports[2] == ports[3]
        opens = "/v1/queries/what_may_open?member=cid"
        before = fetch(ports[2], opens).json["rows"]
        wait_for(lambda: fetch(ports[2], opens).json["rows"] != before, PATIENCE_S, "a grant that comes or goes")
        demo.send_signal(signal.SIGINT)
        assert demo.wait(PATIENCE_S) == 0
