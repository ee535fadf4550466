"""What an application remembers of itself, as each release writes and reads it."""

from pathlib import Path

import msgspec

from eddy.connectors.local import LocalLog
from eddy.connectors.log import Headers, TopicPartition, TopicSpec
from eddy.operators.errors.set_aside import KeptRow, Located
from eddy.runtime.decoding import Rejected
from eddy.runtime.metadata import (
    FilesRead,
    Finished,
    Metadata,
    Unfinished,
    read_metadata,
    write_finished,
    write_held,
    write_left_out,
    write_plan,
    write_set_aside,
    write_unfinished,
)

READ = FilesRead(["h/*.csv"], 2, "file:/h/1.csv", "file:/h/2.csv", 7, "abc")
FINISHED = Finished({"in": [3, 4]}, {"in": READ})


def remembered(folder: Path, *writes: object) -> LocalLog:
    log = LocalLog(folder / "log")
    log.create_topics([TopicSpec("app-plan", 1, {"cleanup.policy": "compact"})])
    producer = log.producer(None)
    producer.begin()
    for write in writes:
        write(producer)  # type: ignore[operator]
    producer.commit({}, None)
    producer.close()
    return log


def test_the_last_backfill_is_remembered_with_its_files(tmp_path: Path) -> None:
    begun = Unfinished({"in": [3, 4]}, {"out": [0]}, ["plan"], {"in": READ})
    log = remembered(
        tmp_path,
        lambda to: write_unfinished(to, "app-plan", begun),
        lambda to: write_plan(to, "app-plan", ["plan"], "life"),
        lambda to: write_finished(to, "app-plan", FINISHED),
    )
    metadata = read_metadata(log, "app-plan")
    assert (metadata.backfill, metadata.finished, metadata.files) == (None, FINISHED, {"in": READ})
    assert (metadata.plan, metadata.left_out, metadata.incarnations) == (["plan"], set(), {"life"})
    producer = log.producer(None)
    producer.begin()
    write_unfinished(producer, "app-plan", begun)
    producer.commit({}, None)
    metadata = read_metadata(log, "app-plan")
    assert (metadata.backfill, metadata.finished, metadata.files) == (begun, None, {})


def test_what_the_first_release_wrote_and_what_a_later_one_may_write_is_read(tmp_path: Path) -> None:
    old = b'{"inputs":{"in":[3]},"outputs":{"out":[0]},"plan":["plan"]}'
    log = remembered(
        tmp_path,
        lambda to: to.send("app-plan", 0, [b"backfill", b"of a later release"], [old, b"{}"], [0, 0]),
    )
    metadata = read_metadata(log, "app-plan")
    assert metadata.backfill == Unfinished({"in": [3]}, {"out": [0]}, ["plan"], None)
    assert (metadata.left_out, metadata.files) == (set(), {})


def test_the_first_release_reads_what_is_written_now(tmp_path: Path) -> None:
    """It knows the keys plan, life and backfill, and takes what any other key holds for a record left out."""
    log = remembered(
        tmp_path,
        lambda to: write_plan(to, "app-plan", ["plan"], "life"),
        lambda to: write_finished(to, "app-plan", FINISHED),
    )
    records = log.read(TopicPartition("app-plan", 0), 0, 10, 10)
    notes = dict(zip(records.keys, records.values, strict=True))
    assert {key for key in notes if key is not None} == {b"plan", b"life life", b"backfill"}
    assert msgspec.json.decode(notes[b"backfill"] or b"", type=dict | None) is None
    headers: Headers = (records.headers or [()])[-1]
    assert [name for name, _ in headers] == ["eddy.finished"]


class TestEntries:
    """Each kind of entry is read as it was written, and goes when it is removed."""

    def test_plans_in_their_order_and_every_incarnation(self, tmp_path: Path) -> None:
        log = remembered(
            tmp_path,
            lambda to: write_plan(to, "app-plan", ["one"], "a"),
            lambda to: write_plan(to, "app-plan", ["one", "two"], "b"),
        )
        metadata = read_metadata(log, "app-plan")
        assert metadata.plans == [["one"], ["one", "two"]]
        assert metadata.plan == ["one", "two"]
        assert metadata.incarnations == {"a", "b"}

    def test_rejected_records(self, tmp_path: Path) -> None:
        rejected = [Rejected("in", p, offset, 0, b"k", b"v", (), "no number") for p, offset in ((0, 7), (1, 2))]
        log = remembered(tmp_path, lambda to: write_left_out(to, "app-plan", rejected))
        assert read_metadata(log, "app-plan").left_out == {("in", 0, 7), ("in", 1, 2)}

    def test_held_parts_until_they_are_removed(self, tmp_path: Path) -> None:
        log = remembered(
            tmp_path,
            lambda to: write_held(to, "app-plan", {("x", 1): "a cycle", ("x", 0): "another"}),
            lambda to: write_held(to, "app-plan", {("x", 1): "a longer cycle", ("x", 0): None}),
        )
        assert read_metadata(log, "app-plan").held == {("x", 1): "a longer cycle"}

    def test_rows_that_are_set_aside_until_they_are_removed(self, tmp_path: Path) -> None:
        one, other = (Located("step", 1, 0, row) for row in (b"one", b"\xff other"))
        kept = KeptRow(2, 0, "key", "why")
        log = remembered(
            tmp_path,
            lambda to: write_set_aside(to, "app-plan", {one: kept, other: kept}),
            lambda to: write_set_aside(to, "app-plan", {one: None}),
        )
        assert read_metadata(log, "app-plan").set_aside == {other: kept}

    def test_nothing_without_the_topic(self) -> None:
        assert read_metadata(LocalLog(None), "app-plan") == Metadata()
