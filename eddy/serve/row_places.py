"""Finds pages of rows by their place: from the N-th row of a range on, or from a key on.

A place is the number of rows before a row in its range, at the version of the page. It is found by the ranks of keys
(`tables/key_ranks.py`), so that no rows before the page are read.
"""

from typing import NamedTuple

from starlette.requests import Request

from eddy.errors import QueryError
from eddy.live.query.refusals import ForbiddenError
from eddy.program.open_tables import Tables, TablesSnapshot
from eddy.serve.answers import whole_number
from eddy.tables.key_ranks import KeyRanks
from eddy.tables.key_text import key_of_text
from eddy.tables.open_table import KeyRange, OpenTable

__all__ = ["COUNTING_S", "RowPlace", "Sought", "placed", "sought_of"]

COUNTING_S = 1.0
"""Seconds for which one request counts keys; if a table takes longer, the next requests continue."""


class Sought(NamedTuple):
    """The row with which a page begins: the row at a place, or the first row from a stored key on."""

    at: int
    key: bytes | None = None


class RowPlace(NamedTuple):
    """The keys from a page's first row on, the place of this row, the number of rows in the range, and a snapshot."""

    keys: KeyRange
    at: int
    total: int
    snapshot: TablesSnapshot


def sought_of(request: Request, table: OpenTable, *, shows_all: bool) -> Sought | None:
    """Return the row that `at=` or `find=` asks for; None without these parameters.

    Raises: QueryError for `at=` with `find=`, or one of them with `after=`; ForbiddenError if the caller may not read
    all rows, since a place would reveal the number of other rows.
    """
    at, text = whole_number(request, "at"), request.query_params.get("find")
    if at is None and text is None:
        return None
    given = [name for name in ("at", "find", "after") if name in request.query_params]
    if len(given) > 1:
        raise QueryError(f"table '{table.table.name}': {' and '.join(given)} are given; one of them is needed")
    if not shows_all:
        raise ForbiddenError(
            f"table '{table.table.name}': {given[0]}= counts rows that this caller may not read; pages by after= are "
            "needed"
        )
    return Sought(at or 0, None if text is None else table.stored_key(key_of_text(table.table, text)))


def placed(tables: Tables, name: str, keys: KeyRange, sought: Sought) -> RowPlace:
    """Find a row in a range, and the snapshot in which it has its place.

    Raises: NotReadyError while the keys up to this row are not counted.
    """
    table = tables[name].keys()
    start, stop = keys.start, max(keys)  # of a range that ends before it begins, the place is its beginning
    needed = [start] if stop >= table.stop else [start, stop]
    if sought.key is not None:
        needed.append(min(max(sought.key, start), stop))

    def known(ranks: KeyRanks) -> bool:
        if not all(map(ranks.covers, needed)):
            return False
        return not sought.at or ranks.whole or ranks.counted > ranks.rank(start) + sought.at

    with tables.rows.ranks(name, known, COUNTING_S) as ranks:
        before = ranks.rank(start)
        count = (tables.rows.counts[name] if stop >= table.stop else ranks.rank(stop)) - before
        if sought.key is not None:
            start = needed[-1]
            at = ranks.rank(start) - before
        else:
            at = min(sought.at, count)
            start = start if at == 0 else ranks.key_at(before + at) or stop
        return RowPlace(KeyRange(start, keys.stop), at, count, tables.snapshot(timeout_s=0.0))
