"""Window stores of processors: beside a dict, for any cut, restart, worker and failing record; and what is refused."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.errors import DataError, ProcessorError, TopologyError
from eddy.windows import Windowed
from tests.topology.timed_stores import applying, check_answers, check_workers, kept_in

S, N = eddy.String, eddy.Int64
MS = timedelta(milliseconds=1)
SIZE, RETENTION = 3, 10


class Model:
    """The rows as a dict, and the greatest start that was put."""

    def __init__(self) -> None:
        self.windows: dict[tuple[str, int], int] = {}
        self.observed = -1

    def rows(self) -> dict[Windowed[str], int]:
        return {Windowed(k, s, s + SIZE): value for (k, s), value in self.windows.items()}

    def put(self, key: str, value: int | None, start: int) -> bool:
        if start <= self.observed - RETENTION:
            return False
        self.observed = max(self.observed, start)
        self.windows[key, start] = value  # type: ignore[assignment]
        self.windows = {
            row: v for row, v in self.windows.items() if v is not None and row[1] > self.observed - RETENTION
        }
        return True

    def delete(self, key: str, start: int) -> int | None:
        old = self.windows.get((key, start))
        self.put(key, None, start)
        return old

    def fetch(self, key: str, start: int) -> int | None:
        return self.windows.get((key, start))

    def fetch_range(self, key: str, first: int, last: int, backward: bool) -> tuple[Any, ...]:
        found = sorted((s, v) for (k, s), v in self.windows.items() if k == key and first <= s <= last)
        return tuple(found[::-1] if backward else found)

    def fetch_keys(self, low: str | None, high: str | None, first: int, last: int, backward: bool) -> tuple[Any, ...]:
        found = sorted(
            (s, k.encode(), v)
            for (k, s), v in self.windows.items()
            if (low is None or low <= k) and (high is None or k <= high) and first <= s <= last
        )
        rows = [(Windowed(k.decode(), s, s + SIZE), v) for s, k, v in found]
        return tuple(rows[::-1] if backward else rows)

    def fetch_all(self, first: int, last: int, backward: bool) -> tuple[Any, ...]:
        return self.fetch_keys(None, None, first, last, backward)

    def all(self, backward: bool) -> tuple[Any, ...]:
        return self.fetch_keys(None, None, 0, 10**9, backward)


def topology_of(size: int = SIZE, retention: int = RETENTION, **others: Any) -> eddy.Topology:
    return kept_in("window_store", S, N, kind="window", size=size * MS, retention=retention * MS, **others)


keys = st.sampled_from(["", "a", "a\0", "a\0\0\0\0\0\0\0\5", "ab", "b"])  # one key's bytes begin as another's row
starts = st.integers(0, 45)
ends = st.one_of(starts, st.just(10**18))
writes = st.one_of(
    st.tuples(st.just("put"), keys, st.integers(0, 9), starts),
    st.tuples(st.just("put"), keys, st.none(), starts),
    st.tuples(st.just("delete"), keys, starts),
    st.tuples(st.just("put and raise"), keys, st.integers(0, 9), starts),
)
reads = st.one_of(
    st.tuples(st.just("fetch"), keys, starts),
    st.tuples(st.just("fetch_range"), keys, starts, ends, st.booleans()),
    st.tuples(st.just("fetch_keys"), st.none(), keys, starts, ends, st.booleans()),
    st.tuples(st.just("fetch_keys"), keys, st.none(), starts, ends, st.booleans()),
    st.tuples(st.just("fetch_all"), starts, ends, st.booleans()),
    st.tuples(st.just("all"), st.booleans()),
)
epochs = st.lists(st.lists(st.one_of(writes, reads), min_size=1, max_size=8), max_size=8)


@given(epochs=epochs, data=st.data(), memory=st.booleans())
def test_a_window_store_answers_as_a_dict(epochs: list[list[Any]], data: st.DataObject, memory: bool) -> None:
    check_answers(topology_of(memory=memory), Model(), epochs, data)


@given(epochs=epochs, data=st.data())
def test_workers_that_come_and_go_keep_the_windows(epochs: list[list[Any]], data: st.DataObject) -> None:
    check_workers(topology_of, Model, epochs, data)


def run(*operations: Any, topology: eddy.Topology | None = None) -> tuple[list[Any], dict[Any, Any]]:
    with eddy.TopologyTestDriver(topology or topology_of()) as driver:
        driver.input("in").pipe_all([("k", operation) for operation in operations])
        return [value for _, value in driver.output("out").read_key_values()], dict(driver.store("w").all())


def test_a_window_is_gone_once_a_start_is_put_that_is_the_retention_later() -> None:
    assert run(("put", "a", 1, 5), ("put", "b", 2, 14), ("fetch", "a", 5)) == (
        [True, True, 1],
        {Windowed("a", 5, 8): 1, Windowed("b", 14, 17): 2},
    )
    assert run(("put", "a", 1, 5), ("put", "b", 2, 15), ("fetch", "a", 5), ("put", "a", 1, 5)) == (
        [True, True, None, False],
        {Windowed("b", 15, 18): 2},
    )


def test_a_put_of_none_moves_the_observed_time() -> None:
    assert run(("put", "a", 1, 5), ("put", "b", None, 15), ("fetch", "a", 5)) == ([True, True, None], {})


def test_windows_that_are_gone_are_deleted_in_the_changelog() -> None:
    with eddy.TopologyTestDriver(topology_of()) as driver:
        driver.input("in").pipe_all([("k", ("put", "a", 1, 5))])
        driver.input("in").pipe_all([("k", ("put", "b", 2, 15))])
        rows = driver.output("app-w-changelog", eddy.TimeWindowed(S, SIZE * MS), N).read_key_values()
        starts = driver.output("app-w-times-changelog", eddy.Bytes, eddy.Bytes).read_map()
    assert rows[0] == (Windowed("a", 5, 8), 1)
    assert sorted(rows[1:], key=repr) == [(Windowed("a", 5, 8), None), (Windowed("b", 15, 18), 2)]
    assert starts == {b"\0": (15).to_bytes(8, "big"), (15).to_bytes(8, "big") + b"b": b"\1"}


def test_puts_that_are_too_late_are_counted() -> None:
    with eddy.TopologyTestDriver(topology_of()) as driver:
        driver.input("in").pipe_all([("k", ("put", "a", 1, 50)), ("k", ("put", "a", 1, 5)), ("k", ("put", "a", 1, 40))])
        ignored = driver.worker.statistics.late
    assert ignored == 2


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (("put", "a", 1, -1), "start_ms=-1; milliseconds since 1970"),
        (("put", "a", 1, 1.5), "start_ms=1.5; milliseconds since 1970"),
        (("fetch", "a", True), "start_ms=True; milliseconds since 1970"),
        (("fetch", "a", 2**63 - 1), "start_ms=9223372036854775807; milliseconds"),
        (("put", 7, 1, 1), r"the key Windowed\(key=7.* is not a valid time-windowed\(string, 3\)"),
        (("put", "a", "one", 1), "the value 'one' of key .* is not a valid int64"),
        (("fetch_keys", "b", "a"), "the bytes of 'b' sort after the bytes of 'a'"),
    ],
)
def test_wrong_arguments_are_errors_of_the_record(operation: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        run(operation)


class Base:
    def process(self, record: eddy.Record[Any, Any]) -> None:
        raise AssertionError("no record is sent")


def with_init(init: Callable[[eddy.ProcessorContext], Any]) -> None:
    class Wrong(Base):
        def init(self, context: eddy.ProcessorContext) -> None:
            init(context)

    topology = eddy.Topology("app")
    topology.store("w", S, N, kind="window", size=3 * MS, retention=9 * MS)
    topology.store("s", S, N)
    topology.stream("in", key=S, value=S).process(Wrong, ["w", "s"], "step")
    with eddy.TopologyTestDriver(topology):
        pass


def test_each_kind_has_its_method_of_the_context() -> None:
    with pytest.raises(ProcessorError, match=r"store 'w' is of another kind .* Write context.window_store\('w'\)"):
        with_init(lambda context: context.store("w"))
    with pytest.raises(ProcessorError, match=r"store 's' is of another kind .* Write context.store\('s'\)"):
        with_init(lambda context: context.window_store("s"))
    with pytest.raises(ProcessorError, match="store 'x' is not one of its stores, which are 's', 'w'"):
        with_init(lambda context: context.window_store("x"))


def test_iterators_end_with_their_call() -> None:
    kept: list[Any] = []

    class Keeps(applying("window_store")):  # type: ignore[misc]
        def process(self, record: eddy.Record[str, Any]) -> None:
            for rows in kept:
                next(rows)
            self.store.put("a", 1, 1)
            kept.append(self.store.fetch_range("a"))

    topology = eddy.Topology("app")
    topology.store("w", S, N, kind="window", size=3 * MS, retention=9 * MS)
    topology.stream("in", key=S, value=S).process(Keeps, ["w"], "step")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("in").pipe("k", "v")
        with pytest.raises(ProcessorError, match="an iterator of store 'w' is read after its call has ended"):
            driver.input("in").pipe("k", "v")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"kind": "window"}, "size=None; a timedelta of whole milliseconds"),
        ({"kind": "window", "size": 3 * MS}, "retention=None; a timedelta of whole milliseconds"),
        ({"kind": "window", "size": 3 * MS, "retention": 2 * MS}, "is less than size="),
        ({"size": 3 * MS}, "are for other kinds, and kind is 'key-value'"),
        ({"retention": 3 * MS}, "are for other kinds, and kind is 'key-value'"),
        ({"kind": "sessions"}, "kind='sessions'; 'key-value', 'window', 'session' or 'versioned' is needed"),
    ],
)
def test_declarations_that_are_refused(arguments: Any, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        eddy.Topology("app").store("w", S, N, **arguments)


def test_the_name_of_the_starts_is_taken() -> None:
    topology = topology_of()
    with pytest.raises(TopologyError, match="the name 'w-times' is taken twice"):
        topology.store("w-times", S, N)


def test_describe_names_the_windows() -> None:
    assert "w (windows of 3 ms, kept for 10 ms)" in topology_of().describe()
