"""Processors: records, stores, punctuations, and whatever is refused."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest

import eddy
from eddy import DataError, ProcessorError, Record, TopologyError, TopologyTestDriver
from eddy.connectors.log import TopicPartition
from eddy.operators.batch import Batch
from eddy.operators.context import Context
from tests.topology.programs import S

N = eddy.Int64
MS = timedelta(milliseconds=1)


class Base:
    """A processor that keeps its context."""

    def init(self, context: eddy.ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


class Counting(Base):
    """Counts the records of each key in a store."""

    def init(self, context: eddy.ProcessorContext) -> None:
        super().init(context)
        self.counts: eddy.StateStore[str, int] = context.store("counts")

    def process(self, record: Record[str, Any]) -> None:
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.replace(value=count))


def made(factory: Callable[[], Any], *stores: str, values: bool = False, **others: Any) -> eddy.Topology:
    """`in` through processors to `out`."""
    topology = eddy.Topology("app")
    for store in stores:
        topology.store(store, S, N)
    stream = topology.stream("in", key=S, value=S)
    verb = stream.process_values if values else stream.process
    verb(factory, stores, "step", **others).to("out", *(() if values else (S,)))
    return topology


def told(factory: Callable[[], Any], records: Iterable[tuple[str, str, int]], *stores: str) -> list[Any]:
    """What comes out for records, each an epoch of its own."""
    with TopologyTestDriver(made(factory, *stores)) as driver:
        for key, value, time in records:
            driver.input("in").pipe(key, value, time)
        return list(driver.output("out").read_records())


def does(function: Callable[[eddy.ProcessorContext, Record[Any, Any]], object]) -> Callable[[], Any]:
    """A factory of processors that call a function with their context and each record."""

    class Calling(Base):
        def process(self, record: Record[Any, Any]) -> None:
            function(self.context, record)

    return Calling


class TestRecords:
    def test_a_record_has_its_parts_and_its_place(self) -> None:
        seen = []

        def look(context: eddy.ProcessorContext, record: Record[str, str]) -> None:
            seen.append((record, context.record_metadata, context.event_time_ms, context.wall_clock_ms))

        with TopologyTestDriver(made(does(look)), initial_wall_clock_ms=7) as driver:
            driver.input("in").pipe("a", "x", 20, (("h", b"1"),))
            driver.input("in").pipe("a", "y", 10)
        assert seen == [
            (Record("a", "x", 20, (("h", b"1"),)), ("in", 0, 0), 20, 7),
            (Record("a", "y", 10), ("in", 0, 2), 20, 7),
        ]

    def test_places_pass_steps_that_keep_records(self) -> None:
        seen = []
        topology = eddy.Topology("app")
        stream = topology.stream("in", key=S, value=S).filter(lambda key, value: value != "no").map_values(str.upper)
        stream.flat_map_values(str.split).process(
            does(lambda context, record: seen.append((record.value, context.record_metadata)))
        )
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe_all([("a", "no"), ("a", "b c"), ("a", "d")])
        assert seen == [("B", ("in", 0, 1)), ("C", ("in", 0, 1)), ("D", ("in", 0, 2))]

    def test_a_row_of_an_exchange_has_no_place(self) -> None:
        seen = []
        topology = eddy.Topology("app")
        stream = topology.stream("in", key=S, value=S).select_key(lambda key, value: value, key=S)
        stream.process(does(lambda context, record: seen.append((record.key, context.record_metadata))))
        with TopologyTestDriver(topology, partitions=3) as driver:
            driver.input("in").pipe("a", "x")
        assert seen == [("x", None)]

    def test_a_forwarded_record_has_the_time_of_its_record_unless_it_has_its_own(self) -> None:
        def forward(context: eddy.ProcessorContext, record: Record[str, str]) -> None:
            context.forward(record)
            context.forward(Record("k", "v"))
            context.forward(Record("k", "v", 3, (("h", b""),)))

        assert told(does(forward), [("a", "x", 20)]) == [
            ("a", "x", 20, ()),
            ("k", "v", 20, ()),
            ("k", "v", 3, (("h", b""),)),
        ]

    def test_changes_of_a_table_are_new_values_and_none_for_a_deleted_key(self) -> None:
        seen: list[Any] = []
        topology = eddy.Topology("app")
        table = topology.table("in", key=S, value=S)
        table.process(does(lambda context, record: seen.append((record.key, record.value, record.weight))))
        with TopologyTestDriver(topology) as driver:
            for value in ("x", "y", "y", None):
                driver.input("in").pipe("a", value)
        assert seen == [("a", "x", 1), ("a", "y", 1), ("a", None, 1)]

    def test_with_weights_retracted_rows_are_seen(self) -> None:
        seen: list[Any] = []
        topology = eddy.Topology("app")
        table = topology.table("in", key=S, value=S)
        table.process_values(
            does(lambda context, record: seen.append((record.key, record.value, record.weight))), weights=True
        )
        with TopologyTestDriver(topology) as driver:
            for value in ("x", "y", "y", None):
                driver.input("in").pipe("a", value)
        assert seen == [("a", "x", 1), ("a", "x", -1), ("a", "y", 1), ("a", "y", -1)]

    def test_records_without_a_key_have_the_partition_that_they_are_in(self) -> None:
        seen = []
        topology = made(does(lambda context, record: seen.append((record.key, context.partition))))
        with TopologyTestDriver(topology, partitions=3) as driver:
            producer = driver.log.producer(None)
            producer.begin()
            producer.send("in", 2, [None], [b"x"], [1])
            producer.commit({}, None)
            driver.run()
        assert seen == [(None, 2)]

    def test_process_rekeys_and_process_values_does_not(self) -> None:
        topology = made(Base)
        topology.stream("more", key=S, value=S).process(Base, name="p", key=S).group_by_key().count("c")
        topology.stream("most", key=S, value=S).process_values(Base, name="v").group_by_key().count("d")
        assert [node.name for node in topology.plan.nodes if node.role == "exchange"] == ["c-repartition"]


class TestStores:
    def test_a_store_is_read_in_the_driver_and_outlives_restarts(self) -> None:
        with TopologyTestDriver(made(Counting, "counts")) as driver:
            driver.input("in").pipe("a", "x")
            driver.restart()
            driver.input("in").pipe("a", "x")
            driver.restart(lose_state=True)
            driver.input("in").pipe_all([("a", "x"), ("b", "x")])
            assert driver.store("counts").all() == {"a": 3, "b": 1}
            assert driver.store("counts").get("a") == 3
            assert [record.value for record in driver.output("out", value=N).read_records()] == [1, 2, 3, 1]

    def test_operations(self) -> None:
        seen: list[Any] = []

        def operate(context: eddy.ProcessorContext, record: Record[str, str]) -> None:
            store = context.store("s")
            match record.key.split():
                case ["put", key]:
                    store.put(key, int(record.value))
                case ["delete", key]:
                    seen.append(store.delete(key))
                case ["range", first, last]:
                    seen.append(list(store.range(first, last)))
                case ["prefix", prefix]:
                    seen.append([key for key, _ in store.prefix_scan(prefix)])
                case ["count"]:
                    seen.append(store.approximate_count())
                case _:
                    seen.append((list(store.all()), list(store.range()), store.get("none")))

        with TopologyTestDriver(made(does(operate), "s")) as driver:
            for key in ("b1", "a", "b2", "c"):
                driver.input("in").pipe(f"put {key}", "1")
            together = ["put b3", "put b1", "delete a", "delete x", "count", "prefix b", "range b1 b2", "all"]
            driver.input("in").pipe_all([(key, "2") for key in together])
            rest = [("b1", 2), ("b2", 1), ("b3", 2), ("c", 1)]
            assert seen == [1, None, 4, ["b1", "b2", "b3"], [("b1", 2), ("b2", 1)], (rest, rest, None)]
            driver.input("in").pipe("count", "")
            assert seen[-1] == 4

    def test_a_changed_value_is_not_in_the_store_before_it_is_put(self) -> None:
        def add(context: eddy.ProcessorContext, record: Record[str, str]) -> None:
            store = context.store("lists")
            values = store.get("all") or []
            values.append(record.value)
            if record.key == "put":
                store.put("all", values)
            context.forward(Record("", " ".join(store.get("all") or [])))

        topology = eddy.Topology("app")
        topology.store("lists", S, eddy.Json())
        topology.stream("in", key=S, value=S).process(does(add), ["lists"], "step").to("out", S, S)
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe_all([("put", "a"), ("no", "b"), ("put", "c")])
            assert [value for _, value in driver.output("out").read_key_values()] == ["a", "a", "a c"]

    def test_rows_belong_to_the_partition_of_the_record_whatever_their_key(self) -> None:
        def count(context: eddy.ProcessorContext, record: Record[str, str]) -> None:
            store = context.store("s")
            store.put("all", (store.get("all") or 0) + 1)
            context.forward(record.replace(value=store.get("all")))

        topology = made(does(count), "s", value=N)
        with TopologyTestDriver(topology, partitions=4) as driver:
            driver.input("in").pipe_all([(str(number), "") for number in range(40)])
            sizes = driver.log.end_offsets([TopicPartition("in", p) for p in range(4)])
            last = [record.value for record in driver.output("out").read_records()]
        assert len(sizes) == 4
        assert sum(value == 1 for value in last) == 4

    def test_processors_that_name_a_store_share_it(self) -> None:
        topology = eddy.Topology("app")
        counts = topology.store("counts", S, N)
        topology.stream("one", key=S, value=S).process(Counting, [counts], "first", key=S, value=N).to("out")
        topology.stream("two", key=S, value=S).process(Counting, ["counts"], "second", key=S, value=N).to("out")
        with TopologyTestDriver(topology, partitions=3) as driver:
            driver.input("one").pipe("a", "x")
            driver.input("two").pipe("a", "x")
            driver.input("one").pipe("a", "x")
            assert driver.store("counts").all() == {"a": 3}

    def test_inputs_of_processors_that_share_a_store_are_co_partitioned(self) -> None:
        topology = eddy.Topology("app")
        topology.store("counts", S, N)
        topology.stream("one", key=S, value=S).process(Counting, ["counts"], "first")
        topology.stream("two", key=N, value=S).process(Counting, ["counts"], "second")
        with pytest.raises(TopologyError, match="writes its keys as"):
            TopologyTestDriver(topology)

    def test_describe_tells_stores_that_are_lost(self) -> None:
        topology = eddy.Topology("app")
        topology.store("lost", S, N, changelog=False)
        topology.store("quick", S, N, memory=True)
        topology.stream("in", key=S, value=S).process(Base, ["lost", "quick"], "step")
        assert (
            "Processor: step (stores: [lost (no changelog: begins empty where its disk is lost), quick (in memory), "
            "step-moments])" in topology.describe()
        )

    @pytest.mark.parametrize("changelog", [True, False])
    @pytest.mark.parametrize("memory", [True, False])
    def test_what_is_left_after_restarts(self, changelog: bool, memory: bool) -> None:
        topology = eddy.Topology("app")
        topology.store("counts", S, N, changelog, memory)
        topology.stream("in", key=S, value=S).process_values(Counting, ["counts"], "step", N).to("out")
        with TopologyTestDriver(topology, partitions=2) as driver:
            driver.input("in").pipe_all([("a", "x"), ("b", "x")])
            driver.restart()
            driver.input("in").pipe("a", "x")
            kept = changelog or not memory
            assert driver.store("counts").all() == ({"a": 2, "b": 1} if kept else {"a": 1})
            driver.restart(lose_state=True)
            driver.input("in").pipe("b", "x")
            assert driver.store("counts").all() == ({"a": 2, "b": 2} if changelog else {"b": 1})
            topics = driver.log.topics()
            assert ("app-counts-changelog" in topics) is changelog


class Ticking(Base):
    """Forwards its punctuations."""

    by: Any = "event time"

    def init(self, context: eddy.ProcessorContext) -> None:
        super().init(context)
        self.schedule = context.schedule(10 * MS, self.by, self.tick)

    def tick(self, time_ms: int) -> None:
        self.context.forward(Record("tick", str(time_ms)))
        assert self.context.record_metadata is None

    def process(self, record: Record[str, str]) -> None:
        if record.value == "cancel":
            self.schedule.cancel()
        self.context.forward(record)
        if record.value == "poison":
            raise ValueError("poison")


class TickingByTheWall(Ticking):
    by = "wall clock"


def values_of(driver: TopologyTestDriver) -> list[str]:
    return [value for _, value in driver.output("out", value=S).read_key_values()]


class TestPunctuations:
    def test_by_event_time_before_the_record_that_reaches_the_moment(self) -> None:
        with TopologyTestDriver(made(Ticking)) as driver:
            for time in (5, 9, 10, 8, 19, 45, 46):
                driver.input("in").pipe("a", f"at {time}", time)
            assert values_of(driver) == [
                *("at 5", "at 9", "10", "at 10", "at 8", "at 19", "45", "at 45", "at 46"),
            ]

    def test_records_that_are_filtered_out_move_event_time_too(self) -> None:
        topology = eddy.Topology("app")
        stream = topology.stream("in", key=S, value=S).filter(lambda key, value: value != "no")
        stream.process(Ticking, name="step").to("out", S)
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe("a", "no", 5)
            driver.input("in").pipe("a", "no", 15)
            assert values_of(driver) == ["15"]
            driver.restart()
            driver.input("in").pipe("a", "no", 31)
            assert values_of(driver) == ["31"]

    def test_by_wall_clock_once_for_all_moments_that_have_passed(self) -> None:
        with TopologyTestDriver(made(TickingByTheWall), initial_wall_clock_ms=3) as driver:
            assert values_of(driver) == []
            driver.advance_wall_clock_time(0.006)
            assert values_of(driver) == []
            driver.advance_wall_clock_time(0.001)
            assert values_of(driver) == ["10"]
            driver.advance_wall_clock_time(0.035)
            assert values_of(driver) == ["45"]
            driver.restart()
            driver.advance_wall_clock_time(0.004)
            assert values_of(driver) == []
            driver.advance_wall_clock_time(0.001)
            assert values_of(driver) == ["50"]

    def test_by_wall_clock_a_moment_that_passes_while_no_worker_runs_is_made_up_for(self) -> None:
        topology = made(TickingByTheWall)
        with TopologyTestDriver(topology) as driver:
            driver.worker.close()
            driver._now += 1.0  # private: the clock of no worker
            driver.restart()
            assert values_of(driver) == ["1000"]

    @pytest.mark.parametrize("factory", [Ticking, TickingByTheWall])
    def test_a_cancelled_schedule_stays_cancelled(self, factory: Any) -> None:
        with TopologyTestDriver(made(factory)) as driver:
            driver.input("in").pipe("a", "cancel", 1)
            driver.restart(lose_state=True)
            driver.advance_wall_clock_time(1)
            driver.input("in").pipe("a", "x", 1_000)
            assert values_of(driver) == ["cancel", "x"]

    def test_a_cancellation_is_undone_with_its_record(self) -> None:
        class Failing(Ticking):
            def process(self, record: Record[str, str]) -> None:
                self.schedule.cancel()
                raise ValueError(record.value)

        with TopologyTestDriver(made(Failing), eddy.Config(on_error="skip")) as driver:
            driver.input("in").pipe("a", "x", 1)
            driver.input("in").pipe("a", "x", 10)
            assert values_of(driver) == ["10"]

    def test_event_time_is_refused_where_records_have_no_source_partition(self) -> None:
        def refused(build: Callable[[eddy.Topology], Any], why: str) -> None:
            topology = eddy.Topology("app")
            build(topology).process(Ticking, name="step")
            with pytest.raises(ProcessorError, match=why):
                TopologyTestDriver(topology)

        def both(t: eddy.Topology) -> Any:
            return t.stream("one", key=S, value=S).merge(t.stream("two", key=S, value=S))

        refused(lambda t: t.table("in", key=S, value=S), "makes rows that are not records of a source")
        refused(lambda t: t.stream("in", key=S, value=S).select_key(lambda k, v: v, key=S), "moves records to other")
        refused(both, "several topics, 'one', 'two'")


class TestAborts:
    def test_the_object_is_made_anew_so_that_a_field_does_not_outlive_the_epoch(self) -> None:
        class Field(Base):
            def init(self, context: eddy.ProcessorContext) -> None:
                super().init(context)
                self.seen = 0

            def process(self, record: Record[str, str]) -> None:
                self.seen += 1
                if record.value == "poison":
                    raise ValueError("poison")
                self.context.forward(record.replace(value=str(self.seen)))

        with TopologyTestDriver(made(Field), eddy.Config(on_error="skip")) as driver:
            driver.input("in").pipe("a", "x")
            driver.input("in").pipe_all([("a", "x"), ("a", "poison"), ("a", "x")])
            assert values_of(driver) == ["1", "1", "1"]  # the second epoch begins anew, and so does its third record

    def test_a_record_that_fails_leaves_nothing_behind(self) -> None:
        class Half(Counting):
            def process(self, record: Record[str, str]) -> None:
                super().process(record)
                if record.value == "poison":
                    raise ValueError("poison")

        config = eddy.Config(on_error="dead-letter")
        with TopologyTestDriver(made(Half, "counts", values=True, value=N), config) as driver:
            records = [("a", "x"), ("b", "poison"), ("a", "poison"), ("a", "x"), ("b", "x")]
            driver.input("in").pipe_all(records)
            assert driver.output("out").read_key_values() == [("a", 1), ("a", 2), ("b", 1)]
            assert driver.store("counts").all() == {"a": 2, "b": 1}
            letters = driver.output("app-dead-letter", S, S).read_records()
            assert [(letter.key, letter.value) for letter in letters] == [("b", "poison"), ("a", "poison")]
            why = dict(letters[0].headers)["eddy.error"].decode()
            assert "step 'step': the function raised ValueError: poison (" in why
            assert driver.worker.statistics.aborts <= 3

    def test_under_fail_the_record_is_named(self) -> None:
        with (
            TopologyTestDriver(made(Ticking)) as driver,
            pytest.raises(DataError, match=r"topic 'in' partition 0 offset 1 .*step 'step'.* ValueError: poison"),
        ):
            driver.input("in").pipe_all([("a", "x"), ("a", "poison"), ("a", "y")])

    def test_a_step_after_it_that_fails_sets_rows_aside(self) -> None:
        topology = eddy.Topology("app")
        stream = topology.stream("in", key=S, value=S).process(Ticking, name="step", key=S, value=S)
        stream.map_values(lambda value: str(int(value)), value=S).to("out")
        with TopologyTestDriver(topology, eddy.Config(on_error="dead-letter")) as driver:
            driver.input("in").pipe_all([("a", "1"), ("a", "x"), ("a", "2")])
            assert driver.output("out").read_key_values() == [("a", "1"), ("a", "2")]
            assert [letter.value for letter in driver.output("app-dead-letter", S, S).read_records()] == ["x"]

    def test_close_is_called_where_the_object_ends(self) -> None:
        closed = []

        class Closing(Base):
            def close(self) -> None:
                closed.append(1)
                raise ValueError("closing")

        with TopologyTestDriver(made(Closing)) as driver:
            driver.input("in").pipe("a", "x")
            assert closed == []
            driver.restart()
            assert closed == [1]


class TestMistakes:
    """Each is refused where it is written, or its record is a dead letter."""

    def refused(self, function: Callable[..., object], why: str, error: type[Exception] = ProcessorError) -> None:
        with TopologyTestDriver(made(does(function), "s")) as driver, pytest.raises(error, match=why):
            driver.input("in").pipe("a", "x")

    def init_refused(self, function: Callable[[eddy.ProcessorContext], object], why: str) -> None:
        class Initializing(Base):
            def init(self, context: eddy.ProcessorContext) -> None:
                function(context)

        with pytest.raises(ProcessorError, match=why):
            TopologyTestDriver(made(Initializing, "s"))

    def test_init_that_raises(self) -> None:
        self.init_refused(
            lambda context: 1 // 0, r"process 'step', partition 0: init raised ZeroDivisionError.*test_proc"
        )

    def test_a_punctuation_that_raises(self) -> None:
        class Raising(Ticking):
            def tick(self, time_ms: int) -> None:
                raise ValueError("tick")

        with TopologyTestDriver(made(Raising), eddy.Config(on_error="skip")) as driver:
            driver.input("in").pipe_all([("a", "x"), ("a", "y")], 5)
            with pytest.raises(
                ProcessorError, match="the punctuation by event time, every 10 ms, raised ValueError: tick"
            ):
                driver.input("in").pipe("a", "z", 15)

    def test_schedules(self) -> None:
        nothing = print
        self.init_refused(lambda c: c.schedule(0 * MS, "wall clock", nothing), r"every=datetime.timedelta\(0\)")
        self.init_refused(lambda c: c.schedule(-1 * MS, "wall clock", nothing), "a timedelta from a millisecond")
        self.init_refused(lambda c: c.schedule(10, "wall clock", nothing), "every=10;")  # type: ignore[arg-type]
        self.init_refused(lambda c: c.schedule(MS * 1.5, "wall clock", nothing), "whole milliseconds")
        self.init_refused(lambda c: c.schedule(MS, "time", nothing), "by='time'; one of")  # type: ignore[arg-type]
        self.init_refused(lambda c: c.schedule(MS, "wall clock", 7), "7 is not a function")  # type: ignore[arg-type]
        self.refused(lambda c, r: c.schedule(MS, "wall clock", nothing), "schedule is called outside of init")

    def test_stores_that_are_not_the_steps(self) -> None:
        self.init_refused(lambda c: c.store("other"), "store 'other' is not one of its stores, which are 's'")
        self.refused(lambda c, r: c.store("other"), "store 'other' is not one of its stores, which are 's'")

    def test_forward(self) -> None:
        self.init_refused(lambda c: c.forward(Record("a", "x")), r"forward\(\) is called in init")
        self.refused(
            lambda c, r: c.forward(r, child="left"), r"child='left'\): the step has no children; .*=\['left'\]"
        )
        self.refused(lambda c, r: c.forward(("a", "x")), r"forward\(\('a', 'x'\)\); a Record is needed", DataError)
        self.refused(lambda c, r: c.forward(r.replace(timestamp_ms=-1)), "timestamp_ms=-1;", DataError)

    def test_process_values_keeps_the_key(self) -> None:
        def rekey(context: eddy.ProcessorContext, record: Record[str, str]) -> None:
            context.forward(record.replace(key="other"))

        with (
            TopologyTestDriver(made(does(rekey), values=True)) as driver,
            pytest.raises(DataError, match="forward of key 'other' while the record has 'a'"),
        ):
            driver.input("in").pipe("a", "x")

    def test_process_values_forwards_keys_of_its_partition_in_a_punctuation(self) -> None:
        class Elsewhere(Ticking):
            def tick(self, time_ms: int) -> None:
                for number in range(10):
                    self.context.forward(Record(str(number), ""))

        with TopologyTestDriver(made(Elsewhere, values=True), partitions=3) as driver:
            driver.input("in").pipe("a", "x", 5)
            with pytest.raises(ProcessorError, match=r"DataError: process_values 'step': forward of key .* in a punct"):
                driver.input("in").pipe("a", "x", 15)

    def test_keys_and_values_that_a_store_cannot_write_are_dead_letters(self) -> None:
        def put(context: eddy.ProcessorContext, record: Record[str, str]) -> None:
            key: Any = record.key if record.value != "key" else 7
            context.store("s").put(key, 1 if record.value != "value" else "one")
            context.forward(record)

        config = eddy.Config(on_error="dead-letter")
        with TopologyTestDriver(made(does(put), "s"), config) as driver:
            driver.input("in").pipe_all([("a", "key"), ("b", "value"), ("c", "fine")])
            assert values_of(driver) == ["fine"]
            whys = [
                dict(letter.headers)["eddy.error"] for letter in driver.output("app-dead-letter", S, S).read_records()
            ]
        assert [
            b"store 's': the key 7 is not a valid string" in whys[0],
            b"the value 'one' of key 'b' is not a valid int64" in whys[1],
        ] == [
            True,
            True,
        ]

    def test_ranges(self) -> None:
        topology = eddy.Topology("app")
        topology.store("s", N, N)
        scans = {
            "range": lambda store: store.range(-1, 1),
            "prefix": lambda store: store.prefix_scan(1),
        }
        topology.stream("in", key=S, value=S).process(does(lambda c, r: list(scans[r.value](c.store("s")))), ["s"])
        whys = {
            "range": "the bytes of -1 sort after the bytes of 1",
            "prefix": "prefix_scan of keys by serde int64",
        }
        for scan, why in whys.items():
            with TopologyTestDriver(topology) as driver, pytest.raises(DataError, match=why):
                driver.input("in").pipe("a", scan)

    def test_contexts_and_stores_are_used_within_calls(self) -> None:
        kept: list[Any] = []

        def keep(context: eddy.ProcessorContext, record: Record[str, str]) -> None:
            store = context.store("s")
            store.put(record.key, 1)
            store.put("z", 1)
            kept[:] = [context, store, store.all(), record, context.store("s").all()]
            assert next(kept[4]) == ("a", 1)

        with TopologyTestDriver(made(does(keep), "s")) as driver:
            driver.input("in").pipe("a", "x")
            context, store, rows, record, begun = kept
            after: list[Callable[[], object]] = [
                lambda: context.forward(record),
                lambda: context.record_metadata,
                lambda: context.event_time_ms,
                lambda: context.wall_clock_ms,
                lambda: store.get("a"),
                lambda: store.put("a", 1),
                lambda: store.delete("a"),
                lambda: store.all(),
                lambda: store.range(),
                lambda: store.prefix_scan("a"),
                lambda: store.approximate_count(),
                lambda: next(rows),
                lambda: next(begun),
            ]
            for use in after:
                with pytest.raises(ProcessorError, match="after its call has ended; contexts and stores are used only"):
                    use()
        with pytest.raises(ProcessorError, match="store 's' is read after its call has ended"):
            store.get("a")

    def test_an_iterator_ends_with_its_call(self) -> None:
        kept: list[Any] = []

        def iterate(context: eddy.ProcessorContext, record: Record[str, str]) -> None:
            context.store("s").put("a", 1)
            context.store("s").put("b", 1)
            kept.append(context.store("s").all())
            next(kept[0], None)

        with (
            TopologyTestDriver(made(does(iterate), "s")) as driver,
            pytest.raises(ProcessorError, match="an iterator of store 's' is read after its call has ended"),
        ):
            driver.input("in").pipe_all([("a", "x"), ("b", "x")])

    def test_another_thread(self) -> None:
        told: list[str] = []

        def use(context: eddy.ProcessorContext, record: Record[str, str]) -> None:
            def elsewhere() -> None:
                for act in (lambda: context.forward(record), lambda: context.store("s").get("a")):
                    try:
                        act()
                    except ProcessorError as error:
                        told.append(str(error))

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()

        with TopologyTestDriver(made(does(use), "s")) as driver:
            driver.input("in").pipe("a", "x")
        assert ["from another thread" in what for what in told] == [True, True]

    def test_factories(self) -> None:
        one = Base()
        self.build_refused(lambda: one, "the factory returned the same object twice")
        self.build_refused(lambda: 7, r"the factory returned 7, which has no process\(record\)")
        self.build_refused(lambda: 1 // 0, "the factory raised ZeroDivisionError")
        self.build_refused(lambda context, record: None, r"is called with \(\) without arguments")
        self.build_refused(one, "is not a function")

        class TakesTwo:
            def process(self, key: str, value: str) -> None:
                """Not a record."""

        self.build_refused(
            TakesTwo, r"process=TakesTwo.process of .* takes \(key, value\) and is called with \(record\)"
        )

    def build_refused(self, factory: Any, why: str) -> None:
        with pytest.raises(TopologyError, match=why):
            made(factory)

    def test_stores_that_nobody_declared(self) -> None:
        topology = eddy.Topology("app")
        topology.store("s", S, N)
        stream = topology.stream("in", key=S, value=S)
        with pytest.raises(TopologyError, match=r"stores names 'x', which topology 'app' does not declare; .* 's'"):
            stream.process(Base, ["x"])
        with pytest.raises(TopologyError, match="does not declare"):
            stream.process(Base, [eddy.Topology("other").store("s", S, N)])
        with pytest.raises(TopologyError, match="names one twice"):
            stream.process(Base, ["s", "s"])

    def test_two_stores_with_one_name(self) -> None:
        topology = eddy.Topology("app")
        topology.store("s", S, N)
        with pytest.raises(TopologyError, match="step 's': the name is taken"):
            topology.store("s", S, N)
        with pytest.raises(TopologyError, match="the name is taken"):
            topology.table("in", key=S, value=S, name="s")

    def test_other_kinds_of_stores(self) -> None:
        with pytest.raises(TopologyError, match="kind='list'; 'key-value', 'window', 'session' or "):
            eddy.Topology("app").store("s", S, N, kind="list")  # type: ignore[arg-type]

    def test_keys_that_cannot_be_hashed(self) -> None:
        with pytest.raises(TopologyError, match="key=json makes keys that cannot be hashed"):
            eddy.Topology("app").store("s", eddy.Json(), N)

    def test_inside_a_recursion(self) -> None:
        rows = eddy.Topology("app").stream("in", key=S, value=S)
        with pytest.raises(TopologyError, match=r"process 'step': it lies inside recursively 'loop'"):
            rows.recursively(lambda rows: rows.filter(lambda k, v: False).process(Base, name="step"), "loop")


def test_a_row_without_a_key_and_a_place_is_of_no_partition_and_is_dropped() -> None:
    topology = eddy.Topology("app")
    table = topology.table("in", key=S, value=S)
    keyless = table.to_stream().merge(topology.stream("more", key=S, value=S))

    def check(context: eddy.ProcessorContext, record: Record[str, str]) -> None:
        if record.value == "poison":
            raise ValueError("poison")
        context.forward(record)

    keyless.process(does(check), name="step").to("out", S, S)
    with TopologyTestDriver(topology, eddy.Config(on_error="skip"), partitions=3) as driver:
        driver.input("more").pipe_all([(None, "kept"), ("a", "poison"), ("b", "kept")])
        driver.input("in").pipe("c", "kept")
        assert Counter(driver.output("out").read_key_values()) == {
            (None, "kept"): 1,
            ("b", "kept"): 1,
            ("c", "kept"): 1,
        }


def test_the_operator_drops_rows_of_no_partition() -> None:
    topology = made(does(lambda context, record: context.forward(record)))
    with TopologyTestDriver(topology, partitions=2) as driver:
        (operator,) = driver.worker.circuit.processors
        driver.input("in").pipe("a", "x")
        out = operator.step(Context(tick=0), Batch([(None, "x"), ("b", "y"), (None, "z")], [1, 1, 2], 5))
        assert (out.rows, operator.dropped) == ([("b", "y")], 2)
