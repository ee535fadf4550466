"""Recursion: X = seed + op(X), whatever comes when, in which order, and by whichever worker's hands."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import eddy
from eddy.errors import LoopLimitError
from eddy.operators.bound import Bound
from eddy.operators.circuit import Circuit
from eddy.operators.exchange import Budget, Outgoing, Ownership, Received
from eddy.state.memory import MemoryStore
from eddy.topology.compiler.circuit_compiler import Environment, compile_plan
from tests import oracle
from tests.operators.bench import MEMORIES, Batch, Bench, facts, live, received, run_to_rest, stories

X = eddy.Relation[int, int]
Edges = eddy.Relation[int, int]
N = eddy.Native


class Op(NamedTuple):
    """One step of a recursion, as a user writes it and as the oracle says it."""

    dsl: Callable[[X, Edges], X]
    naive: Callable[[oracle.Bag, oracle.Bag], oracle.Bag]


def step(node: int, value: int, to: int) -> tuple[int, int]:
    return to, value


def longer(node: int, value: int, to: int) -> tuple[int, int]:
    return to, value + node


def small(node: int, value: int) -> bool:
    return value < 4


def up(node: int, value: int) -> list[tuple[int, int]]:
    return [(node + 1, value)] * 2 if node < 3 else []


def after(node: int, value: int) -> tuple[int, int]:
    return node + 1, value


OPS = {
    "join": Op(lambda x, e: x.join(e, step, "j"), lambda x, e: oracle.joined(x, e, step)),
    "join, values by path": Op(lambda x, e: x.join(e, longer, "j"), lambda x, e: oracle.joined(x, e, longer)),
    "join from the right": Op(
        lambda x, e: e.join(x, lambda node, to, value: longer(node, value, to), "j"),
        lambda x, e: oracle.joined(x, e, longer),
    ),
    "filter, join": Op(
        lambda x, e: x.filter(small).join(e, longer, "j"),
        lambda x, e: oracle.joined(oracle.selected(x, small), e, longer),
    ),
    "flat_map": Op(lambda x, e: x.flat_map(up), lambda x, e: oracle.flat_mapped(x, up)),
    "union of a join and a flat_map": Op(
        lambda x, e: x.join(e, step, "j").union(x.flat_map(up)),
        lambda x, e: oracle.plus(oracle.joined(x, e, step), oracle.flat_mapped(x, up)),
    ),
    "two joins": Op(
        lambda x, e: x.join(e, step, "j1").union(x.filter(small).join(e, longer, "j2")),
        lambda x, e: oracle.plus(oracle.joined(x, e, step), oracle.joined(oracle.selected(x, small), e, longer)),
    ),
    "map, join: an exchange inside op": Op(
        lambda x, e: x.map(after).join(e, step, "j"), lambda x, e: oracle.joined(oracle.mapped(x, after), e, step)
    ),
}


def program(op: Op, **bound: Any) -> eddy.Topology:
    """Rows of X are counted in the table "rows", by (node, value)."""
    topology = eddy.Topology("app")
    seeds = topology.table("seeds", N, N).to_relation().map(lambda id, row: row, key=N, value=N)
    edges = topology.table("edges", N, N).to_relation().map(lambda id, edge: edge, key=N, value=N)
    x = seeds.recursively(lambda rows: op.dsl(rows, edges), name="x", **bound)
    x.map(lambda node, value: ((node, value), 1), key=N, value=N).group_by_key().count("rows")
    return topology


def maker(
    topology: eddy.Topology, budget: int = 1 << 60, partitions: int = 1, ownership: Ownership | None = None
) -> Callable[[MemoryStore, int | None], Circuit]:
    counts = {node.topic: partitions for node in topology.plan.sources()}

    def make(store: MemoryStore, max_cells: int | None) -> Circuit:
        return compile_plan(
            topology.plan,
            Environment(
                counts,
                ownership=ownership or Ownership(),
                budget=Budget(budget),
                partitioner=lambda key, count: sum(key) % count,
                store=store,
                max_cells=max_cells,
            ),
        )

    return make


ids = st.sampled_from("pqr")
seed_rows = st.tuples(st.integers(0, 3), st.integers(0, 2))
forward = st.tuples(st.integers(0, 3), st.integers(1, 4)).filter(lambda edge: edge[0] < edge[1])
anywhere = st.tuples(st.integers(0, 3), st.integers(0, 3))
seed_records = st.lists(st.tuples(ids, st.none() | seed_rows), max_size=3)
edge_records = st.lists(st.tuples(st.sampled_from("stuvw"), st.none() | forward), max_size=5)
any_edge_records = st.lists(st.tuples(st.sampled_from("stu"), st.none() | anywhere), max_size=4)


class Tables:
    """What the two source tables hold, to ask the oracle."""

    def __init__(self) -> None:
        self.seeds: dict[Any, Any] = {}
        self.edges: dict[Any, Any] = {}

    def take(self, inputs: dict[str, Batch]) -> None:
        self.seeds = oracle.latest(inputs["seeds"].rows, self.seeds)
        self.edges = oracle.latest(inputs["edges"].rows, self.edges)

    def x(self, op: Op, max_depth: int | None = None) -> oracle.Bag:
        seeds, edges = (oracle.bag((row, 1) for row in table.values()) for table in (self.seeds, self.edges))
        return oracle.recursion(seeds, lambda x: op.naive(x, edges), max_depth)


def as_facts(story: Any) -> list[tuple[str, dict[str, Batch]]]:
    return [(what, {name: facts(rows) for name, rows in each.items()}) for what, each in story]


def family(**bound: Any) -> eddy.Topology:
    topology = eddy.Topology("family")
    parents = topology.table("nodes", key=N, value=N)
    updates = parents.to_relation().map(lambda node, parent: (parent, 1))
    above = updates.recursively(
        lambda rows: rows.join(parents, lambda _, one, parent: (parent, one)), "ancestors", **bound
    )
    above.group_by_key().count("descendants")
    return topology


class TestWaves:
    def test_each_ancestor_of_a_new_leaf_counts_one_more(self) -> None:
        bench = Bench(maker(family()))
        run_to_rest(bench, nodes=facts([("c", "b"), ("b", "a")]))
        assert bench.states()["descendants"] == {"b": 1, "a": 2}
        run_to_rest(bench, nodes=facts([("d", "c")]))
        assert bench.states()["descendants"] == {"c": 1, "b": 2, "a": 3}

    def test_a_subtree_that_moves_takes_its_descendants_along(self) -> None:
        bench = Bench(maker(family()))
        run_to_rest(bench, nodes=facts([("c", "b"), ("b", "a"), ("d", "c"), ("z", "a")]))
        run_to_rest(bench, nodes=facts([("c", "z")]))
        assert bench.states()["descendants"] == {"a": 4, "z": 2, "c": 1}

    def test_equal_rows_go_round_as_one(self) -> None:
        """Two hundred leaves of one path of five: five waves of few rows, not two hundred times five."""
        bench = Bench(maker(family()))
        path = [("p1", "p2"), ("p2", "p3"), ("p3", "p4"), ("p4", "p5")]
        run_to_rest(bench, nodes=facts([*path, *((f"leaf{n}", "p1") for n in range(200))]))
        assert bench.states()["descendants"] == {"p1": 200, "p2": 201, "p3": 202, "p4": 203, "p5": 204}
        statistics = bench.circuit.statistics()["ancestors"]
        assert (statistics.waves, statistics.rows) == (5, 5 + 4 + 3 + 2 + 1)

    def test_depths_are_remembered_only_where_the_answer_depends_on_them(self) -> None:
        bench, bounded = Bench(maker(program(OPS["join"]))), Bench(maker(program(OPS["join"], max_depth=3)))
        for one in (bench, bounded):
            run_to_rest(one, seeds=facts([("p", (0, 7))]), edges=facts([("s", (0, 1))]))
        assert bench.states()["x"] == {(0, 7): 1, (1, 7): 1}
        assert bounded.states()["x"] == {(0, (0, 7)): 1, (1, (1, 7)): 1}

    def test_a_row_that_two_ways_lead_to_is_there_twice(self) -> None:
        bench = Bench(maker(program(OPS["join"])))
        diamond = [("s", (0, 1)), ("t", (0, 2)), ("u", (1, 3)), ("v", (2, 3))]
        run_to_rest(bench, seeds=facts([("p", (0, 7))]), edges=facts(diamond))
        assert bench.states()["rows"] == {(0, 7): 1, (1, 7): 1, (2, 7): 1, (3, 7): 2}
        run_to_rest(bench, edges=facts([("v", None)]))
        assert bench.states()["rows"] == {(0, 7): 1, (1, 7): 1, (2, 7): 1, (3, 7): 1}


class TestLimit:
    def test_what_is_held_names_loop_key_and_the_way_round(self) -> None:
        bench = Bench(maker(family(limit=50)))
        bench.epoch(nodes=facts([("a", "b"), ("b", "c"), ("c", "a"), ("d", "e")]))
        assert bench.states()["descendants"] == {"e": 1}
        (message,) = bench.circuit.held().values()
        assert message.startswith("recursively 'ancestors': key 'a': the path a → b → c → a came around")
        assert "max_depth=16" in message
        bench.epoch(nodes=facts([("c", "d")]))
        assert bench.states()["descendants"] == {"b": 1, "c": 2, "d": 3, "e": 4}
        assert bench.circuit.held() == {}
        assert bench.states()["ancestors-held"] == bench.states()["ancestors-reached"] == {}

    def test_a_path_longer_than_the_limit_is_no_cycle(self) -> None:
        bench = Bench(maker(family(limit=4)))
        bench.epoch(nodes=facts([(n, n + 1) for n in range(20)]))
        assert bench.states()["descendants"] == {n: n for n in range(1, 21)}
        assert bench.circuit.held() == {}

    def test_rows_that_come_in_late_do_not_make_others_older(self) -> None:
        """A row's iteration is its own: it once was that of the oldest row in the epoch, so that under steady
        load between two workers it rose for ever, up to a limit error without a cycle."""
        bench = Bench(maker(family(limit=5)))
        run_to_rest(bench, nodes=facts([("a", "b"), ("b", "c"), ("x", "y"), ("y", "z")]))
        old = Received(facts([("x", 1)]), [3])
        bench.step({"nodes": facts([("leaf", "a")]), "family-ancestors-loop": old})
        bench.end()
        assert bench.states()["descendants"] == {"a": 1, "b": 2, "c": 3, "x": 1, "y": 2, "z": 3}

    @pytest.mark.parametrize("on_limit", ["return", "dead-letter"])
    def test_rows_beyond_the_limit_are_cut_and_reported(self, on_limit: Any) -> None:
        bench = Bench(maker(program(OPS["join"], limit=2, on_limit=on_limit)))
        path = facts([("s", (0, 1)), ("t", (1, 2)), ("u", (2, 3)), ("v", (3, 4))])
        bench.step({"seeds": facts([("p", (0, 7))]), "edges": path})
        cut = [row for batch in bench.circuit.recursions["x"].cut for row in batch.rows]
        bench.end()
        assert bench.states()["rows"] == {(0, 7): 1, (1, 7): 1, (2, 7): 1}
        assert cut == [(3, 7)]
        assert bench.circuit.recursions["x"].cut == []

    def test_max_depth_cuts_in_silence(self) -> None:
        bench = Bench(maker(program(OPS["join"], max_depth=1)))
        bench.step({"seeds": facts([("p", (0, 7))]), "edges": facts([("s", (0, 1)), ("t", (1, 2))])})
        assert bench.circuit.recursions["x"].cut == []
        bench.end()
        assert bench.states()["rows"] == {(0, 7): 1, (1, 7): 1}

    def test_max_depth_holds_for_each_path_when_several_lead_to_a_row(self) -> None:
        """2 is reached by 0→2 at depth 1, and by 0→1→2 at depth 2; only the former goes on to 3."""
        bench = Bench(maker(program(OPS["join"], max_depth=2)))
        edges = [("s", (0, 1)), ("t", (1, 2)), ("u", (0, 2)), ("v", (2, 3))]
        run_to_rest(bench, seeds=facts([("p", (0, 7))]), edges=facts(edges))
        assert bench.states()["rows"] == {(0, 7): 1, (1, 7): 1, (2, 7): 2, (3, 7): 1}
        run_to_rest(bench, edges=facts([("u", None)]))
        assert bench.states()["rows"] == {(0, 7): 1, (1, 7): 1, (2, 7): 1}

    def test_depth_counts_from_the_seed_when_an_edge_comes_late(self) -> None:
        bench = Bench(maker(program(OPS["join"], max_depth=2)))
        run_to_rest(bench, seeds=facts([("p", (0, 7))]), edges=facts([("s", (0, 1)), ("u", (2, 3))]))
        run_to_rest(bench, edges=facts([("t", (1, 2))]))
        assert bench.states()["rows"] == {(0, 7): 1, (1, 7): 1, (2, 7): 1}

    def test_a_bound_says_whether_depth_matters(self) -> None:
        assert not Bound().by_depth
        assert Bound(max_depth=3).by_depth
        assert Bound(on_limit="return").by_depth
        assert (Bound(max_depth=3).depth, Bound(limit=7, on_limit="return").depth) == (3, 7)


@pytest.mark.parametrize("memory", MEMORIES)
@given(name=st.sampled_from(sorted(OPS)), story=stories(seeds=seed_records, edges=edge_records))
@example(
    name="filter, join",
    story=[
        ("commit", {"seeds": [("p", (0, 0))], "edges": [("s", (0, 1))]}),
        ("undo", {"seeds": [("p", None)], "edges": [("s", None)]}),
        ("restart", {"seeds": [], "edges": [("s", (0, 2))]}),
    ],
)
def test_x_is_the_fixpoint_after_every_epoch(memory: str, name: str, story: Any) -> None:
    op, tables = OPS[name], Tables()

    def check(bench: Bench, inputs: dict[str, Batch]) -> None:
        tables.take(inputs)
        assert bench.states()["rows"] == tables.x(op)

    live(maker(program(op)), MEMORIES[memory], as_facts(story), check, wired=False)


@pytest.mark.parametrize("memory", MEMORIES)
@given(
    name=st.sampled_from(sorted(OPS)),
    depth=st.integers(0, 3),
    on_limit=st.booleans(),
    story=stories(seeds=seed_records, edges=any_edge_records),
)
def test_x_goes_as_deep_as_its_bound_even_through_cycles(
    memory: str, name: str, depth: int, on_limit: bool, story: Any
) -> None:
    op, tables = OPS[name], Tables()
    bound = {"limit": max(1, depth), "on_limit": "return"} if on_limit else {"max_depth": depth}

    def check(bench: Bench, inputs: dict[str, Batch]) -> None:
        tables.take(inputs)
        assert bench.states()["rows"] == tables.x(op, max(1, depth) if on_limit else depth)

    live(maker(program(op, **bound)), MEMORIES[memory], as_facts(story), check, wired=False)


@given(
    name=st.sampled_from(sorted(OPS)),
    bound=st.sampled_from([{}, {"max_depth": 2}, {"max_depth": 9}]),
    budget=st.integers(1, 4),
    story=stories(seeds=seed_records, edges=edge_records),
)
def test_what_leaves_through_the_gate_and_comes_back_gives_the_same(
    name: str, bound: dict[str, int], budget: int, story: Any
) -> None:
    op, tables = OPS[name], Tables()
    bench = Bench(maker(program(op, **bound), budget))
    for _, inputs in as_facts(story):
        run_to_rest(bench, **inputs)
        tables.take(inputs)
        assert bench.states()["rows"] == tables.x(op, bound.get("max_depth"))


@given(name=st.sampled_from(sorted(OPS)), budget=st.integers(1, 4), data=st.data())
def test_new_input_may_come_while_rows_are_on_their_way(name: str, budget: int, data: st.DataObject) -> None:
    op, tables = OPS[name], Tables()
    bench = Bench(maker(program(op), budget))
    waiting: dict[str, Batch] = {}
    for _, inputs in as_facts(data.draw(stories(seeds=seed_records, edges=edge_records))):
        tables.take(inputs)
        bench.step({**inputs, **waiting})
        waiting = {gate.topic: received(gate.outbox) for gate in bench.circuit.gates if gate.outbox}
        bench.end()
    run_to_rest(bench, **waiting)
    assert bench.states()["rows"] == tables.x(op)


def test_a_budget_makes_more_epochs_of_the_same_work() -> None:
    path = facts([(n, n + 1) for n in range(8)])
    whole, parts = Bench(maker(family())), Bench(maker(family(), budget=1))
    assert run_to_rest(whole, nodes=path) == 1
    assert run_to_rest(parts, nodes=path) == 8
    assert whole.states() == parts.states()


class Cluster:
    """Workers that own `each` partitions and send each other rows, delivered in any order of the partitions."""

    def __init__(self, topology: eddy.Topology, workers: int, each: int = 1) -> None:
        self.topology, self.partitions = topology, workers * each
        self.workers = []
        for mine in range(workers):
            ownership = Ownership()
            ownership.partitions[self.partitions] = frozenset(range(mine, self.partitions, workers))
            self.workers.append(Bench(self.maker(ownership)))
        self.inboxes: list[dict[tuple[str, int], list[Any]]] = [{} for _ in self.workers]

    def maker(self, ownership: Ownership) -> Callable[[MemoryStore, int | None], Circuit]:
        return maker(self.topology, partitions=self.partitions, ownership=ownership)

    def put(self, topic: str, home: int, row: Any) -> None:
        self.inboxes[home % len(self.workers)].setdefault((topic, home), []).append(row)

    def give(self, topic: str, record: tuple[Any, Any]) -> None:
        self.put(topic, sum(N.encode(record[0])) % self.partitions, (record, 1, None, ()))

    def work(self, index: int, room: int) -> None:
        """One epoch of one worker, of at most `room` rows of each partition."""
        inbox = self.inboxes[index]
        all_taken: dict[str, list[Any]] = {}
        for place, waiting in inbox.items():
            taken, inbox[place] = waiting[:room], waiting[room:]
            all_taken.setdefault(place[0], []).extend(taken)
        inputs: dict[str, Batch] = {}
        for topic, taken in all_taken.items():
            rows, weights, iterations, headers = (
                (list(column) for column in zip(*taken, strict=True)) if taken else [[]] * 4
            )
            loop = topic.startswith("app-")
            batch = Batch(rows, weights, headers=headers)
            inputs[topic] = Received(batch, iterations) if loop else batch
        self.epoch(index, inputs)

    def epoch(self, index: int, inputs: dict[str, Batch]) -> None:
        bench = self.workers[index]
        bench.step(inputs, settling=not inputs)
        for gate in bench.circuit.gates:
            for out in gate.outbox:
                self.send(gate.topic, out)
        bench.end()

    def send(self, topic: str, out: Outgoing) -> None:
        sent = zip(out.batch.rows, out.batch.weights, out.batch.headers_of_rows(), out.partitions, strict=True)
        for row, weight, headers, home in sent:
            self.put(topic, home, (row, weight, out.iteration, headers))

    @property
    def busy(self) -> bool:
        return any(rows for inbox in self.inboxes for rows in inbox.values())

    def rest(self, most: int = 10_000) -> None:
        """Work until nothing is under way and nothing has to be found out."""
        for _ in range(most):
            for index in range(len(self.workers)):
                if any(self.inboxes[index].values()):
                    self.work(index, 1000)
            if self.busy:
                continue
            circuits = [bench.circuit for bench in self.workers]
            unsettled = [index for index, circuit in enumerate(circuits) if circuit.unsettled or circuit.due()]
            if not unsettled:
                return
            for index in unsettled:
                self.epoch(index, {})
        raise AssertionError("the workers do not come to rest")

    def rows(self) -> dict[Any, int]:
        return {row: count for bench in self.workers for row, count in bench.states()["rows"].items()}


@given(
    name=st.sampled_from(sorted(OPS)),
    seeds=seed_records,
    edges=edge_records,
    data=st.data(),
)
def test_several_workers_come_to_the_same_in_whichever_order_rows_cross(
    name: str, seeds: Any, edges: Any, data: st.DataObject
) -> None:
    op, tables = OPS[name], Tables()
    cluster = Cluster(program(op), 2)
    for topic, record in [*(("seeds", r) for r in seeds), *(("edges", r) for r in edges)]:
        cluster.give(topic, record)
    for index, room in data.draw(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3)), max_size=6)):
        cluster.work(index, room)
    while cluster.busy:
        for index in range(2):
            cluster.work(index, 1000)
    tables.take({"seeds": facts(seeds), "edges": facts(edges)})
    assert cluster.rows() == tables.x(op)


class TestFacts:
    """KStream.recursively: KIP-857."""

    def program(self, **bound: Any) -> eddy.Topology:
        topology = eddy.Topology("facts")
        parents = topology.table("parents", N, N)
        told = topology.stream("told", N, N).recursively(
            lambda rows: rows.join(parents, lambda one, parent: (one, parent)).map(lambda _, both: (both[1], both[0])),
            "up",
            **bound,
        )
        told.to("out")
        return topology

    def run(self, story: list[dict[str, list[Any]]], budget: int = 1 << 60, **bound: Any) -> oracle.Bag:
        bench = Bench(maker(self.program(**bound), budget))
        for inputs in story:
            run_to_rest(bench, **{name: facts(rows) for name, rows in inputs.items()})
        return oracle.plus(*bench.total.values())

    def test_each_result_is_emitted_and_fed_back(self) -> None:
        tree = {"parents": [("c", "b"), ("b", "a")], "told": [("c", 1)]}
        assert self.run([tree]) == {("c", 1): 1, ("b", 1): 1, ("a", 1): 1}

    def test_the_letter_of_the_kip_leaves_the_seeds_out(self) -> None:
        tree = {"parents": [("c", "b"), ("b", "a")], "told": [("c", 1)]}
        assert self.run([tree], include_seeds=False) == {("b", 1): 1, ("a", 1): 1}

    def test_facts_are_never_taken_back(self) -> None:
        tree = {"parents": [("c", "b")], "told": [("c", 1)]}
        assert self.run([tree, {"parents": [("c", None)]}]) == {("c", 1): 1, ("b", 1): 1}

    def test_a_cycle_is_an_error_that_shows_the_way_round(self) -> None:
        with pytest.raises(LoopLimitError, match=r"recursively 'up': key .* → .* came around"):
            self.run([{"parents": [("a", "b"), ("b", "a")], "told": [("a", 1)]}], limit=9)

    @pytest.mark.parametrize("bound", [{"max_depth": 3}, {"limit": 3, "on_limit": "return"}])
    def test_a_bound_ends_a_cycle(self, bound: Any) -> None:
        story = [{"parents": [("a", "b"), ("b", "a")], "told": [("a", 1)]}]
        assert self.run(story, **bound) == {("a", 1): 2, ("b", 1): 2}

    @given(
        parents=st.dictionaries(st.integers(0, 4), st.integers(1, 6), max_size=5),
        told=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=5),
        include_seeds=st.booleans(),
        budget=st.sampled_from([1, 3, 1 << 60]),
    )
    def test_what_comes_out_is_every_step_of_every_record(
        self, parents: dict[int, int], told: Any, include_seeds: bool, budget: int
    ) -> None:
        parents = {node: parent for node, parent in parents.items() if node < parent}

        def op(record: Any) -> list[Any]:
            return [(parents[record[0]], record[1])] if record[0] in parents else []

        got = self.run([{"parents": [*parents.items()]}, {"told": told}], budget, include_seeds=include_seeds)
        assert got == oracle.facts_recursion(told, op, include_seeds)


def test_the_oracle_itself_knows_a_tree() -> None:
    parents = {"c": "b", "b": "a", "d": "b"}
    assert oracle.descendants(parents) == {"b": 2, "a": 3}
    assert not oracle.is_forest({"a": "b", "b": "a"})
    seeds = oracle.bag(((parent, 1), 1) for parent in parents.values())
    x = oracle.recursion(seeds, lambda x: oracle.joined(x, oracle.rows_of(parents), lambda _, one, up: (up, one)))
    assert oracle.counts(x) == oracle.descendants(parents)
    assert x == Counter({("b", 1): 2, ("a", 1): 3})
