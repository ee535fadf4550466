"""An application that runs with its tables open, and live queries over tables in memory, on disk or read in part."""

import uuid
from contextlib import ExitStack, closing
from typing import Any

import pytest

import eddy
import eddy.live.query.long_opening
import eddy.live.server.live_view
from eddy.live.dataflow import first_rows
from eddy.live.dataflow.patch import Buckets
from eddy.live.query.nested import nested
from eddy.live.server.live_server import LiveServer
from eddy.state.memory import MemoryStore
from eddy.state.spaces import Spaces
from eddy.tables.intake import table_prefix
from eddy.tables.ordering import encode_key
from eddy.tables.served_rows import ServedRows
from eddy.tables.version import Version
from tests.live.server.families import Family, Written, family
from tests.waiting import PATIENCE_S


class Running(Family):
    """A family on an embedded log in memory, its worker, and its tables."""

    def __init__(self, stack: ExitStack) -> None:
        self.log = stack.enter_context(closing(eddy.open_log()))
        self.topology = topology = family(f"app{uuid.uuid4().hex[:8]}")
        eddy.create_topics(topology, self.log)
        stack.enter_context(eddy.run(topology, self.log))
        self.tables = stack.enter_context(eddy.open_tables(topology, self.log))

    def write(self, rows: Written) -> dict[str, dict[int, int]]:
        return self.produce(rows)

    def reach(self, view: eddy.LiveView, rows: Written) -> None:
        """Write rows, and wait until the view has them, exactly."""
        view.wait(self.write(rows), exact=True, timeout_s=PATIENCE_S)


class Loaded:
    """A server of live queries over rows that the test writes itself, from version to version."""

    def __init__(self, running: Running, stack: ExitStack, spaces: Spaces | None = None) -> None:
        """With `spaces` tables of two rows and more are on disk."""
        self._served = {name: running.tables.catalog.table(name) for name in ("nodes", "descendants")}
        self.rows = ServedRows(MemoryStore(), list(self._served))
        stack.callback(self.rows.close)
        self._number = 0
        self.show({})
        bound = {} if spaces is None else {"table_rows": 1, "spaces": spaces}
        self.server = LiveServer(running.tables.catalog, self.rows, running.tables.wanted, **bound)
        stack.callback(self.server.stop)

    def show(self, names: dict[str, str | None], totals: dict[str, int] | None = None) -> None:
        """A version: with these nodes and these numbers of descendants."""
        self._number += 1
        given = {"nodes": {k: None if v is None else v.encode() for k, v in names.items()}}
        count = self._served["descendants"].value
        given["descendants"] = {key: count.encode(value) for key, value in (totals or {}).items()}
        changes = {
            table: {table_prefix(table) + encode_key(self._served[table].key, key): data for key, data in rows.items()}
            for table, rows in given.items()
        }
        self.rows.apply(changes, {}, {}, Version({}, {}, exact=True, number=self._number), [])
        self.rows.say("")

    def lose(self, table: str) -> None:
        self.rows.forget(table, self._served[table].parts, "another")


def patches(view: eddy.LiveView) -> list[Any]:
    """The patches that have come."""
    found = []
    while True:
        try:
            found.append(view.next(0))
        except eddy.NotReadyError:
            return found


def rebuilt(view: eddy.LiveView, buckets: Buckets) -> Any:
    assert view.view is not None
    return nested(buckets.entries, view.view.shape, view.view.operator.root.id)


def break_once(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next change cannot be applied."""

    def breaks(*given: Any) -> Any:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(server.tables.engine, "apply", breaks)


def kept(view: eddy.LiveView) -> int:
    """The rows in memory for a window."""
    assert view.view is not None
    rows = view.view.operator.root.level.ordered
    assert isinstance(rows, first_rows.FirstRows)
    return rows.row_count()


def order_of(view: eddy.LiveView) -> type:
    """How the rows of a window are sorted."""
    assert view.view is not None
    return type(view.view.operator.root.level.ordered)


def is_on_disk(loaded: Loaded, table: str) -> bool:
    return loaded.server.tables.engine.tables[table].spaces is not None


def rows_below(view: eddy.LiveView) -> list[str]:
    """The ids of all rows that a view has."""
    return sorted({row["id"] for rows in view.entries.values() for row, _ in rows})
