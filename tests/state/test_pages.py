"""Pages of pairs: nothing is left out, and pages of large pairs have few."""

import pytest

from eddy.state.memory import MemoryStore
from eddy.state.pages import PAGE_BYTES, pages


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 95, 96, 97, 1_000])
def test_pages_have_all_pairs_once_in_order(count: int) -> None:
    store = MemoryStore()
    pairs = [(b"%05d" % n, b"x" * n) for n in range(count)]
    store.write(pairs)
    found = list(pages(lambda start, limit: store.scan_between(start, b"a", limit), b"", 100))
    assert [pair for page in found for pair in page] == pairs
    assert all(len(page) <= 100 for page in found)


def test_pages_of_large_pairs_have_few_and_of_small_ones_many_again() -> None:
    store = MemoryStore()
    large = PAGE_BYTES // 10
    text = b"x" * large
    store.write([(b"%05d" % n, text if 3_000 <= n < 9_000 else b"x") for n in range(12_000)])
    found = list(pages(lambda start, limit: store.scan_between(start, b"a", limit), b"", 1_000))
    sizes = [len(page) for page in found if page[0][1] == page[-1][1] == text]
    assert max(map(len, found)) == 1_000
    assert set(sizes[1:]) == {9}
    assert len(found[-2]) > 100
