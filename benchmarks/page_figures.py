"""The page in headless Chromium: until a table is there, a jump to a key of a long one, and the layout of a picture."""

import contextlib
import random
import statistics
from pathlib import Path
from typing import Any

import eddy
from benchmarks.report import Section, Target, number
from eddy.serve import page as page_scripts
from eddy.serve.endpoint import endpoint_of
from eddy.serve.table_server import served

__all__ = ["measure_layout", "measure_table"]

_JUMP = """key => new Promise(resolve => {
  const began = performance.now();
  const look = () => {
    const isThere = document.querySelector(".row.at .key")?.textContent === key;
    const isWhole = ![...document.querySelectorAll(".list .row")].some(row => row.textContent === "…");
    isThere && isWhole ? resolve(performance.now() - began) : requestAnimationFrame(look);
  };
  document.querySelector("#key").form.requestSubmit();
  look();
})"""
_LAID = """async () => {
  const { Picture } = await import("./page/picture.js");
  const { steps } = await (await fetch("topology")).json();
  const picture = new Picture(steps, { choose: () => {}, tell: () => "" });
  picture.folds = false;
  const began = performance.now();
  await picture.lay();
  return [performance.now() - began, steps.length];
}"""
_ATTEMPTS = 20
_PATIENCE_MS = 120_000


def measure_table(section: Section, browser: Any, rows: int) -> None:
    """From the address of a table until its first rows are there, and jumps to random keys of it."""
    topology = eddy.Topology("long")
    topology.table("items", key=eddy.String, value=eddy.Json())
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(contextlib.closing(eddy.open_log()))
        eddy.create_topics(topology, log)
        stack.enter_context(eddy.run(topology, log))
        server = stack.enter_context(served(endpoint_of("0"), topology, log))
        with log.writer("items", value=eddy.Json()) as writer:
            for item in range(rows):
                writer.add(f"k{item:07}", {"name": f"item {item}", "size": item})
        server.tables.wait(writer.ends, exact=True, timeout_s=600)
        url = f"http://127.0.0.1:{server.port}/#/tables/items"
        firsts = [_first_rows(browser, url) for _ in range(5)]
        page = browser.new_page()
        page.set_default_timeout(_PATIENCE_MS)
        page.goto(url)
        page.wait_for_selector(".row .key")
        draw, jumps = random.Random(1), []
        for _ in range(_ATTEMPTS + 1):
            key = f"k{draw.randrange(rows):07}"
            page.fill("#key", key)
            jumps.append(page.evaluate(_JUMP, key))
        page.close()
    first, jump = statistics.median(firsts), statistics.median(jumps[1:])
    where = f"{rows:,} rows"
    section.rows += [
        ["first table, median of 5", where, f"{number(first)} ms"],
        ["first jump, which counts the keys", where, f"{number(jumps[0])} ms"],
        [f"jump to a key, median of {_ATTEMPTS}; max", where, f"{number(jump)} ms; {number(max(jumps[1:]))} ms"],
    ]
    section.targets.append(Target("client, first table", 300, "ms", {"page": first}))
    section.targets.append(Target("client, jump", 200, "ms", {"page": jump}))
    section.runs["table"] = {"first_ms": firsts, "jumps_ms": jumps}


def measure_layout(section: Section, browser: Any, wanted: int = 100) -> None:
    """The layout of a picture of at least so many steps: joins of random earlier ones, and filters."""
    draw, topology = random.Random(1), eddy.Topology("steps")
    steps: list[Any] = [topology.table(f"t{n}", key=eddy.String, value=eddy.Int64).to_relation() for n in range(5)]
    while len(topology.plan.nodes) < wanted:
        one, other = draw.sample(steps[-12:], 2)
        joined = one.join(other, lambda key, left, right: (key, left + right), name=f"join-{len(steps)}")
        steps.append(joined.filter(lambda key, value: value > 0, name=f"filter-{len(steps)}"))
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(contextlib.closing(eddy.open_log()))
        eddy.create_topics(topology, log)
        scripts = Path(page_scripts.__file__).parent  # which the page has as one, and the measure one by one
        server = stack.enter_context(served(endpoint_of("0"), topology, log, own_page=scripts))
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.wait_for_selector(".node")
        runs = [page.evaluate(_LAID) for _ in range(5)]
        page.close()
    laid, shown = statistics.median(run[0] for run in runs), int(runs[0][1])
    section.rows.append(["picture laid out, median of 5", f"{shown} steps", f"{number(laid)} ms"])
    section.targets.append(Target("client, picture laid out", 1_000, "ms", {f"{shown} steps": laid}))
    section.runs["layout"] = {"ms": [run[0] for run in runs], "steps": shown}


def _first_rows(browser: Any, url: str) -> float:
    """Milliseconds from the navigation to a page without a cache until rows of the table are elements of it."""
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(
        """new MutationObserver((_, observer) => {
          if (!document.querySelector(".row .key")) return;
          observer.disconnect();
          globalThis.firstRows = performance.now();
        }).observe(document, { childList: true, subtree: true })"""
    )
    page.goto(url)
    page.wait_for_selector(".row .key")
    first: float = page.evaluate("globalThis.firstRows")
    context.close()
    return first
