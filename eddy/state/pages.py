"""Pairs of a store, in pages that are bounded by their bytes, since rows may be small or large."""

from collections.abc import Callable, Iterator

__all__ = ["PAGE_BYTES", "pages"]

Pairs = list[tuple[bytes, bytes]]

PAGE_BYTES = 4 << 20
_FIRST = 32


def pages(read: Callable[[bytes, int], Pairs], start: bytes, most: int) -> Iterator[Pairs]:
    """All pairs from `start` on. `read` returns the first pairs from a key on, up to a number that is at most `most`.

    A page has at most twice as many pairs as the page before it, and at most as many of their mean size as fit into
    PAGE_BYTES.
    """
    limit = min(most, _FIRST)
    while True:
        page = read(start, limit)
        yield page
        if len(page) < limit:
            return
        start = page[-1][0] + b"\x00"
        size = sum(len(key) + len(data) for key, data in page)
        limit = max(1, min(most, 2 * limit, limit * PAGE_BYTES // (size + 1)))
