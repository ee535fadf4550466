"""The picture of a topology in headless Chromium: it fits the screen, its edges cross nothing, and it is live."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import eddy
import eddy.serve.page
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from tests.client.axe import check_accessible
from tests.client.site import Site
from tests.serve.conftest import Ward, produce
from tests.topology.programs import family
from tests.waiting import PATIENCE_S, quickest, wait_for

Visit = Callable[..., Any]
S = eddy.String
LAPTOP = {"width": 1366, "height": 768}


def shop() -> eddy.Topology:
    """Forty steps: joins, counts, windows, two recursions, and steps without a name."""
    topology = eddy.Topology("shop")
    orders = topology.stream("orders", S, S).filter(lambda key, value: value != "").map_values(str.strip)
    people, items, parents = (topology.table(name, S, S) for name in ("people", "items", "parents"))
    joined = orders.join(people, lambda order, person: f"{order} {person}").map_values(str.strip, name="tidied-orders")
    joined.to("enriched")
    joined.group_by_key().count("orders-by-customer").to("order-counts")
    orders.filter(lambda key, value: len(value) > 3, name="large-orders").map_values(len).to("large")
    orders.group_by(lambda key, value: value, key=S).count("orders-by-item").to("item-counts")
    windows = eddy.TimeWindows(timedelta(minutes=5))
    orders.group_by_key().windowed_by(windows).count("per-five-minutes").to("windows-out")
    orders.merge(joined).select_key(lambda key, value: value, key=S).to_table("last-order").to("last")
    items.group_by(lambda key, value: (value, "1"), key=S, value=S).count("items-by-kind").to("kinds")
    for name in ("ancestors", "makers"):
        links = parents if name == "ancestors" else items
        below = links.to_relation().map(lambda child, parent: (parent, 1), key=S)
        above = below.recursively(
            lambda rows, links=links: rows.join(links, lambda key, one, parent: (parent, 1)),  # type: ignore[misc]
            name=name,
        )
        above.group_by_key().count(f"below-{name}").to(f"{name}-out")
    return topology


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ExitStack() as stack:
        yield Site(stack, shop()).serve()


def drawn(visit: Visit, url: str, **screen: Any) -> Any:
    page = visit(url, **{"viewport": LAPTOP, **screen})
    page.wait_for_selector(".node.chosen")
    return page


def boxes(page: Any, selector: str) -> list[dict[str, float]]:
    return [each.bounding_box() for each in page.locator(f".picture svg {selector}").all()]


CROSSINGS = """() => {
    const box = (element) => [element, element.getBBox()];
    const nodes = [...document.querySelectorAll(".node rect, .room text, .folded rect")].map(box);
    const within = ({ x, y }, { x: left, y: top, width, height }) =>
        x > left + 1 && x < left + width - 1 && y > top + 1 && y < top + height - 1;
    const found = [];
    for (const edge of document.querySelectorAll(".edge, .back")) {
        const length = edge.getTotalLength();
        for (let at = 0; at <= length; at += 2)
            for (const [element, area] of nodes)
                if (within(edge.getPointAtLength(at), area))
                    found.push(`${edge.getAttribute("d")} through ${element.parentElement.textContent}`);
    }
    return [...new Set(found)];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_forty_steps_fit_a_laptop_and_edges_cross_no_label(
    visit: Visit, url: str, screenshots: Callable[[Any, str], None], scheme: Any
) -> None:
    assert len(shop().plan.nodes) >= 40
    page = drawn(visit, url, color_scheme=scheme)
    screenshots(page, f"picture-{scheme}")
    for box in boxes(page, ".node"):
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= LAPTOP["width"]
        assert box["y"] + box["height"] <= LAPTOP["height"]
    assert min(box["height"] for box in boxes(page, ".node text:first-of-type")) >= 9
    assert page.evaluate(CROSSINGS) == []
    check_accessible(page)
    page.click("text=Fold steps without a name")
    wait_for(lambda: page.locator(".node").count() == len(shop().plan.nodes), PATIENCE_S)
    assert page.evaluate(CROSSINGS) == []


def test_a_recursion_is_a_room_with_its_loop(visit: Visit, url: str) -> None:
    page = drawn(visit, url)
    assert sorted(page.locator(".room text").all_text_contents()) == ["↻ ancestors", "↻ makers"]
    rooms = boxes(page, ".room rect")
    for back in boxes(page, "path.back"):
        assert any(room["x"] <= back["x"] and back["x"] + back["width"] <= room["x"] + room["width"] for room in rooms)
    inside = [room for room in rooms for node in boxes(page, ".node.recursion") if contains(room, node)]
    assert len(inside) == 2


def contains(room: dict[str, float], node: dict[str, float]) -> bool:
    below = node["y"] + node["height"] <= room["y"] + room["height"] + 1
    return room["x"] <= node["x"] + 1 and room["y"] <= node["y"] and below


def test_it_can_be_zoomed_and_moved(visit: Visit, url: str) -> None:
    page = drawn(visit, url)
    before = page.locator(".node").first.bounding_box()
    page.get_by_role("button", name="Zoom in").click()
    larger = page.locator(".node").first.bounding_box()
    assert larger["width"] > 1.2 * before["width"]
    area = page.locator(".picture svg").bounding_box()
    page.mouse.move(area["x"] + 8, area["y"] + area["height"] - 8)
    page.mouse.down()
    page.mouse.move(area["x"] + 68, area["y"] + area["height"] - 38)
    page.mouse.up()
    moved = page.locator(".node").first.bounding_box()
    assert (round(moved["x"] - larger["x"]), round(moved["y"] - larger["y"])) == (60, -30)
    page.get_by_role("button", name="Fit the picture").click()
    assert page.locator(".node").first.bounding_box() == before


def test_a_phone_shows_it_whole(visit: Visit, url: str) -> None:
    page = drawn(visit, url, viewport={"width": 390, "height": 800})
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes(page, ".node"))
    check_accessible(page)


def test_a_hundred_steps_are_laid_out_in_a_second(visit: Visit) -> None:
    topology = eddy.Topology("hundred")
    streams = [topology.stream(f"in-{number}", S, S) for number in range(10)]
    for number, stream in enumerate(streams):
        named = stream.map_values(str.strip, name=f"strip-{number}").merge(streams[number - 1], name=f"merge-{number}")
        for part in range(3):
            grouped = named.group_by(lambda key, value: value, key=S)
            grouped.count(f"count-{number}-{part}").to(f"out-{number}-{part}")
    assert len(topology.plan.nodes) >= 100
    with ExitStack() as stack:
        page = drawn(visit, Site(stack, topology).serve())
        scripts = Path(eddy.serve.page.__file__).parent  # which the server sends as one
        page.route("**/scripts/**", lambda route: route.fulfill(path=scripts / route.request.url.split("/scripts/")[1]))
        page.evaluate(
            """async () => {
                const { Picture } = await import("./scripts/picture.js");
                const { steps } = await (await fetch("topology")).json();
                globalThis.laid = async () => {
                    const picture = new Picture(steps, { choose: () => {}, tell: () => "" });
                    picture.folds = false;
                    const began = performance.now();
                    await picture.lay();
                    return (performance.now() - began) / 1000;
                };
            }"""
        )
        quickest(lambda: page.evaluate("laid()"), 1.0)


def test_rates_and_work_of_steps_are_shown_while_rows_flow(visit: Visit) -> None:
    with closing(LocalLog(None, busy_timeout_s=0.0)) as log, ExitStack() as stack:
        log.create_topics(TopicSpec(name, 1) for name in ("nodes", "descendants"))
        ward = Ward(log, topology=family())
        stack.callback(ward.ends.close)
        ward.open().admit().settle()
        page = drawn(visit, f"http://127.0.0.1:{ward.monitor.port}/")

        parts = count(2)

        def flows() -> bool:
            part = next(parts)
            produce(log, {f"n{number}": f"n{(part * 31 + number) % 7919 % number}" for number in range(1, 51)})
            ward.step(2)
            told = page.locator(".node.recursion .second").text_content()
            return bool(told.endswith(" rows/s"))

        wait_for(flows, PATIENCE_S, "a rate")
        taken = page.locator('dt:has-text("rows taken") + dd').inner_text()
        assert int(taken.replace(",", "")) >= 50
        assert float(page.locator('dt:has-text("seconds of work") + dd').inner_text()) >= 0
