"""Keeps former rows for a table server's last versions, so that the rows of an earlier version can be shown again.

    rows(v) = the rows now, each with the first of its former values that is kept since v

Their bytes are bounded, and the earliest versions are dropped first. A version before the first cut is not kept,
because it is not known up to which records of the inputs it is computed.
"""

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from eddy.tables.version import Version

__all__ = ["FormerRows", "PastVersion", "RecentVersions"]

_VERSION_BYTES, _ROW_BYTES = 2_000, 200
"""The memory that a version takes, and that one of its rows takes besides the bytes of key and value."""

FormerRows = Mapping[bytes, bytes | None]
"""The values of rows before they changed, by key; None for rows that were not there."""


class PastVersion(NamedTuple):
    """A version that was shown: the numbers of rows of the tables, and when it was shown first, in milliseconds."""

    version: Version
    counts: Mapping[str, int]
    shown_ms: int


class _KeptVersion(NamedTuple):
    past: PastVersion
    former: FormerRows
    size: int


class RecentVersions:
    """The last versions. Each has the values, at that version, of the rows that the next version has changed."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._kept: deque[_KeptVersion] = deque()

    @property
    def earliest(self) -> PastVersion | None:
        """The earliest version that is kept."""
        return self._kept[0].past if self._kept else None

    def note(self, past: PastVersion, former: FormerRows) -> None:
        """Add a version that ends. `former` has its values of the rows that the next version changes."""
        if not self._max_bytes:
            return
        size = _VERSION_BYTES + sum(len(key) + len(value or b"") + _ROW_BYTES for key, value in former.items())
        self._kept.append(_KeptVersion(past, former, size))
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._bytes -= self._kept.popleft().size

    def forget(self) -> None:
        """Drop all versions, because the changes since then are not known."""
        self._kept.clear()
        self._bytes = 0

    def of(self, wanted: Version) -> tuple[PastVersion, dict[bytes, bytes | None]] | None:
        """Return the version with the offsets of `wanted`, and its values of the rows that have changed since then.

        Returns None if the version is not kept.
        """
        for number, (past, _, _) in enumerate(self._kept):
            if past.version.is_at(wanted):
                former: dict[bytes, bytes | None] = {}
                for later in islice(reversed(self._kept), len(self._kept) - number):
                    former.update(later.former)
                return past, former
        return None
