"""A trace names the rows that suffice: computed again from them alone, the row is the same."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from starlette.applications import Starlette

import eddy
from eddy.errors import QueryError, StateError
from eddy.serve.page.routes import trace_route
from eddy.topology.plan.bags import identity
from eddy.topology.plan.plan import Node
from eddy.topology.tracing.derivation import Derivation, derive
from eddy.topology.tracing.evaluation import Evaluation
from eddy.topology.tracing.text import text_of
from eddy.topology.tracing.ways import Ways
from tests.client.site import Site
from tests.serve.conftest import fetch
from tests.topology.programs import family
from tests.waiting import PATIENCE_S, wait_for

S = eddy.String
Tables = dict[str, dict[str, Any]]


def reach() -> eddy.Topology:
    """The nodes that each node reaches, once each, through cycles."""
    topology = eddy.Topology("reach")
    links = topology.table("links", key=S, value=S).to_relation()
    first = links.map(lambda node, target: (target, node))
    reached = first.distinct().recursively(
        lambda rows: rows.join(links, lambda _, start, target: (target, start)).distinct(), name="reached"
    )
    reached.map(lambda node, start: (start, node)).group_by_key().count("sizes").to("sizes")
    return topology


def orders() -> eddy.Topology:
    """Totals of orders by the city of their customer."""
    topology = eddy.Topology("orders")
    customers = topology.table("customers", key=S, value=S)
    placed = topology.table("placed", key=S, value=eddy.Json())
    (
        placed.to_relation()
        .map(lambda _, order: (order["by"], order["sum"]))
        .join(customers, lambda _, total, city: (city, total))
        .filter(lambda city, total: total > 1)
        .group_by_key()
        .aggregate(lambda: 0, lambda _, n, total: total + n, lambda _, n, total: total - n, name="totals")
    )
    return topology


def parity() -> eddy.Topology:
    """Nodes at even and odd distances from the root."""
    topology = eddy.Topology("parity")
    links = topology.table("links", key=S, value=S).to_relation()

    def step(even: Any, odd: Any) -> Any:
        even = topology.constant([("n0", "")], "root").union(odd.join(links, lambda _, one, target: (target, "")))
        return even.distinct(), even.join(links, lambda _, one, target: (target, ""), name="hop").distinct()

    found = topology.mutually_recursive(step, name="distance")
    found["odd"].group_by_key().count("odds")
    return topology


def dearest() -> eddy.Topology:
    """The two dearest orders of each customer."""
    topology = eddy.Topology("dearest")
    placed = topology.table("placed", key=S, value=eddy.Json()).to_relation()
    by = placed.map(lambda order, row: (row["by"], row["sum"] * 100 + int(order[1:])))
    by.group_by_key().top_k(2, "best")
    return topology


def spent() -> eddy.Topology:
    """What each customer has spent: the sum of orders that cannot be hashed, the amounts, and how many differ."""
    topology = eddy.Topology("spent")
    placed = topology.table("placed", key=S, value=eddy.Json()).to_relation()
    placed.select_key(lambda _, row: row["by"]).group_by_key().sum("sums", of=lambda row: row["sum"] / 10)
    amounts = placed.map(lambda _, row: (row["by"], row["sum"])).group_by_key()
    amounts.collect("amounts", max=20)
    amounts.distinct_count("kinds")
    return topology


def rows_for(topology: eddy.Topology, draw: random.Random) -> Tables:
    names = [f"n{number}" for number in range(9)]
    if topology.name in {"orders", "dearest", "spent"}:
        cities = {name: draw.choice(["rome", "oslo"]) for name in names[:6]}
        placed = {f"o{n}": {"by": draw.choice(names), "sum": draw.randrange(5)} for n in range(15)}
        return {"customers": cities, "placed": placed} if topology.name == "orders" else {"placed": placed}
    if topology.name == "family":
        return {"nodes": {name: draw.choice(["root", *names[:at]]) for at, name in enumerate(names)}}
    return {"links": {name: draw.choice(names) for name in names}}


def distances() -> eddy.Topology:
    """Paths with their lengths, which are endless where they come around."""
    topology = eddy.Topology("distances")
    nodes = topology.table("nodes", key=S, value=S).to_relation()
    first = nodes.map(lambda node, parent: (parent, 1))
    first.recursively(lambda rows: rows.join(nodes, lambda _, n, parent: (parent, n + 1)), name="far")
    return topology


CASES: list[tuple[Callable[[], eddy.Topology], str]] = [
    (family, "descendants"),
    (reach, "sizes"),
    (orders, "totals"),
    (parity, "odds"),
    (dearest, "best"),
    (spent, "sums"),
    (spent, "amounts"),
    (spent, "kinds"),
]


def step_of(topology: eddy.Topology, name: str) -> Node:
    return next(node for node in topology.plan.nodes if node.name == name)


def evaluated(topology: eddy.Topology, name: str, tables: Tables) -> Evaluation:
    rows = {source.topic: list(tables.get(source.topic, {}).items()) for source in topology.plan.sources()}
    return Evaluation(topology.plan, step_of(topology, name), rows)


def derived(topology: eddy.Topology, evaluation: Evaluation, name: str, row: Any, limit: int = 500) -> Derivation:
    """From rows alone, without receipts."""
    return derive(evaluation, Ways(topology.plan, evaluation), step_of(topology, name), row, limit)


def all_of(derivation: Derivation) -> Iterator[Derivation]:
    yield derivation
    for way in derivation.of:
        for below in way:
            yield from all_of(below)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("program", "store"), CASES, ids=[f"{program.__name__}-{store}" for program, store in CASES])
def test_rows_are_the_workers_and_those_named_suffice(program: Any, store: str, seed: int) -> None:
    topology = program()
    tables = rows_for(topology, random.Random(seed))
    with eddy.TopologyTestDriver(topology) as driver:
        for topic, rows in tables.items():
            driver.input(topic).pipe_all(list(rows.items()))
        expected = driver.store(store).all()
    evaluation, node = evaluated(topology, store, tables), step_of(topology, store)
    assert {row[0]: row[1] for row, _ in evaluation.bags[node]} == expected
    for row in expected.items():
        found = derived(topology, evaluation, store, row, limit=100_000)
        named: Tables = {}
        for part in all_of(found):
            assert not part.more
            assert part.weight == evaluation.bags[step_of(topology, part.step)].weight((part.key, part.value))
            if part.does.startswith("row of topic "):
                named.setdefault(part.does.removeprefix("row of topic "), {})[part.key] = part.value
        assert all(tables[topic][key] == value for topic, rows in named.items() for key, value in rows.items())
        again = evaluated(topology, store, named)
        assert row in again.bags[step_of(topology, store)]


def test_text_shows_the_way_and_its_iterations() -> None:
    topology = family()
    tables: Tables = {"nodes": {"leaf": "twig", "twig": "branch", "branch": "tree"}}
    evaluation = evaluated(topology, "descendants", tables)
    found = derived(topology, evaluation, "descendants", ("tree", 3))
    assert (
        text_of(found)
        == """\
"tree" = 3   descendants (count)
  "tree" = 1   ancestors (recursion) · 3 times
    "tree" = 1   map
      "branch" = "tree"   nodes (row of topic nodes)
    "tree" = 1   ancestors-nodes-join (join) · 2 times
      "branch" = 1   ancestors (recursion) · 2 times
        "branch" = 1   map
          "twig" = "branch"   nodes (row of topic nodes)
        "branch" = 1   ancestors-nodes-join (join)
          "twig" = 1   ancestors (recursion)
            "twig" = 1   map
              "leaf" = "twig"   nodes (row of topic nodes)
          ⋈ "twig" = "branch"   nodes (row of topic nodes)
      ⋈ "branch" = "tree"   nodes (row of topic nodes)
"""
    )


def test_way_round_a_cycle_ends_where_it_came_from() -> None:
    topology = reach()
    tables: Tables = {"links": {"a": "b", "b": "c", "c": "a"}}
    evaluation = evaluated(topology, "reached", tables)
    found = derived(topology, evaluation, "reached", ("a", "a"))
    recursion = [part for part in all_of(found) if part.does == "recursion" and not part.repeated]
    assert [part.iteration for part in recursion] == [2, 1, 0]
    assert any(part.repeated for part in all_of(found))


def test_long_derivations_are_cut_and_say_so() -> None:
    topology = family()
    tables: Tables = {"nodes": {f"n{number}": "root" for number in range(2_000)}}
    evaluation = evaluated(topology, "descendants", tables)
    found = derived(topology, evaluation, "descendants", ("root", 2_000))
    (rows,) = found.of[0]
    (mapped,) = rows.of[0]
    assert len(mapped.of) + mapped.more == 2_000
    assert len(mapped.of) == 20
    assert "… 1,980 more" in text_of(found)


def test_what_cannot_be_traced_is_refused_with_the_step() -> None:
    topology = eddy.Topology("facts")
    names = topology.table("names", key=S, value=S)
    named = topology.stream("words", key=S, value=S).join(names, lambda word, name: name, name="named")
    named.group_by(lambda k, v: v, key=S).count("counts")
    with pytest.raises(QueryError, match=r"'named' .*: it joins each record with the table as it was"):
        evaluated(topology, "counts", {"words": {}, "names": {}})
    cyclic: Tables = {"nodes": {"a": "b", "b": "a"}}
    with pytest.raises(QueryError, match="'far' has no finite answer"):
        evaluated(distances(), "far", cyclic)
    topology = family()
    rows = {"nodes": [(f"n{number}", "root") for number in range(50)]}
    with pytest.raises(QueryError, match="too many rows"):
        Evaluation(topology.plan, step_of(topology, "descendants"), rows, max_rows=40)


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("first", r"'.*' \(order\), on which the rows depend, is not computed again here: it has an algo"),
        (
            "changes",
            r"'KSTREAM-[^']*' \(latest\), .*: it has each change of a table, and how many there are",
        ),
        ("calm", r"'calm' \(suppress\), .*: what has been passed on depends on when the worker saw the changes"),
        ("now", r"'now' \(valid rows\), on which .*: it has other rows as time passes"),
        ("errors", r"has messages that a worker makes"),
    ],
)
def test_step_that_cannot_be_computed_again_is_named_with_the_reason(step: str, reason: str) -> None:
    topology = eddy.Topology("timely")
    clicks = topology.stream("clicks", key=S, value=S)
    clicks.deduplicate(within=HOUR, by=lambda key, value: value, name="first").group_by_key().count("first-clicks")
    words = topology.table("words", key=S, value=S)
    words.to_stream().group_by(lambda key, value: value, key=S).count("changes")
    words.suppress("calm", until_time_limit=HOUR)
    words.to_relation().valid(clock="event time", until=lambda key, value: 1, name="now")
    found = words.to_relation().recursively(
        lambda rows: rows.join(words, lambda _, one, other: (other, one)), name="around"
    )
    found.errors.map(lambda key, text: (key, text), name="errors")
    with pytest.raises(QueryError, match=reason):
        evaluated(topology, step, {"words": {"a": "b"}, "clicks": {}})


@pytest.mark.parametrize("different", [True, False])
def test_steps_with_too_many_rows_are_left_before_all_are_made(different: bool) -> None:
    made = 0

    def pair(key: str, one: int, other: int) -> tuple[str, int]:
        nonlocal made
        made += 1
        return key, made if different else 0

    topology = eddy.Topology("pairs")
    numbers = topology.table("numbers", key=S, value=eddy.Int64).to_relation().map(lambda key, value: ("all", value))
    numbers.join(numbers.map(lambda key, value: (key, -value)), pair, name="pairs").group_by_key().count("sizes")
    rows = {"numbers": [(f"n{number}", number) for number in range(400)]}
    with pytest.raises(QueryError, match="too many rows"):
        Evaluation(topology.plan, step_of(topology, "sizes"), rows, max_rows=2_000)
    assert made < 100_000  # of 160,000


def test_rows_that_cannot_be_hashed_are_told_apart() -> None:
    assert identity({"a": [1]}) != identity({"a": [2]})
    assert identity("a") == "a"


def test_traces_that_wait_hold_no_thread_of_the_server_and_any_key_is_answered() -> None:
    entered, gate = threading.Event(), threading.Event()
    gate.set()

    def held(value: str) -> str:
        entered.set()
        wait_for(gate.is_set, PATIENCE_S)
        return value

    topology = eddy.Topology("held")
    words = topology.table("words", key=S, value=S)
    words.to_relation().map(lambda key, value: (key, held(value)), name="slow").group_by_key().count("loud")
    with ExitStack() as stack:
        site = Site(stack, topology)
        site.serve()
        site.write({"a": "b"})
        assert fetch(site.port, "/v1/trace/slow?key=" + "[" * 20_000).status == 200
        stack.callback(gate.set)
        site.write({"c": "d"})
        gate.clear()
        entered.clear()
        with ThreadPoolExecutor(50) as pool:
            traces = [pool.submit(fetch, site.port, "/v1/trace/slow?key=a") for _ in range(50)]
            wait_for(entered.is_set, PATIENCE_S)
            assert fetch(site.port, "/v1/tables/words").json["rows"][0] == {"key": "a", "value": "b"}
            gate.set()
            assert {trace.result().status for trace in traces} == {200}


def test_parts_of_a_version_are_opened_without_computing_it_again() -> None:
    made: list[str] = []
    topology = eddy.Topology("kept")
    words = topology.table("words", key=S, value=S).to_relation()
    words.map(lambda key, value: (made.append(key) or value, key)).group_by_key().count("counts")
    with ExitStack() as stack:
        site = Site(stack, topology)
        site.serve()
        site.write({"a": "x", "b": "x"})
        fetch(site.port, "/v1/trace/counts?key=x")
        made.clear()
        opened = fetch(site.port, "/v1/trace/counts?key=x&open=b")
        assert (opened.status, made) == (400, [])  # a row of a table is not a sum
        assert fetch(site.port, "/v1/trace/counts?key=x").json["rows"][0]["sums"][0]["number"] == 2
        assert made == []
        site.write({"c": "x"})
        made.clear()
        assert fetch(site.port, "/v1/trace/counts?key=x").json["rows"][0]["sums"][0]["number"] == 3
        assert made.count("c") > 0


def scope_of(path: str) -> dict[str, Any]:
    return {"type": "http", "method": "GET", "path": path, "query_string": b"key=a", "headers": []}


async def stay() -> Any:
    """A client that waits for its answer."""
    await asyncio.Event().wait()


async def gone() -> Any:
    """A client that does not."""
    return {"type": "http.disconnect"}


async def nothing_sent(message: Any) -> None:
    """An answer that nobody reads."""


def test_trace_that_nobody_waits_for_any_more_is_not_computed() -> None:
    computed: list[str] = []
    entered, gate = threading.Event(), threading.Event()

    def held(value: str) -> str:
        computed.append(value)
        entered.set()
        wait_for(gate.is_set, PATIENCE_S)
        return value

    topology = eddy.Topology("held")
    topology.table("words", key=S, value=S).map_values(held, name="slow").to("slow")
    words = eddy.Topology("held")
    words.table("words", key=S, value=S)
    with ExitStack() as stack:
        site = Site(stack, words)
        site.serve()
        site.write({"a": "b"})
        app = Starlette(routes=[trace_route(topology, lambda: site.tables)])

        async def ask() -> None:
            first = asyncio.create_task(app(scope_of("/v1/trace/slow"), stay, nothing_sent))
            await asyncio.to_thread(wait_for, entered.is_set, PATIENCE_S)
            second = asyncio.create_task(app(scope_of("/v1/trace/slow"), gone, nothing_sent))
            await asyncio.sleep(0)
            gate.set()
            await asyncio.gather(first, second)

        stack.callback(gate.set)
        asyncio.run(ask())
    assert computed == ["b", "b"]  # once for the row, once for its explanation


def test_trace_while_rows_cannot_be_read_is_no_fault_of_the_reader() -> None:
    def broken() -> Any:
        raise StateError("the disk is full")

    answers: list[Any] = []

    async def keep(message: Any) -> None:
        answers.append(message)

    app = Starlette(routes=[trace_route(eddy.Topology("none"), broken)])
    asyncio.run(app(scope_of("/v1/trace/step"), stay, keep))
    assert answers[0]["status"] == 503
