"""What a view hands on: its columns to other statements, and keys of types that only SQL has."""

import datetime
from decimal import Decimal
from typing import Any

import pytest

import eddy


class TestViewsOverViews:
    """A view in another statement is a table with its columns, however it is keyed, and after what keeps its rows."""

    COLUMNS: Any = {"id": "bigint", "size": "bigint"}  # noqa: RUF012

    def sizes(self, topology: eddy.Topology, key: Any = None) -> eddy.View:
        items = topology.table("items", key=eddy.Int64, value=eddy.Int64)
        return topology.sql("SELECT id, size FROM i WHERE size > 1", {"i": (items, self.COLUMNS)}, "sizes", key)

    def answer(self, topology: eddy.Topology, text: str, table: Any) -> tuple[Any, set[Any]]:
        found = topology.sql(text, {"v": table}, name="answer", key="id")
        found.to_table("kept")
        with eddy.TopologyTestDriver(topology) as driver:
            driver.input("items").pipe_all([(1, 1), (2, 2), (3, 3)])
            driver.input("items").pipe(2, 5)
            return (found.columns, found.types), set(driver.store("kept").all().values())

    @pytest.mark.parametrize("key", [None, "id", ["size", "id"]])
    @pytest.mark.parametrize(
        "kept",
        [
            lambda view: view,
            lambda view: view.filter(lambda key, row: True),
            lambda view: view.select_key(lambda key, row: 7, key=eddy.Int64),
            lambda view: view.distinct(),
            lambda view: view.peek(lambda key, row: None).at_one_owner("one"),
        ],
        ids=["itself", "filter", "select_key", "distinct", "peek"],
    )
    def test_columns_are_those_of_the_view(self, key: Any, kept: Any) -> None:
        topology = eddy.Topology("app")
        view = kept(self.sizes(topology, key))
        told, rows = self.answer(topology, "SELECT id, size * 2 AS twice FROM v", view)
        assert told == (("id", "twice"), ("bigint", "bigint"))
        assert rows == {(2, 10), (3, 6)}

    @pytest.mark.parametrize("made", [lambda table: table, lambda table: table.filter_not(lambda key, row: False)])
    def test_columns_are_those_of_its_table(self, made: Any) -> None:
        topology = eddy.Topology("app")
        table = made(self.sizes(topology, "id").to_table())
        assert self.answer(topology, "SELECT id, size FROM v", table)[1] == {(2, 5), (3, 3)}

    @pytest.mark.parametrize("names", [["a", "b"], {"a": "integer", "b": "bigint"}])
    def test_columns_may_have_other_names(self, names: Any) -> None:
        topology = eddy.Topology("app")
        _, rows = self.answer(topology, "SELECT a AS id, b FROM v", (self.sizes(topology, "id"), names))
        assert rows == {(2, 5), (3, 3)}

    def test_what_changes_the_rows_has_columns_no_more(self) -> None:
        topology = eddy.Topology("app")
        changed = self.sizes(topology).map_values(lambda row: row[0])
        with pytest.raises(eddy.TopologyError, match="the type of column 'key' is not known"):
            topology.sql("SELECT * FROM v", {"v": changed}, name="answer")


class TestNumbersAsKeys:
    """sum(bigint) is a numeric, a Decimal in Python: keys of that type work, and serdes that cannot write it do not."""

    def view(self, topology: eddy.Topology, key: Any = "total", text: str = "sum(size) AS total") -> eddy.View:
        items = topology.table("items", key=eddy.Int64, value=eddy.Int64)
        columns: Any = {"id": "bigint", "size": "bigint"}
        return topology.sql(f"SELECT id % 2 AS odd, {text} FROM i GROUP BY 1", {"i": (items, columns)}, "sums", key)

    def test_a_sum_can_be_the_key(self) -> None:
        topology = eddy.Topology("app")
        self.view(topology).to_table("kept").to("out", value=eddy.Json())
        with eddy.TopologyTestDriver(topology) as driver:
            driver.input("items").pipe_all([(1, 10), (3, 20), (2, 5)])
            driver.restart(lose_state=True)
            driver.input("items").pipe(3, 5)
            assert driver.store("kept").all() == {Decimal(15): (1, Decimal(15)), Decimal(5): (0, Decimal(5))}
            assert driver.output("out", key=eddy.String).read_map() == {"15": [1, "15"], "5": [0, "5"]}

    @pytest.mark.parametrize("time", ["2026-01-02 03:04:05", "2026-01-02 03:04:05.678901"])
    def test_a_timestamp_can_be_the_key(self, time: str) -> None:
        topology = eddy.Topology("app")
        self.view(topology, "at", f"max(timestamp '{time}') AS at").to_table("kept")
        with eddy.TopologyTestDriver(topology) as driver:
            driver.input("items").pipe(1, 10)
            driver.restart(lose_state=True)
            assert [*driver.store("kept").all()] == [datetime.datetime.fromisoformat(time)]

    def test_a_serde_that_cannot_write_it_is_refused_at_build(self) -> None:
        topology = eddy.Topology("app")
        table = self.view(topology).to_table()
        with pytest.raises(eddy.TopologyError, match=r"key=int64 cannot write Decimal, .* or convert it to int before"):
            table.to("out", key=eddy.Int64)
        with pytest.raises(
            eddy.TopologyError, match=r"value=int64 cannot write tuple, which values are here \(serde sql"
        ):
            table.to("out", value=eddy.Int64)
