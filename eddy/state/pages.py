"""Reads the pairs of a store in pages, whose bytes are bounded because rows may be small or large."""

from collections.abc import Callable, Iterator

__all__ = ["PAGE_BYTES", "pages"]

Pairs = list[tuple[bytes, bytes]]

PAGE_BYTES = 4 << 20
_FIRST = 32


def pages(read: Callable[[bytes, int], Pairs], start: bytes, most: int) -> Iterator[Pairs]:
    """Yield all pairs from the key `start` on, in pages. `read(key, n)` returns the first n pairs from `key` on.

    A page has at most `most` pairs, and at most twice as many as the previous page. It is also bounded by PAGE_BYTES:
    it has only as many pairs as fit if they are as large as the pairs of the previous page.
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
