"""A headless Chromium, and an application whose tables and queries are served for it."""

import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.client.node import CHROMIUM, needed

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 30_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = needed(CHROMIUM, "chromium", "chromium")
    needed(
        importlib.util.find_spec("playwright") and "playwright", "playwright", "chromium; and pip install playwright"
    )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield made
        made.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page; at the end, nothing was asked of another host, and nothing was wrong on the page."""
    contexts, wrong = [], []

    def make(url: str, **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        origin = url.split("/#")[0]
        page.on(
            "request", lambda request: None if request.url.startswith((origin, "data:")) else wrong.append(request.url)
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.goto(url)
        return page

    yield make
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def screenshots() -> Callable[[Any, str], None]:
    """Save a picture of a page in the folder that EDDY_SCREENSHOTS names, if it does."""
    folder = os.environ.get("EDDY_SCREENSHOTS")

    def save(page: Any, name: str) -> None:
        if folder:
            page.screenshot(path=f"{folder}/{name}.png")

    return save
