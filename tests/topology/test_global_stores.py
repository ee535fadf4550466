"""Processors read global tables: all rows, from each partition, and none of them can be changed."""

from collections.abc import Callable
from typing import Any

import pytest

import eddy
from tests.topology.programs import S


class Reading:
    """Forwards what `read` makes of the store `countries` and the record's value."""

    read: Callable[[Any, Any], Any]

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context, self.countries = context, context.store("countries")

    def process(self, record: eddy.Record[Any, Any]) -> None:
        self.context.forward(record.replace(value=type(self).read(self.countries, record.value)))


def reading(
    read: Callable[[Any, Any], Any], value: eddy.Serde[Any] = S, named: bool = True, table: bool = False
) -> eddy.Topology:
    """Records of `in` through processors that read the global table of `countries-topic`, to `out`."""
    topology = eddy.Topology("app")
    countries = topology.global_table("countries-topic", S, value, name="countries")
    factory = type("Own", (Reading,), {"read": staticmethod(read)})
    rows = topology.table("in", S, S) if table else topology.stream("in", S, S)
    rows.process_values(factory, ["countries" if named else countries], "step", eddy.Native).to("out")
    return topology


ROWS = [("at", "Austria"), ("be", "Belgium"), ("bg", "Bulgaria"), ("ch", "Schweiz")]

READS: list[tuple[Callable[[Any, Any], Any], Any]] = [
    (lambda store, code: store.get(code), "Belgium"),
    (lambda store, code: store.get("xx"), None),
    (lambda store, code: tuple(key for key, _ in store.all()), ("at", "be", "bg", "ch")),
    (lambda store, code: tuple(store.range("b", "bg")), (("be", "Belgium"), ("bg", "Bulgaria"))),
    (lambda store, code: tuple(key for key, _ in store.range(last="be")), ("at", "be")),
    (lambda store, code: tuple(value for _, value in store.prefix_scan("b")), ("Belgium", "Bulgaria")),
    (lambda store, code: store.approximate_count(), 4),
]


@pytest.mark.parametrize(("read", "expected"), READS)
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("table", [True, False])
def test_each_processor_reads_all_rows(read: Any, expected: Any, named: bool, table: bool) -> None:
    topology = reading(read, named=named, table=table)
    with eddy.TopologyTestDriver(topology, partitions=3) as driver:
        driver.input("countries-topic").pipe_all(ROWS)
        driver.input("in").pipe_all([(key, "be") for key in "abcdef"])
        assert driver.output("out").read_map() == ({} if expected is None else dict.fromkeys("abcdef", expected))


def test_a_change_takes_effect_at_the_next_epoch_and_after_a_restart() -> None:
    topology = reading(lambda store, code: store.get(code) or "none")
    with eddy.TopologyTestDriver(topology) as driver:
        countries, records, out = driver.input("countries-topic"), driver.input("in"), driver.output("out")
        records.pipe("a", "ch")
        countries.pipe("ch", "Schweiz")
        records.pipe("a", "ch")
        countries.pipe("ch", "Suisse")
        driver.restart(lose_state=True)
        records.pipe("a", "ch")
        countries.pipe("ch", None)
        records.pipe("a", "ch")
        assert [value for _, value in out.read_key_values()] == ["none", "Schweiz", "Suisse", "none"]


def test_more_rows_than_a_scan_reads_at_once_and_than_memory_keeps() -> None:
    topology = reading(lambda store, code: (store.get(code), len(list(store.all())), store.approximate_count()))
    rows = [(f"{number:05d}", f"row {number}") for number in range(2_500)]
    with eddy.TopologyTestDriver(topology, eddy.Config(cache_bytes=64 << 10)) as driver:
        driver.input("countries-topic").pipe_all(rows)
        driver.input("in").pipe_all([("a", "00000"), ("a", "02499")])
        assert [value for _, value in driver.output("out").read_key_values()] == [
            ("row 0", 2_500, 2_500),
            ("row 2499", 2_500, 2_500),
        ]


def test_to_change_a_value_that_was_read_changes_nothing() -> None:
    def read(store: Any, code: str) -> int:
        value = store.get(code)
        value.append("more")
        return len(value)

    with eddy.TopologyTestDriver(reading(read, eddy.Json())) as driver:
        driver.input("countries-topic").pipe("ch", ["Schweiz"])
        driver.input("in").pipe_all([("a", "ch"), ("b", "ch")])
        assert driver.output("out").read_key_values() == [("a", 2), ("b", 2)]
        assert driver.store("countries").get("ch") == ["Schweiz"]


@pytest.mark.parametrize("method", ["put", "delete"])
@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_write_is_refused_under_each_policy(method: str, policy: Any) -> None:
    def write(store: Any, code: str) -> None:
        getattr(store, method)(*(["ch", "Suisse"] if method == "put" else ["ch"]))

    with eddy.TopologyTestDriver(reading(write), eddy.Config(on_error=policy)) as driver:
        driver.input("countries-topic").pipe("ch", "Schweiz")
        with pytest.raises(eddy.ProcessorError, match=f"store 'countries': {method} is called on a global table"):
            driver.input("in").pipe("a", "ch")
        assert driver.store("countries").get("ch") == "Schweiz"


def test_a_key_that_the_serde_refuses_is_the_error_of_its_record() -> None:
    topology = reading(lambda store, code: store.get(7 if code == "bad" else code))
    with eddy.TopologyTestDriver(topology, eddy.Config(on_error="skip")) as driver:
        driver.input("countries-topic").pipe("ch", "Schweiz")
        driver.input("in").pipe_all([("a", "ch"), ("b", "bad"), ("c", "ch")])
        assert driver.output("out").read_key_values() == [("a", "Schweiz"), ("c", "Schweiz")]


def test_processors_that_share_a_global_table_need_no_equal_partitions() -> None:
    topology = eddy.Topology("app")
    countries = topology.global_table("countries", S, S)
    for name, partitions in (("one", 2), ("two", 3)):
        factory = type("Own", (Reading,), {"read": staticmethod(lambda store, code: store.get(code))})
        moved = topology.stream(name, S, S).select_key(lambda key, value: key).repartition(partitions, f"{name}-moved")
        moved.process_values(factory, [countries], name=f"{name}-step", value=S).to(f"{name}-out")
    assert "one-step (stores: [countries (global table), one-step-moments])" in topology.describe()
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("countries").pipe("ch", "Schweiz")
        for name in ("one", "two"):
            driver.input(name).pipe("a", "ch")
            assert driver.output(f"{name}-out").read_key_values() == [("a", "Schweiz")]


def test_stores_that_are_none_of_the_topology_are_refused() -> None:
    topology = eddy.Topology("app")
    countries, stream = topology.global_table("countries", S, S), topology.stream("in", S, S)
    other = eddy.Topology("other").global_table("theirs", S, S)
    with pytest.raises(eddy.TopologyError, match=r"stores names 'theirs', which .* its stores are 'countries'"):
        stream.process(Reading, [other])
    with pytest.raises(eddy.TopologyError, match=r"stores=\['countries', 'countries'\] names one twice"):
        stream.process(Reading, ["countries", countries])
