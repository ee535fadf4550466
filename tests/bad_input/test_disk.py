"""Loop and repartition topics stay bounded while several workers are at work all the time: their records, and bytes."""

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import eddy
from eddy.connectors.broker import Broker
from eddy.connectors.log import TopicPartition
from tests.bad_input.rig import Rig
from tests.kafka import OwnBroker
from tests.waiting import PATIENCE_S, Deadline, wait_for

MEMBERS = "012"
PARTITIONS = 3
NAMES = [f"{n}-{random.Random(n).randbytes(1_000).hex()}" for n in range(300)]
"""Long, so that rows between workers take room, and of a kind that does not compress."""

PARTS = 10
SEGMENT_BYTES = 1 << 20
EXCHANGES = ("up-loop", "sizes-repartition")


def team_sizes(rig: Rig) -> eddy.Topology:
    """Table `people`, person to team: how large each team is, and all that the teams above it have."""
    topology = eddy.Topology(rig.name)
    people = topology.table(rig.topic("people"), key=eddy.String, value=eddy.String, name="people")
    above = (
        people.to_relation()
        .map(lambda person, team: (team, 1))
        .recursively(lambda rows: rows.join(people, lambda _, one, team: (team, 1)), name="up")
    )
    above.group_by_key().count("above").to(rig.topic("above"))
    people.group_by(lambda person, team: (team, person), key=eddy.String, value=eddy.String).count("sizes").to(
        rig.topic("sizes")
    )
    return topology


def moved(turn: int) -> list[tuple[str, str]]:
    """Everybody changes teams; who is in a team comes behind it, so that nobody is above themselves."""
    return [(name, NAMES[(n + turn) % n]) for n, name in enumerate(NAMES) if n]


class Load:
    """Workers in threads of their own, and a producer that never stops. With `pause_s` only a part moves at a time."""

    def __init__(self, make_rig: Callable[[], Rig], config: eddy.Config, pause_s: float) -> None:
        self._stop, self._pause_s = threading.Event(), pause_s
        self.rig = make_rig()
        self.workers = [rig.worker(team_sizes(rig), config, member=m) for m, rig in ((m, make_rig()) for m in MEMBERS)]
        self._failed: list[BaseException] = []
        runs = [(worker.run, self._stop.is_set, 0.05) for worker in self.workers]
        self._threads = [threading.Thread(target=self._guarded, args=arguments) for arguments in runs]
        self._threads.append(threading.Thread(target=self._guarded, args=(self._feed, make_rig())))

    def _guarded(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            function(*arguments)
        except BaseException as error:
            self._failed.append(error)
            self._stop.set()

    def _feed(self, rig: Rig) -> None:
        turn = 0
        while not self._stop.wait(self._pause_s):
            parts = PARTS if self._pause_s else 1
            rig.write("people", moved(turn // parts)[turn % parts :: parts])
            turn += 1

    @property
    def alive(self) -> bool:
        """Whether nobody has failed."""
        return not self._stop.is_set()

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        wait_for(lambda: not any(thread.is_alive() for thread in self._threads), PATIENCE_S, "the end of the load")
        assert self._failed == []


@dataclass
class Disk:
    """What is kept of one partition, by the time of looking: offsets, and sizes of segment files."""

    partition: TopicPartition
    folder: Path
    times: list[float] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    _sizes: dict[str, int] = field(default_factory=dict)

    def look(self, begin: int, end: int) -> None:
        """Note how it is now."""
        sizes = {}
        for file in self.folder.glob("*.log"):
            with contextlib.suppress(FileNotFoundError):
                sizes[file.name] = file.stat().st_size
        self._sizes |= sizes
        self.times.append(time.monotonic())
        self.begins.append(begin)
        self.ends.append(end)
        self.kept.append(sum(sizes.values()))
        self.written.append(sum(self._sizes.values()))

    def outlived(self, before: int) -> bool:
        """Whether all that was there at a look is gone now, but for the last segment, and more was written."""
        recent = self.written[-1] - self.written[before]
        gone = self.begins[-1] >= self.ends[before] and self.kept[-1] <= recent + 2 * SEGMENT_BYTES
        return gone and self.ends[-1] > self.ends[before]

    def check(self, window_s: float) -> None:
        """What was there `window_s` ago is gone, but for a segment: the one that is written to stays."""
        before = 0
        for now, at in enumerate(self.times):
            while at - self.times[before + 1] >= window_s:
                before += 1
            if at - self.times[before] >= window_s:
                assert self.begins[now] >= self.ends[before], (self.partition, at - self.times[before])
                recent = self.written[now] - self.written[before]
                assert self.kept[now] <= recent + 2 * SEGMENT_BYTES, (self.partition, self.kept[now], recent)


def watch(
    load: Load, folder: Path, enough: Callable[[list[Disk]], bool], patience_s: float, pause_s: float
) -> list[Disk]:
    """Look again and again until there was enough to see."""
    rig = load.rig
    topics = [f"{rig.name}-{stem}" for stem in EXCHANGES]
    rig.wait(lambda: len(rig.log.topics(topics)) == len(topics))
    where = [TopicPartition(topic, p) for topic in topics for p in range(PARTITIONS)]
    for topic in topics:
        rig.configure(topic, segment_bytes=str(SEGMENT_BYTES))
    disks = [Disk(tp, next(folder.rglob(f"{tp.topic}-{tp.partition}"))) for tp in where]
    deadline = Deadline(patience_s)
    while not enough(disks):
        deadline.check([(d.partition, d.begins[-1:], d.ends[-1:], d.kept[-1:], d.written[-1:]) for d in disks])
        assert load.alive
        begins, ends = rig.log.begin_offsets(where), rig.log.end_offsets(where)
        for disk in disks:
            disk.look(begins[disk.partition], ends[disk.partition])
        time.sleep(pause_s)  # pause: so often the disk is looked at
    return disks


def observed(
    own_broker: OwnBroker,
    rigs: list[Rig],
    name: str,
    interval_s: float,
    pause_s: float,
    enough: Callable[[list[Disk]], bool],
) -> list[Disk]:
    """Three workers at work, on a broker that looks for what it may remove as often as they purge."""
    often = {
        "log.initial.task.delay.ms": "100",
        "log.retention.check.interval.ms": str(int(interval_s * 1000)),
        "log.segment.delete.delay.ms": "100",
    }
    broker: Broker = own_broker(settings=often)
    broker.start()

    def make() -> Rig:
        rigs.append(Rig(name, [f"bootstrap.servers={broker.bootstrap}"]))
        return rigs[-1]

    make().create("people", "above", "sizes", partitions=PARTITIONS)
    with Load(make, eddy.Config(purge_interval_s=interval_s), pause_s) as load:
        return watch(load, broker.folder, enough, 200.0 + 30 * interval_s, min(interval_s, 0.5))


def most_written(disks: list[Disk]) -> int:
    """Bytes that the partition which was written to most has seen."""
    return max(disk.written[-1] for disk in disks) if disks[0].written else 0


def test_internal_topics_keep_what_is_under_way_while_workers_never_rest(
    own_broker: OwnBroker, rigs: list[Rig], name: str
) -> None:
    """All that was there at a look is gone at a later one, twice, while more is written all the time."""
    marks: list[int] = []  # looks: at each, all that was there at the one before has gone

    def enough(disks: list[Disk]) -> bool:
        looks = len(disks[0].times)
        if looks and all(disk.outlived(marks[-1]) if marks else disk.ends[-1] > 0 for disk in disks):
            marks.append(looks - 1)
        return len(marks) > 2 and most_written(disks) > 4 * SEGMENT_BYTES

    observed(own_broker, rigs, name, 0.5, 0.02, enough)


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_internal_topics_stay_as_small_for_ten_minutes(own_broker: OwnBroker, rigs: list[Rig], name: str) -> None:
    """With the interval that workers have; EDDY_DISK_S=300 for another time."""
    began, lasts_s = time.monotonic(), float(os.environ.get("EDDY_DISK_S", "600"))
    disks = observed(own_broker, rigs, name, 30.0, 0.2, lambda disks: time.monotonic() - began > lasts_s)
    for disk in disks:
        disk.check(100.0)
    half = len(disks[0].kept) // 2
    for disk in disks:
        assert max(disk.kept[half:]) < 1.5 * max(disk.kept[:half]) + SEGMENT_BYTES, disk.partition
    assert max(max(disk.kept) for disk in disks) < most_written(disks) / 2
