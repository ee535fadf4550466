"""`recursive_fixpoint` and `tree_totals` on the test driver: cuts, partitions, restarts, policies, what is refused."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eddy
from eddy import Child, Reached, TopologyTestDriver
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from eddy.partitioner import partition_of
from tests import oracle
from tests.operators.test_ranked import children, heavy, wanted
from tests.topology.programs import S, family
from tests.topology.test_recursive import cut_up
from tests.waiting import step_to_rest

N, Native = eddy.Int64, eddy.Native
Data = dict[Any, Any]


def reach(partitioned: bool = True, **question: Any) -> eddy.Topology:
    """Roots: id -> (key, node). Edges: id -> (node, edge). What is reached: in the store "rows"."""
    topology = eddy.Topology("reach")
    roots = topology.table("roots", key=S, value=Native).to_relation().map(lambda _, root: root, key=S, value=N)
    edges = topology.table("edges", key=N, value=Native).to_relation().map(lambda _, edge: edge, key=N, value=N)
    topology.recursive_fixpoint(roots=roots, edges=edges, name="reach", **question).map(
        lambda key, row: ((key, *msgspec.structs.astuple(row)), 1), key=Native, value=N
    ).group_by_key().count("rows")
    return topology


def rows_in(driver: TopologyTestDriver) -> oracle.Bag:
    found: oracle.Bag = Counter()
    for (key, *fields), weight in driver.store("rows").all().items():
        found[key, Reached(*fields)] += weight
    return found


def paths(roots: oracle.Bag, edges: oracle.Bag, max_depth: int | None, expand: Any = None) -> oracle.Bag:
    """A row a path, each followed on its own."""
    links = [
        (node, child.node, child.order) if isinstance(child, Child) else (node, child, child)
        for node, edge in edges
        for child in ([edge] if expand is None else expand(node, edge))
    ]
    found: oracle.Bag = Counter()

    def follow(key: Any, path: list[Any], order: Any) -> None:
        found[key, Reached(path[0], path[-1], len(path) - 1, path[-2] if len(path) > 1 else None, order)] += 1
        for node, child, place in links:
            if node == path[-1] and (child not in path if max_depth is None else len(path) <= max_depth):
                follow(key, [*path, child], place)

    for key, root in roots:
        follow(key, [root], root)
    return found


CHANGES = st.lists(
    st.tuples(st.integers(0, 7), st.none() | st.tuples(st.integers(0, 4), st.integers(0, 4))), max_size=12
)
ROOTS = [("r", ("k", 0)), ("s", ("l", 0)), ("t", ("l", 1))]


@pytest.mark.parametrize("policy", ["dedupe-node", "error", "allow-paths"])
@given(
    epochs=cut_up(CHANGES),
    partitions=st.sampled_from([1, 4]),
    max_depth=st.none() | st.integers(0, 3),
    mode=st.sampled_from(["recompute-affected", "support-counts"]),
    expand=st.sampled_from([None, children]),
    lose_state=st.sampled_from([None, False, True]),
)
def test_rows_are_those_from_scratch_however_the_input_is_cut(
    policy: Any, epochs: Any, partitions: int, max_depth: Any, mode: Any, expand: Any, lose_state: bool | None
) -> None:
    """After every epoch, on one partition or several, with restarts from the store or from changelogs."""
    question = {"max_depth": max_depth, "expand": expand}
    edges: Data = {}
    roots = oracle.bag((root, 1) for _, root in ROOTS)
    with TopologyTestDriver(
        reach(cycle_policy=policy, deletion_mode=mode, **question), partitions=partitions
    ) as driver:
        driver.input("roots").pipe_all(ROOTS)
        for epoch in epochs:
            driver.input("edges").pipe_all(epoch)
            if lose_state is not None:
                driver.restart(lose_state=lose_state)
            edges = oracle.latest(epoch, edges)
            there = oracle.bag((edge, 1) for edge in edges.values())
            if policy == "allow-paths":
                assert rows_in(driver) == paths(roots, there, max_depth, expand)
            else:
                assert rows_in(driver) == wanted(roots, there, cycles=policy == "error", **question)
        driver.input("edges").pipe_all([(edge, None) for edge in edges])
        driver.input("roots").pipe_all([(root, None) for root, _ in ROOTS])
        assert not [name for name, state in driver.worker.circuit.states.items() if list(state.items())]  # type: ignore[attr-defined]


@given(epochs=cut_up(CHANGES), partitions=st.sampled_from([1, 4]), max_depth=st.none() | st.integers(0, 9))
def test_shortest_paths_are_those_from_scratch(epochs: Any, partitions: int, max_depth: Any) -> None:
    edges: Data = {}
    with TopologyTestDriver(reach(weight=heavy, max_depth=max_depth), partitions=partitions) as driver:
        driver.input("roots").pipe_all(ROOTS)
        for epoch in epochs:
            driver.input("edges").pipe_all(epoch)
            edges = oracle.latest(epoch, edges)
        there = oracle.bag((edge, 1) for edge in edges.values())
        roots = oracle.bag((root, 1) for _, root in ROOTS)
        assert rows_in(driver) == wanted(roots, there, weight=heavy, max_depth=max_depth)


@pytest.mark.parametrize("policy", ["fail", "skip", "dead-letter"])
def test_a_bound_that_does_not_hold_withholds_its_root_and_goes_with_the_data(policy: Any) -> None:
    with TopologyTestDriver(reach(max_nodes=2), eddy.Config(on_error=policy)) as driver:
        driver.input("roots").pipe_all([("r", ("k", 1)), ("s", ("k", 7))])
        driver.input("edges").pipe_all([(1, (1, 2)), (7, (7, 8))])
        driver.input("edges").pipe(2, (2, 3))
        assert {row.root for _, row in rows_in(driver)} == {7}
        assert "from root 1" in driver.worker.circuit.held()["reach", 0]
        driver.input("edges").pipe(1, (5, 6))
        assert {row.root for _, row in rows_in(driver)} == {1, 7}
        assert not driver.worker.circuit.held()
        assert driver.worker.statistics.skipped == 0


bounded_epochs = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["edges", "edges", "edges", "roots"]),
            st.integers(0, 5),
            st.integers(0, 5),
            st.integers(0, 5),
        ),
        min_size=1,
        max_size=4,
    ),
    max_size=12,
)


@pytest.mark.parametrize("bound", [{"limit": 2}, {"max_nodes": 3}, {"limit": 1, "max_nodes": 2}], ids=str)
@settings(max_examples=25)
@given(story=bounded_epochs)
@pytest.mark.slow
def test_each_root_has_its_rows_or_none_while_it_is_beyond_a_bound(bound: Any, story: Any) -> None:
    tables: dict[str, dict[Any, Any]] = {"roots": {}, "edges": {}}
    with TopologyTestDriver(reach(**bound)) as driver:
        for epoch in story:
            for topic in ("edges", "roots"):
                first = (lambda a: "k") if topic == "roots" else (lambda a: a)
                key_of = str if topic == "roots" else int
                rows = [
                    (key_of(k), None if a == b == 0 else (first(a), b)) for which, k, a, b in epoch if which == topic
                ]
                tables[topic].update(rows)
                if rows:
                    driver.input(topic).pipe_all(rows)
            there = [edge for edge in tables["edges"].values() if edge is not None]
            found = {}
            for _, root in filter(None, tables["roots"].values()):
                depths, frontier = {root: 0}, [root]
                for node in frontier:
                    for a, b in there:
                        if a == node and b not in depths:
                            depths[b] = depths[node] + 1
                            frontier.append(b)
                if max(depths.values()) <= bound.get("limit", 99) and len(depths) <= bound.get("max_nodes", 99):
                    found[root] = depths
            rows_now: dict[Any, dict[Any, Any]] = {}
            for _, row in rows_in(driver):
                rows_now.setdefault(row.root, {})[row.node] = row.depth
            assert rows_now == found
            assert bool(driver.worker.circuit.held()) == (
                {root for _, root in filter(None, tables["roots"].values())} != set(found)
            )


def test_a_weight_below_zero_names_edge_and_record() -> None:
    with TopologyTestDriver(reach(weight=lambda node, edge: -edge)) as driver:
        driver.input("roots").pipe("r", ("k", 1))
        with pytest.raises(eddy.DataError, match=r"topic 'edges' .* reach: edge 2 of node 1 has weight -2"):
            driver.input("edges").pipe(1, (1, 2))


def test_a_table_may_be_the_edges_and_nodes_may_be_structs() -> None:
    class Place(msgspec.Struct, frozen=True):
        name: str

    topology = eddy.Topology("places")
    place = eddy.Struct(Place)
    roots = topology.table("roots", key=S, value=place).to_relation()
    edges = topology.table("roads", key=place, value=place)
    found = topology.recursive_fixpoint(roots=roots, edges=edges, name="found", cycle_policy="error")
    found.group_by(lambda key, row: (key, 1), key=S).count("places")
    with TopologyTestDriver(topology, partitions=3) as driver:
        driver.input("roads").pipe_all([(Place("a"), Place("b")), (Place("b"), Place("c"))])
        driver.input("roots").pipe("x", Place("a"))
        driver.restart(lose_state=True)
        assert driver.store("places").all() == {"x": 3}
        driver.input("roads").pipe(Place("c"), Place("b"))
        driver.restart()
        assert driver.store("places").all() == {"x": 4}, "with the row of the cycle"
        driver.input("roads").pipe(Place("a"), None)
        assert driver.store("places").all() == {"x": 1}


def test_siblings_keep_the_order_of_their_edges() -> None:
    topology = eddy.Topology("menu")
    roots = topology.table("roots", key=S, value=S).to_relation()
    lists = topology.table("lists", key=S, value=Native)  # node -> its children, in order
    menu = topology.recursive_fixpoint(
        roots=roots,
        edges=lists,
        expand=lambda node, names: [Child(name, place) for place, name in enumerate(names)],
        name="menu",
    )
    menu.map(lambda key, row: ((row.depth, row.parent or "", row.order, row.node), 1), key=Native).group_by_key().count(
        "rows"
    )
    with TopologyTestDriver(topology) as driver:
        driver.input("roots").pipe("r", "top")
        driver.input("lists").pipe_all([("top", ("z", "a")), ("a", ("y", "b"))])
        assert [row[3] for row in sorted(driver.store("rows").all(), key=lambda r: (r[0], r[1], str(r[2])))] == [
            *("top", "z", "a", "y", "b")
        ]
        driver.input("lists").pipe("top", ("a", "z"))
        assert (1, "top", 0, "a") in driver.store("rows").all()


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"cycle_policy": "ignore"}, "cycle_policy='ignore'; 'dedupe-node', 'allow-paths' or 'error' is needed"),
        ({"deletion_mode": "fast"}, "deletion_mode='fast'; 'recompute-affected' or 'support-counts' is needed"),
        ({"max_depth": -1}, "max_depth=-1; 0 or more is needed"),
        ({"max_nodes": 0}, "max_nodes=0; 1 or more is needed"),
        ({"limit": 0}, "limit=0; 1 or more is needed"),
        ({"expand": 3}, "expand=3 is not a function"),
        ({"weight": heavy, "limit": 3}, "with weights a depth is a distance"),
        ({"weight": heavy, "cycle_policy": "allow-paths"}, "weight= goes with one row a node"),
        ({"max_nodes": 3, "cycle_policy": "allow-paths"}, "max_nodes= goes with one row a node"),
    ],
)
def test_what_does_not_fit_is_refused(question: Any, message: str) -> None:
    with pytest.raises(eddy.TopologyError, match="recursive_fixpoint 'reach': ") as caught:
        reach(**question)
    assert message in str(caught.value)


def test_inputs_are_checked() -> None:
    topology, other = eddy.Topology("a"), eddy.Topology("b")
    table = topology.table("t", key=S, value=S)
    with pytest.raises(eddy.TopologyError, match="roots= is KTable; a Relation is needed"):
        topology.recursive_fixpoint(roots=table, edges=table, name="r")  # type: ignore[arg-type]
    with pytest.raises(eddy.TopologyError, match="one side is of topology 'a', the other of 'b'"):
        topology.recursive_fixpoint(roots=table.to_relation(), edges=other.table("t", key=S, value=S), name="r")
    with pytest.raises(eddy.TopologyError, match="lies inside recursively 'outer'"):
        table.to_relation().recursively(
            lambda rows: topology.recursive_fixpoint(roots=rows, edges=table, name="inner").map(lambda k, row: (k, "")),
            name="outer",
        )


def test_describe_says_how_and_why() -> None:
    assert (
        "strategy: ranked supports (F1), found again where the parent goes, at one owner, "
        "since least depths fall along supports, through cycles too"
    ) in reach().describe()
    assert "their number kept" in reach(deletion_mode="support-counts").describe()
    assert "since shortest paths over weights above 0" in reach(weight=heavy).describe()
    assert "waves by depth up to 3" in reach(cycle_policy="allow-paths", max_depth=3).describe()
    topology = eddy.Topology("t")
    topology.table("nodes", key=S, value=S).tree_totals("size")
    assert "strategy: tree totals by deltas (F2), at one owner" in topology.describe()


# Tree totals


def totals(**choices: Any) -> eddy.Topology:
    topology = eddy.Topology("tree")
    found = topology.table("nodes", key=S, value=S).tree_totals("totals", value=N, **choices)
    found.to("out")
    found.errors.group_by(lambda node, way: (node, way), key=S).reduce(lambda _, way: way, lambda _, way: way, "errors")
    return topology


names = st.sampled_from("abcdef")
moves = st.lists(st.tuples(names, st.none() | names), max_size=12)


@given(epochs=cut_up(moves), partitions=st.sampled_from([1, 4]), lose_state=st.sampled_from([None, False, True]))
def test_totals_are_right_and_those_of_the_waves_on_trees(
    epochs: Any, partitions: int, lose_state: bool | None
) -> None:
    parents: Data = {}
    with (
        TopologyTestDriver(totals(include_self=False), partitions=partitions) as driver,
        TopologyTestDriver(family(limit=100), eddy.Config(on_error="skip")) as waves,
    ):
        for epoch in epochs:
            driver.input("nodes").pipe_all(epoch)
            if lose_state is not None:
                driver.restart(lose_state=lose_state)
            parents = oracle.latest(epoch, parents)
            cycles = [node for node in parents if oracle.is_forest(parents) is False and on_cycle(parents, node)]
            assert set(driver.store("errors").all()) == {min(around(parents, node)) for node in cycles}
            if not cycles:
                assert driver.store("totals").all() == oracle.descendants(parents)
        assert oracle.latest(driver.output("out").read_key_values()) == driver.store("totals").all()
        if oracle.is_forest(parents):
            waves.input("nodes").pipe_all(parents.items())
            assert driver.store("totals").all() == waves.store("descendants").all()


def around(parents: Data, node: Any) -> list[Any]:
    way = [node]
    while way[-1] in parents and parents[way[-1]] not in way:
        way.append(parents[way[-1]])
    return way


def on_cycle(parents: Data, node: Any) -> bool:
    return parents.get(around(parents, node)[-1]) == node


@given(records=moves.filter(lambda records: oracle.is_forest(oracle.latest(records))))
def test_reach_totals_and_waves_count_the_same_on_trees(records: Any) -> None:
    """F1, from every node, F2 and waves."""
    topology = eddy.Topology("three")
    parents = topology.table("nodes", key=S, value=S)
    everybody = parents.to_relation().flat_map(lambda node, parent: [(node, node), (parent, parent)], key=S, value=S)
    down = parents.to_relation().map(lambda node, parent: (parent, node), key=S, value=S)
    reached = topology.recursive_fixpoint(roots=everybody, edges=down, name="reach")
    reached.filter(lambda _, row: row.depth > 0).group_by_key().count("by-reach")
    parents.tree_totals("by-totals", include_self=False)
    with TopologyTestDriver(topology) as driver:
        for node, parent in records:
            driver.input("nodes").pipe(node, parent)
        counts = oracle.descendants(oracle.latest(records))
        assert driver.store("by-reach").all() == driver.store("by-totals").all() == counts


def test_totals_take_parent_and_own_from_a_struct() -> None:
    class Person(msgspec.Struct, frozen=True):
        boss: str | None
        pay: int

    topology = eddy.Topology("pay")
    people = topology.table("people", key=S, value=eddy.Struct(Person))
    people.tree_totals(
        "cost", own=lambda _, person: person.pay, parent=lambda _, person: person.boss, value=N
    ).map_values(lambda pay: pay * 12, value=N).to("yearly")
    with TopologyTestDriver(topology, partitions=2) as driver:
        driver.input("people").pipe_all(
            [("ada", Person(None, 5)), ("ben", Person("ada", 3)), ("cleo", Person("ben", 2))]
        )
        assert driver.output("yearly").read_map() == {"ada": 120, "ben": 60, "cleo": 24}
        driver.input("people").pipe("cleo", Person("ada", 4))
        assert driver.output("yearly").read_map() == {"ada": 144, "ben": 36, "cleo": 48}


def test_nodes_that_have_no_native_form_travel_by_the_serde_of_nodes() -> None:
    class Place(msgspec.Struct, frozen=True):
        name: str

    topology = eddy.Topology("places")
    lines = topology.table("lines", key=S, value=S).to_relation()
    roads = lines.map(lambda _, line: (Place(line[0]), Place(line[1])))
    found = topology.recursive_fixpoint(
        roots=lines.map(lambda _, line: ("k", Place("a"))), edges=roads, name="found", node=eddy.Struct(Place)
    )
    found.group_by(lambda key, row: (row.node.name, 1), key=S).count("places")
    log = LocalLog(None)
    log.create_topics([TopicSpec("lines", 3)])
    workers = [eddy.Worker(topology, log, member=member) for member in "01"]
    producer = log.producer(None)
    producer.begin()
    for line in [b"ab", b"bc", b"cd"]:
        producer.send("lines", partition_of(line, 3), [line], [line], [0])
    producer.commit({}, None)
    step_to_rest(workers)
    stored = [dict(worker.circuit.states["places"].items()) for worker in workers]  # type: ignore[attr-defined]
    assert stored[0] | stored[1] == {"a": 1, "b": 1, "c": 1, "d": 1}
    for worker in workers:
        worker.close()
