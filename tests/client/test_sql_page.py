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
def page(visit: Visit) -> Iterator[Any]:
    with ExitStack() as stack:
        site: Site = folders_site(stack)
        url = site.serve()
        site.write({"home": {"name": "home"}} | {f"f{n}": {"name": f"<b>{n}</b>", "parent": "home"} for n in range(12)})
        shown = visit(f"{url}#/", viewport={"width": 1280, "height": 800})
        shown.click("nav a:has-text('SQL')")
        shown.wait_for_selector("#sql")
        yield shown


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
