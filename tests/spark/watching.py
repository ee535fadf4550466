"""Notes the lines of eddy/operators that run in a process; definitions of modules and classes do not count."""

import inspect
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import eddy.operators

__all__ = ["VALUES", "Watch", "lines_in"]

_FOLDER = str(Path(eddy.operators.__file__).parent)
VALUES = frozenset({"graph/reached.py:reached_serde", "graph/reached.py:Child", "graph/reached.py:Reached"})
"""The types of values that users see, and their serdes."""


class Watch:
    """A context that appends `file:function:line` to a file, once for each line; without the file it does nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[tuple[str, int]] = set()

    def __enter__(self) -> None:
        if self._path.exists():
            sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code.co_filename.startswith(_FOLDER) and code.co_flags & inspect.CO_OPTIMIZED:
            self._line(frame, "line", None)
            return self._line
        return None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        place = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and place not in self._seen:
            self._seen.add(place)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{_shown(frame.f_code)}:{frame.f_lineno}\n")
        return self._line


def _shown(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(_FOLDER)}:{code.co_qualname}"


def lines_in(path: Path) -> set[str]:
    """The lines that were noted, but for the types of values."""
    noted = set(path.read_text(encoding="utf-8").split("\n")) - {""}
    return {line for line in noted if line.rpartition(":")[0].split(".<locals>")[0] not in VALUES}
