"""The client and the page: patches on Node, sizes, and in a browser the first picture, a new leaf until it is seen, a
table until it is there, jumps in it, and the layout of a picture.

On Kafka where there is a broker, else on the embedded log in memory.
"""

import contextlib
import gzip
import json
import shutil
import statistics
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import eddy
from benchmarks.cluster import MissingError, cluster
from benchmarks.page_figures import measure_layout, measure_table
from benchmarks.report import Section, Target, number
from eddy.connectors.log import Log
from eddy.serve.endpoint import endpoint_of
from eddy.serve.page import routes
from eddy.serve.page.bundle import bundle
from eddy.serve.table_server import served

__all__ = ["run"]

_SCRIPT = Path(__file__).with_name("client_patches.mjs")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync", "--no-first-run"]
_PATIENCE_MS = 60_000
_SEEN = """name => { globalThis.seen = new Promise(resolve => {
  const look = () => [...document.querySelectorAll(".row")].some(row => row.textContent.includes(name)) && done();
  const observer = new MutationObserver(look);
  const done = () => { observer.disconnect(); resolve(Date.now()); };
  observer.observe(document.querySelector(".list"), { childList: true, subtree: true, characterData: true });
  look();
}); }"""


def run(quick: bool) -> Section:
    """All figures; those of Node and of Chromium where they are installed."""
    section = Section("client: the JavaScript client and the page", ["figure", "", "value"])
    _sizes(section)
    if (node := shutil.which("node")) is None:
        section.notes.append("patches: not run: Node is not installed")
    else:
        _patches(section, node, 10_000 if quick else 100_000)
    if (chromium := shutil.which("chromium")) is None:
        section.notes.append("page: not run: Chromium is not installed")
    else:
        _page(section, chromium, 5 if quick else 50, 20_000 if quick else 1_000_000)
    return section


def _sizes(section: Section) -> None:
    folder = Path(routes.__file__).parent
    written = {name: (folder / name).read_bytes() for name in routes.FILES.values()}
    written["page.js"] = bundle(folder / "page.js")
    sizes = {name: len(gzip.compress(content)) for name, content in written.items()}
    kilobytes = sum(size for name, size in sizes.items() if not name.endswith(".d.ts")) / 1_000
    section.rows.append(["size, compressed", "page and client, with the layout of pictures", f"{number(kilobytes)} kB"])
    section.targets.append(Target("client, size", 150, "kB", {"page and client": kilobytes}))


def _patches(section: Section, node: str, nodes: int) -> None:
    ran = subprocess.run([node, str(_SCRIPT), str(nodes), "10000"], capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    where = f"a tree of {nodes:,} nodes"
    section.rows += [
        ["snapshot applied; nested", where, f"{number(found['applied_s'])} s; {number(found['nested_s'])} s"],
        ["patches/s, rows read at the end", where, number(found["unread"])],
        ["patches/s, rows read after each", where, number(found["read"])],
    ]
    section.targets.append(Target("client, patches/s", 10_000, "", {"applied": found["unread"]}, at_least=True))
    section.runs["patches"] = found


def _page(section: Section, chromium: str, leaves: int, rows: int) -> None:
    from playwright.sync_api import sync_playwright

    with contextlib.ExitStack() as stack:
        name, log = stack.enter_context(_log(section))
        topology, queries = _folders(f"bench{uuid.uuid4().hex[:8]}")
        eddy.create_topics(topology, log)
        stack.enter_context(eddy.run(topology, log))
        server = stack.enter_context(served(endpoint_of("0"), topology, log, queries=queries))
        writer = stack.enter_context(contextlib.closing(_Writer(log, topology)))
        writer.write("home", None)
        server.tables.wait(exact=True)
        browser = stack.enter_context(sync_playwright()).chromium.launch(executable_path=chromium, args=_FLAGS)
        stack.callback(browser.close)
        url = f"http://127.0.0.1:{server.port}/"
        painted = statistics.median(_first_picture(browser, url) for _ in range(5))
        seen = sorted(_leaves(browser, url, writer, leaves))
        p50, p99 = seen[len(seen) // 2], seen[-1 - len(seen) // 100]
        section.rows += [
            ["first picture", "topology, median of 5", f"{number(painted)} ms"],
            ["a new leaf until it is seen, p50; p99", name, f"{number(p50)} ms; {number(p99)} ms"],
        ]
        section.targets.append(Target("client, first picture", 300, "ms", {"page": painted}))
        section.targets.append(Target("client, leaf seen p50", 60, "ms", {name: p50}))
        section.runs["page"] = {"first_picture_ms": painted, "seen_ms": seen}
        measure_layout(section, browser)
        measure_table(section, browser, rows)


@contextlib.contextmanager
def _log(section: Section) -> Iterator[tuple[str, Log]]:
    with contextlib.ExitStack() as stack:
        try:
            log: Log = eddy.kafka(stack.enter_context(cluster()).bootstrap)
            name = "Kafka"
        except MissingError as error:
            section.notes.append(f"Kafka: not run: {error}")
            log, name = eddy.open_log(), "embedded log"
        yield name, stack.enter_context(contextlib.closing(log))


def _folders(name: str) -> tuple[eddy.Topology, eddy.Queries]:
    topology, queries = eddy.Topology(name), eddy.Queries()
    topology.table(f"{name}-folders", key=eddy.String, value=eddy.Json(), name="folders")
    folders = eddy.live_table("folders", key="id")

    def children(folder: Any) -> eddy.Query:
        return folders.where(folders.parent == folder.id).order_by(-folders.at).nest(children=children)

    @queries.query
    def tree() -> eddy.Query:
        return folders.where(folders.parent.is_null()).nest(children=children)

    return topology, queries


class _Writer:
    """Writes folders, each in a transaction of its own, by one client."""

    def __init__(self, log: Log, topology: eddy.Topology) -> None:
        (self._source,) = topology.plan.sources()
        self._producer = log.producer(None)

    def write(self, name: str, parent: str | None) -> None:
        self._producer.begin()
        value = json.dumps({"name": name, "parent": parent, "at": time.time()}).encode()
        self._producer.send(self._source.topic, 0, [name.encode()], [value], [0])
        self._producer.commit({}, None)

    def close(self) -> None:
        self._producer.close()


def _first_picture(browser: Any, url: str) -> float:
    page = browser.new_page()
    page.goto(url)
    page.wait_for_selector(".node")
    painted: float = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    page.close()
    return painted


def _leaves(browser: Any, url: str, writer: _Writer, count: int) -> Iterator[float]:
    """Milliseconds from before a leaf is written until its row is an element of the page."""
    page = browser.new_page()
    page.set_default_timeout(_PATIENCE_MS)
    page.goto(f"{url}#/queries/tree?")
    page.wait_for_selector(".row")
    page.locator(".list").focus()
    for number_ in range(count + 3):
        name = f"leaf-{number_:04}"
        page.evaluate(_SEEN, name)
        began = time.time()
        writer.write(name, "home")
        if not number_:
            page.wait_for_selector("[aria-expanded]")
            page.keyboard.press("ArrowRight")
        seen_ms = page.evaluate("seen") - began * 1_000
        if number_ >= 3:
            yield seen_ms
    page.close()
