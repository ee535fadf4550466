"""A map from flat keys to plain data in a space on disk, with a cache of its latest cells in memory.

    cells     the cache: keys that were read or written lately, with their values; None for a key without a value
    dirty     the cells that are not written to the space yet, as bytes

Cells are written many at a time: before a scan, and when they are too many, or too large. So a row that changes often
costs only a dictionary look-up and its encoding each time. The map exists as long as the process.

A snapshot of a map is a map of its own, which keeps its changes in memory.
"""

from collections.abc import Callable, ItemsView, Iterable, Iterator, MutableMapping, ValuesView
from typing import Any, TypeVar, cast

from eddy.live.dataflow.cells import cell_bytes, cell_of
from eddy.live.dataflow.values import Flat
from eddy.state.pages import PAGE_BYTES, pages
from eddy.state.spaces import Space, Spaces, SpaceSnapshot

__all__ = ["MAX_CELLS", "PAGE_CELLS", "StoredMap", "map_in"]

V = TypeVar("V")

MAX_CELLS, PAGE_CELLS, _FETCHED = 5_000, 1_000, 100
"""The most cells in memory; the cells that are read at a time in a scan, and those by given keys."""
_BYTES = PAGE_BYTES
"""The most bytes of the cells in memory, and of the cells that are not written yet."""
_LAST = b"\xff"
"""A byte with which no flat value begins."""


def map_in(spaces: Spaces | None) -> MutableMapping[Flat, Any]:
    """Return an empty map: on disk, or a dictionary if `spaces` is None."""
    return {} if spaces is None else StoredMap(spaces.make())


def _as_it_is(value: Any) -> Any:
    return value


class StoredMap(MutableMapping[Flat, V]):
    """Values by key, in the order of keys. `freeze` turns a value into plain data, `thaw` turns it back."""

    def __init__(
        self,
        space: Space | SpaceSnapshot,
        freeze: Callable[[V], Any] = _as_it_is,
        thaw: Callable[[Any], V] = _as_it_is,
        count: int = 0,
    ) -> None:
        self._space, self._freeze, self._thaw = space, freeze, thaw
        self._cells: dict[Flat, V | None] = {}
        self._dirty: dict[Flat, bytes | None] = {}
        self._kept_bytes = self._dirty_bytes = 0
        self._count = count

    @property
    def cells(self) -> int:
        """The number of cells in memory."""
        return len(self._cells)

    def __len__(self) -> int:
        return self._count

    def get(self, key: Flat, default: Any = None) -> Any:
        """Return the value of a key."""
        cells = self._cells
        if key in cells:
            found = cells[key]
        else:
            (data,) = self._space.get_many([key])
            found = self._keep_read(key, data)
        return default if found is None else found

    def __getitem__(self, key: Flat) -> V:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return cast("V", found)

    def __contains__(self, key: object) -> bool:
        return self.get(cast("Flat", key)) is not None

    def __setitem__(self, key: Flat, value: V) -> None:
        if self.get(key) is None:
            self._count += 1
        self._change(key, value)

    def __delitem__(self, key: Flat) -> None:
        if self.get(key) is None:
            raise KeyError(key)
        self.remove(key)

    def add(self, key: Flat, value: V) -> None:
        """Add a key that the map does not have. Cost: nothing is read."""
        self._count += 1
        self._change(key, value)

    def remove(self, key: Flat) -> None:
        """Delete a key that the map has. Cost: nothing is read."""
        self._count -= 1
        self._change(key, None)

    def fetch(self, keys: Iterable[Flat]) -> None:
        """Read the cells of keys that are needed next: up to 5,000 cells, or fewer if they are large."""
        asked = list(dict.fromkeys(keys))[:MAX_CELLS]
        # Otherwise cells would be dropped while others are read.
        if len(self._cells) - len(self._dirty) + len(asked) > MAX_CELLS:
            self._let_go()
        missing = [key for key in asked if key not in self._cells]
        room = _BYTES
        for begin in range(0, len(missing) if len(missing) > 1 else 0, _FETCHED):
            wanted = missing[begin : begin + _FETCHED]
            for key, data in zip(wanted, self._space.get_many(wanted), strict=True):
                self._keep_read(key, data)
                room -= _size(key, data)
            if room <= 0:
                return

    def fill(self, items: Iterable[tuple[Flat, V]]) -> None:
        """Add keys that the map does not have, page by page. No cell remains in memory."""
        page: list[tuple[bytes, bytes | None]] = []
        room = _BYTES
        for key, value in items:
            data = cell_bytes(self._freeze(value))
            page.append((key, data))
            room -= _size(key, data)
            if len(page) == PAGE_CELLS or room <= 0:
                self._write(page)
                page, room = [], _BYTES
        self._write(page)

    def _write(self, page: list[tuple[bytes, bytes | None]]) -> None:
        self._space_to_write().write(page)
        self._count += len(page)

    def _space_to_write(self) -> Space:
        assert isinstance(self._space, Space)
        return self._space

    def _change(self, key: Flat, value: V | None) -> None:
        data = None if value is None else cell_bytes(self._freeze(value))
        if key in self._dirty:
            self._dirty_bytes -= _size(key, self._dirty[key])
        self._dirty[key] = data
        self._dirty_bytes += _size(key, data)
        self._keep(key, value)
        if len(self._dirty) >= MAX_CELLS or self._dirty_bytes >= _BYTES:
            self.flush()

    def _keep_read(self, key: Flat, data: bytes | None) -> V | None:
        """Keep a cell that was read from the space. Returns its value."""
        found = None if data is None else self._thaw(cell_of(data))
        self._keep(key, found)
        self._kept_bytes += _size(key, data)
        return found

    def _keep(self, key: Flat, value: V | None) -> None:
        if len(self._cells) - len(self._dirty) >= MAX_CELLS or self._kept_bytes >= _BYTES:
            self._let_go()
        self._cells[key] = value

    def _let_go(self) -> None:
        """Drop all cells from memory, except those that are not written to the space yet."""
        self._cells = {key: self._cells[key] for key in self._dirty if key in self._cells}
        self._kept_bytes = 0

    def flush(self) -> None:
        """Write the cells to the space that are not written yet."""
        if not self._dirty or isinstance(self._space, SpaceSnapshot):
            return
        self._space_to_write().write(list(self._dirty.items()))
        self._kept_bytes += self._dirty_bytes
        self._dirty, self._dirty_bytes = {}, 0

    def __iter__(self) -> Iterator[Flat]:
        return (key for key, _ in self._pairs())

    def items(self) -> "ItemsView[Flat, V]":
        """Return the keys with their values, page by page."""
        return _Items(self)

    def values(self) -> "ValuesView[V]":
        """Return the values, page by page."""
        return _Values(self)

    def _pairs(self) -> Iterator[tuple[Flat, V]]:
        changed = {key: self._cells[key] for key in self._dirty}
        for page in pages(lambda start, limit: self._space.between(start, None, limit), b"", PAGE_CELLS):
            for key, data in page:
                if key not in changed:
                    yield key, self._thaw(cell_of(data))
        for key, found in changed.items():
            if found is not None:
                yield key, found

    def beginning(self, prefix: Flat, start: Flat = b"", *, after: bool = False, limit: int) -> Iterator[Flat]:
        """Yield the first `limit` keys that begin with `prefix` and whose rest is at least `start`; `after`: above it.

        Not for a snapshot that has changed. The map must not change while the keys are read.
        """
        self.flush()
        first, stop = prefix + start + (b"\x00" if after else b""), prefix + _LAST
        while limit > 0:
            room = min(limit, PAGE_CELLS)
            page = self._space.between(first, stop, room)
            yield from (key for key, _ in page)
            limit -= room
            if len(page) < room:
                return
            first = page[-1][0] + b"\x00"

    def snapshot(self) -> "StoredMap[V]":
        """Return a copy of the map as it is now, for another thread. The caller closes the copy."""
        self.flush()
        return StoredMap(self._space_to_write().snapshot(), self._freeze, self._thaw, self._count)

    def close(self) -> None:
        """Remove the map's data on disk."""
        self._cells, self._dirty, self._count = {}, {}, 0
        self._space.drop()


def _size(key: Flat, data: bytes | None) -> int:
    return len(key) if data is None else len(key) + len(data)


class _Items(ItemsView[Flat, V]):
    """The pairs of a map, read in pages and not key by key."""

    def __init__(self, found: StoredMap[V]) -> None:
        super().__init__(found)
        self._found = found

    def __iter__(self) -> Iterator[tuple[Flat, V]]:
        return self._found._pairs()


class _Values(ValuesView[V]):
    """The values of a map, read in pages and not key by key."""

    def __init__(self, found: StoredMap[V]) -> None:
        super().__init__(found)
        self._found = found

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._found._pairs())
