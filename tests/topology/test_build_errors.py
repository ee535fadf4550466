"""What is refused while a topology is built, or before its first record: each error says where, what and how."""

from typing import Any

import msgspec
import pytest

import eddy
from eddy import NonTerminatingRecursionError, TopologyError, TopologyTestDriver
from tests.topology.programs import S

Rel = eddy.Relation[Any, Any]


def relation(topology: eddy.Topology | None = None) -> tuple[Rel, eddy.KTable[str, str]]:
    table = (topology or eddy.Topology("app")).table("nodes", key=S, value=S)
    return table.to_relation(), table


class TestTermination:
    def test_identity_is_refused(self) -> None:
        rows, _ = relation()
        with pytest.raises(NonTerminatingRecursionError, match="recursively 'loop': op is the identity"):
            rows.recursively(lambda x: x, "loop")

    def test_a_chain_of_maps_is_refused_by_the_names_of_its_steps(self) -> None:
        rows, _ = relation()
        with pytest.raises(NonTerminatingRecursionError, match=r"no step on the path up → upper can drop a row"):
            rows.recursively(lambda x: x.map(lambda k, v: (v, k), "up").map_values(str.upper, "upper"), "loop")

    def test_one_open_way_round_is_enough_to_refuse(self) -> None:
        rows, _ = relation()
        with pytest.raises(NonTerminatingRecursionError, match="on the path again → both"):
            rows.recursively(
                lambda x: x.filter(lambda k, v: False).union(x.map(lambda k, v: (k, v), "again"), name="both"), "loop"
            )

    def test_a_left_join_drops_nothing(self) -> None:
        topology = eddy.Topology("app")
        stream, table = topology.stream("in", key=S, value=S), topology.table("t", key=S, value=S)
        with pytest.raises(NonTerminatingRecursionError, match="on the path lookup"):
            stream.recursively(lambda x: x.left_join(table, lambda v, w: v, "lookup"), "loop")

    @pytest.mark.parametrize(
        "op",
        [
            lambda x, t: x.filter(lambda k, v: False),
            lambda x, t: x.filter_not(lambda k, v: True),
            lambda x, t: x.flat_map(lambda k, v: []),
            lambda x, t: x.join(t, lambda k, v, w: (w, v)),
            lambda x, t: t.to_relation().join(x, lambda k, w, v: (w, v)),
        ],
    )
    def test_a_step_that_can_drop_a_row_is_enough(self, op: Any) -> None:
        rows, table = relation()
        assert isinstance(rows.recursively(lambda x: op(x, table), "loop"), eddy.Relation)

    def test_a_depth_is_enough_for_a_chain_of_maps(self) -> None:
        rows, _ = relation()
        assert rows.recursively(lambda x: x.map(lambda k, v: (v, k)), "loop", max_depth=3)


class TestStrategy:
    """What waves cannot do goes by nested time, and `describe()` says why."""

    @pytest.mark.parametrize(
        "op",
        [
            lambda x: x.distinct("step"),
            lambda x: x.minus(x.filter(lambda k, v: False), "step"),
            lambda x: x.group_by_key().count("step").to_relation(),
        ],
        ids=["distinct", "minus", "count"],
    )
    def test_a_step_that_is_not_linear_is_named(self, op: Any) -> None:
        topology = eddy.Topology("app")
        relation(topology)[0].recursively(op, "loop")
        assert "strategy: nested time, since step 'step' is not linear; each owner its keys" in topology.describe()

    @pytest.mark.parametrize("other", [lambda x: x, lambda x: x.filter(lambda k, v: True)], ids=["x", "made of x"])
    def test_x_joined_with_itself_is_named(self, other: Any) -> None:
        topology = eddy.Topology("app")
        relation(topology)[0].recursively(lambda x: x.join(other(x), lambda k, v, w: (v, w), "square"), "loop")
        assert (
            "nested time, since step 'square' joins the recursion's own rows with each other; at one owner"
            in topology.describe()
        )

    def test_a_recursion_inside_is_named(self) -> None:
        topology = eddy.Topology("app")
        rows, table = relation(topology)

        def inner(y: Rel) -> Rel:
            return y.join(table, lambda k, v, w: (v, w), "hop")

        rows.recursively(lambda x: x.recursively(inner, "inner").filter(lambda k, v: k != v), "outer")
        assert "nested time, since 'inner' inside it is a recursion, too; at one owner" in topology.describe()

    def test_a_fold_of_a_stream_inside_is_refused(self) -> None:
        stream = eddy.Topology("app").stream("in", key=S, value=S)
        with pytest.raises(
            TopologyError, match=r"recursively 'loop': step 'counts' is not linear; a recursion of a stream"
        ):
            stream.recursively(lambda x: x.group_by_key().count("counts").to_stream(), "loop")

    def test_a_recursion_inside_a_streams_recursion_is_named(self) -> None:
        stream = eddy.Topology("app").stream("in", key=S, value=S)

        def op(rows: eddy.KStream[str, str]) -> eddy.KStream[str, str]:
            before = rows.filter(lambda key, value: key != value, "before")
            return before.recursively(lambda inner: inner.filter(lambda key, value: False), "inner")

        with pytest.raises(
            TopologyError, match=r"recursively 'outer': 'inner' inside it is a recursion, too; a recursion of a stream"
        ):
            stream.recursively(op, "outer")

    def test_dead_letters_are_for_waves(self) -> None:
        rows, _ = relation()
        with pytest.raises(
            TopologyError, match="'dead-letter' is for recursions by waves, and this one is computed by nested"
        ):
            rows.recursively(lambda x: x.distinct("step"), "loop", on_limit="dead-letter")


class TestOp:
    def test_a_sink_inside_is_refused(self) -> None:
        stream = eddy.Topology("app").stream("in", key=S, value=S)

        def op(rows: eddy.KStream[str, str]) -> eddy.KStream[str, str]:
            rows.to("inside")
            return rows.filter(lambda k, v: False)

        with pytest.raises(TopologyError, match="recursively 'loop': op writes to topic 'inside'; inside a recursion"):
            stream.recursively(op, "loop")

    @pytest.mark.parametrize("wrong", [None, 7, "rows"])
    def test_what_is_no_collection_is_refused(self, wrong: Any) -> None:
        rows, _ = relation()
        with pytest.raises(TopologyError, match=rf"op returned {type(wrong).__name__}; a collection of the same kind"):
            rows.recursively(lambda x: wrong, "loop")

    def test_a_collection_of_another_kind_is_refused(self) -> None:
        rows, table = relation()
        with pytest.raises(TopologyError, match="a collection of the same kind as its argument is needed"):
            rows.recursively(lambda x: table, "loop")  # type: ignore[arg-type,return-value]

    def test_a_result_without_the_argument_is_refused(self) -> None:
        rows, _ = relation()
        with pytest.raises(TopologyError, match="op does not use its argument"):
            rows.recursively(lambda x: rows.filter(lambda k, v: True), "loop")

    @pytest.mark.parametrize(
        ("bound", "message"),
        [
            ({"max_depth": -1}, "max_depth=-1; 0 or more"),
            ({"limit": 0}, "limit=0; 1 or more"),
            ({"on_limit": "halt"}, "on_limit='halt'; 'hold', "),
        ],
    )
    def test_a_bound_that_makes_no_sense_is_refused(self, bound: Any, message: str) -> None:
        rows, _ = relation()
        with pytest.raises(TopologyError, match=message):
            rows.recursively(lambda x: x.filter(lambda k, v: True), "loop", **bound)

    def test_what_lies_inside_cannot_be_used_outside(self) -> None:
        topology = eddy.Topology("app")
        rows, _ = relation(topology)
        leaked: list[Rel] = []

        def op(x: Rel) -> Rel:
            leaked.append(x.filter(lambda k, v: True, "inside"))
            return leaked[0]

        rows.recursively(op, "loop")
        leaked[0].group_by_key().count("counts")
        with pytest.raises(TopologyError, match="step 'counts': its input 'inside' lies inside recursively 'loop'"):
            TopologyTestDriver(topology)


class TestNames:
    def test_two_steps_of_one_name_are_refused(self) -> None:
        stream = eddy.Topology("app").stream("in", key=S, value=S)
        stream.group_by_key().count("counts")
        with pytest.raises(TopologyError, match="step 'counts': the name is taken by step 'counts'"):
            stream.group_by_key().count("counts")

    def test_a_state_that_is_called_like_a_step_names_both_steps(self) -> None:
        table = eddy.Topology("app").table("in", key=S, value=S)

        def totals(name: str) -> None:
            groups = table.group_by(lambda key, value: (value, key), key=S, value=S)
            groups.aggregate(lambda: 0, lambda key, value, n: n + 1, lambda key, value, n: n - 1, name)

        totals("latest-rows")
        said = (
            "step 'latest': the name 'latest-rows' is taken twice: step 'latest-rows' has it, and step 'latest' gives "
            "it to one of its states or topics; .* Give 'latest' or 'latest-rows' another name"
        )
        with pytest.raises(TopologyError, match=said):
            totals("latest")

    def test_a_topic_that_two_steps_of_one_name_would_make_names_the_steps_as_they_were_written(self) -> None:
        stream = eddy.Topology("app").stream("in", key=S, value=S)
        stream.group_by(lambda key, value: value, key=S).count("counts")
        with pytest.raises(TopologyError, match="step 'counts': the name is taken by step 'counts'"):
            stream.group_by(lambda key, value: value, key=S).count("counts")

    def test_a_topic_is_read_once(self) -> None:
        topology = eddy.Topology("app")
        topology.stream("in")
        with pytest.raises(TopologyError, match=r"topic 'in' is read twice; .*\.to_table\(\)"):
            topology.table("in")

    @pytest.mark.parametrize("name", ["", "a b", "a/b", "..", "x" * 201, "é"])
    def test_a_name_that_no_topic_could_have_is_refused(self, name: str) -> None:
        with pytest.raises(TopologyError, match="not a name"):
            eddy.Topology(name)
        with pytest.raises(TopologyError, match="not a name"):
            eddy.Topology("app").stream(name)
        with pytest.raises(TopologyError, match="not a name"):
            eddy.Topology("app").stream("in").to_table(name or " ")


class TestMixing:
    def test_two_topologies_do_not_mix(self) -> None:
        one, other = eddy.Topology("one"), eddy.Topology("other")
        stream, table = one.stream("in", key=S, value=S), other.table("t", key=S, value=S)
        mixed: list[Any] = [
            lambda: stream.join(table, lambda v, w: v),
            lambda: stream.merge(other.stream("x", key=S, value=S)),
            lambda: one.table("y", key=S, value=S).join(table, lambda v, w: v),
            lambda: one.table("z", key=S, value=S).to_relation().join(table, lambda k, v, w: (k, v)),
            lambda: one.table("u", key=S, value=S).to_relation().union(table.to_relation()),
            lambda: one.table("v", key=S, value=S).to_relation().minus(table.to_relation()),
        ]
        for mix in mixed:
            with pytest.raises(TopologyError, match="one side is of topology 'one', the other of 'other'"):
                mix()

    def test_a_join_with_the_wrong_kind_says_which_is_needed(self) -> None:
        topology = eddy.Topology("app")
        stream, table = topology.stream("s", key=S, value=S), topology.table("t", key=S, value=S)
        wrong: Any = stream
        with pytest.raises(TopologyError, match=r"windows=None; .*JoinWindows.*other\.to_table\(\)"):
            stream.join(wrong, lambda v, w: v)
        with pytest.raises(TopologyError, match=r"join of table 't': KStream is not a KTable"):
            table.join(wrong, lambda v, w: v)
        with pytest.raises(TopologyError, match=r"KStream is neither Relation nor KTable"):
            table.to_relation().join(wrong, lambda k, v, w: (k, v))

    def test_what_is_no_function_is_refused(self) -> None:
        stream: Any = eddy.Topology("app").stream("in")
        with pytest.raises(TopologyError, match=r"map after 'in': 7 is not a function"):
            stream.map(7)


class TestSerdes:
    def test_what_is_no_serde_is_refused(self) -> None:
        topology: Any = eddy.Topology("app")
        with pytest.raises(
            TopologyError, match=r"topic 'in': key=<class 'str'>; a serde is needed\. Write key=eddy\.String"
        ):
            topology.stream("in", key=str)

    def test_tables_that_meet_have_to_write_their_keys_alike(self) -> None:
        topology = eddy.Topology("app")
        a, b = topology.table("a", key=S, value=S), topology.table("b", key=eddy.Int64, value=S)
        a.join(b, lambda v, w: v)  # type: ignore[arg-type]
        with pytest.raises(TopologyError, match=r"'a' writes its keys as string, 'b' as int64; .*key=eddy\.String"):
            TopologyTestDriver(topology)

    @pytest.mark.parametrize("kind", ["table", "stream"])
    def test_a_json_object_is_no_key_of_a_table(self, kind: str) -> None:
        topology = eddy.Topology("app")
        if kind == "table":
            topology.table("in", key=eddy.Json(), value=S)
        else:
            topology.stream("in", key=eddy.Json(), value=S).group_by_key().count("counts")
        with (
            TopologyTestDriver(topology) as driver,
            pytest.raises(eddy.DataError, match=r"offset 0 .*the key \{'a': 1\} cannot be hashed; use a serde of"),
        ):
            driver.input("in").pipe({"a": 1}, "x")

    def test_a_struct_that_is_not_frozen_is_no_key(self) -> None:
        class Draft(msgspec.Struct):
            text: str

        topology = eddy.Topology("app")
        topology.table("in", key=eddy.Struct(Draft), value=S)
        with TopologyTestDriver(topology) as driver, pytest.raises(eddy.DataError, match="cannot be hashed"):
            driver.input("in").pipe(Draft("x"), "y")

    def test_a_frozen_struct_is_a_key(self) -> None:
        class Node(msgspec.Struct, frozen=True):
            text: str

        topology = eddy.Topology("app")
        topology.table("in", key=eddy.Struct(Node), value=S)
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe(Node("x"), "y")
            assert driver.store("in").all() == {Node("x"): "y"}


class TestCopartitioning:
    def worker(self, topology: eddy.Topology, **partitions: int) -> eddy.Worker:
        from eddy.connectors.local import LocalLog
        from eddy.connectors.log import TopicSpec

        log = LocalLog(None)
        log.create_topics(TopicSpec(name, count) for name, count in partitions.items())
        return eddy.Worker(topology, log)

    def both(self) -> eddy.Topology:
        topology = eddy.Topology("app")
        a, b = topology.table("a", key=S, value=S), topology.table("b", key=S, value=S)
        a.join(b, lambda v, w: v)
        return topology

    def test_tables_that_meet_need_as_many_partitions(self) -> None:
        with pytest.raises(
            TopologyError,
            match=r"not co-partitioned: 'a' has 2 partitions, 'b' has 6; .*Repartition one side: .repartition\(6\)",
        ):
            self.worker(self.both(), a=2, b=6)

    def test_tables_that_meet_may_have_the_same_number(self) -> None:
        self.worker(self.both(), a=3, b=3).close()

    def test_a_repartitioned_stream_meets_a_table_of_as_many_partitions(self) -> None:
        topology = eddy.Topology("app")
        stream, table = topology.stream("s", key=S, value=S), topology.table("t", key=S, value=S)
        stream.repartition(4).join(table, lambda v, w: v)
        self.worker(topology, s=2, t=4).close()

    def test_repartition_needs_a_partition(self) -> None:
        with pytest.raises(TopologyError, match="repartition after 'in': partitions=0; 1 or more is needed"):
            eddy.Topology("app").stream("in").repartition(0)


class TestReads:
    def test_a_topology_that_reads_nothing_is_refused(self) -> None:
        with pytest.raises(TopologyError, match=r"topology 'app': it reads nothing; a source is needed"):
            TopologyTestDriver(eddy.Topology("app"))

    def test_a_constant_is_enough(self) -> None:
        topology = eddy.Topology("app")
        topology.constant([("a", 1)], "rows", key=S, value=eddy.Int64).group_by_key().count("counts")
        with TopologyTestDriver(topology) as driver:
            assert driver.store("counts").all() == {"a": 1}


class TestDriver:
    @pytest.mark.parametrize(
        ("record", "said"),
        [
            (("k", "x"), "driver: topic 'in': value 'x' is not a valid int64: int expected, str given"),
            (("k", 2**63), "driver: topic 'in': value 9223372036854775808 is not a valid int64"),
            ((7, 1), "driver: topic 'in': key 7 is not a valid string"),
            ((b"k", 1), "driver: topic 'in': key b'k' is not a valid string"),
        ],
    )
    def test_a_record_that_its_serdes_cannot_write_is_named(self, record: Any, said: str) -> None:
        topology = eddy.Topology("app")
        topology.table("in", key=S, value=eddy.Int64)
        with TopologyTestDriver(topology) as driver:
            with pytest.raises(eddy.DataError, match=said):
                driver.input("in").pipe(*record)
            with pytest.raises(eddy.DataError, match=said):
                driver.input("in").pipe_all([("a", 1), record])
            assert driver.store("in").all() == {}

    def test_what_is_read_as_what_it_is_not_is_named(self) -> None:
        topology = eddy.Topology("app")
        topology.stream("in", key=S, value=S).to("out")
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe("a", "b")
            output = driver.output("out", value=eddy.Int64)
            with pytest.raises(
                eddy.DataError, match=r"topic 'out': the value b'b' is not a valid int64: .*output\('out', value=…\)"
            ):
                output.read_records()
            wrong: Any = str
            with pytest.raises(TopologyError, match=r"driver: topic 'out': key=<class 'str'>; a serde is needed"):
                driver.output("out", key=wrong)

    def test_keys_that_cannot_be_hashed_make_no_map(self) -> None:
        topology = eddy.Topology("app")
        topology.stream("in", key=S, value=eddy.Json()).select_key(lambda key, value: value, key=eddy.Json()).to("out")
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe("a", {"b": 1})
            with pytest.raises(
                eddy.DataError, match=r"topic 'out': the key \{'b': 1\} cannot be hashed: .*read_key_values"
            ):
                driver.output("out").read_map()

    def test_a_key_that_no_store_could_hold_is_named(self) -> None:
        topology = eddy.Topology("app")
        topology.table("in", key=eddy.Int64, value=S)
        with TopologyTestDriver(topology) as driver:
            store = driver.store("in")
            for ask in (lambda: store.get("a"), lambda: store.range("a", "b")):
                with pytest.raises(eddy.DataError, match="store 'in': key 'a' is not a valid int64"):
                    ask()

    def test_it_is_of_a_topology_with_partitions(self) -> None:
        wrong: Any = "app"
        with pytest.raises(TopologyError, match=r"driver: topology='app'; an eddy\.Topology is needed"):
            TopologyTestDriver(wrong)
        with pytest.raises(TopologyError, match="driver: partitions=0; 1 or more is needed"):
            TopologyTestDriver(eddy.Topology("app"), partitions=0)

    def test_it_says_which_sources_topics_and_stores_there_are(self) -> None:
        topology = eddy.Topology("app")
        topology.table("in", key=S, value=S).to("out")
        with TopologyTestDriver(topology) as driver:
            with pytest.raises(TopologyError, match=r"'out' is not a source; one of \['in'\] is needed"):
                driver.input("out")
            with pytest.raises(TopologyError, match=r"no topic 'x'; one of \[.*'out'\] is needed"):
                driver.output("x")
            with pytest.raises(
                TopologyError, match=r"no table has a store 'x', and no store is declared so; one of \['in'\] is needed"
            ):
                driver.store("x")


class TestCallsOfOp:
    """`op` builds steps: it is called once, or twice where all its rows have to be in one place."""

    def build(self, op: Any) -> tuple[int, eddy.Topology]:
        topology = eddy.Topology("app")
        rows, _ = relation(topology)
        calls = []

        def counted(x: Rel) -> Rel:
            calls.append(x)
            return op(x)

        rows.recursively(counted, "loop").group_by_key().count("counts")
        with TopologyTestDriver(topology) as driver:
            driver.input("nodes").pipe("a", "b")
            assert driver.store("counts").all().keys() == {"a", "b"}
        return len(calls), topology

    def test_once_where_it_goes_by_waves(self) -> None:
        calls, _ = self.build(lambda x: x.flat_map(lambda k, v: [] if k == "b" else [("b", "a")], "step"))
        assert calls == 1

    def test_twice_where_its_rows_have_to_be_in_one_place(self) -> None:
        calls, topology = self.build(lambda x: x.map(lambda k, v: (v, k), "swap").distinct("step"))
        assert calls == 2
        assert [node.name for node in topology.plan.nodes].count("swap") == 1
