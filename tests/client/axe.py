"""Axe's rules of accessibility, in the page that a browser shows."""

from typing import Any

from tests.client.node import needed

__all__ = ["check_accessible"]


def check_accessible(page: Any) -> None:
    """Fail with what a page violates of WCAG 2.2, levels A and AA, and of axe's best practices."""
    try:
        from axe_playwright_python.base import AXE_SCRIPT
    except ImportError:
        needed(None, "axe", "chromium; and pip install axe-playwright-python")
    page.evaluate(AXE_SCRIPT)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    wrong = [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found["violations"]]
    assert wrong == [], wrong
