"""The conformance cases of processors and of functions that only a worker can call."""

import asyncio
from datetime import timedelta
from typing import Any

import eddy
from tests.conformance.case import N, Native, S, case, of

__all__ = ["PROCESSED"]

PROCESSED = (
    "a-processor-counts",
    "processors-after-an-exchange",
    "processors-that-share-a-store",
    "a-processor-tells-by-event-time",
    "processors-of-a-table",
    "a-function-reads-records",
    "a-function-calls-out",
    "a-processor-keeps-sessions-and-versions",
    "a-processor-has-children",
    "a-global-table-is-joined",
)
"""The names of the cases, which a worker alone computes."""


class Counting:
    """Counts the records of each key in the store `counts`."""

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context, self.counts = context, context.store("counts")

    def process(self, record: eddy.Record[str, Any]) -> None:
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.replace(value=count))


class Once(Counting):
    """Passes the first record of each key."""

    def process(self, record: eddy.Record[str, Any]) -> None:
        if self.counts.get(record.key) is None:
            self.counts.put(record.key, 1)
            self.context.forward(record)


class Telling(Counting):
    """Counts; at each ten milliseconds of event time tells the counts, and begins anew."""

    def init(self, context: eddy.ProcessorContext) -> None:
        super().init(context)
        context.schedule(timedelta(milliseconds=10), "event time", self.tell)

    def process(self, record: eddy.Record[str, Any]) -> None:
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)

    def tell(self, time_ms: int) -> None:
        for key, count in self.counts.all():
            self.context.forward(eddy.Record(key, count))
            self.counts.delete(key)


class Changes(Counting):
    """Passes the changes of a table as they are."""

    def process(self, record: eddy.Record[str, Any]) -> None:
        self.context.forward(record.replace(value=(record.value, record.weight)))


@case(
    [of("in", ("a", "x"), ("b", "x")), of("in", ("a", "y"), ("a", "z"))],
    counts=[("a", 1), ("b", 1), ("a", 2), ("a", 3)],
)
def a_processor_counts(t: eddy.Topology) -> None:
    t.store("counts", S, N)
    t.stream("in", S, S).process_values(Counting, ["counts"], "counting", N).to("counts")


class Many(Counting):
    """Counts in the store `many`."""

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context, self.counts = context, context.store("many")


class Seen(Once):
    """Remembers in the store `seen`."""

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context, self.counts = context, context.store("seen")


@case(
    [of("in", ("1", "a"), ("2", "b")), of("in", ("3", "a"), ("4", "c")), of("in", ("5", "c"), ("6", "c"))],
    once=[("a", "a"), ("b", "b"), ("c", "c")],
    many={"a": 2, "b": 1, "c": 3},
)
def processors_after_an_exchange(t: eddy.Topology) -> None:
    t.store("many", S, N, memory=True)
    t.store("seen", S, N)
    by_value = t.stream("in", S, S).select_key(lambda key, value: value, key=S)
    by_value.process_values(Many, ["many"], "more", N).to_table("last").to("many", S, N)
    by_value.process(Seen, ["seen"], "first", S, S).to("once")


@case(
    [of("one", ("a", "x"), ("b", "x")) + of("two", ("a", "x")), of("two", ("b", "y")), of("one", ("a", "y"))],
    counts={"a": 3, "b": 2},
)
def processors_that_share_a_store(t: eddy.Topology) -> None:
    counts = t.store("counts", S, N)
    one = t.stream("one", S, S).process_values(Counting, [counts], "one-counted", N)
    two = t.stream("two", S, S).process_values(Counting, [counts], "two-counted", N)
    one.merge(two).to_table("last").to("counts", S, N)


@case(
    [of("in", *[("a", "x")] * 12), of("in", *[("a", "y")] * 3)],
    told=[("a", 9)],
)
def a_processor_tells_by_event_time(t: eddy.Topology) -> None:
    t.store("counts", S, N)
    t.stream("in", S, S).process(Telling, ["counts"], "telling", S, N).to("told")


@case(
    [of("in", ("a", "x"), ("b", "y")), of("in", ("a", "z")), of("in", ("b", None))],
    facts=[("a", ("x", 1)), ("b", ("y", 1)), ("a", ("z", 1)), ("b", (None, 1))],
    weighted=[("a", ("x", 1)), ("b", ("y", 1)), ("a", ("x", -1)), ("a", ("z", 1)), ("b", ("y", -1))],
)
def processors_of_a_table(t: eddy.Topology) -> None:
    t.store("counts", S, N)
    table = t.table("in", S, S)
    table.process_values(Changes, ["counts"], "facts", Native).to("facts", value=Native)
    table.process(Changes, ["counts"], "weighted", S, Native, weights=True).to("weighted", value=Native)


@case([of("in", ("a", "t7"), ("b", "t9"), ("a", "t9"))], out=[("a", ("t7", "in", 7)), ("b", ("t9", "in", 9))])
def a_function_reads_records(t: eddy.Topology) -> None:
    stream = t.stream("in", S, S, timestamp=lambda value: int(value[1:]))
    first = stream.filter(lambda key, value, record: (key, record.timestamp_ms) != ("a", 9) and record.offset >= 0)
    first.map_values(lambda value, record: (value, record.topic[-2:], record.timestamp_ms)).to("out", value=Native)


async def twice(key: str, value: str) -> tuple[str, str]:
    """The value twice, some time later; the later, the shorter the value is."""
    await asyncio.sleep(0.01 / len(value))  # pause: a call takes its time
    return value, value * 2


@case(
    [of("in", ("a", "x"), ("b", "yyy"), ("a", "zz")), of("in", ("c", "-"), ("b", "x"))],
    out=[("x", "xx"), ("yyy", "yyyyyy"), ("zz", "zzzz"), ("x", "xx")],
    counts={"x": 2, "yyy": 1, "zz": 1},
)
def a_function_calls_out(t: eddy.Topology) -> None:
    words = t.stream("in", S, S).filter(lambda key, value: value != "-")
    called = words.map_async(twice, "twice", S, S, at_most=2)
    called.to("out")
    called.group_by_key().count("counts").to("counts")


class Visiting:
    """Keeps sessions with a gap of 5, and the versions of values; passes the session, and the value 4 before."""

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context = context
        self.sessions, self.values = context.session_store("visits"), context.versioned_store("values")

    def process(self, record: eddy.Record[str, str]) -> None:
        start = end = now = record.timestamp_ms or 0
        for session, _ in list(self.sessions.find_sessions(record.key, now - 5, now + 5)):
            self.sessions.remove(record.key, session.start_ms, session.end_ms)
            start, end = min(start, session.start_ms), max(end, session.end_ms)
        self.sessions.put(record.key, record.value, start, end)
        before = self.values.get(record.key, max(0, now - 4))
        self.values.put(record.key, record.value, now)
        self.context.forward(record.replace(value=(start, end, before and before.value)))


@case(
    [of("in", ("a", "t10"), ("a", "t14"), ("b", "t20")), of("in", ("a", "t18"), ("a", "t30"), ("a", "t25"))],
    out=[
        ("a", (10, 10, None)),
        ("a", (10, 14, "t10")),
        ("b", (20, 20, None)),
        ("a", (10, 18, "t14")),
        ("a", (30, 30, "t18")),
        ("a", (25, 30, "t18")),
    ],
)
def a_processor_keeps_sessions_and_versions(t: eddy.Topology) -> None:
    retention = timedelta(milliseconds=40)
    t.store("visits", S, S, kind="session", retention=retention)
    t.store("values", S, S, kind="versioned", retention=retention)
    stream = t.stream("in", S, S, timestamp=lambda value: int(value[1:]))
    stream.process_values(Visiting, ["visits", "values"], "visited", Native).to("out", value=Native)


class Sorting(Telling):
    """Counts; forwards records to the child that their value names, or to all; the counts to `told`."""

    def process(self, record: eddy.Record[str, str]) -> None:
        super().process(record)
        child = record.value.split()[1]
        self.context.forward(record, None if child == "all" else child)

    def tell(self, time_ms: int) -> None:
        for key, count in self.counts.all():
            self.context.forward(eddy.Record(key, str(count)), child="told")
            self.counts.delete(key)


@case(
    [
        of("in", ("a", "1 left"), ("b", "2 all"), ("b", "3 right"), ("a", "4 left")),
        of("in", ("a", "12 right"), ("a", "13 right"), ("b", "14 left")),
    ],
    left=[("a", "1 left"), ("b", "2 all"), ("a", "4 left"), ("b", "14 left")],
    right={"a": 2, "b": 2},
    told=[("b", "2 all"), ("a", "2"), ("b", "2")],
)
def a_processor_has_children(t: eddy.Topology) -> None:
    t.store("counts", S, N)
    stream = t.stream("in", S, S, timestamp=lambda value: int(value.split()[0]))
    children = stream.process(Sorting, ["counts"], "sorting", S, S, children=["left", "right", "told"])
    children["left"].to("left")
    children["right"].group_by_key().count("rights").to("right")
    children["told"].to("told")


@case(
    [
        of("countries", ("ch", "Schweiz"), ("de", "Deutschland"), ("fr", "France")),
        of("orders", ("a", "ch"), ("b", "xx"), (None, "fr"), ("c", None)),
        of("countries", ("ch", "Suisse"), ("de", None)),
        [*of("orders", ("a", "ch"), ("b", "de")), *of("countries", ("it", "Italia"))],
        of("orders", ("a", "it")),
    ],
    named=[("a", "Schweiz"), (None, "France"), ("a", "Suisse"), ("a", "Italia")],
    counts={"Schweiz": 1, "France": 1, "Suisse": 1, "Italia": 1},
)
def a_global_table_is_joined(t: eddy.Topology) -> None:
    countries = t.global_table("countries", S, S)
    orders = t.stream("orders", S, S)
    named = orders.join(countries, lambda order, country: country, "named", S, select=lambda order: order)
    named.to("named", value=S)
    named.group_by(lambda key, country: country, key=S).count("counts").to("counts", value=N)
