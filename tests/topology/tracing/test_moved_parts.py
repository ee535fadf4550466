"""A trace since an earlier version names the parts of a sum that have moved, and the records that moved them."""

import random
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import Any

import pytest

import eddy
from eddy.errors import QueryError
from eddy.program.open_tables import Tables
from eddy.program.row_trace import Traces
from tests.client.site import Site
from tests.serve.conftest import fetch
from tests.topology.programs import family
from tests.topology.tracing.traced import below

S = eddy.String
NAMES = [f"n{number}" for number in range(9)]


def size(tree: dict[str, str], node: str) -> int:
    """The number of nodes below a node."""
    return sum(1 + size(tree, child) for child in below(tree, node))


def under(tree: dict[str, str], node: str) -> set[str]:
    """The nodes below a node."""
    return {each for child in below(tree, node) for each in {child, *under(tree, child)}}


def parts(tree: dict[str, str], node: str) -> dict[str, int]:
    """The parts of a node's count: its children together, and the nodes below each of them."""
    children = below(tree, node)
    return {"direct": len(children)} | {child: size(tree, child) for child in children}


def moved(then: dict[str, str], now: dict[str, str], node: str) -> dict[str, tuple[int, int]]:
    before, after = parts(then, node), parts(now, node)
    both = {name: (before.get(name, 0), after.get(name, 0)) for name in {*before, *after}}
    return {name: numbers for name, numbers in both.items() if numbers[0] != numbers[1]}


def changed(then: dict[str, str], now: dict[str, str], names: set[str]) -> set[tuple[str, str | None, str | None]]:
    both = {(name, then.get(name), now.get(name)) for name in names}
    return {each for each in both if each[1] != each[2]}


@pytest.mark.parametrize("seed", range(8))
def test_parts_that_moved_are_those_of_the_trees_and_their_records_those_that_changed(seed: int) -> None:
    draw = random.Random(seed)
    topology = family()
    with ExitStack() as stack:
        log = stack.enter_context(closing(eddy.open_log()))
        eddy.create_topics(topology, log, partitions=draw.randint(1, 3))
        stack.enter_context(eddy.run(topology, log))
        tables = stack.enter_context(Tables(topology, log, recent_bytes=1 << 20))
        traces = Traces(topology.plan)
        tree = {name: draw.choice(["root", *NAMES[:at]]) for at, name in enumerate(NAMES)}
        trees = [(tables.wait(log.write("nodes", tree), exact=True), tree)]
        for _ in range(4):
            news: dict[str, Any] = {}
            for name in draw.sample(NAMES, draw.randint(1, 3)):
                news[name] = draw.choice([None, "root", *NAMES[: NAMES.index(name)]])
            tree = {name: parent for name, parent in (tree | news).items() if parent is not None}
            trees.append((tables.wait(log.write("nodes", news), exact=True), tree))
            since, then = draw.choice(trees[:-1])
            for node in ["root", *NAMES[:3]]:
                made = traces.trace(tables, "descendants", node, since=since.token)
                moves = made.moved
                assert moves is not None
                sizes = ([each] if (each := size(tree_of, node)) else [] for tree_of in (then, tree))
                assert (moves.then, moves.now) == tuple(sizes)
                found = {part.word or part.key: (part.then, part.now) for part in moves.parts}
                assert found == moved(then, tree, node)
                for part in moves.parts:
                    rows = {(row.key, row.then, row.now) for row in part.rows}
                    if part.word:  # the children that came and went
                        names = {*below(then, node), *below(tree, node)}
                        assert {row[0] for row in changed(then, tree, names)} == {row[0] for row in rows}
                    else:  # a part has all nodes below it, and comes and goes with its own row
                        there = [side for side in (then, tree) if part.key in below(side, node)]
                        names = {part.key}.union(*(under(side, part.key) for side in there))
                        assert rows
                        assert rows <= changed(then, tree, names)
                        assert len(rows) + part.more == len(changed(then, tree, names))
                    assert all(row.record for row in part.rows)


def test_record_that_moved_a_part_is_its_last_one_by_partition_and_offset() -> None:
    topology = family()
    with closing(eddy.open_log()) as log:
        eddy.create_topics(topology, log)
        with eddy.run(topology, log), Tables(topology, log, recent_bytes=1 << 20) as tables:
            since = tables.wait(log.write("nodes", {"branch": "tree", "leaf": "branch"}), exact=True)
            log.write("nodes", {"leaf": "tree"}, timestamp_ms=1_000)
            at = log.write("nodes", {"leaf": "stone"}, timestamp_ms=2_000)
            tables.wait(at, exact=True)
            moves = Traces(topology.plan).trace(tables, "descendants", "tree", since=since.token).moved
            assert moves is not None
            (part,) = moves.parts
            (row,) = part.rows
            offset = at["nodes"][0] - 1
            assert row.record == f"nodes-0@{offset}, 1970-01-01 00:00:02"
            assert (part.title, part.then, part.now, row.then, row.now) == ("branch", 1, 0, "branch", "stone")


def test_side_of_a_join_that_changed_is_the_record_that_moved_a_sum() -> None:
    topology = eddy.Topology("shop")
    customers = topology.table("customers", key=S, value=S)
    placed = topology.table("placed", key=S, value=eddy.Json()).to_relation()
    cities = placed.map(lambda order, row: (row["by"], row["sum"])).join(customers, lambda by, n, city: (city, n))
    cities.group_by_key().sum("sums", of=lambda n: n)
    with closing(eddy.open_log()) as log:
        eddy.create_topics(topology, log)
        with eddy.run(topology, log), Tables(topology, log, recent_bytes=1 << 20) as tables:
            log.write("placed", {"o1": {"by": "ann", "sum": 3}, "o2": {"by": "bob", "sum": 4}}, value=eddy.Json())
            since = tables.wait(log.write("customers", {"ann": "oslo", "bob": "oslo"}), exact=True)
            tables.wait(log.write("customers", {"ann": "rome"}), exact=True)
            made = Traces(topology.plan).trace(tables, "sums", "oslo", since=since.token)
            assert made.moved is not None
            (part,) = made.moved.parts
            assert [(row.step, row.key, row.then, row.now) for row in part.rows] == [
                ("customers", "ann", "oslo", "rome")
            ]
            assert made.moved.then == [7]
            assert made.moved.now == [4]
            assert 'customers "ann": "oslo" → "rome", by customers-0@' in made.text


def test_records_of_a_stream_that_came_since_have_moved_its_windows() -> None:
    topology = eddy.Topology("pages")
    clicks = topology.stream("clicks", key=S, value=S).group_by_key()
    clicks.windowed_by(eddy.TimeWindows(timedelta(minutes=1))).count("minutes")
    with closing(eddy.open_log()) as log:
        eddy.create_topics(topology, log)
        with eddy.run(topology, log), Tables(topology, log, recent_bytes=1 << 20) as tables:
            since = tables.wait(log.write("clicks", {"/": "a"}, timestamp_ms=1_000), exact=True)
            tables.wait(log.write("clicks", {"/": "b"}, timestamp_ms=2_000), exact=True)
            made = Traces(topology.plan).trace(tables, "minutes", '["/", 0, 60000]', since=since.token)
            assert made.moved is not None
            ((row,),) = (part.rows for part in made.moved.parts)
            assert (row.then, row.now, row.record[-19:]) == (None, "b", "1970-01-01 00:00:02")


def test_rows_that_are_no_sums_name_what_changed_and_a_version_that_is_not_kept_says_from_when() -> None:
    with ExitStack() as stack:
        site = Site(stack, family())
        site.serve()
        site.write({"twig": "branch", "branch": "tree"})
        since = site.tables.version.token
        kept = fetch(site.port, "/v1/trace/ancestors?key=tree").json["kept_since"]
        site.write({"leaf": "twig"})
        found = fetch(site.port, f"/v1/trace/ancestors?key=tree&since={since}").json["moved"]
        assert [(row["key"], row["then"], row["now"]) for row in found["rows"]] == [("leaf", None, "twig")]
        assert kept["shown_ms"] > 1_600_000_000_000
        other = "gqFvgKFpgA"
        refused = fetch(site.port, f"/v1/trace/ancestors?key=tree&since={other}")
        assert refused.status == 400
        assert f"version {other} are not kept here; one from " in refused.json["error"]
        assert fetch(site.port, "/v1/trace/ancestors?key=tree&since=no").status == 400
        with pytest.raises(QueryError, match="is not a version"):
            site.tables.rows.former("?")
