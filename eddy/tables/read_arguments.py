"""Checks the arguments of waits and of reads, at the call."""

from typing import Any

from eddy.errors import QueryError

__all__ = ["check_limit", "check_wait"]


def check_limit(where: str, limit: Any) -> None:
    """Raise QueryError unless `limit` is a number of rows, or None."""
    if limit is not None and (type(limit) is not int or limit < 0):
        raise QueryError(f"{where}: limit={limit!r}; a number of rows, or None for all, is needed")


def check_wait(where: str, exact: Any, timeout_s: Any) -> None:
    """Raise QueryError unless `exact` is a bool, and `timeout_s` is a number of seconds."""
    if not isinstance(exact, bool):
        raise QueryError(f"{where}: exact={exact!r}; True or False is needed")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s >= 0:
        raise QueryError(f"{where}: timeout_s={timeout_s!r}; a number of seconds, 0 or more, is needed")
