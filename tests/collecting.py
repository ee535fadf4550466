"""What pytest looks into: in each of its processes, so that what is left out is not imported there either."""

from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule

__all__ = ["EXAMPLE", "Collecting"]

EXAMPLE = ">>>"
"""What each example in a docstring begins with."""


class Collecting:
    """A plugin. Folders `left_out` are not opened; files without an example in a docstring are not searched for one."""

    def __init__(self, root: Path, left_out: tuple[str, ...]) -> None:
        self._left_out = tuple(root / each for each in left_out)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Whether a file or folder is left out; None leaves the answer to pytest."""
        return True if collection_path in self._left_out else None

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """The collectors of a file."""
        collectors = yield
        searching = [each for each in collectors if isinstance(each, DoctestModule)]
        if not searching or EXAMPLE in file_path.read_text(encoding="utf-8"):
            return collectors
        return [each for each in collectors if each not in searching]
