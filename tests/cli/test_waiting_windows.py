"""`eddy status` names the partition of a source up to whose event time windows close."""

import json
import pathlib

from eddy.partitioner import partition_of
from tests.cli.conftest import Command

PROGRAM = """
from datetime import timedelta

import eddy

topology = eddy.Topology("pages")
clicks = topology.stream("clicks", key=eddy.String, value=eddy.String)
grouped = clicks.group_by(lambda page, user: user, key=eddy.String)
grouped.windowed_by(eddy.TimeWindows(timedelta(minutes=1)), emit="close").count("clicks-a-minute").to("out")
"""


def test_the_slowest_partition_is_named_until_all_have_one_time(run: Command, folder: pathlib.Path) -> None:
    (folder / "pages.py").write_text(PROGRAM)
    keys = {partition_of(key.encode(), 2): key for key in "abcdef"}

    def processed(partition: int, time: int) -> list[dict[str, object]]:
        line = json.dumps({"key": keys[partition], "value": "u", "at": time})
        form = ("--format", "jsonl", "--timestamp", "at", "--partitions", "2")
        run("produce", "clicks", *form, stdin=line + "\n")
        run("run", "pages.py", "--until-idle")
        status = json.loads(run("status", "pages.py", "--format", "json").stdout)
        times = {(p["topic"], p["partition"]): p["event_time_ms"] for p in status["partitions"]}
        assert times["clicks", partition] == time
        waiting: list[dict[str, object]] = status["waiting"]
        return waiting

    def told() -> list[list[str]]:
        return [line.split() for line in run("status", "pages.py").stdout.splitlines()]

    slow = {"step": "clicks-a-minute", "topic": "clicks", "partition": 1}
    assert processed(0, 90_000) == [slow | {"event_time_ms": None, "behind_ms": 90_000}]
    assert ["clicks-a-minute", "clicks", "1", "none", "yet", "90", "s"] in told()
    assert processed(1, 30_500) == [slow | {"event_time_ms": 30_500, "behind_ms": 59_500}]
    assert ["clicks-a-minute", "clicks", "1", "1970-01-01", "00:00:30", "59.5", "s"] in told()
    assert processed(1, 90_000) == []
    assert not any("wait for" in " ".join(line) for line in told())
