"""Cycles across workers that join, leave and are killed: tables are those from scratch, without what cycles reach."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.partitioner import partition_of
from eddy.runtime.metadata import read_metadata
from eddy.state.memory import MemoryStore
from tests import oracle

PARTITIONS = 4
V = TypeVar("V")
edits = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([None, *"abcdef"]), min_size=1)
fates = st.sampled_from(["stay", "leave", "join", "restart", "lose a store"])
ROUND = {"a": "b", "b": "c", "c": "d", "d": "a", "e": "a", "f": "e"}


def family(down: bool) -> eddy.Topology:
    """Counts of all that lies below a node; `down`, by rows that go from parents to children."""
    topology = eddy.Topology("family")
    parents = topology.table("nodes", key=eddy.String, value=eddy.String)
    rows = parents.to_relation()
    if down:
        children = rows.map(lambda node, parent: (parent, node), key=eddy.String, value=eddy.String)
        seeds = rows.map(lambda node, parent: (node, parent), key=eddy.String, value=eddy.String)
        above = seeds.recursively(lambda x: x.join(children, lambda _, top, child: (child, top)), name="above")
        counted = above.map(lambda node, top: (top, 1), key=eddy.String)
    else:
        seeds = rows.map(lambda node, parent: (parent, 1), key=eddy.String, value=eddy.Int64)
        counted = seeds.recursively(lambda x: x.join(parents, lambda _, one, parent: (parent, one)), name="above")
    counted.group_by_key().count("below").to("below", value=eddy.Int64)
    return topology


def expected(tree: Mapping[str, str], down: bool) -> dict[str, int]:
    if down:
        seeds = oracle.bag(((node, parent), 1) for node, parent in tree.items())
        edges = oracle.bag(((parent, node), 1) for node, parent in tree.items())
        rows, _ = oracle.held_recursion(seeds, lambda x: oracle.joined(x, edges, lambda _, top, child: (child, top)))
        return dict(oracle.bag((top, weight) for (_, top), weight in rows.items()))  # type: ignore[misc]
    seeds = oracle.bag(((parent, 1), 1) for parent in tree.values())
    edges = oracle.bag((item, 1) for item in tree.items())
    rows, _ = oracle.held_recursion(seeds, lambda x: oracle.joined(x, edges, lambda _, one, up: (up, one)))
    return {key: weight for (key, _), weight in rows.items()}


class Group:
    """Workers of one application on an embedded log, stepped in turn."""

    def __init__(self, topology: eddy.Topology) -> None:
        self.log, self.topology = LocalLog(None), topology
        self.log.create_topics([TopicSpec(topic, PARTITIONS) for topic in ("nodes", "below", "errors")])
        self._names = map(str, itertools.count())
        self.workers = [self._worker(next(self._names)) for _ in range(2)]

    def _worker(self, member: str, store: MemoryStore | None = None) -> eddy.Worker:
        return eddy.Worker(self.topology, self.log, member=member, store=store or MemoryStore())

    def live(self, fate: str) -> None:
        if fate == "leave" and len(self.workers) > 1:
            self.workers.pop().close()
        elif fate == "join":
            self.workers.append(self._worker(next(self._names)))
        elif fate in ("restart", "lose a store"):
            gone = self.workers.pop(0)
            store = MemoryStore()
            if fate == "restart":
                store.write(list(gone.local_store.scan(b"")))
            gone.close()
            self.workers.append(self._worker(gone.member, store))

    def write(self, records: Mapping[str, str | None]) -> None:
        producer = self.log.producer(None)
        producer.begin()
        for key, value in records.items():
            data = None if value is None else value.encode()
            producer.send("nodes", partition_of(key.encode(), PARTITIONS), [key.encode()], [data], [0])
        producer.commit({}, None)
        producer.close()

    def play(self, story: Iterable[tuple[Mapping[str, str | None], str, bool]]) -> Iterator[dict[str, str]]:
        """Let a fate befall a worker, and write records, then step once or to the end; yields the tree at each end."""
        tree: dict[str, str] = {}
        for records, fate, to_the_end in story:
            self.live(fate)
            self.write(records)
            tree = {key: value for key, value in (tree | {**records}).items() if value is not None}
            if to_the_end:
                self.rest()
                yield tree
            else:
                for worker in self.workers:
                    worker.step()

    def rest(self) -> None:
        quiet = 0
        for _ in range(2_000):
            busy = [worker.step() + worker.restoring for worker in self.workers]
            quiet = 0 if any(busy) or not all(worker.quiescent() for worker in self.workers) else quiet + 1
            if quiet == 3:
                return
        raise AssertionError("the workers do not come to rest")

    def below(self) -> dict[str, int]:
        return self.table("below", eddy.Int64)

    def table(self, topic: str, serde: eddy.Serde[V]) -> dict[str, V]:
        """The latest values of an output."""
        table: dict[str, V] = {}
        for partition in range(PARTITIONS):
            at = TopicPartition(topic, partition)
            position, end = 0, self.log.end_offsets([at])[at]
            while position < end:
                records = self.log.read(at, position, end, 1_000)
                for key, value in zip(records.keys, records.values, strict=True):
                    assert key is not None
                    if value is None:
                        table.pop(key.decode(), None)
                    else:
                        table[key.decode()] = serde.decode(value)
                position = records.next_offset
        return table

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.log.close()


@settings(max_examples=25, phases=[Phase.explicit, Phase.generate])
@given(down=st.booleans(), story=st.lists(st.tuples(edits, fates, st.booleans()), min_size=1, max_size=5))
@example(down=True, story=[(ROUND, "stay", True), ({"c": None}, "restart", True), ({"c": "d"}, "leave", True)])
@example(down=False, story=[(ROUND, "stay", False), ({"f": "d"}, "lose a store", True), ({"a": "f"}, "join", True)])
def test_tables_are_those_from_scratch(down: bool, story: list[tuple[dict[str, str | None], str, bool]]) -> None:
    group = Group(family(down))
    try:
        for tree in group.play([*story, ({}, "stay", True)]):
            assert group.below() == expected(tree, down)
        assert bool(read_metadata(group.log, "family-plan").held) == has_cycle(tree)
    finally:
        group.close()


def has_cycle(tree: Mapping[str, str]) -> bool:
    def leads_back(node: str) -> bool:
        at: str | None = node
        for _ in tree:
            at = tree.get(at) if at is not None else None
            if at == node:
                return True
        return False

    return any(map(leads_back, tree))


@pytest.mark.parametrize("down", [True, False])
def test_two_subtrees_that_change_places_leave_nothing_out(down: bool) -> None:
    group = Group(family(down))
    try:
        group.write({"b": "a", "c": "b", "a": "root", "d": "c"})
        group.rest()
        group.write({"a": "c"})
        group.rest()
        assert group.below() == expected({"b": "a", "c": "b", "a": "c", "d": "c"}, down)
        group.write({"b": "root"})
        group.rest()
        assert group.below() == expected({"b": "root", "c": "b", "a": "c", "d": "c"}, down)
    finally:
        group.close()
