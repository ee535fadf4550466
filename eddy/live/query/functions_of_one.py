"""Functions that users give, which are called with one argument."""

import inspect
from contextlib import suppress
from typing import Any

from eddy.errors import QueryBuildError

__all__ = ["check_function_of_one"]


def check_function_of_one(where: str, function: Any, argument: str, advice: str) -> None:
    """Check that a function can be called with one argument, and returns its result at once.

    Raises: QueryBuildError. Its text has `advice`, which says how the function is written.
    """
    try:
        if isinstance(function, type):
            raise TypeError("it is a class")
        if inspect.iscoroutinefunction(function):
            raise TypeError("it is a coroutine function")
        with suppress(ValueError):  # of a function without a known signature
            inspect.signature(function).bind(None)
    except TypeError as error:
        raise QueryBuildError(
            f"{where}{function!r} cannot be called with {argument}: {error}; a function of it is needed. "
            f"Write: {advice}"
        ) from error
