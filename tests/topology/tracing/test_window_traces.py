"""Traces of windows over a log: they agree with the rows that are served, and say how a window is."""

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.program.row_trace import Traces
from eddy.tables.key_text import text_of_key
from tests.seeds import of_today

S, N = eddy.String, eddy.Int64
Record = tuple[str, int | None, int]
"""Its key, value, and second."""


def topology_of(windows: eddy.TimeWindows | eddy.SlidingWindows, *, exchanged: bool = False) -> eddy.Topology:
    """Sums of windows, by key or by the last digit of the value, and those of closed ones in a topic."""
    topology = eddy.Topology("sums")
    stream = topology.stream("in", key=S, value=N)
    groups = stream.group_by(lambda key, value: str(value % 10), key=S) if exchanged else stream.group_by_key()
    sums = groups.windowed_by(windows, retention=timedelta(seconds=20)).sum("sums")
    sums.suppress("final").to("out")
    stream.group_by_key().count("counts")
    return topology


@contextmanager
def served(
    topology: eddy.Topology, records: Sequence[Record], partitions: int, ahead_ms: int | None = None
) -> Iterator[eddy.Tables]:
    """The tables of an application that has read these records, in two transactions, and skips those that fail.

    `ahead_ms`: the limit of the topic out on timestamps ahead of now.
    """
    limits = {} if ahead_ms is None else {"message.timestamp.after.max.ms": str(ahead_ms)}
    with ExitStack() as stack:
        log = LocalLog(None)
        stack.callback(log.close)
        log.create_topics([TopicSpec("in", partitions), TopicSpec("out", partitions, limits)])
        stack.enter_context(eddy.run(topology, log, eddy.Config(on_error="skip")))
        tables = stack.enter_context(eddy.open_tables(topology, log))
        for part in (records[: len(records) // 2], records[len(records) // 2 :]):
            write(log, part, partitions)
        places = [TopicPartition("in", partition) for partition in range(partitions)]
        ends = {place.partition: end for place, end in log.end_offsets(places).items()}
        tables.wait({"in": ends}, exact=True)
        yield tables


def write(log: LocalLog, records: Sequence[Record], partitions: int) -> None:
    producer = log.producer(None)
    producer.begin()
    for key, value, second in records:
        data = None if value is None else N.encode(value)
        producer.send("in", partition_of(key.encode(), partitions), [key.encode()], [data], [second * 1000])
    producer.commit({}, None)
    producer.close()


@pytest.mark.parametrize("exchanged", [False, True])
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("kind", ["tumbling", "sliding"])
def test_traces_agree_with_the_rows_of_a_worker(kind: str, partitions: int, exchanged: bool) -> None:
    (seed,) = of_today(1)
    drawn = random.Random(seed)
    ten, two = timedelta(seconds=10), timedelta(seconds=2)
    windows = eddy.TimeWindows(ten, grace=two) if kind == "tumbling" else eddy.SlidingWindows(ten, grace=two)
    topology = topology_of(windows, exchanged=exchanged)
    records = [(drawn.choice("abcd"), drawn.randrange(40), max(0, n + drawn.randint(-15, 4))) for n in range(60)]
    records += [("a", None, 1)] * (not exchanged)
    with served(topology, records, partitions) as tables:
        traces, checked = Traces(topology.plan), 0
        for name in ("sums", "out", "counts"):
            table = tables.catalog.table(name)
            for key, _ in list(tables[name].all()):
                found = traces.trace(tables, name, text_of_key(table, key))
                assert found.agrees, found.text
                (receipt,) = found.rows[0].sums
                assert receipt.number == found.served == sum(part.number for part in receipt.parts) + receipt.rest
                checked += 1
    assert checked > 20


def test_trace_names_the_records_of_a_window_and_whether_it_is_open() -> None:
    topology = topology_of(eddy.TimeWindows(timedelta(minutes=1)))
    with served(topology, [("a", 2, 5), ("a", 3, 50), ("a", 7, 61), ("a", 100, 7)], 1) as tables:
        traces = Traces(topology.plan)
        closed = traces.trace(tables, "sums", '["a", 0, 60000]')
        assert "\n".join(closed.text.splitlines()[1:]) == (
            '["a", 0, 60000] = 5   sums (sum)\n'
            '  ["a", 0, 60000] 5 = a 1970-01-01 00:00:50 (in-0@1) 3 + a 1970-01-01 00:00:05 (in-0@0) 2\n'
            "the window is closed\n"
            "served at this version: 5, as computed here from the inputs"
        )
        assert closed.agrees
        open = traces.trace(tables, "out", '["a", 60000, 120000]')
        assert open.text.splitlines()[1:] == [
            'out has no row with the key ["a", 60000, 120000]:',
            "  suppressed 'final' waits for the time of 'in': partition 0 is at 1970-01-01 00:01:01, and 1970-01-01 "
            '00:02:00 is needed: ["a", 60000, 120000] = 7',
            "served at this version: null, as computed here from the inputs",
        ]
        gone = traces.trace(tables, "sums", '["a", 60000, 120000]')
        assert gone.notes == [
            "the window is open, and waits for the time of 'in': partition 0 is at 1970-01-01 00:01:01, and "
            "1970-01-01 00:02:00 is needed"
        ]


def test_window_without_an_end_is_open_and_waits_for_nothing() -> None:
    topology = eddy.Topology("since")
    windows = eddy.UnlimitedWindows(datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC))
    topology.stream("in", key=S, value=N).group_by_key().windowed_by(windows).sum("sums").to("out")
    with served(topology, [("a", 2, 5), ("a", 3, 50), ("a", 7, 4), ("b", 1, 1)], 1) as tables:
        traces, (key, _) = Traces(topology.plan), *tables["sums"].all()
        found = traces.trace(tables, "sums", text_of_key(tables.catalog.table("sums"), key))
        assert (found.agrees, found.served, found.notes) == (True, 5, ["the window is open, and has no end"])
        none = traces.trace(tables, "sums", f'["b", 5000, {key.end_ms}]')
        assert "has no record of this key from 1970-01-01 00:00:05 on; the nearest: in-0@4" in none.text


def test_window_that_its_table_has_no_more_still_has_its_receipt() -> None:
    topology = topology_of(eddy.TimeWindows(timedelta(minutes=1)))
    with served(topology, [("a", 2, 5), ("a", 3, 1_000)], 1) as tables:
        gone = Traces(topology.plan).trace(tables, "sums", '["a", 0, 60000]')
    assert (gone.agrees, gone.served, gone.rows[0].value) == (True, None, 2)
    assert gone.notes == ["the window is closed, and the table has it no more"]


def test_record_that_a_worker_has_refused_for_its_timestamp_is_left_out() -> None:
    topology, far = topology_of(eddy.TimeWindows(timedelta(minutes=1))), 250_000_000_000
    with served(topology, [("a", 2, 5), ("a", 50, far), ("a", 3, 6), ("a", 7, 61)], 1, ahead_ms=3_600_000) as tables:
        traces = Traces(topology.plan)
        for name, key, value in (
            ("out", '["a", 0, 60000]', 5),
            ("sums", '["a", 60000, 120000]', 7),
            ("counts", "a", 3),
        ):
            found = traces.trace(tables, name, key)
            assert (found.agrees, found.served, found.rows[0].value) == (True, value, value), found.text


def test_records_of_one_key_in_two_partitions_have_no_order_and_are_not_compared() -> None:
    topology = eddy.Topology("last")
    topology.stream("in", key=S, value=N).group_by(lambda key, value: "all", key=S).reduce(lambda a, b: b, "last")
    topology.stream("out", key=S, value=N).to_table(name="latest")
    with served(topology, [("a", 1, 1), ("b", 2, 2), ("c", 3, 3), ("d", 4, 4)], 3) as tables:
        found = Traces(topology.plan).trace(tables, "last", "all")
        assert found.agrees is None
        assert "step 'last' (aggregate) has a fold of a stream: the records of a key come from more than" in found.text
        assert Traces(topology.plan).trace(tables, "latest", "a").agrees
