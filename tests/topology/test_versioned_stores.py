"""Versioned stores of processors: beside a dict, for any cut, restart, worker and failing record; what is refused."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.errors import DataError, ProcessorError
from tests.topology.timed_stores import check_answers, check_workers, kept_in

S, N = eddy.String, eddy.Int64
MS = timedelta(milliseconds=1)
RETENTION = 12


class Model:
    """All versions that were ever put, by key and timestamp, and the greatest timestamp."""

    def __init__(self) -> None:
        self.versions: dict[str, dict[int, int | None]] = {}
        self.observed = -1

    def rows(self) -> dict[str, tuple[int, int]]:
        latest = {key: max(versions) for key, versions in self.versions.items()}
        found = {key: (at, self.versions[key][at]) for key, at in latest.items()}
        return {key: (at, value) for key, (at, value) in found.items() if value is not None}

    def put(self, key: str, value: int | None, at: int) -> bool:
        if at < self.observed - RETENTION:
            return False
        self.observed = max(self.observed, at)
        self.versions.setdefault(key, {})[at] = value
        return True

    def get(self, key: str, as_of: int | None = None) -> tuple[int, int, int | None] | None:
        versions = self.versions.get(key, {})
        if as_of is not None and as_of < self.observed - RETENTION and max(versions, default=0) > as_of:
            return None
        before = [at for at in versions if as_of is None or at <= as_of]
        if not before or versions[max(before)] is None:
            return None
        later = [at for at in versions if at > max(before)]
        value = versions[max(before)]
        assert value is not None
        return value, max(before), min(later) if later else None

    def delete(self, key: str, at: int) -> tuple[int, int, int | None] | None:
        old = self.get(key, at)
        return old if self.put(key, None, at) else None

    def kept(self) -> int:
        """The number of versions that a read can still find, with the deletions among later ones."""
        found, begin = 0, self.observed - RETENTION
        for versions in self.versions.values():
            past = [at for at in versions if at <= begin]
            found += len(versions) - len(past) + bool(past and versions[max(past)] is not None)
        return found


def topology_of(retention: int = RETENTION, **others: Any) -> eddy.Topology:
    return kept_in("versioned_store", S, N, kind="versioned", retention=retention * MS, **others)


keys = st.sampled_from(["", "a", "a\0", "a\0\0\0\0\0\0\0\5", "ab", "b"])  # one key's bytes begin as another's row
times = st.integers(0, 40)
writes = st.one_of(
    st.tuples(st.just("put"), keys, st.integers(0, 9), times),
    st.tuples(st.just("put"), keys, st.none(), times),
    st.tuples(st.just("delete"), keys, times),
    st.tuples(st.just("put and raise"), keys, st.integers(0, 9), times),
)
reads = st.one_of(
    st.tuples(st.just("get"), keys),
    st.tuples(st.just("get"), keys, st.none()),
    st.tuples(st.just("get"), keys, times),
    st.tuples(st.just("get"), keys, st.just(10**18)),
)
epochs = st.lists(st.lists(st.one_of(writes, reads), min_size=1, max_size=8), max_size=8)


@given(epochs=epochs, data=st.data(), memory=st.booleans())
def test_a_versioned_store_answers_as_a_dict(epochs: list[list[Any]], data: st.DataObject, memory: bool) -> None:
    check_answers(topology_of(memory=memory), Model(), epochs, data)


@given(epochs=epochs, data=st.data())
def test_workers_that_come_and_go_keep_the_versions(epochs: list[list[Any]], data: st.DataObject) -> None:
    check_workers(topology_of, Model, epochs, data)


@given(epochs=st.lists(st.lists(writes, min_size=1, max_size=8), min_size=1, max_size=8))
def test_versions_that_no_read_can_find_are_removed(epochs: list[list[Any]]) -> None:
    model = Model()
    with eddy.TopologyTestDriver(topology_of(), config=eddy.Config(on_error="skip")) as driver:
        for epoch in epochs:
            driver.input("in").pipe_all([("k", operation) for operation in epoch])
            for name, *arguments in epoch:
                if name != "put and raise":
                    getattr(model, name)(*arguments)
            assert len(list(driver.worker.circuit.states["w-versions"].items([0]))) == model.kept()  # type: ignore[attr-defined]


def run(*operations: Any) -> list[Any]:
    with eddy.TopologyTestDriver(topology_of()) as driver:
        driver.input("in").pipe_all([("k", operation) for operation in operations])
        return [value for _, value in driver.output("out").read_key_values()]


def test_a_version_is_valid_until_the_next_one_in_whatever_order_they_come() -> None:
    puts = ("put", "a", 3, 30), ("put", "a", 1, 20), ("put", "a", 2, 25), ("delete", "a", 28)
    reads = [("get", "a", at) for at in (19, 20, 24, 25, 27, 28, 29, 30, 99)]
    assert run(*puts, *reads, ("get", "a"))[4:] == [
        None,
        (1, 20, 25),
        (1, 20, 25),
        (2, 25, 28),
        (2, 25, 28),
        None,
        None,
        (3, 30, None),
        (3, 30, None),
        (3, 30, None),
    ]


def test_the_history_begins_the_retention_before_the_greatest_timestamp() -> None:
    puts = ("put", "a", 1, 10), ("put", "a", 2, 20), ("put", "b", 9, 28)
    assert run(*puts, ("get", "a", 15), ("get", "a", 16), ("put", "a", 5, 15), ("put", "a", 6, 16))[3:] == [
        None,
        (1, 10, 20),
        False,
        True,
    ]


def test_the_latest_version_is_found_also_before_the_history() -> None:
    puts = ("put", "a", 1, 10), ("put", "b", 9, 28)
    assert run(*puts, ("get", "a", 9), ("get", "a", 10), ("delete", "a", 15), ("get", "a"), ("delete", "a", 16))[
        2:
    ] == [
        None,
        (1, 10, None),
        None,
        (1, 10, None),
        (1, 10, None),
    ]


def test_the_result_is_a_record_with_names() -> None:
    seen: list[Any] = []

    class Reads:
        def init(self, context: eddy.ProcessorContext) -> None:
            self.store: eddy.VersionedStore[str, int] = context.versioned_store("w")

        def process(self, record: eddy.Record[str, int]) -> None:
            self.store.put(record.key, record.value, record.timestamp_ms or 0)
            seen.append(self.store.get(record.key, as_of_ms=7))

    topology = eddy.Topology("app")
    topology.store("w", S, N, kind="versioned", retention=9 * MS)
    topology.stream("in", key=S, value=N).process(Reads, ["w"])
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("in").pipe("k", 1, timestamp_ms=5)
        driver.input("in").pipe("k", 2, timestamp_ms=8)
    assert seen == [eddy.VersionedRecord(1, 5), eddy.VersionedRecord(1, 5, valid_to_ms=8)]


def test_puts_before_the_history_are_counted() -> None:
    with eddy.TopologyTestDriver(topology_of()) as driver:
        operations = [("put", "a", 1, 50), ("put", "a", 1, 37), ("delete", "a", 36), ("put", "a", 1, 38)]
        driver.input("in").pipe_all([("k", operation) for operation in operations])
        assert driver.worker.statistics.late == 2


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (("put", "a", 1, -1), "timestamp_ms=-1; milliseconds since 1970"),
        (("put", "a", 1, None), "timestamp_ms=None; milliseconds since 1970"),
        (("delete", "a", None), "timestamp_ms=None; milliseconds since 1970"),
        (("get", "a", 1.5), "as_of_ms=1.5; milliseconds since 1970"),
        (("put", 7, 1, 1), "the key 7 is not a valid string"),
        (("put", "a", "one", 1), "of key 'a' is not a valid tuple.int64, int64.: int expected"),
    ],
)
def test_wrong_arguments_are_errors_of_the_record(operation: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        run(operation)


def test_each_kind_has_its_method_of_the_context() -> None:
    for method in ("store", "window_store", "session_store"):
        topology = kept_in(method, S, N, kind="versioned", retention=9 * MS)
        why = r"store 'w' is of another kind than is asked for. Write context.versioned_store\('w'\)"
        with pytest.raises(ProcessorError, match=why), eddy.TopologyTestDriver(topology):
            pass


def test_describe_names_the_versions() -> None:
    assert "w (versions, kept for 12 ms)" in topology_of().describe()
