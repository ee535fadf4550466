"""A map of flat keys to plain data that is not in memory: a space on disk, and its latest cells before it.

    cells     keys that were read or written lately, with their values; None where there is none
    dirty     those of them that the space does not have yet

Cells are written many at a time, before a scan, and when they are too many. So a batch of changes costs no more than a
look into a dictionary for a row that is changed again and again. Nothing survives the process, nor has to.

A snapshot of a map is another map: its changes stay in memory.
"""

from collections.abc import Callable, ItemsView, Iterable, Iterator, MutableMapping, ValuesView
from typing import Any, TypeVar, cast

from eddy.operators.views.cells import cell_bytes, cell_of
from eddy.operators.views.values import Flat
from eddy.state.spaces import Space, Spaces, SpaceSnapshot

__all__ = ["StoredMap", "map_in"]

V = TypeVar("V")

_CELLS, _PAGE = 5_000, 1_000
_LAST = b"\xff"
"""No flat value begins with it."""


def map_in(spaces: Spaces | None) -> MutableMapping[Flat, Any]:
    """An empty map: on disk, or a dictionary where there are no spaces."""
    return {} if spaces is None else StoredMap(spaces.make())


def _as_it_is(value: Any) -> Any:
    return value


class StoredMap(MutableMapping[Flat, V]):
    """Values by key, in the order of keys. `freeze` makes plain data of a value, `thaw` the value again."""

    def __init__(
        self,
        space: Space | SpaceSnapshot,
        freeze: Callable[[V], Any] = _as_it_is,
        thaw: Callable[[Any], V] = _as_it_is,
        count: int = 0,
    ) -> None:
        self._space, self._freeze, self._thaw = space, freeze, thaw
        self._cells: dict[Flat, V | None] = {}
        self._dirty: dict[Flat, None] = {}
        self._count = count

    @property
    def cells(self) -> int:
        """The number of cells in memory."""
        return len(self._cells)

    def __len__(self) -> int:
        return self._count

    def get(self, key: Flat, default: Any = None) -> Any:
        """The value of a key."""
        cells = self._cells
        if key in cells:
            found = cells[key]
        else:
            (data,) = self._space.get_many([key])
            found = None if data is None else self._thaw(cell_of(data))
            self._keep(key, found)
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
        """Put a key that is not there. Cost: nothing is read."""
        self._count += 1
        self._change(key, value)

    def remove(self, key: Flat) -> None:
        """Delete a key that is there. Cost: nothing is read."""
        self._count -= 1
        self._change(key, None)

    def fetch(self, keys: Iterable[Flat]) -> None:
        """Read the cells of many keys, which are asked for next."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._cells][:_CELLS]
        found = self._space.get_many(missing) if len(missing) > 1 else ()
        for key, data in zip(missing, found, strict=False):
            self._keep(key, None if data is None else self._thaw(cell_of(data)))

    def fill(self, items: Iterable[tuple[Flat, V]]) -> None:
        """Put keys that are not there, page by page. Cost: no cell is kept."""
        page: list[tuple[bytes, bytes | None]] = []
        for key, value in items:
            page.append((key, cell_bytes(self._freeze(value))))
            if len(page) == _PAGE:
                self._write(page)
                page = []
        self._write(page)

    def _write(self, page: list[tuple[bytes, bytes | None]]) -> None:
        self._space_to_write().write(page)
        self._count += len(page)

    def _space_to_write(self) -> Space:
        assert isinstance(self._space, Space)
        return self._space

    def _change(self, key: Flat, value: V | None) -> None:
        self._keep(key, value)
        self._dirty[key] = None
        if len(self._dirty) >= _CELLS:
            self.flush()

    def _keep(self, key: Flat, value: V | None) -> None:
        cells = self._cells
        if len(cells) - len(self._dirty) >= _CELLS:
            self._cells = cells = {dirty: cells[dirty] for dirty in self._dirty}
        cells[key] = value

    def flush(self) -> None:
        """Write the cells that the space does not have."""
        if not self._dirty or isinstance(self._space, SpaceSnapshot):
            return
        page: list[tuple[bytes, bytes | None]] = []
        for key in self._dirty:
            value = self._cells[key]
            page.append((key, None if value is None else cell_bytes(self._freeze(value))))
        self._space_to_write().write(page)
        self._dirty = {}

    def __iter__(self) -> Iterator[Flat]:
        return (key for key, _ in self._pairs())

    def items(self) -> "ItemsView[Flat, V]":
        """The keys with their values, page by page."""
        return _Items(self)

    def values(self) -> "ValuesView[V]":
        """The values, page by page."""
        return _Values(self)

    def _pairs(self) -> Iterator[tuple[Flat, V]]:
        changed = {key: self._cells[key] for key in self._dirty}
        start = b""
        while True:
            page = self._space.between(start, None, _PAGE)
            for key, data in page:
                if key not in changed:
                    yield key, self._thaw(cell_of(data))
            if len(page) < _PAGE:
                break
            start = page[-1][0] + b"\x00"
        for key, found in changed.items():
            if found is not None:
                yield key, found

    def beginning(self, prefix: Flat, start: Flat = b"", *, after: bool = False, limit: int) -> Iterator[Flat]:
        """The first `limit` keys that begin with `prefix`, and go on with `start` or more; `after` it, with more.

        Not for a snapshot that has changed. The map has to stay as it is meanwhile.
        """
        self.flush()
        first, stop = prefix + start + (b"\x00" if after else b""), prefix + _LAST
        while limit > 0:
            room = min(limit, _PAGE)
            page = self._space.between(first, stop, room)
            yield from (key for key, _ in page)
            limit -= room
            if len(page) < room:
                return
            first = page[-1][0] + b"\x00"

    def snapshot(self) -> "StoredMap[V]":
        """The map as it is now, for another thread. `close` it in the end."""
        self.flush()
        return StoredMap(self._space_to_write().snapshot(), self._freeze, self._thaw, self._count)

    def close(self) -> None:
        """Remove what is on disk."""
        self._cells, self._dirty, self._count = {}, {}, 0
        self._space.drop()


class _Items(ItemsView[Flat, V]):
    """Without a look into the map for each key."""

    def __init__(self, found: StoredMap[V]) -> None:
        super().__init__(found)
        self._found = found

    def __iter__(self) -> Iterator[tuple[Flat, V]]:
        return self._found._pairs()


class _Values(ValuesView[V]):
    """Likewise."""

    def __init__(self, found: StoredMap[V]) -> None:
        super().__init__(found)
        self._found = found

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._found._pairs())
