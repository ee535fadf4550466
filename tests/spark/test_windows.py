"""Windows on Spark: at a cut they are those of the worker, and a worker goes on from a backfill as from scratch."""

import functools
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.log import TopicSpec
from tests.seeds import DAY, in_turn, on_days
from tests.spark.rig import Rig, plant

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64
Sale = tuple[bytes | None, bytes | None, int]
"""Key, value and time of a record."""


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def own_time(value: str) -> int:
    """Of a value such as x@1000."""
    return int(value.partition("@")[2])


def windows(extracted: bool = False) -> eddy.Topology:
    """Windows of both forms of emission, in the source's partitions and after exchanges."""
    topology = eddy.Topology("app")
    sales = topology.stream("in", S, S, timestamp=own_time if extracted else None)
    if extracted:
        sales = sales.map_values(lambda value: value and value.partition("@")[0], value=S)
    sales = sales.filter(lambda key, value: value != "tick")
    shops = sales.group_by_key().windowed_by(eddy.TimeWindows(ms(10), ms(4), ms(6)), retention=ms(15))
    shops.count("shops").to("updates", value=N)
    goods = sales.group_by(lambda key, value: value, key=S)
    goods = goods.windowed_by(eddy.TimeWindows(ms(10), grace=ms(6)), "close", ms(5))  # type: ignore[assignment]
    goods.count("goods").to("finals", value=N)
    shops.sum("lengths", of=len)
    goods.avg("means", of=lambda value: len(value) / 10).to("averages")
    days = sales.group_by_key().windowed_by(eddy.CalendarWindows("day", "Europe/Zurich"))
    days.max("greatest").group_by(lambda key, value: (value, key.key), key=S, value=S).count("days").to("days", value=N)
    ever = eddy.UnlimitedWindows(datetime(1970, 1, 1, 23, 59, 59, 995_000, tzinfo=UTC))
    sales.group_by(lambda key, value: value, key=S).windowed_by(ever).count("ever").to("ever", value=N)
    sliding = eddy.SlidingWindows(ms(7), ms(6))
    sales.group_by_key().windowed_by(sliding).count("paces").to("paces", value=N)
    longest = sales.group_by(lambda key, value: value, key=S).windowed_by(sliding, "close", ms(9)).max("longest")
    longest.to("longest", value=S)
    visits = eddy.SessionWindows(ms(5), ms(2))
    sales.group_by_key().windowed_by(visits).count("visits").to("visits", value=N)
    sold = sales.group_by(lambda key, value: value, key=S).windowed_by(visits, "close", ms(9))
    sold.max("sold").to("sold", value=S)
    sold.avg("worth", of=lambda value: len(value) / 10)
    sales.group_by_key().windowed_by(visits).sum("spent", of=len)
    shops.distinct_count("kinds")
    goods.collect("found", max=2).to("found")
    paced = sales.group_by_key().windowed_by(sliding)
    paced.collect("paced", max=3, by=lambda value: value == "y")
    stays = sales.group_by_key().windowed_by(visits, retention=ms(9))
    stays.distinct_count("stayed", of=lambda value: value < "y", value=eddy.Json(bool))
    stays.collect("seen", max=2).errors.to("crowds")
    sales.group_by(lambda key, value: value, key=S).windowed_by(visits, "close", ms(9)).distinct_count("once")
    moved = sales.repartition(2, "moved")
    moved.group_by_key().windowed_by(eddy.TimeWindows(ms(10), grace=ms(6)), "close").count("spread").to("spread")
    moved.group_by(lambda key, value: value, key=S).windowed_by(visits, "close").count("again").to("again", value=N)
    return topology


def sales(rng: random.Random, count: int, at: int) -> list[Sale]:
    """Records about a moment, late ones among them; some have no value, some no key, and some are filtered out."""
    keys, values = [*(b"%d" % n for n in range(8)), None], [b"x", b"y", b"z", b"tick", None]
    return [(rng.choice(keys), rng.choice(values), at + rng.randint(-25, 5)) for _ in range(count)]


class WindowsRig(Rig):
    def __init__(self, folder: Path, partitions: int, spark: Any = None) -> None:
        names = ("in", "updates", "finals", "averages", "days", "visits", "sold", "paces", "longest", "ever")
        names = (*names, "spread", "again", "found", "crowds")
        super().__init__(folder, windows, [TopicSpec(name, partitions) for name in names], spark)

    def read_times_from_values(self) -> None:
        self.topology = functools.partial(windows, extracted=True)

    def send(self, rows: list[Sale]) -> None:
        self.write_at("in", rows)

    def run(self) -> None:
        self.work(cut_interval_s=0.0, on_error="dead-letter")

    def equal(self) -> None:
        verdict = self.verify(on_error="dead-letter")
        assert (verdict.status, verdict.notes) == (0, {}), list(verdict.lines())
        windowed = ("shops", "goods", "lengths", "means", "visits", "sold", "paces", "longest", "ever")
        windowed = (*windowed, "spread", "again", "worth", "spent", "kinds", "found", "paced", "stayed", "seen", "once")
        states = {f"{name}{kind}" for name in windowed for kind in ("", "-calendar")}
        others = {"goods-marks", "visits-open", "sold-open", "sold-marks", "finals", "days", "updates"}
        others |= {"worth-totals", "worth-open", "spent-totals", "spent-open"}
        others |= {"lengths-totals", "means-totals", "averages", "paces-records", "paces-records-calendar"}
        others |= {f"{name}-values" for name in ("kinds", "found", "paced", "stayed", "seen", "once")}
        others |= {"stayed-open", "seen-open", "once-open", "seen-errors-counts", "crowds"}
        others |= {"spread-marks-moved-repartition", "again-marks-moved-repartition", "again-marks"}
        others |= {"longest-records", "longest-records-calendar", "longest-records-marks"}
        assert {part.name for part in verdict.compared} >= {*states, *others}


@pytest.fixture
def rig_of(tmp_path: Path, spark: Any) -> Iterator[Callable[[int], WindowsRig]]:
    made: list[WindowsRig] = []

    def make(partitions: int) -> WindowsRig:
        made.append(WindowsRig(tmp_path / str(len(made)), partitions, spark))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@on_days({0, 1}, 4)
@pytest.mark.parametrize("partitions", [*in_turn([1, 3], 2)])
def test_a_worker_goes_on_from_a_backfill_as_from_its_own_states(
    rig_of: Callable[[int], WindowsRig], partitions: int
) -> None:
    rng, now = random.Random(f"{DAY} windows {partitions}"), 86_400_000
    rig, scratch = rig_of(partitions), rig_of(partitions)
    for _ in range(4):
        some = sales(rng, 40, now)
        rig.send(some), scratch.send(some)
        scratch.run()
        now += 12
    scratch.equal()
    rig.backfill()
    assert rig.held() == scratch.held()
    rig.equal()
    for _ in range(3):
        some = sales(rng, 15, now)
        for one in (rig, scratch):
            one.send(some)
            one.run()
        now += 8
        assert rig.held() == scratch.held()
    rig.equal()


@on_days({2}, 4)
def test_event_times_of_the_author_s_function_are_the_worker_s(rig_of: Callable[[int], WindowsRig]) -> None:
    rng, now = random.Random(f"{DAY} extracted"), 86_400_000
    rig, scratch = rig_of(2), rig_of(2)
    for one in (rig, scratch):
        one.read_times_from_values()
    for _ in range(3):
        some = [
            (key, value and b"%s@%d" % (value, time), rng.randrange(now)) for key, value, time in sales(rng, 40, now)
        ]
        some[7:7] = [(b"1", b"x", now), (b"2", b"x@-1", now), (b"3", b"y@253402300800000", now)]
        rig.send(some), scratch.send(some)
        scratch.run()
        now += 12
    scratch.equal()
    rig.backfill(on_error="dead-letter")
    assert rig.held() == scratch.held()
    rig.equal()


@on_days({3}, 4)
def test_a_wrong_row_of_a_window_is_found(rig_of: Callable[[int], WindowsRig]) -> None:
    rig = rig_of(2)
    rig.send([(b"1", b"x", 100), (b"1", b"x", 103), (b"2", b"y", 104)])
    rig.run()
    rig.equal()
    key = eddy.TimeWindowed(S, ms(10)).encode(eddy.Windowed("1", 100, 110))
    plant(rig, "UPDATE records SET value = ?", "app-shops-changelog", key, N.encode(7))
    verdict = rig.verify()
    (wrong,) = (part for part in verdict.compared if part.differing)
    assert wrong.name == "shops"
    shown = "Windowed(key='1', start_ms=100, end_ms=110)"
    assert [(e.key, e.expected, e.found) for e in wrong.examples] == [(shown, "2", "7")]
