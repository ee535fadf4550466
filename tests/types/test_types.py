"""The DSL's types say what a lambda gets and what a step returns: mypy checks `family.py`, strictly."""

from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).resolve().parents[2]


def test_mypy_infers_what_the_file_asserts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the project's own settings, which are strict, and so with the cache that checking the project has filled."""
    monkeypatch.chdir(ROOT)
    out, errors, status = api.run(["tests/types/family.py"])
    assert (status, errors) == (0, ""), out
