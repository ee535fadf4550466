"""The box for SQL on the page, in headless Chromium: completion, answers, errors at their place, live queries."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.client.axe import check_accessible
from tests.client.site import Site, folders_site
from tests.waiting import PATIENCE_S, wait_for

Visit = Callable[..., Any]


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        yield folders_site(stack)


@pytest.fixture
def page(visit: Visit, site: Site) -> Any:
    url = site.serve()
    site.write({"home": {"name": "home"}} | {f"f{n}": {"name": f"<b>{n}</b>", "parent": "home"} for n in range(12)})
    shown = visit(f"{url}#/", viewport={"width": 1280, "height": 800})
    shown.click("nav a:has-text('SQL')")
    shown.wait_for_selector("#sql")
    return shown


def completions(page: Any) -> list[str]:
    found: list[str] = page.locator("[role=option]").all_inner_texts()
    return found


def typed(page: Any, text: str) -> list[str]:
    """The completions after a text was typed."""
    page.keyboard.type(text)
    return completions(page)


def test_tables_columns_and_keywords_are_completed_by_keyboard(
    page: Any, screenshots: Callable[[Any, str], None]
) -> None:
    assert "folders (key text, name text, parent text)" in page.locator(".columns > .card").inner_text()
    page.focus("#sql")
    assert typed(page, "sel") == ["SELECT"]
    page.keyboard.press("Tab")
    assert page.input_value("#sql") == "SELECT"
    assert typed(page, " f.n, count(*) FROM fol") == ["folders"]
    page.keyboard.press("Tab")
    page.keyboard.type(" f")
    page.evaluate("document.querySelector('#sql').setSelectionRange(10, 10)")
    page.keyboard.press("Backspace")
    assert typed(page, "n") == ["name"]
    page.keyboard.press("Tab")
    page.keyboard.press("Control+End")
    assert set(typed(page, " GROUP BY f.")) == {"key", "name", "parent"}
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.get_attribute("#sql", "aria-activedescendant") == "completion-1"
    check_accessible(page)
    screenshots(page, "sql-completion")
    page.keyboard.press("Enter")
    page.keyboard.type(" ORDER BY 1")
    page.keyboard.press("Escape")
    assert completions(page) == []
    assert page.input_value("#sql") == "SELECT f.name, count(*) FROM folders f GROUP BY f.name ORDER BY 1"
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("text=13 rows; exact")
    assert page.locator("[aria-label=Answer] tbody tr").first.inner_text().split("\t") == ["<b>0</b>", "1"]
    check_accessible(page)
    screenshots(page, "sql")
    page.reload()
    page.wait_for_selector("text=13 rows; exact")


def test_error_is_shown_and_its_place_is_chosen(page: Any) -> None:
    page.fill("#sql", "SELECT name\nFROM folders WHERE sise > 3")
    page.click("text=Run")
    page.wait_for_selector(".error:has-text(\"line 2, column 20: no column 'sise'\")")
    script = "(box) => box.value.slice(box.selectionStart, box.selectionEnd)"
    assert page.locator("#sql").evaluate(script) == "sise"


def test_live_query_is_completed_and_followed(page: Any) -> None:
    page.focus("#sql")
    assert typed(page, "bel") == ["below("]
    page.keyboard.press("Tab")
    page.keyboard.type("parent='home')")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".number-now:has-text('12')")
    wait_for(lambda: page.url.endswith("#/queries/below?parent=home"), PATIENCE_S)


def chosen(page: Any) -> str:
    """The text that is chosen in the box."""
    script = "(box) => box.value.slice(box.selectionStart, box.selectionEnd)"
    return str(page.locator("#sql").evaluate(script))


def open_now(page: Any) -> list[str]:
    """The code of the queries that have clients."""
    found = page.request.get(page.url.split("#")[0] + "v1/open-queries").json()["queries"]
    return [each["text"] for each in found if each["clients"]]


def test_a_query_without_a_name_is_completed_opened_seen_live_and_closed(
    page: Any, site: Site, screenshots: Callable[[Any, str], None]
) -> None:
    page.focus("#sql")
    assert typed(page, "fol") == ["folders"]
    page.keyboard.press("Tab")
    assert "where(" in typed(page, ".wh")
    page.keyboard.press("Tab")
    assert typed(page, "folders.pa") == ["parent"]
    page.keyboard.press("Tab")
    page.keyboard.type(" == 'home')")
    assert "order_by(" in typed(page, ".or")
    page.keyboard.press("Tab")
    page.keyboard.type("folders.name)")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".dot.good:has-text('live')")
    page.wait_for_selector("text=12 rows at the top")
    page.wait_for_selector(".row:has-text('<b>0</b>')")
    site.write({"new": {"name": "a new one", "parent": "home"}})
    page.wait_for_selector(".row.marked:has-text('a new one')")
    check_accessible(page)
    screenshots(page, "live-text")
    assert open_now(page) == ["folders.where(folders.parent == 'home').order_by(folders.name)"]
    page.click("text=Close")
    page.wait_for_selector(".dot.bad:has-text('closed')")
    wait_for(lambda: not open_now(page), PATIENCE_S, "the end of the query")
    page.reload()
    page.wait_for_selector("text=13 rows at the top")
    page.click("nav a:has-text('Tables')")
    wait_for(lambda: not open_now(page), PATIENCE_S, "the end of the query of a page that was left")


def test_errors_of_a_query_without_a_name_are_shown_at_their_place(page: Any) -> None:
    page.fill("#sql", "folders\n  .where(folders.naem.lick('x'))")
    page.click("text=Run")
    page.wait_for_selector(".error:has-text('line 2, column 23: lick: folders.naem has no method of that name')")
    assert chosen(page) == "lick"
    page.fill("#sql", "fodlers.count()")
    page.click("text=Run")
    page.wait_for_selector(".error:has-text(\"line 1, column 1: 'fodlers': there is no such table\")")
    assert chosen(page) == "fodlers"
    page.fill("#sql", "folders.where(folders.parent == 'home').count()")
    page.click("text=Run")
    page.wait_for_selector(".number-now:has-text('12')")
    assert page.locator(".error").count() == 0
