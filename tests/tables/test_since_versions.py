"""What has moved since a version while records arrive, and after restarts: exact, or refused with from when.

The oracle replays the records of the topic up to the inputs of a version.
"""

import random
import re
import threading
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import Log, TopicPartition
from eddy.errors import NotReadyError, QueryError
from eddy.program.open_tables import Tables, TablesSnapshot
from eddy.program.row_trace import RowTrace, Traces
from eddy.tables.version import version_of
from tests.waiting import PATIENCE_S, Deadline

NAMES = [f"n{number}" for number in range(12)]
Place = tuple[int, int]


def topology_of() -> eddy.Topology:
    """The number of children of each node."""
    topology = eddy.Topology("family")
    nodes = topology.table("nodes", key=eddy.String, value=eddy.String)
    nodes.to_relation().map(lambda node, parent: (parent, node)).group_by_key().count("children")
    return topology


class Replayed:
    """The source topic's records, replayed."""

    def __init__(self, log: Log, partitions: int) -> None:
        ends = {p: log.end_offsets([TopicPartition("nodes", p)]) for p in range(partitions)}
        self.records: list[tuple[Place, str, str | None]] = []
        for p, end in ends.items():
            (partition, last), *_ = end.items()
            found = log.read(partition, 0, last, 1_000_000)
            self.records += [
                ((p, offset), key.decode(), None if value is None else value.decode())
                for offset, key, value in zip(found.offsets, found.keys, found.values, strict=True)
                if key is not None
            ]

    def rows(self, ends: list[int]) -> dict[str, str]:
        rows = {key: value for (p, offset), key, value in self.records if offset < ends[p]}
        return {key: value for key, value in rows.items() if value is not None}

    def last(self, key: str, ends: list[int]) -> Place:
        return [place for place, other, _ in self.records if other == key and place[1] < ends[place[0]]][-1]


def check(found: RowTrace, parent: str, replayed: Replayed) -> None:
    """Compare a trace with the records that were replayed."""
    assert found.moved is not None
    then, now = (version_of("test", token).inputs["nodes"] for token in (found.moved.since, found.version))
    before, after = replayed.rows(then), replayed.rows(now)
    counts = [Counter(rows.values())[parent] for rows in (before, after)]
    assert [found.moved.then, found.moved.now] == [[count] if count else [] for count in counts]
    changed = {
        key for key in NAMES if before.get(key) != after.get(key) and parent in (before.get(key), after.get(key))
    }
    rows = [row for part in found.moved.parts for row in part.rows] + found.moved.rows
    named = {row.key: (row.then, row.now, row.record) for row in rows}
    if counts[0] and counts[1]:
        assert named.keys() == changed
    for key, (old, new, record) in named.items():
        assert (old, new) == (before.get(key), after.get(key))
        place = re.match(r"nodes-(\d+)@(\d+), ", record)
        assert place is not None
        assert (int(place[1]), int(place[2])) == replayed.last(key, now)


class Run:
    """One random run."""

    def __init__(self, seed: int, folder: Path, stack: ExitStack) -> None:
        self.draw, self.stack = random.Random(seed), stack
        self.partitions = self.draw.randrange(1, 4)
        self.log = stack.enter_context(closing(eddy.open_log()))
        self.topology = topology_of()
        eddy.create_topics(self.topology, self.log, self.partitions)
        self.folder = self.draw.choice([None, folder])
        self.bytes = self.draw.choice([1 << 20, 12_000])
        self.stop, self.writing = threading.Event(), threading.Lock()
        self.tokens: list[str] = []
        self.told = self.refused = 0

    def write(self) -> None:
        draw = random.Random(self.draw.random())
        while not self.stop.wait(draw.choice([0.0, 0.01, 0.2])):
            moved = {draw.choice(NAMES): draw.choice([*NAMES, None]) for _ in range(draw.randrange(1, 4))}
            with self.writing:
                self.log.write("nodes", moved, key=eddy.String, value=eddy.String)

    def serve(self) -> None:
        """One life of a server, with a worker or two."""
        with ExitStack() as life:
            for member in range(self.draw.randrange(1, 3)):
                life.enter_context(eddy.run(self.topology, self.log, member=str(member)))
            kept = {"recent_bytes": self.bytes, "state_dir": self.folder}
            tables = life.enter_context(Tables(self.topology, self.log, **kept))  # type: ignore[arg-type]
            with self.writing:  # several workers make no cut while records keep arriving
                tables.wait(exact=True, timeout_s=PATIENCE_S)
            traces, own = Traces(self.topology.plan), len(self.tokens)
            for _ in range(25):
                if tables.version.exact and self.draw.random() < 0.5:
                    self.tokens.append(tables.version.token)
                self.ask(tables, traces, own)

    def check_refusal(self, said: str, since: str, own: int) -> None:
        """A version is refused with a later one, or one of a former life with any."""
        told = re.search(r"are not kept here; one from (\S+) of \d{4}-\d\d-\d\d [\d:]{8} UTC on is needed", said)
        assert told is not None, said
        assert since != "earliest"
        if since in self.tokens[own:]:
            asked, first = (version_of("test", token).inputs["nodes"] for token in (since, told[1]))
            assert asked != first
            assert all(one <= other for one, other in zip(asked, first, strict=True)), "a kept one was refused"

    def ask(self, tables: Any, traces: Traces, own: int) -> None:
        since, parent = self.draw.choice([*self.tokens, *self.tokens[own:], "earliest"]), self.draw.choice(NAMES)
        try:
            found = traces.trace(tables, "children", parent, since=since)
        except NotReadyError:
            return  # a table is read anew
        except QueryError as error:
            self.refused += 1
            self.check_refusal(str(error), since, own)
            return
        replayed = Replayed(self.log, self.partitions)
        if found.exact and found.moved is not None and found.moved.exact:
            check(found, parent, replayed)
            self.told += 1


def test_moves_are_those_of_the_records_or_it_is_said_from_when(tmp_path: Path) -> None:
    told = refused = 0
    for seed in range(4):
        with ExitStack() as stack:
            run = Run(seed, tmp_path / str(seed), stack)
            writer = threading.Thread(target=run.write)
            writer.start()
            stack.callback(writer.join)
            stack.callback(run.stop.set)
            deadline = Deadline()
            for _ in range(3):
                run.serve()
                deadline.check("three lives of a server")
            told, refused = told + run.told, refused + run.refused
    assert told > 50
    assert refused > 10


def test_a_record_is_that_of_its_version_though_later_ones_have_brought_the_row_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trace is of the version at which it has begun: the row moves to and fro while it is computed."""
    with ExitStack() as stack:
        log = stack.enter_context(closing(eddy.open_log()))
        topology = topology_of()
        eddy.create_topics(topology, log)
        stack.enter_context(eddy.run(topology, log))
        tables = stack.enter_context(Tables(topology, log, recent_bytes=1 << 20))

        def put(parent: str) -> tuple[str, int]:
            """Write the leaf's parent; returns the version that has it, and the offset of the record."""
            with log.writer("nodes", value=eddy.String) as writer:
                writer.add("leaf", parent)
            token = tables.wait(writer.ends, exact=True, timeout_s=PATIENCE_S).token
            return token, Replayed(log, 1).records[-1][0][1]

        (since, _), (middle, offset) = put("twig"), put("tree")
        put("twig")
        put("tree")
        monkeypatch.setattr(tables, "snapshot", lambda: TablesSnapshot(tables.catalog, tables.rows.former(middle)))
        found = Traces(topology.plan).trace(tables, "children", "tree", since=since)
        assert found.moved is not None
        (row,) = [row for part in found.moved.parts for row in part.rows] or found.moved.rows
        assert (found.version, row.then, row.now) == (middle, "twig", "tree")
        assert row.record.startswith(f"nodes-0@{offset}, ")
        with pytest.raises(NotReadyError, match="is later than that of the trace"):
            Traces(topology.plan).trace(tables, "children", "tree", since=tables.version.token)
