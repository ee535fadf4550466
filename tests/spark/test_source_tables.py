"""Tables as frames: the rows of the last cut, or of the end."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import Log, TopicSpec
from eddy.connectors.spark import register
from eddy.connectors.spark.source.source_reading import Request
from eddy.connectors.spark.source.source_tables import pinned_table
from eddy.errors import DataError
from tests.spark.source_frames import load, program_in, topics, worked

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]


def sums(nodes: dict[str, Any]) -> dict[str, int]:
    """The table of `PROGRAM`, from scratch."""
    found: dict[str, int] = {}
    for node in nodes.values():
        found[node.parent or ""] = found.get(node.parent or "", 0) + node.size
    return found


def table(spark: Any, name: str, **options: str) -> dict[Any, Any]:
    return {row.key: row.value for row in load(spark, table=name, **options).collect()}


def test_rows_are_those_of_the_cut_or_of_the_end(spark: Any, tmp_path: Path) -> None:
    register(spark)
    app, family = program_in(tmp_path)
    named = {"data": str(tmp_path / "log"), "app": app}
    with closing(LocalLog(tmp_path / "log")) as log:
        log.create_topics(topics())
        with pytest.raises(Exception, match="table 'sums' of application 'family' has no cut; a worker writes one"):
            load_after_start(spark, log, family.topology, tmp_path, named)
        nodes = {key: family.Node("r" if key < "c" else key, size) for size, key in enumerate("abcdef", 1)}
        log.write("nodes", nodes, value=eddy.Struct(family.Node))
        log.write("nodes", {"f": None}, value=eddy.Struct(family.Node))
        del nodes["f"]
        with worked(family.topology, log, tmp_path / "state"):
            pass
        assert table(spark, "sums", **named) == table(spark, "sizes", **named) == sums(nodes)
        read = table(spark, "nodes", **named)
        assert {key: (value.parent, value.size) for key, value in read.items()} == {
            key: (node.parent, node.size) for key, node in nodes.items()
        }
        write_after_the_cut(log)
        assert table(spark, "sizes", **named) == sums(nodes)
        assert table(spark, "sizes", as_of="end", **named) == sums(nodes) | {"later": 1}
        for options, text in (
            ({"table": "nope"}, "table 'nope': there is no such table; one that is served is needed: nodes, sizes"),
            (
                {"table": "sums", "as_of": "2026-11-01T00:00:00Z"},
                "'cut' or 'end' is needed, for a time does not name a",
            ),
            ({"table": "sums", "until": "2026-11-01T00:00:00Z"}, "options 'table' and 'until' are given"),
        ):
            with pytest.raises(Exception, match=text):
                load(spark, **named, **options)
        with pytest.raises(Exception, match="table 'sums' without an application"):
            load(spark, table="sums", data=named["data"])


def load_after_start(spark: Any, log: Log, topology: eddy.Topology, folder: Path, named: dict[str, str]) -> None:
    """Load a table whose topics exist while no cut does."""
    worker = eddy.Worker(topology, log, eddy.Config(state_dir=folder / "state"))
    worker.close()
    load(spark, table="sums", **named)


def write_after_the_cut(log: Log) -> None:
    """A row of a worker that has not cut yet."""
    producer = log.producer(None)
    producer.begin()
    producer.send("sizes", 0, [b"later"], [eddy.Int64.encode(1)], [1_000])
    producer.commit({}, None)
    producer.close()


def test_a_late_reading_of_an_old_cut_is_refused_where_compaction_may_have_dropped_rows(tmp_path: Path) -> None:
    app, family = program_in(tmp_path)
    with closing(LocalLog(tmp_path / "log")) as log:
        log.create_topics(topics())
        log.write("nodes", {"a": family.Node("r", 1)}, value=eddy.Struct(family.Node))
        with worked(family.topology, log, tmp_path / "state"):
            pass
        source, found = pinned_table({"data": str(tmp_path / "log"), "app": app, "table": "sums"})
        assert found.cut_s is not None
        late = replace(found, wall=lambda: (found.cut_s or 0) + 11)
        fresh = replace(found, wall=lambda: (found.cut_s or 0) + 9)
        (other,) = [Request(part, None) for part in source.ranges if part.end == part.start]
        assert list(late([other])) == []
        elsewhere = next(key for key in "abcdefgh" if log.partitioner(key.encode(), 2) != log.partitioner(b"r", 2))
        log.write("nodes", {"b": family.Node(elsewhere, 1)}, value=eddy.Struct(family.Node))
        with worked(family.topology, log, tmp_path / "state"):
            pass
        assert list(fresh([other])) == []
        with pytest.raises(DataError, match=r"table 'sums': in partition . of .* 1 keys have records after the cut"):
            list(late([other]))


def test_records_that_a_worker_rejected_are_not_in_a_table_that_is_its_topic(spark: Any, tmp_path: Path) -> None:
    register(spark)
    app, family = program_in(tmp_path)
    with closing(LocalLog(tmp_path / "log")) as log:
        compacted = {"cleanup.policy": "compact"}
        log.create_topics([TopicSpec("nodes", 2, compacted), TopicSpec("sizes", 2)])
        log.write("nodes", {"a": "no node at all"})
        log.write("nodes", {"a": family.Node("r", 1), "b": family.Node("r", 2)}, value=eddy.Struct(family.Node))
        log.write("nodes", {"b": "{}"})
        with worked(family.topology, log, tmp_path / "state", on_error="skip"):
            pass
        assert "family-nodes-changelog" not in log.topics()
        read = table(spark, "nodes", data=str(tmp_path / "log"), app=app)
        assert {key: value.size for key, value in read.items()} == {"a": 1, "b": 2}
