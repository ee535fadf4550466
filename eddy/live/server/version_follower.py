"""The interface of followers, which a live server calls at each version, such as the publisher of streams over HTTP."""

from typing import Any, Protocol

from eddy.tables.version import Version

__all__ = ["VersionFollower"]


class VersionFollower(Protocol):
    """Its methods are called with the lock of the live server held."""

    def on_version(self, version: Version, state: Any) -> None:
        """Called when all views are at this version. `state` is "complete", or "unknown" while tables are read anew."""

    def stopped(self) -> None:
        """Called when the live server has stopped: there are no more versions."""
