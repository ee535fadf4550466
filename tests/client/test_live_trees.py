"""Live trees in the JavaScript client: on Node through broken connections, and on the page."""

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.client.axe import check_accessible
from tests.client.node import NODE, ROOT, needed
from tests.client.proxy import Proxy
from tests.client.site import Site, folders_site, tree
from tests.waiting import PATIENCE_S, wait_for

Visit = Callable[..., Any]


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        yield folders_site(stack)


def storm(site: Site, proxy: Proxy, changes: int) -> None:
    """Insert, rename, move and delete folders in transactions of any size, and cut the connection three times."""
    draw = random.Random(changes)
    cuts = {changes // 4, changes // 2, 3 * changes // 4}
    done = 0
    while done < changes:
        size = min(draw.choice([1, 3, 40]), changes - done)
        rows: dict[str, Any] = {}
        for _ in range(size):
            name = f"f{draw.randrange(200)}"
            parent = f"f{draw.randrange(200)}" if draw.random() < 0.9 else None
            rows[name] = None if draw.random() < 0.15 else {"name": f"{draw.randrange(50)}", "parent": parent}
        site.write(rows)
        if any(done < cut <= done + size for cut in cuts):
            proxy.cut()
        done += size


def follow_a_storm(site: Site, changes: int) -> None:
    site.serve()
    site.write({f"f{number}": {"name": f"{number}", "parent": None} for number in range(20)})
    proxy = Proxy(site.port)
    script = str(ROOT / "tests/client/node_view.mjs")
    command = [needed(NODE, "node", "nodejs"), script, f"http://127.0.0.1:{proxy.port}", "tree"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        assert node.stdout.readline() == "ready\n"
        storm(site, proxy, changes)
        site.write({"last": {"name": "the last one", "parent": None}})
        node.stdin.write("the last one\n")
        node.stdin.close()
        found = json.loads(node.stdout.readline())
        assert node.wait(PATIENCE_S) == 0
    proxy.close()
    assert found["rows"] == json.loads(json.dumps(site.tables.read(tree())))
    assert found["offline"] >= 1


def test_view_is_the_servers_after_a_storm_and_three_cuts(site: Site) -> None:
    follow_a_storm(site, 400)


@pytest.mark.long
def test_view_is_the_servers_after_a_storm_of_ten_thousand_changes_and_three_cuts(site: Site) -> None:
    follow_a_storm(site, 10_000)


def shown(page: Any) -> list[str]:
    """The rows in view: their level and title."""
    script = """rows => rows.sort((one, other) => one.dataset.index - other.dataset.index).map(row =>
        `${row.ariaLevel} ${row.querySelector("span:not(.twist)").textContent}`)"""
    found: list[str] = page.locator(".row").evaluate_all(script)
    return found


def test_tree_expands_by_keyboard_and_follows_moves(
    visit: Visit, site: Site, screenshots: Callable[[Any, str], None]
) -> None:
    url = site.serve()
    site.write(
        {
            "home": {"name": "home", "nestName": "of a row, not of the page"},
            "ada": {"name": "ada", "parent": "home"},
            "bob": {"name": "bob", "parent": "home"},
            "music": {"name": "music", "parent": "ada"},
            "jazz": {"name": "<b>jazz</b>", "parent": "music"},
        }
    )
    page = visit(f"{url}#/queries")
    page.click("section:has-text('All folders') button")
    page.wait_for_selector(".row")
    page.locator(".list").focus()
    keys = [("ArrowRight", 3), ("ArrowDown", 3), ("ArrowRight", 4), ("ArrowDown", 4), ("ArrowRight", 5)]
    for key, rows in keys:
        page.keyboard.press(key)
        wait_for(lambda rows=rows: len(shown(page)) == rows, PATIENCE_S, lambda: shown(page))
    expected = ["1 home", "2 ada", "3 music", "4 <b>jazz</b>", "2 bob"]
    wait_for(lambda: shown(page) == expected, PATIENCE_S, lambda: shown(page))
    site.write({"music": {"name": "music", "parent": "bob"}})
    wait_for(lambda: shown(page) == ["1 home", "2 ada", "2 bob"], PATIENCE_S, lambda: shown(page))
    screenshots(page, "tree")
    site.serving.close()
    page.wait_for_selector("text=away; trying again")
    assert shown(page) == ["1 home", "2 ada", "2 bob"]
    site.serve()
    page.wait_for_selector(".dot.good:has-text('live')")
    site.write({"eve": {"name": "eve", "parent": "home"}})
    page.wait_for_selector(".row:has-text('eve')")


def test_open_queries_are_listed_with_what_they_cost(
    visit: Visit, site: Site, screenshots: Callable[[Any, str], None]
) -> None:
    url = site.serve()
    site.write({"home": {"name": "home"}, "ada": {"name": "ada", "parent": "home"}})
    page = visit(f"{url}#/queries")
    page.wait_for_selector("text=No live query is open.")
    other = visit(f"{url}#/queries/tree?")
    other.wait_for_selector(".row")
    found = page.locator("[aria-label='Open queries'] tbody td")
    opened = [f"tree\n{tree()!r}", "1", "2"]  # a client, and both rows
    wait_for(lambda: found.all_inner_texts()[:3] == opened, PATIENCE_S, found.all_inner_texts)
    cells = found.all_inner_texts()[1:]
    assert [cell.split(" ")[1] in {"KiB", "ms", "s"} for cell in cells[2:]] == [True, True, True]
    check_accessible(page)
    screenshots(page, "open-queries")
    other.goto(f"{url}#/tables")
    page.wait_for_selector("[aria-label='Open queries'] td:has-text('none now')")


def wide(visit: Visit, site: Site, count: int) -> None:
    url = site.serve()
    site.write({"home": {"name": "home"}})
    site.write({f"n{number:06}": {"name": f"n{number:06}", "parent": "home"} for number in range(count)})
    page = visit(f"{url}#/queries/tree?")
    page.wait_for_selector(".row")
    page.locator(".list").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".row:has-text('n000003')")
    page.keyboard.press("End")
    page.wait_for_selector(f".row.at:has-text('n{count - 1:06}')")
    assert page.locator(".row").count() < 60
    site.write({f"n{count - 1:06}": None})
    page.wait_for_selector(f".row.at:has-text('n{count - 2:06}')")


def test_node_with_many_children_has_the_rows_in_view_alone(visit: Visit, site: Site) -> None:
    wide(visit, site, 2_000)


@pytest.mark.long
def test_node_with_100_000_children_has_the_rows_in_view_alone(visit: Visit, site: Site) -> None:
    wide(visit, site, 100_000)


def test_value_and_refusal_are_shown(visit: Visit, site: Site) -> None:
    url = site.serve()
    site.write({"home": {"name": "home"}, "ada": {"name": "ada", "parent": "home"}})
    page = visit(f"{url}#/queries/below?parent=home")
    page.wait_for_selector(".number-now:has-text('1')")
    site.write({"bob": {"name": "bob", "parent": "home"}})
    page.wait_for_selector(".number-now:has-text('2')")
    page.goto(f"{url}#/queries/secret?")
    page.wait_for_selector(".error:has-text('nowhere')")
    page.goto(f"{url}#/queries/nothing?")
    page.wait_for_selector(".error:has-text(\"no query 'nothing'\")")
