"""Joins of tables by a foreign key, against plain dicts; errors where they are written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.errors import TopologyError

ORDERS, CUSTOMERS = "123", "ab"
Order = st.none() | st.fixed_dictionaries({"by": st.sampled_from([None, "a", "b", "c"]), "sum": st.integers(0, 3)})
Customer = st.none() | st.fixed_dictionaries({"name": st.sampled_from("xyz")})
Change = st.tuples(st.just("orders"), st.sampled_from(ORDERS), Order) | st.tuples(
    st.just("customers"), st.sampled_from(CUSTOMERS), Customer
)


def build() -> eddy.Topology:
    topology = eddy.Topology("shop")
    orders = topology.table("orders", key=eddy.String, value=eddy.Json())
    customers = topology.table("customers", key=eddy.String, value=eddy.Json())
    json = eddy.Json()
    orders.foreign_key_join(
        customers, lambda order: order["by"], lambda order, one: [order["sum"], one["name"]], "inner", json
    ).to("inner")
    orders.foreign_key_left_join(
        customers, lambda order: order["by"], lambda order, one: [order["sum"], one and one["name"]], "left", json
    ).to("left")
    return topology


def answers(orders: dict[str, Any], customers: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    left = {key: [order["sum"], customers.get(order["by"], {}).get("name")] for key, order in orders.items()}
    return {key: row for key, row in left.items() if orders[key]["by"] in customers}, left


@given(st.lists(st.lists(Change, min_size=1, max_size=4), max_size=6), st.sampled_from([1, 2, 3]))
def test_rows_are_those_of_plain_dicts_after_every_epoch(epochs: list[list[Any]], partitions: int) -> None:
    tables: dict[str, dict[str, Any]] = {"orders": {}, "customers": {}}
    shown: dict[str, dict[str, Any]] = {"inner": {}, "left": {}}
    with eddy.TopologyTestDriver(build(), partitions=partitions) as driver:
        for changes in epochs:
            for topic, key, value in changes:
                tables[topic].pop(key, None)
                if value is not None:
                    tables[topic][key] = value
            for topic in tables:
                driver.input(topic).pipe_all([(key, value) for at, key, value in changes if at == topic])
            for topic, rows in shown.items():
                for key, value in driver.output(topic).read_key_values():
                    rows.pop(key, None)
                    if value is not None:
                        rows[key] = value
            assert (shown["inner"], shown["left"]) == answers(tables["orders"], tables["customers"])


class TestErrors:
    def test_what_is_no_table_or_no_function_is_named(self) -> None:
        topology = eddy.Topology("shop")
        table, stream = topology.table("a"), topology.stream("b")
        with pytest.raises(TopologyError, match="foreign_key_join of table 'a': KStream is not a KTable"):
            table.foreign_key_join(stream, str, str)  # type: ignore[arg-type]
        with pytest.raises(TopologyError, match=r"foreign_key=.* is called with \(value\)"):
            table.foreign_key_join(topology.table("c"), lambda: None, lambda one, other: one)
        with pytest.raises(TopologyError, match=r"joiner=.* is called with \(value, other\)"):
            table.foreign_key_left_join(topology.table("d"), lambda row: row, lambda one: one)

    def test_tables_of_two_topologies_are_refused(self) -> None:
        other = eddy.Topology("other").table("b")
        with pytest.raises(TopologyError, match="one side is of topology 'shop', the other of 'other'"):
            eddy.Topology("shop").table("a").foreign_key_join(other, lambda row: row, lambda one, there: one)

    def test_a_name_is_given_where_a_join_is_made_twice(self) -> None:
        topology = eddy.Topology("shop")
        orders, customers = topology.table("orders"), topology.table("customers")
        orders.foreign_key_join(customers, lambda row: row, lambda one, other: one)
        with pytest.raises(TopologyError, match="name"):
            orders.foreign_key_join(customers, lambda row: row, lambda one, other: other)
