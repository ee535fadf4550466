"""Those that are told of each version of live queries, such as the publisher of the streams over HTTP."""

from typing import Any, Protocol

from eddy.serve.views.version import Version

__all__ = ["Follower"]


class Follower(Protocol):
    """Is told of versions, with the lock of the live server held."""

    def moved(self, version: Version, state: Any) -> None:
        """All views are of this version; "unknown" while tables are read anew."""

    def stopped(self) -> None:
        """No version will come any more."""
