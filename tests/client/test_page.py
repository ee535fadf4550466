"""The page in headless Chromium: by keyboard and on a phone, with long tables, markup, and a server that is away."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import eddy
import eddy.serve.page
from tests.client.axe import check_accessible
from tests.client.node import run_node
from tests.client.proxy import Proxy
from tests.client.site import Site, folders_site
from tests.topology.programs import family
from tests.waiting import PATIENCE_S, quickest, wait_for

Visit = Callable[..., Any]
MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(stack, family())


def focused(page: Any) -> str:
    return page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")


def tab_to(page: Any, name: str) -> None:
    for _ in range(40):
        if focused(page) == name:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{name} is not reached by Tab")


def test_topology_and_tables_are_reached_by_keyboard_alone(
    visit: Visit, site: Site, screenshots: Callable[[Any, str], None]
) -> None:
    url = site.serve()
    site.write({f"n{number:04}": f"n{number // 3:04}" for number in range(1, 1_500)} | {MARKUP: "<b>bold</b>"})
    page = visit(url, viewport={"width": 1280, "height": 800})
    page.wait_for_selector(".node.chosen")
    tab_to(page, "recursion ancestors")
    page.keyboard.press("Enter")
    page.wait_for_selector('dd:has-text("waves, since op is linear")')
    assert page.locator("path.back").count() == 1
    screenshots(page, "topology")
    page.keyboard.press("Shift+Tab")
    page.reload()
    page.wait_for_selector(".node.chosen")
    tab_to(page, "Tables")
    page.keyboard.press("Enter")
    page.wait_for_selector("td a")
    screenshots(page, "tables")
    tab_to(page, "nodes")
    page.keyboard.press("Enter")
    page.wait_for_selector(".row .key")
    tab_to(page, "Rows of nodes")
    assert page.locator(".row").first.inner_text().split("\n") == [MARKUP, "<b>bold</b>"]
    assert page.locator(".row").count() < 60  # of 1,500: only those in view
    while "n1499" not in (at := page.locator(".row.at").inner_text()):
        page.keyboard.press("End")
        wait_for(lambda: page.locator(".row.at").inner_text() not in {at, "…"}, PATIENCE_S)
    assert page.locator(".row").count() < 60
    page.keyboard.press("Enter")
    page.wait_for_selector('pre:has-text("n1499")')
    tab_to(page, "Rows of nodes")
    page.keyboard.press("Shift+Tab")
    page.keyboard.type("n123")
    wait_for(lambda: page.locator(".row").count() == 10, PATIENCE_S)
    screenshots(page, "table")


def test_rows_follow_the_table(visit: Visit, site: Site) -> None:
    url = site.serve()
    site.write({"a": "b"})
    page = visit(f"{url}#/tables/descendants")
    page.wait_for_selector(".row:has-text('b')")
    site.write({"c": "b", "d": "c"})
    page.wait_for_selector(".row:has-text('3')")
    assert page.locator(".row").all_inner_texts() == ["b\n3", "c\n1"]


LOOK = """() => {
    globalThis.untrue = [];
    const look = () => {
        const said = document.querySelector(".bar > span")?.textContent ?? "";
        const told = /([\\d,]+) found|the first ([\\d,]+)|([\\d,]+) rows?$/.exec(said)?.slice(1).find(Boolean) ?? "0";
        const shown = document.querySelectorAll(".list .row .key").length;
        if ((told !== "0") !== (shown > 0)) untrue.push(`${said}: ${shown} are shown`);
    };
    new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""


def test_rows_and_what_is_said_of_them_are_drawn_together(visit: Visit, site: Site) -> None:
    url = site.serve()
    site.write({f"n{number:02}": "home" for number in range(12)} | {"x": "away"})
    page = visit(f"{url}#/tables")
    page.wait_for_selector("td a")
    page.evaluate(LOOK)
    page.click("td a:has-text('nodes')")
    page.wait_for_selector(".bar:has-text('13 rows')")
    page.fill("#text", "away")
    page.keyboard.press("Enter")
    page.wait_for_selector(".bar:has-text('1 found')")
    page.select_option("#order", "value")
    page.wait_for_selector(".bar:has-text('the first 1 by value')")
    page.fill("#text", "nowhere")
    page.keyboard.press("Enter")
    page.wait_for_selector(".bar:has-text('the first 0 by value')")
    page.fill("#key", "n05")
    page.keyboard.press("Enter")
    page.wait_for_selector(".row.at:has-text('n05')")
    page.fill("#search", "n1")
    page.wait_for_selector(".bar:has-text('2 rows')")
    site.write({"n10": None, "n11": None})
    page.wait_for_selector(".bar:has-text('No key begins like this')")
    site.write({"n12": "home"})
    page.wait_for_selector(".bar:has-text('1 row')")
    assert page.evaluate("untrue") == []


ORDER = """() => {
    globalThis.order = [];
    const ask = fetch;
    globalThis.fetch = (url, ...rest) => (order.push(url), ask(url, ...rest));
    for (const name of ["scrollTop", "clientHeight"]) {
        const { get, set } = Object.getOwnPropertyDescriptor(Element.prototype, name);
        const read = function () { return order.push(name), get.call(this); };
        Object.defineProperty(Element.prototype, name, { get: read, set, configurable: true });
    }
}"""


def test_rows_are_asked_for_before_the_page_is_laid_out(visit: Visit, site: Site) -> None:
    """Reading these sizes of an element lays the page out."""
    url = site.serve()
    site.write({"a": "b"})
    page = visit(f"{url}#/tables")
    page.wait_for_selector("td a")
    page.evaluate(ORDER)
    page.click("td a:has-text('nodes')")
    page.wait_for_selector(".row:has-text('b')")
    order = page.evaluate("order")
    first = next(place for place, each in enumerate(order) if "/v1/tables/nodes?" in each)
    assert {"scrollTop", "clientHeight"} <= set(order)
    assert not {"scrollTop", "clientHeight"} & set(order[:first])


def lines_of(page: Any) -> list[str]:
    return [" ".join(text.split()) for text in page.locator(".receipt .total, .receipt .line").all_inner_texts()]


def test_row_is_traced_beside_it_and_parts_of_its_sum_open(
    visit: Visit, site: Site, screenshots: Callable[[Any, str], None]
) -> None:
    url = site.serve()
    site.write({"leaf": "twig", "twig": "branch", "branch": "tree"} | {f"n{n:03}": "zoo" for n in range(300)})
    page = visit(f"{url}#/tables/descendants", viewport={"width": 1280, "height": 800})
    page.click(".row:has-text('tree')")
    page.click("text=Why is it so?")
    page.wait_for_selector(".receipt")
    assert lines_of(page) == ["tree 3", "direct 1", "branch 2"]
    page.click(".receipt button:has-text('branch')")
    page.wait_for_selector(".receipt .receipt")
    assert lines_of(page) == ["tree 3", "direct 1", "branch 2", "branch 2", "direct 1", "twig 1"]
    row, receipt = page.locator(".row.at").bounding_box(), page.locator(".receipt .receipt").bounding_box()
    assert receipt["x"] > row["x"] + row["width"]
    assert receipt["y"] + receipt["height"] < 800
    screenshots(page, "trace")
    page.click(".receipt .receipt button:has-text('twig')")
    page.wait_for_selector(".receipt .receipt .receipt")
    page.click(".receipt button:has-text('branch')")
    wait_for(lambda: lines_of(page) == ["tree 3", "direct 1", "branch 2"], PATIENCE_S)
    page.click("text=The trace as text")
    assert "served at this version: 3, as computed here from the inputs" in page.locator(".why pre").inner_text()
    page.click(".row:has-text('zoo')")
    page.click("text=Why is it so?")
    page.click(".receipt button:has-text('direct')")
    page.wait_for_selector(".receipt .receipt")
    assert len(lines_of(page)) == 12
    assert lines_of(page)[-1] == "292 more 292"


def test_what_moved_since_the_earliest_version_is_shown_with_its_records(
    visit: Visit, site: Site, screenshots: Callable[[Any, str], None]
) -> None:
    url = site.serve()
    site.write({"leaf": "twig", "twig": "branch", "branch": "tree", "root": "tree"})
    site.write({"leaf": "root", "<i>bud</i>": "twig", "moss": "twig"})
    page = visit(f"{url}#/tables/descendants", viewport={"width": 1280, "height": 800})
    page.click(".row:has-text('tree')")
    page.click("text=Why is it so?")
    page.wait_for_selector(".receipt")
    page.click("button:has-text('What moved since')")
    page.wait_for_selector(".moved")
    told = page.locator(".moved").inner_text()
    assert re.match(r"Since \d+:\d\d:\d\d( [AP]M)?(, not exact)?\s+(no row|\d) → 6", told)
    assert "branch of tree\n0 → 3" in told or "branch of tree\n2 → 3" in told
    assert re.search(r"nodes <i>bud</i>: none → twig, by nodes-0@\d+, ", told)
    page.click(".receipt:not(.moved) button:has-text('branch')")
    page.wait_for_selector(".receipt .receipt")
    assert "twig of branch" in page.locator(".moved").inner_text()
    check_accessible(page)
    screenshots(page, "moved")


def test_window_is_traced_to_its_records_and_says_that_it_is_open(
    visit: Visit, screenshots: Callable[[Any, str], None]
) -> None:
    with ExitStack() as stack:
        topology = eddy.Topology("pages")
        clicks = topology.stream("clicks", key=eddy.String, value=eddy.String).group_by_key()
        clicks.windowed_by(eddy.TimeWindows(timedelta(minutes=1))).count("clicks-a-minute")
        site = Site(stack, topology)
        url = site.serve()
        site.write({"/": "ann", "/cart": "ann"})
        site.write({"/": "bob"})
        page = visit(f"{url}#/tables/clicks-a-minute", viewport={"width": 1280, "height": 800})
        page.click(".row:has-text('\"/\"')")
        page.click("text=Why is it so?")
        page.wait_for_selector(".receipt")
        assert lines_of(page) == [
            '["/", 0, 60000] 2',
            "/ 1970-01-01 00:00:00 (clicks-0@0) 1",
            "/ 1970-01-01 00:00:00 (clicks-0@3) 1",
        ]
        page.wait_for_selector(".why >> text=the window is open, and waits for the time of 'clicks': partition 0 is at")
        screenshots(page, "window")


def test_keys_of_bytes_and_texts_that_look_like_json_are_traced_as_they_are(visit: Visit) -> None:
    with ExitStack() as stack:
        topology = eddy.Topology("odd")
        topology.table("bytes", key=eddy.Bytes, value=eddy.String).to_relation().group_by_key().count("counts")
        topology.table("texts", key=eddy.Native, value=eddy.String).to_relation().group_by_key().count("texts-counts")
        site = Site(stack, topology)
        url = site.serve()
        ends = site.log.write("bytes", {b"\x00\xff": "a"}, key=eddy.Bytes, value=eddy.String)
        site.tables.wait(ends, exact=True)
        ends = site.log.write("texts", {"5": "a", 5: "b"}, key=eddy.Native, value=eddy.String)
        site.tables.wait(ends, exact=True)
        for table, count in (("counts", 1), ("texts-counts", 2)):
            page = visit(f"{url}#/tables/{table}")
            for index in range(count):
                wait_for(lambda page=page, count=count: page.locator(".row .key").count() == count, PATIENCE_S)
                page.locator(".row").nth(index).click()
                page.click("text=Why is it so?")
                page.wait_for_selector(".receipt")


def test_odd_keys_are_seen_as_they_are(visit: Visit, site: Site, screenshots: Callable[[Any, str], None]) -> None:
    url = site.serve()
    site.write(
        {"": "empty", "  two  spaces": "a\tb", "line\nbreak": "one\ntwo", "👩‍👩‍👧‍👦": "שלום", "long": "x" * 9_000}
    )
    page = visit(f"{url}#/tables/nodes", viewport={"width": 1280, "height": 800})
    page.wait_for_selector(".row:has-text('(empty text)')")
    texts = page.evaluate(
        "[...document.querySelectorAll('.row')].map((row) => [...row.children].map((cell) => cell.innerText))"
    )
    assert [key for key, _ in texts] == ["(empty text)", "  two  spaces", "line↵break", "long", "👩‍👩‍👧‍👦"]
    assert [value for _, value in texts[:3]] == ["empty", "a⇥b", "one↵two"]
    assert {row["height"] for row in (page.locator(".row").nth(n).bounding_box() for n in range(5))} == {28}
    screenshots(page, "odd")


def test_many_tables_are_a_grid_and_their_lags_a_line(visit: Visit, screenshots: Callable[[Any, str], None]) -> None:
    with ExitStack() as stack:
        topology = eddy.Topology("many")
        for number in range(40):
            topology.table(f"table-{number:02}-of-many", key=eddy.String, value=eddy.String)
        site = Site(stack, topology)
        page = visit(site.serve(), viewport={"width": 1280, "height": 800})
        page.wait_for_selector(".node.chosen")
        boxes = [page.locator(".node").nth(number).bounding_box() for number in range(40)]
        assert len({round(box["x"]) for box in boxes}) > 2
        assert len({round(box["y"]) for box in boxes}) > 5
        assert min(box["height"] for box in boxes) > 14  # px, so that its name is read
        page.wait_for_selector("dt:has-text('unread of 40 tables')")
        height = page.evaluate("document.querySelector('dd').getBoundingClientRect().height")
        assert 10 < height < 30  # px: one line
        screenshots(page, "many")


def test_key_without_a_row_is_explained(visit: Visit, site: Site) -> None:
    url = site.serve()
    site.write({"leaf": "twig"})
    page = visit(f"{url}#/tables/descendants")
    page.wait_for_selector(".row:has-text('twig')")
    page.fill("#key", "leaf")
    page.keyboard.press("Enter")
    page.click("text=Why has it no row?")
    page.wait_for_selector('.why pre:has-text("makes this key of none of its 1 rows")')


def test_rows_of_source_tables_are_traced_as_text(visit: Visit, site: Site) -> None:
    url = site.serve()
    site.write({"leaf": "twig"})
    page = visit(f"{url}#/tables/nodes")
    page.click(".row:has-text('leaf')")
    page.click("text=Why is it so?")
    page.wait_for_selector('.why pre:has-text("row of topic nodes")')
    assert page.locator(".receipt").count() == 0


def test_phone_shows_all_without_scrolling_aside(
    visit: Visit, site: Site, screenshots: Callable[[Any, str], None]
) -> None:
    url = site.serve()
    site.write({"leaf": "twig", "twig": "branch" * 60})
    page = visit(url, viewport={"width": 360, "height": 640}, color_scheme="dark")
    for path, there in (
        ("#/", ".node.chosen"),
        ("#/tables", "td a"),
        ("#/tables/nodes", ".row .key"),
        ("#/queries", "h1:has-text('Live queries')"),
    ):
        page.goto(url + path)
        page.wait_for_selector(there)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    page.goto(f"{url}#/tables/nodes")
    page.wait_for_selector(".row .key")
    screenshots(page, "phone")


def test_page_says_that_the_server_is_away_and_comes_back(visit: Visit, site: Site) -> None:
    url = site.serve()
    page = visit(url)
    page.wait_for_selector("#status.good")
    site.serving.close()
    page.wait_for_selector("#away:visible")
    site.serve()
    page.wait_for_selector("#away", state="hidden")
    page.wait_for_selector("#status.good")


def test_token_is_asked_for_and_kept(visit: Visit, site: Site, tmp_path: Path) -> None:
    site.token = tmp_path / "token"
    site.token.write_text("0123456789abcdef")
    page = visit(site.serve())
    page.fill("#token", "0123")
    for _ in range(2):  # the second is asked for after the first was read
        with page.expect_response("**/metrics"):
            pass
    assert page.input_value("#token") == "0123"
    page.keyboard.press("Enter")
    page.wait_for_selector("text=This token was refused")
    page.fill("#token", "0123456789abcdef")
    page.keyboard.press("Enter")
    page.wait_for_selector(".node.chosen")
    page.reload()
    page.wait_for_selector(".node.chosen")


def test_page_that_was_left_while_it_waited_stays_away(visit: Visit) -> None:
    with ExitStack() as stack:
        url = folders_site(stack).serve()
        page = visit(url)
        page.wait_for_selector(".node.chosen")
        held: list[Any] = []
        asked: list[str] = []
        page.route("**/v1/queries", lambda route: held.append(route))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{url}#/queries/tree?")
        wait_for(lambda: page.title() and held, PATIENCE_S)
        page.goto(f"{url}#/tables/folders")
        page.wait_for_selector("text=This table has no rows")
        with page.expect_response("**/v1/queries"):
            held[0].continue_()
        with page.expect_response("**/metrics"):
            pass
        assert not [each for each in asked if "/v1/live" in each]


LARGE = 2**63 - 1


def test_large_integers_are_shown_whole_everywhere(visit: Visit) -> None:
    with ExitStack() as stack:
        site = folders_site(stack)
        url = site.serve()
        site.write({"home": {"name": "home", "size": LARGE, "parts": [{"size": -LARGE}]}})
        page = visit(f"{url}#/tables/folders")
        page.click(f".row:has-text('{LARGE}')")
        page.wait_for_selector(f"pre:has-text('\"size\": {LARGE}')")
        assert f'"size": -{LARGE}' in page.locator("pre").inner_text()
        page.goto(f"{url}#/queries/tree?")
        page.wait_for_selector(f".row:has-text('size: {LARGE}')")
        assert f'[{{"size":-{LARGE}}}]' in page.locator(".row").inner_text()
        page.goto(f"{url}#/queries/sizes?least={LARGE}")
        page.wait_for_selector(f".number-now:has-text('{LARGE}')")
        page.goto(f"{url}#/queries/sizes?least={LARGE + 1}")
        page.wait_for_selector(".number-now:has-text('no row')")


def test_counts_are_shown_whole() -> None:
    """Read where they are written, since a table of so many rows takes long to make."""
    text = (Path(eddy.serve.page.__file__).parent / "elements.js").read_text()
    line = next(line for line in text.splitlines() if line.startswith("export const number ="))
    assert run_node(
        "-e", f"{line.removeprefix('export ')}\nconsole.log(number(12345678), number(0.123456789))"
    ).split() == [
        "12,345,678",
        "0.123",
    ]


def test_server_that_hangs_is_told_within_five_seconds(visit: Visit) -> None:
    with ExitStack() as stack:
        site = folders_site(stack)
        site.serve()
        site.write({"home": {"name": "home"}})
        proxy = stack.enter_context(closing(Proxy(site.port)))
        page = visit(f"http://127.0.0.1:{proxy.port}/#/queries/tree?")
        stack.callback(page.close)

        def attempt() -> float:
            page.wait_for_selector("#status.good")
            page.wait_for_selector(".dot.good:has-text('live')")
            proxy.hold()
            began = time.monotonic()
            page.wait_for_selector("#away:visible")
            page.wait_for_selector("#status.bad:has-text('away')")
            page.wait_for_selector(".dot.bad:has-text('away')")
            took = time.monotonic() - began
            proxy.go_on()
            page.wait_for_selector("#away", state="hidden")
            return took

        quickest(attempt, 5.0)


def test_table_opened_while_the_server_is_away_fills_when_it_is_back(visit: Visit, site: Site) -> None:
    url = site.serve()
    site.write({"a": "b"})
    page = visit(url)
    page.wait_for_selector("#status.good")
    site.serving.close()
    page.wait_for_selector("#away:visible")
    page.goto(f"{url}#/tables/descendants")
    page.wait_for_selector("text=The rows follow when the server answers")
    site.serve()
    page.wait_for_selector(".row:has-text('b')")
    page.wait_for_selector("text=The rows follow when the server answers", state="detached")


def test_rows_that_are_held_colour_the_state(visit: Visit, site: Site, screenshots: Callable[[Any, str], None]) -> None:
    url = site.serve()
    site.log.write("nodes", {"a": "b", "b": "a"})
    page = visit(url)
    page.wait_for_selector("#status.held:has-text('held without a finite answer')")
    page.wait_for_selector(".node.held")  # the picture may be laid out later
    assert page.locator(".node.held").count() == 1
    screenshots(page, "held")
    site.log.write("nodes", {"b": None})
    page.wait_for_selector("#status.good")
    page.wait_for_selector(".node.held", state="detached")
