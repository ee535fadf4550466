"""Session stores of processors: beside a dict, for any cut, restart, worker and failing record; and what is refused."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddy
from eddy.errors import DataError, ProcessorError, TopologyError
from eddy.windows import Windowed
from tests.topology.timed_stores import check_answers, check_workers, kept_in

S, N = eddy.String, eddy.Int64
MS = timedelta(milliseconds=1)
RETENTION = 12


class Model:
    """The sessions as a dict, and the greatest end that was put."""

    def __init__(self) -> None:
        self.sessions: dict[Windowed[str], int] = {}
        self.observed = -1

    def rows(self) -> dict[Windowed[str], int]:
        return self.sessions

    def put(self, key: str, value: int | None, start: int, end: int) -> bool:
        if end <= self.observed - RETENTION:
            return False
        self.observed = max(self.observed, end)
        self.sessions[Windowed(key, start, end)] = value  # type: ignore[assignment]
        first = self.observed - RETENTION
        self.sessions = {at: v for at, v in self.sessions.items() if v is not None and at.end_ms > first}
        return True

    def remove(self, key: str, start: int, end: int) -> int | None:
        return self.sessions.pop(Windowed(key, start, end), None)

    def fetch_session(self, key: str, start: int, end: int) -> int | None:
        return self.sessions.get(Windowed(key, start, end))

    def fetch(self, key: str, backward: bool) -> list[Any]:
        return self.find_sessions(key, 0, 10**18, backward)

    def find_sessions(self, key: str, end: int, start: int, backward: bool) -> list[Any]:
        return [row for row in self.fetch_keys(None, None, end, start, backward) if row[0].key == key]

    def fetch_keys(self, low: str | None, high: str | None, end: int, start: int, backward: bool) -> list[Any]:
        found = [
            (at, value)
            for at, value in self.sessions.items()
            if (low is None or low <= at.key) and (high is None or at.key <= high)
            if at.end_ms >= end and at.start_ms <= start
        ]
        found.sort(key=lambda row: (row[0].end_ms, row[0].start_ms, row[0].key.encode()), reverse=backward)
        return found

    def all(self, backward: bool) -> list[Any]:
        return self.fetch_keys(None, None, 0, 10**18, backward)


def topology_of(retention: int = RETENTION, **others: Any) -> eddy.Topology:
    return kept_in("session_store", S, N, kind="session", retention=retention * MS, **others)


keys = st.sampled_from(["", "a", "a\0", "a\0\0\0\0\0\0\0\5", "ab", "b"])  # one key's bytes begin as another's row
starts = st.integers(0, 40)
spans = st.tuples(starts, st.integers(0, 6)).map(lambda span: (span[0], sum(span)))
ends = st.one_of(starts, st.just(10**18))
writes = st.one_of(
    st.builds(lambda key, value, span: ("put", key, value, *span), keys, st.integers(0, 9), spans),
    st.builds(lambda key, span: ("put", key, None, *span), keys, spans),
    st.builds(lambda key, span: ("remove", key, *span), keys, spans),
    st.builds(lambda key, value, span: ("put and raise", key, value, *span), keys, st.integers(0, 9), spans),
)
reads = st.one_of(
    st.builds(lambda key, span: ("fetch_session", key, *span), keys, spans),
    st.tuples(st.just("fetch"), keys, st.booleans()),
    st.tuples(st.just("find_sessions"), keys, starts, ends, st.booleans()),
    st.tuples(st.just("fetch_keys"), st.none(), keys, starts, ends, st.booleans()),
    st.tuples(st.just("fetch_keys"), keys, st.none(), starts, ends, st.booleans()),
    st.tuples(st.just("all"), st.booleans()),
)
epochs = st.lists(st.lists(st.one_of(writes, reads), min_size=1, max_size=8), max_size=8)


@given(epochs=epochs, data=st.data(), memory=st.booleans())
def test_a_session_store_answers_as_a_dict(epochs: list[list[Any]], data: st.DataObject, memory: bool) -> None:
    check_answers(topology_of(memory=memory), Model(), epochs, data)


@given(epochs=epochs, data=st.data())
def test_workers_that_come_and_go_keep_the_sessions(epochs: list[list[Any]], data: st.DataObject) -> None:
    check_workers(topology_of, Model, epochs, data)


def run(*operations: Any) -> tuple[list[Any], dict[Any, Any]]:
    with eddy.TopologyTestDriver(topology_of()) as driver:
        driver.input("in").pipe_all([("k", operation) for operation in operations])
        return [value for _, value in driver.output("out").read_key_values()], dict(driver.store("w").all())


def test_a_session_is_gone_once_an_end_is_put_that_is_the_retention_later() -> None:
    puts = ("put", "a", 1, 5, 8), ("put", "b", 2, 0, 19)
    assert run(*puts, ("fetch_session", "a", 5, 8))[0] == [True, True, 1]
    assert run(*puts, ("put", "b", 3, 20, 20), ("fetch_session", "a", 5, 8), ("put", "a", 1, 7, 8)) == (
        [True, True, True, None, False],
        {Windowed("b", 0, 19): 2, Windowed("b", 20, 20): 3},
    )


def test_sessions_that_are_gone_are_deleted_in_the_changelog() -> None:
    with eddy.TopologyTestDriver(topology_of()) as driver:
        driver.input("in").pipe_all([("k", ("put", "a", 1, 5, 6))])
        driver.input("in").pipe_all([("k", ("put", "b", 2, 15, 18))])
        rows = driver.output("app-w-changelog", eddy.SessionWindowed(S), N).read_map()
        times = driver.output("app-w-times-changelog", eddy.Bytes, eddy.Bytes).read_map()
    last, first = (18).to_bytes(8, "big"), (15).to_bytes(8, "big")
    assert rows == {Windowed("b", 15, 18): 2}
    assert times == {b"\0": last, last + first + b"b": b"\1"}


def test_puts_that_are_too_late_are_counted() -> None:
    with eddy.TopologyTestDriver(topology_of()) as driver:
        operations = [("put", "a", 1, 0, 50), ("put", "a", 1, 5, 38), ("remove", "a", 4, 39)]
        driver.input("in").pipe_all([("k", operation) for operation in operations])
        assert driver.worker.statistics.late == 1


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (("put", "a", 1, -1, 2), "start_ms=-1; milliseconds since 1970"),
        (("put", "a", 1, 1, 2.5), "end_ms=2.5; milliseconds since 1970"),
        (("put", "a", 1, 3, 2), "start_ms=3 is after end_ms=2; a session ends at its start or later"),
        (("put", 7, 1, 1, 1), r"the key Windowed\(key=7.* is not a valid session-windowed\(string\)"),
        (("put", "a", "one", 1, 1), "the value 'one' of key .* is not a valid int64"),
        (("fetch_keys", "b", "a"), "the bytes of 'b' sort after the bytes of 'a'"),
    ],
)
def test_wrong_arguments_are_errors_of_the_record(operation: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        run(operation)


def test_each_kind_has_its_method_of_the_context() -> None:
    for method in ("store", "window_store", "versioned_store"):
        topology = kept_in(method, S, N, kind="session", retention=9 * MS)
        why = r"store 'w' is of another kind than is asked for. Write context.session_store\('w'\)"
        with pytest.raises(ProcessorError, match=why), eddy.TopologyTestDriver(topology):
            pass


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "retention=None; a timedelta of whole milliseconds"),
        ({"retention": timedelta(0)}, "retention=datetime.timedelta.0.; a timedelta of whole milliseconds"),
        ({"size": 3 * MS, "retention": 3 * MS}, "is for kind='window', and kind is 'session'. Leave it out"),
    ],
)
def test_declarations_that_are_refused(arguments: Any, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        eddy.Topology("app").store("w", S, N, kind="session", **arguments)


def test_describe_names_the_sessions() -> None:
    assert "w (sessions, kept for 12 ms)" in topology_of().describe()
