"""The page of a table in headless Chromium: many rows, jumps to keys, and rows that come and go meanwhile."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

import eddy
from tests.client.axe import check_accessible
from tests.client.site import Site
from tests.waiting import PATIENCE_S, quickest, wait_for

Visit = Callable[..., Any]
ROWS = 20_000


def numbered(name: str) -> eddy.Topology:
    """A table of JSON by text."""
    topology = eddy.Topology(name)
    topology.table("items", key=eddy.String, value=eddy.Json())
    return topology


@pytest.fixture(scope="module")
def long() -> Iterator[str]:
    """The address of a table with many rows, which does not change."""
    with ExitStack() as stack:
        site = Site(stack, numbered("long"))
        url = site.serve()
        site.write({f"k{number:06}": {"n": number, "name": f"Thing {number}"} for number in range(0, 2 * ROWS, 2)})
        yield f"{url}#/tables/items"


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(stack, numbered("items"))


def in_view(page: Any) -> list[str]:
    """The keys that a person sees in the list; … for a row that has not arrived."""
    return page.evaluate(
        """() => {
            const list = document.querySelector(".list")?.getBoundingClientRect();
            return [...document.querySelectorAll(".list .row")]
                .map((row) => [row.getBoundingClientRect(), row.firstChild.textContent])
                .filter(([box]) => box.bottom > list.top + 1 && box.top < list.bottom - 1)
                .sort(([one], [other]) => one.top - other.top)
                .map(([_, text]) => text);
        }"""
    )


def wait_for_rows(page: Any) -> list[str]:
    """Wait until no row in view is missing; returns their keys."""
    wait_for(lambda: (keys := in_view(page)) and "…" not in keys, PATIENCE_S, "the rows in view")
    return in_view(page)


def wait_to_see(page: Any, first: list[str]) -> None:
    """Wait until the list begins with these keys: the line below it may be drawn a moment before."""
    wait_for(lambda: in_view(page)[: len(first)] == first, PATIENCE_S, lambda: in_view(page))


def follow_one_another(keys: list[str]) -> bool:
    """Whether these are keys of the long table with none left out."""
    first = int(keys[0][1:])
    return keys == [f"k{number:06}" for number in range(first, first + 2 * len(keys), 2)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_says_how_many_rows_there_are_and_is_accessible(
    visit: Visit, long: str, scheme: str, screenshots: Callable[[Any, str], None]
) -> None:
    page = visit(long, color_scheme=scheme, viewport={"width": 1280, "height": 800})
    page.wait_for_selector(f"text=of {ROWS:,} rows")
    page.click(".row:has-text('k000004')")
    check_accessible(page)
    screenshots(page, f"long-table-{scheme}")


def test_keys_are_jumped_to(visit: Visit, long: str) -> None:
    page = visit(long)
    wait_for_rows(page)
    for text, at, said in (
        ("k031000", "k031000", ""),
        ("k000006", "k000006", ""),
        ("k010001", "k010002", "From the first key that is not before it: k010002"),
        ("zzz", f"k{2 * ROWS - 2:06}", "All keys are before this one."),
        ("", "k000000", "From the first key that is not before it: k000000"),
    ):
        page.fill("#key", text)
        page.keyboard.press("Enter")
        wait_for(lambda at=at: page.locator(".row.at .key").all_inner_texts() == [at], PATIENCE_S, text)  # type: ignore[misc]
        assert at in wait_for_rows(page)
        wait_for(lambda said=said: page.locator("[role=status]").last.inner_text() == said, PATIENCE_S, text)  # type: ignore[misc]
        page.wait_for_function("document.activeElement.classList.contains('list')")


def test_a_jump_takes_less_than_a_fifth_of_a_second(visit: Visit, long: str) -> None:
    page = visit(long)
    wait_for_rows(page)
    keys = iter(range(1_000, 30_000, 3_000))

    def attempt() -> float:
        page.fill("#key", key := f"k{next(keys):06}")
        return page.evaluate(
            """(key) => new Promise((done) => {
                const began = performance.now();
                const look = () => {
                    const is = document.querySelector(".row.at .key")?.textContent === key;
                    const whole = ![...document.querySelectorAll(".list .row")].some((row) => row.textContent === "…");
                    if (is && whole) done((performance.now() - began) / 1000);
                    else requestAnimationFrame(look);
                };
                document.querySelector("#key").form.requestSubmit();
                look();
            })""",
            key,
        )

    quickest(attempt, 0.2)


def test_no_blank_stays_wherever_it_is_scrolled(visit: Visit, long: str) -> None:
    page = visit(long)
    wait_for_rows(page)
    for part in (0.5, 1.0, 0.99, 0.13, 0.0, 0.77):
        page.evaluate(
            "(part) => { const list = document.querySelector('.list'); list.scrollTop = part * list.scrollHeight; }",
            part,
        )
        keys = wait_for_rows(page)
        assert follow_one_another(keys)
        assert abs(int(keys[0][1:]) / 2 - part * ROWS) <= 30, "a bar in the middle is the middle of the rows"
    box = page.locator(".list").bounding_box()
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    seen = int(wait_for_rows(page)[0][1:])
    for turn in range(1, 21):
        page.mouse.wheel(0, 280)
        aim = f"k{seen + 2 * 10 * turn:06}"  # 280 pixels are ten rows
        wait_for(lambda aim=aim: wait_for_rows(page)[0] == aim, PATIENCE_S, aim)  # type: ignore[misc]
        assert follow_one_another(in_view(page))
    page.locator(".list").focus()
    page.keyboard.press("End")
    wait_for(lambda: wait_for_rows(page)[-1] == f"k{2 * ROWS - 2:06}", PATIENCE_S)
    page.keyboard.press("Home")
    wait_for(lambda: wait_for_rows(page)[0] == "k000000", PATIENCE_S)


def test_many_more_rows_than_pixels_are_scrolled_evenly(visit: Visit, long: str) -> None:
    """An element has some ten million pixels at most. Here it has 20,000, so that few rows are too many."""
    page = visit(long.split("#")[0])
    page.route(
        "**/page.js",
        lambda route: route.fulfill(
            response=(found := route.fetch()), body=found.text().replace("MAX_PX = 8_000_000", "MAX_PX = 20_000")
        ),
    )
    page.goto(long)
    page.reload()
    wait_for_rows(page)
    assert page.evaluate("document.querySelector('.list').scrollHeight") == 20_000
    box = page.locator(".list").bounding_box()
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    passed: list[str] = []
    for _ in range(12):
        keys = wait_for_rows(page)
        assert follow_one_another(keys)
        passed = sorted({*passed, *keys})
        page.mouse.wheel(0, 280)
        wait_for(lambda keys=keys: in_view(page)[0] != keys[0], PATIENCE_S)  # type: ignore[misc]
    assert follow_one_another(passed), "no row was passed over"
    assert len(passed) >= 120
    page.evaluate("document.querySelector('.list').scrollTop = 10_000")
    wait_for(lambda: abs(int(wait_for_rows(page)[0][1:]) / 2 - ROWS / 2) < ROWS / 50, PATIENCE_S)
    page.locator(".list").focus()
    page.keyboard.press("End")
    wait_for(lambda: wait_for_rows(page)[-1] == f"k{2 * ROWS - 2:06}", PATIENCE_S)
    page.fill("#key", "k024680")
    page.keyboard.press("Enter")
    wait_for(lambda: "k024680" in wait_for_rows(page), PATIENCE_S)


def test_what_is_in_view_stays_while_rows_come_and_go_above(visit: Visit, site: Site) -> None:
    url = site.serve()
    site.write({f"k{number:05}": {"n": 0} for number in range(0, 5_000, 2)})
    page = visit(f"{url}#/tables/items")
    page.wait_for_selector("text=of 2,500 rows")
    page.fill("#key", "k03000")
    page.keyboard.press("Enter")
    page.wait_for_selector(".row.at:has-text('k03000')")
    before = wait_for_rows(page)
    site.write({f"k{number:05}": {"n": 0} for number in range(1, 1_501, 2)})
    page.wait_for_selector("text=of 3,250 rows")
    wait_for(lambda: wait_for_rows(page) == before, PATIENCE_S)
    site.write({f"k{number:05}": None for number in range(0, 2_000, 2)} | {"k03000": {"n": 7}})
    page.wait_for_selector("text=of 2,250 rows")
    wait_for(lambda: wait_for_rows(page) == before, PATIENCE_S)
    page.wait_for_selector(".row.at:has-text('\"n\":7')")
    site.write({f"k{number:05}": None for number in range(5_000)})
    page.wait_for_selector("text=This table has no rows")


def test_a_table_that_is_counted_fills_when_it_is(visit: Visit, long: str) -> None:
    page = visit(long.split("#")[0])
    refused: list[float] = []
    counts = True

    def refuse(route: Any) -> None:
        """As a server does that still counts the keys."""
        if "at=0&" in route.request.url or not counts:
            route.continue_()
            return
        refused.append(time.monotonic())
        route.fulfill(status=503, json={"error": "1 of 2 keys are counted so far"})

    page.route("**/v1/tables/items?**", refuse)
    page.goto(long)
    page.reload()
    wait_for_rows(page)
    page.evaluate("document.querySelector('.list').scrollTop = 200_000")
    wait_for(lambda: "…" in in_view(page) and len(refused) >= 3, PATIENCE_S)
    page.wait_for_selector("text=1 of 2 keys are counted so far")
    counts = False
    assert follow_one_another(wait_for_rows(page))
    page.wait_for_selector("text=1 of 2 keys are counted so far", state="detached")


def summary(page: Any) -> str:
    """The line below the rows."""
    return page.locator(".bar").inner_text()


def test_columns_are_chosen_and_stay_after_a_reload(
    visit: Visit, long: str, screenshots: Callable[[Any, str], None]
) -> None:
    page = visit(long, viewport={"width": 1280, "height": 800})
    wait_for_rows(page)
    page.click("summary:has-text('Columns')")
    for column in ("name", "n"):
        page.get_by_label(column, exact=True).check()
    page.wait_for_selector(".heads:visible")
    assert page.locator(".heads").inner_text().split("\n") == ["key", "name", "n"]
    assert page.locator(".row").nth(1).inner_text().split("\n") == ["k000002", "Thing 2", "2"]
    check_accessible(page)
    page.reload()
    page.wait_for_selector(".row:has-text('Thing 2')")
    assert page.locator(".row").nth(1).inner_text().split("\n") == ["k000002", "Thing 2", "2"]
    screenshots(page, "columns")


def test_values_are_searched_with_what_was_searched_said(visit: Visit, long: str) -> None:
    page = visit(long)
    wait_for_rows(page)
    page.fill("#text", "THING 1234")
    page.keyboard.press("Enter")
    wait_for(lambda: "That is all" in summary(page), PATIENCE_S)
    assert f"Searched all {ROWS:,} rows: 6 found" in summary(page)
    wait_to_see(page, ["k001234", "k012340", "k012342", "k012344", "k012346", "k012348"])
    page.reload()
    wait_for(lambda: "6 found" in summary(page), PATIENCE_S)
    page.fill("#key", "k000100")
    page.get_by_role("button", name="Go", exact=True).click()
    wait_for(lambda: "k000100" in wait_for_rows(page), PATIENCE_S)
    assert page.input_value("#text") == "", "a jump shows all rows again"


def test_rows_are_sorted_by_a_column_and_it_is_said_of_which(
    visit: Visit, long: str, screenshots: Callable[[Any, str], None]
) -> None:
    page = visit(long, color_scheme="dark")
    wait_for_rows(page)
    page.select_option("#order", label="n, highest first")
    wait_for(lambda: "That is all" in summary(page), PATIENCE_S)
    assert f"Searched all {ROWS:,} rows: the first 500 by n, as they were then." in summary(page)
    wait_to_see(page, ["k039998", "k039996", "k039994"])
    check_accessible(page)
    screenshots(page, "sorted")
    page.fill("#text", "Thing 77")
    page.click("button:has-text('Search')")
    wait_for(lambda: "the first 55 by n" in summary(page) and "That is all" in summary(page), PATIENCE_S)
    wait_to_see(page, ["k007798", "k007796", "k007794"])


def test_a_long_search_goes_on_by_small_answers_and_can_be_stopped(visit: Visit, long: str) -> None:
    page = visit(long.split("#")[0])
    after: list[str] = []

    def slow(route: Any) -> None:
        """As of a table whose search takes long: each answer is a part."""
        url = route.request.url
        after.append(url)
        if "search=nowhere" in url:
            number = len(after) * 100
            route.fulfill(json={"rows": [], "searched": 100, "next": f"k{number:06}", "version": "", "exact": True})
        else:
            route.continue_()

    page.route("**/v1/tables/items?*search=*", slow)
    page.goto(long)
    wait_for_rows(page)
    page.fill("#text", "nowhere")
    page.keyboard.press("Enter")
    page.click("text=Stop")
    page.wait_for_selector("text=There are more rows to search")
    wait_for(lambda: f"Searched {len(after) * 100:,} rows: 0 found" in summary(page), PATIENCE_S)
    assert f"after=k{(len(after) - 1) * 100:06}" in after[-1]
    seen = len(after)
    page.click("text=Go on")
    wait_for(lambda: page.evaluate("1") and len(after) > seen, PATIENCE_S)
    page.click("text=Stop")
    page.wait_for_selector("text=Go on")
    page.fill("#text", "thing")
    page.keyboard.press("Enter")
    wait_for(lambda: "500 found" in summary(page) and "Go on" in summary(page), PATIENCE_S)
    page.click("text=Go on")
    wait_for(lambda: "1,000 found" in summary(page), PATIENCE_S)


@pytest.mark.parametrize("token", ["", "0123456789abcdef"])
def test_a_table_is_saved_as_a_file(visit: Visit, site: Site, tmp_path: Path, token: str) -> None:
    if token:
        site.token = tmp_path / "token"
        site.token.write_text(token)
    url = site.serve()
    site.write({"a1": {"n": 1, "name": "x"}, "a2": {"n": 2}, "b": {"n": 3}})
    page = visit(f"{url}#/tables/items")
    if token:
        page.fill("#token", token)
        page.keyboard.press("Enter")
    wait_for_rows(page)
    page.click("summary:has-text('Columns')")
    page.get_by_label("n", exact=True).check()
    page.fill("#search", "a")
    page.wait_for_selector("text=2 rows")
    page.click("summary:has-text('Export')")
    for button, name, text in (
        ("CSV", "items.csv", "key,n\na1,1\na2,2\n"),
        ("JSON Lines", "items.jsonl", '{"key":"a1","value":{"n":1}}\n{"key":"a2","value":{"n":2}}\n'),
        ("Parquet", "items.parquet", None),
    ):
        with page.expect_download() as saved:
            page.get_by_role("button", name=button).click()
        assert saved.value.suggested_filename == name
        saved.value.save_as(tmp_path / name)
        if text is not None:
            assert (tmp_path / name).read_text() == text
    assert pyarrow.parquet.read_table(tmp_path / "items.parquet").to_pylist() == [
        {"key": "a1", "n": 1},
        {"key": "a2", "n": 2},
    ]
    check_accessible(page)


def test_a_search_that_is_stopped_and_continued_at_once_reads_no_part_twice(visit: Visit, long: str) -> None:
    page = visit(long.split("#")[0])
    held: list[Any] = []
    page.route("**/v1/tables/items?*search=*", lambda route: held.append(route))
    page.goto(long)
    wait_for_rows(page)
    page.fill("#text", "thing")
    page.keyboard.press("Enter")
    for turn in range(3):
        wait_for(lambda turn=turn: page.evaluate("1") and len(held) == turn + 1, PATIENCE_S)  # type: ignore[misc]
        if turn:
            page.click("text=Stop")
            page.click("text=Go on")
        rows = [{"key": f"k{turn:06}", "value": {"n": turn}}]
        found = {"rows": rows, "searched": 10, "next": f"k{turn:06}", "version": "", "exact": True}
        held[turn].fulfill(json=found)
        wait_for(lambda turn=turn: f"Searched {10 * (turn + 1)} rows: {turn + 1} found" in summary(page), PATIENCE_S)  # type: ignore[misc]
    wait_for(lambda: page.evaluate("1") and len(held) == 4, PATIENCE_S)
    assert [f"after=k{turn:06}" in route.request.url for turn, route in enumerate(held[1:])] == [True] * 3
    wait_for(lambda: in_view(page) == [f"k{turn:06}" for turn in range(3)], PATIENCE_S)


def test_rows_are_there_after_few_requests_and_wait_for_no_other_answer(visit: Visit, long: str) -> None:
    """The topology and the figures are never answered here: the rows need neither."""
    page = visit(long)
    page.goto("about:blank")  # so that requests are those of the page that is opened next
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.split("/", 3)[3]))
    for path in ("topology", "readyz", "metrics"):
        page.route(f"**/{path}", lambda route: None)
    page.goto(long)
    assert follow_one_another(wait_for_rows(page))
    first = next(number for number, path in enumerate(asked) if path.startswith("v1/tables/items"))
    assert set(asked[:first]) <= {"", "page.css", "page.js", "v1/tables"}
    assert asked.count("page.js") == 1


def test_search_that_the_server_does_not_answer_goes_on_when_it_answers(visit: Visit, long: str) -> None:
    page = visit(long)
    for path in ("topology", "readyz", "metrics", "v1/**"):
        page.route(f"**/{path}", lambda route: route.abort())
    page.goto(f"{long}?search=Thing+2000")
    page.reload()
    page.wait_for_selector("#away:visible")
    page.wait_for_selector("text=Searched 0 rows")
    page.unroute_all()
    page.wait_for_selector("#away", state="hidden")
    page.wait_for_selector(f"text=Searched all {ROWS:,} rows: 6 found")


def test_rows_that_are_slow_to_arrive_are_asked_for_once(visit: Visit, long: str) -> None:
    page = visit(long)
    page.goto("about:blank")
    held: list[Any] = []
    page.route("**/v1/tables/items?&at=0&**", lambda route: held.append(route))
    page.goto(long)
    page.wait_for_selector("#status.good")
    with page.expect_response("**/metrics"):
        pass  # the poll after that which has said so
    with page.expect_response("**/metrics"):
        pass
    assert len(held) == 1
    held[0].continue_()
    assert follow_one_another(wait_for_rows(page))
