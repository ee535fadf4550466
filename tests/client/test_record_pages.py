"""Dead letters and the records of rows on the page, in headless Chromium."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import eddy
from eddy.serve.endpoint import endpoint_of
from eddy.serve.table_server import served
from tests.client.axe import check_accessible
from tests.waiting import PATIENCE_S, wait_for

Visit = Callable[..., Any]
TIME_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    """A table of numbers, of whose records many are not numbers."""
    topology = eddy.Topology("shop")
    topology.table("items", key=eddy.String, value=eddy.Int64)
    log = eddy.open_log()
    eddy.create_topics(topology, log)
    with ExitStack() as stack:
        stack.callback(log.close)
        stack.enter_context(eddy.run(topology, log, eddy.Config(on_error="dead-letter")))
        server = stack.enter_context(served(endpoint_of("0"), topology, log))
        bad = {f"bad{number:02}": b"<b>no number</b>" for number in range(60)}
        log.write("items", bad, value=eddy.Bytes, timestamp_ms=TIME_MS)
        ends = log.write("items", {"good": 7}, value=eddy.Int64, timestamp_ms=TIME_MS, headers=[("from", b"till 3")])
        server.tables.wait(ends, exact=True, timeout_s=PATIENCE_S)
        yield f"http://127.0.0.1:{server.port}/"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dead_letters_are_shown_with_their_contents(
    visit: Visit, shop: str, scheme: str, screenshots: Callable[[Any, str], None]
) -> None:
    page = visit(shop, color_scheme=scheme)
    page.wait_for_selector(".node.chosen")
    page.click("nav a:has-text('Dead letters')")
    page.wait_for_selector("text=50 shown.")
    first = page.locator("section.card").first
    assert "int64" in first.locator(".error").inner_text()
    first.locator("summary").click()
    assert first.locator("summary").inner_text() == (
        "2023-11-14 22:13:20.000 UTC · items partition 0 offset 59 · key bad59"
    )
    assert first.locator("pre").all_inner_texts() == ["bad59", "<b>no number</b>"]
    check_accessible(page)
    screenshots(page, f"letters-{scheme}")
    page.click("text=Earlier ones")
    page.wait_for_selector("text=60 shown, which is all")
    assert page.locator("section.card").count() == 60


def test_a_row_has_its_record(visit: Visit, shop: str) -> None:
    page = visit(f"{shop}#/tables/items")
    page.click(".row:has-text('good')")
    page.get_by_role("button", name="Its record").click()
    page.wait_for_selector(".record dd:has-text('till 3')")
    shown = page.locator(".record dl").inner_text()
    for text in ("2023-11-14 22:13:20.000 UTC", "items", "from"):
        assert text in shown
    wait_for(lambda: page.locator(".record pre").first.inner_text() == "good", PATIENCE_S)
    check_accessible(page)
