"""Finds the line of the author's files at which a function is written, or at which an exception was raised.

A file is the author's unless it belongs to this package, to the standard library or to an installed package.
"""

import functools
import inspect
import os
import sysconfig
import traceback
from pathlib import Path
from typing import Any

__all__ = ["describe_exception", "is_authors", "line_of", "raised_at", "shown_path"]

_PACKAGE = str(Path(__file__).resolve().parent) + os.sep
_OTHERS = ("<frozen", _PACKAGE, *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")))
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def is_authors(filename: str) -> bool:
    """Return whether a file of code is the author's."""
    if filename.startswith(_OTHERS):
        return False
    return not any(part in filename for part in _INSTALLED)


def describe_exception(error: BaseException) -> str:
    """Return the type and text of an exception, with the innermost line of the author's files in its traceback.

    >>> try:
    ...     int("x")
    ... except ValueError as error:
    ...     describe_exception(error)  # doctest: +ELLIPSIS
    "ValueError: invalid literal for int() with base 10: 'x' (<doctest ...>:2 in <module>)"
    """
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text + raised_at(error)


def raised_at(error: BaseException) -> str:
    """Return ` (file:line in function)` of the innermost traceback line in the author's files; empty if none is."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_authors(frame.filename)]
    return f" ({shown_path(frames[-1].filename)}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""


def line_of(function: Any) -> str:
    """Return `file:line` at which a function is written; empty for a function that is not written in Python.

    >>> line_of(len)
    ''
    """
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not hasattr(function, "__code__"):
        function = inspect.getattr_static(type(function), "__call__", None)
    code = getattr(function, "__code__", None)
    return "" if code is None else f"{shown_path(code.co_filename)}:{code.co_firstlineno}"


def shown_path(filename: str) -> str:
    """Return a path for messages: relative to the current directory if it is below that directory."""
    path = Path(filename)
    return os.path.relpath(path) if path.resolve().is_relative_to(Path.cwd()) else filename
