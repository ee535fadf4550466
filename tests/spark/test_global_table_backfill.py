"""Backfills of joins with global tables: as a worker that begins when the tables are at the backfill's offsets."""

import random
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddy
from eddy.connectors.log import TopicPartition, TopicSpec
from eddy.connectors.spark import backfill_files
from eddy.connectors.spark.computation import last_cut
from eddy.errors import ConfigurationError, DataError
from eddy.runtime.own_positions import committed
from eddy.runtime.table_versions import read_versions
from tests.children import KilledError
from tests.seeds import DAY
from tests.spark.rig import Rig

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

S, N = eddy.String, eddy.Int64
KEYS = ("ch", "de", "fr", "it")
SINKS = ("named", "maybe", "counts", "after-table", "changes", "moved", "hours")
SPECS = [
    *(TopicSpec(name, 2) for name in ("orders", *SINKS)),
    TopicSpec("users", 2, {"cleanup.policy": "compact"}),
    TopicSpec("countries", 3, {"cleanup.policy": "compact"}),
]
INPUTS = [TopicPartition("orders", p) for p in range(2)] + [TopicPartition("users", p) for p in range(2)]


def topology() -> eddy.Topology:
    """Inner and left joins of a source, and of the results of steps with and without states."""
    made = eddy.Topology("app")
    countries = made.global_table("countries", S, S)
    orders, users = made.stream("orders", S, S), made.table("users", S, S)
    named = orders.join(countries, lambda key, order, other: f"{key} {other}", "named", S, select=lambda order: order)
    named.to("named")
    left = orders.left_join(countries, lambda one, two: f"{one} {two}", "left", S, select=lambda key, order: key)
    left.to("maybe")
    named.group_by(lambda key, value: value[-2:]).count("counts").to("counts")
    hours = named.group_by_key().windowed_by(eddy.TimeWindows(timedelta(hours=1))).count("hours")
    hours.to_stream().map(lambda window, n: (f"{window.key} {window.start}", n), key=S, value=N).to("hours")
    seen = orders.left_join(users, lambda order, user: user or order, "seen", S)
    seen.join(countries, lambda one, two: f"{one} {two}", "after-table", S, select=lambda order: order).to(
        "after-table"
    )
    moved = orders.select_key(lambda key, order: order).repartition(2, "moved", S, S)
    moved.join(countries, lambda one, two: f"{one} {two}", "after-moved", S, select=lambda order: order).to("moved")
    by_order = orders.group_by(lambda key, order: order, key=S).count("orders-by-country")
    by_order.to_stream().join(countries, lambda n, to: f"{n} {to}", "after-count", S, select=lambda key, value: key).to(
        "changes"
    )
    return made


def alone() -> eddy.Topology:
    """One join and a state after it."""
    made = eddy.Topology("app")
    countries, orders = made.global_table("countries", S, S), made.stream("orders", S, S)
    named = orders.join(countries, lambda one, two: f"{one} {two}", "named", S, select=lambda order: order)
    named.to("named")
    named.group_by(lambda key, value: value, key=S).count("counts").to("counts")
    return made


@pytest.fixture
def rigs(tmp_path: Path, spark: Any) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(of: Callable[[], eddy.Topology] = alone) -> Rig:
        made.append(Rig(tmp_path / str(len(made)), of, SPECS, spark))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


def noted(rig: Rig) -> Any:
    """The positions of the sources with their notes, without topic ids; the cut's tables; the versions."""
    positions = committed(rig.log, "app", INPUTS)
    notes = {
        tp: (at.offset, " ".join(w for w in at.metadata.split() if "@topic" not in w)) for tp, at in positions.items()
    }
    cut = last_cut(rig.log, "app-cuts")
    assert cut is not None
    versions = {tp: found for tp, found in read_versions(rig.log, "app-cuts").items() if tp in INPUTS}
    return notes, cut.inputs, cut.tables, versions


def drawn(dice: random.Random, keys: tuple[str | None, ...], most: int) -> list[tuple[bytes | None, bytes | None]]:
    values = [*KEYS, "yy"]
    drawn = [(dice.choice(keys), dice.choice(values)) for _ in range(dice.randint(1, most))]
    return [(None if key is None else key.encode(), value.encode()) for key, value in drawn]


def held(rig: Rig) -> dict[str, Any]:
    """What outputs and changelogs hold; without an order where rows pass through an exchange or come from a table."""
    there = rig.held()
    return there | {topic: sorted(there[topic], key=repr) for topic in ("moved", "changes", "hours") if topic in there}


@pytest.mark.parametrize("turn", range(2))
def test_it_is_as_a_worker_that_begins_then(rigs: Callable[..., Rig], turn: int) -> None:
    rig, scratch = rigs(topology), rigs(topology)
    dice = random.Random(f"{DAY} backfilled global table {turn}")
    countries = [(key, dice.choice([None, value])) for key, value in drawn(dice, KEYS, 12)]
    first = {"countries": countries, "users": drawn(dice, KEYS, 6), "orders": drawn(dice, (*KEYS, None), 30)}
    for one in (rig, scratch):
        for topic, rows in first.items():
            one.write(topic, rows)
        one.write("orders", [(b"ch", None), (b"ch", b"ch"), (b"de", b"yy")])
    scratch.work()
    done = rig.backfill()
    assert held(rig) == held(scratch)
    assert noted(rig) == noted(scratch)
    assert "step 'named' was computed as in one epoch" in "\n".join(done.remarks)
    then = {"countries": drawn(dice, KEYS, 3), "orders": drawn(dice, (*KEYS, None), 10)}
    for one in (rig, scratch):
        one.go_on(then)
    assert held(rig) == held(scratch)
    assert noted(rig) == noted(scratch)


def test_it_is_verified_before_and_after_the_table_changes(rigs: Callable[..., Rig]) -> None:
    rig = rigs()
    rig.log.delete_topics(["countries"])
    rig.log.create_topics([TopicSpec("countries", 3)])  # not compacted: the rows of all versions are there
    rig.write("countries", [(b"ch", b"Schweiz"), (b"de", b"D")])
    rig.write("orders", [(b"1", b"ch"), (b"2", b"de"), (b"3", b"ch")])
    rig.backfill()
    assert (rig.verify().status, rig.verify().undetermined) == (0, {})
    rig.go_on({"countries": [(b"ch", b"Suisse")], "orders": [(b"1", b"ch"), (b"2", b"de")]})
    verdict = rig.verify()
    assert (verdict.status, verdict.undetermined) == (0, {}), list(verdict.lines())
    assert {value for _, _, value in rig.rows("named")} == {b"ch Schweiz", b"ch Suisse", b"de D"}


def test_killed_it_goes_on_with_the_tables_that_it_has_pinned(rigs: Callable[..., Rig]) -> None:
    rig, scratch = rigs(), rigs()
    for one in (rig, scratch):
        one.write("countries", [(b"ch", b"Schweiz"), (b"de", b"D")])
        one.write("orders", [(b"1", b"ch"), (b"2", b"fr"), (b"3", b"de")])
    scratch.work()

    def kill(stage: str) -> None:
        if stage == "write outputs":
            raise KilledError

    with pytest.raises(KilledError):
        rig.backfill(stage=kill)
    for one in (rig, scratch):
        one.write("countries", [(b"ch", b"Suisse"), (b"fr", b"F")])
    assert rig.backfill().cut.tables == last_cut(scratch.log, "app-cuts").tables
    assert rig.held() == scratch.held()
    assert noted(rig) == noted(scratch)
    assert rig.backfill().already


def test_killed_it_refuses_a_table_that_was_made_anew(rigs: Callable[..., Rig]) -> None:
    rig = rigs()
    rig.write("countries", [(b"ch", b"Schweiz"), (b"de", b"D")])
    rig.write("orders", [(b"1", b"ch")])

    def kill(stage: str) -> None:
        if stage == "write outputs":
            raise KilledError

    with pytest.raises(KilledError):
        rig.backfill(stage=kill)
    rig.log.delete_topics(["countries"])
    rig.log.create_topics([TopicSpec("countries", 3)])
    with pytest.raises(ConfigurationError, match="topic 'countries' was deleted and made anew"):
        rig.backfill()
    rig.backfill(replace=True)
    assert rig.rows("named") == []


def test_records_of_files_are_joined_and_verified_with_the_table_of_the_backfill(
    rigs: Callable[..., Rig], tmp_path: Path
) -> None:
    rig = rigs()
    rig.log.delete_topics(["countries"])
    rig.log.create_topics([TopicSpec("countries", 3)])
    rows = {"key": [b"1", b"2", None], "value": [b"ch", b"de", b"ch"]}
    pq.write_table(pa.table(rows), tmp_path / "orders.parquet")
    files = {"orders": str(tmp_path / "orders.parquet")}
    rig.write("countries", [(b"ch", b"Schweiz"), (b"de", b"D")])
    rig.backfill(files=files)
    assert sorted(value or b"" for _, _, value in rig.rows("named")) == [b"ch Schweiz", b"ch Schweiz", b"de D"]
    rig.go_on({"countries": [(b"ch", b"Suisse")], "orders": [(b"1", b"ch")]})
    verdict = rig.verify(files=files)
    assert (verdict.status, verdict.undetermined) == (0, {}), list(verdict.lines())


def test_a_record_of_the_table_that_does_not_decode_ends_it_or_has_one_letter(rigs: Callable[..., Rig]) -> None:
    rig, scratch = rigs(), rigs()
    for one in (rig, scratch):
        one.write("countries", [(b"ch", b"Schweiz"), (b"ch", b"\xff"), (b"de", b"\xff")])
        one.write("orders", [(b"1", b"ch"), (b"2", b"de")])
    with pytest.raises(DataError, match="topic 'countries'"):
        rig.backfill()
    scratch.work(on_error="dead-letter")
    rig.backfill(on_error="dead-letter")
    assert rig.held() == scratch.held()
    assert rig.rows("named") == [(rig.home(b"1", "named"), b"1", b"ch Schweiz")]
    for one in (rig, scratch):
        one.work(on_error="dead-letter")
    assert len(rig.rows("app-dead-letter")) == len(scratch.rows("app-dead-letter")) == 2


def test_a_key_of_the_table_in_two_partitions_is_refused(rigs: Callable[..., Rig]) -> None:
    rig = rigs()
    rig.log.delete_topics(["countries"])
    rig.log.create_topics([TopicSpec("countries", 3)])
    with closing(rig.log.producer(None)) as producer:
        producer.begin()
        producer.send("countries", [0, 2], [b"ch", b"ch"], [b"Schweiz", None], [1_000, 1_000])
        producer.commit({}, None)
    rig.write("orders", [(b"1", b"ch")])
    in_two = "topic 'countries' of a global table has records of the key b'ch' in the partitions 0 and 2"
    with pytest.raises(ConfigurationError, match=in_two):
        rig.backfill()
    assert rig.rows("named") == []
    rig.work()
    with pytest.raises(ConfigurationError, match=in_two):
        rig.verify()
    left = rig.verify(accept=["named"])
    assert left.undetermined == {"application 'app'": "no output and no state is left to compare"}


def fed() -> eddy.Topology:
    """A global table of the application's own output."""
    made = eddy.Topology("app")
    countries, orders = made.global_table("countries", S, S), made.stream("orders", S, S)
    orders.left_join(countries, lambda one, two: f"{one} {two}", "named", S, select=lambda order: order).to("maybe")
    orders.group_by_key().count("counts").map_values(str, value=S).to("countries")
    return made


def test_a_table_that_is_an_output_keeps_rows_of_others(rigs: Callable[..., Rig]) -> None:
    rig = rigs(fed)
    rig.write("countries", [(b"ch", b"Schweiz")])
    rig.write("orders", [(b"1", b"ch")])
    with pytest.raises(ConfigurationError, match="topic 'countries' is an input and an output, and holds"):
        rig.backfill()
    assert [value for _, _, value in rig.rows("countries")] == [b"Schweiz"]


def test_a_table_that_is_an_output_is_joined_as_before_the_backfill(rigs: Callable[..., Rig]) -> None:
    rig, scratch = rigs(fed), rigs(fed)
    for one in (rig, scratch):
        one.write("orders", [(b"ch", b"de"), (b"de", b"ch"), (b"ch", b"ch")])
    scratch.work()

    def kill(stage: str) -> None:
        if stage == "finish":
            raise KilledError

    with pytest.raises(KilledError):
        rig.backfill(stage=kill)
    rig.backfill()
    assert rig.held() == scratch.held()
    for one in (rig, scratch):
        one.go_on({"orders": [(b"ch", b"de"), (b"fr", b"ch")]})
    assert rig.held() == scratch.held()


def by_list() -> eddy.Topology:
    """A join by a list, or by the value itself, which the function takes to be there."""
    made = eddy.Topology("app")
    countries, orders = made.global_table("countries", eddy.Json(), S), made.stream("orders", S, S)
    select = lambda order: order.split() if " " in order else order.strip()  # noqa: E731
    orders.left_join(countries, lambda one, two: f"{one} {two}", "named", S, select=select).to("maybe")
    return made


def test_a_selected_key_that_cannot_be_hashed_is_an_error_as_at_a_worker(rigs: Callable[..., Rig]) -> None:
    rig, scratch = rigs(by_list), rigs(by_list)
    for one in (rig, scratch):
        one.write("orders", [(b"1", b"ch"), (b"1", None), (b"2", b"c h"), (b"3", b"de")])
    told = re.escape("step 'named': select returned ['c', 'h'], which cannot be hashed")
    with pytest.raises(DataError, match=told):
        rig.backfill()
    with pytest.raises(DataError, match=told):
        scratch.work()
    assert rig.rows("maybe") == []  # while a worker has written the results of other records


def test_nothing_is_selected_for_a_record_without_a_value(rigs: Callable[..., Rig]) -> None:
    rig, scratch = rigs(by_list), rigs(by_list)
    for one in (rig, scratch):
        one.write("orders", [(b"1", b"ch"), (b"1", None), (b"3", b"de")])
    scratch.work()
    rig.backfill()
    assert rig.held() == scratch.held()


def test_files_of_a_lake_have_the_joined_rows(rigs: Callable[..., Rig], tmp_path: Path) -> None:
    rig = rigs()
    rig.write("countries", [(b"ch", b"Schweiz")])
    rig.write("orders", [(b"1", b"ch"), (b"2", b"de")])
    backfill_files(rig.topology(), rig.spark, rig.log, rig.open_log, str(tmp_path / "lake"))
    found = pq.read_table(tmp_path / "lake" / "named").to_pylist()
    assert [(row["key"], row["value"]) for row in found] == [("1", "ch Schweiz")]
    tables = msgspec.json.decode((tmp_path / "lake" / "_eddy.json").read_bytes())["tables"]
    assert list(tables) == ["countries"]
    assert sum(tables["countries"]) > 0


def test_a_processor_that_reads_a_global_table_is_refused_by_its_name(rigs: Callable[..., Rig]) -> None:
    class Named:
        def init(self, context: eddy.ProcessorContext) -> None:
            """A processor without a state of its own."""

        def process(self, record: eddy.Record[str, str]) -> None:
            """Nothing is passed on."""

    def reading() -> eddy.Topology:
        made = eddy.Topology("app")
        countries = made.global_table("countries", S, S)
        made.stream("orders", S, S).process(Named, stores=[countries], name="by-processor", key=S, value=S).to("named")
        return made

    with pytest.raises(ConfigurationError, match="a worker alone computes step 'by-processor': its calls depend"):
        rigs(reading).backfill()
