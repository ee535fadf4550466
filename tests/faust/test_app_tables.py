"""Tables of an app as tables of a topology: keys and values by Faust's codecs, and what is refused."""

from pathlib import Path
from typing import Any

import faust
import pytest

import eddy
from eddy.faust.app_tables import wait_for_changelogs
from tests.descendants import counted
from tests.faust.conftest import Start
from tests.faust.family import Family, tree
from tests.faust.rig import Topics, unique

HERE = Path(__file__).parent


class Place(faust.Record, serializer="json"):
    x: int


@pytest.fixture
def app() -> faust.App:
    return faust.App("shop", broker="kafka://one")


@pytest.mark.parametrize(
    ("key_type", "value_type", "rows"),
    [
        (str, int, {"ann": 1, "bob": 2}),
        (int, float, {7: 1.5, 8: 2}),
        (bytes, bytes, {b"k": b"v"}),
        (Place, list[int], {Place(x=1): [1, 2]}),
        (str, None, {"ann": {"a": [1]}}),
        (str, Place, {"ann": Place(x=5)}),
    ],
)
def test_latest_values_are_read_as_faust_writes_them(app: faust.App, key_type: Any, value_type: Any, rows: Any) -> None:
    table = app.Table("stock", key_type=key_type, value_type=value_type)
    topology = eddy.Topology("reads")
    eddy.faust.table(topology, table).to("out")
    changelog = table.changelog_topic
    with eddy.TopologyTestDriver(topology, partitions=3) as driver:
        topic = driver.input("shop-stock-changelog")
        written = {key: changelog.prepare_key(key, table.key_serializer, headers={})[0] for key in rows}
        for key, value in rows.items():
            topic.pipe_raw(written[key], changelog.prepare_value(value, table.value_serializer, headers={})[0])
        assert driver.output("out").read_map() == rows
        for key_bytes in written.values():
            topic.pipe_raw(key_bytes, None)
        assert dict(driver.output("out").read_key_values()) == dict.fromkeys(rows)


def test_serdes_can_be_named_where_types_do_not_tell(app: faust.App) -> None:
    table = app.Table("stock", schema=faust.Schema(key_type=bytes, value_type=bytes))
    with pytest.raises(eddy.TopologyError, match="key_type is None"):
        eddy.faust.table(eddy.Topology("unnamed"), table)
    topology = eddy.Topology("named")
    eddy.faust.table(topology, table, key=eddy.Bytes, value=eddy.Int64).to("out")
    with eddy.TopologyTestDriver(topology) as driver:
        driver.input("shop-stock-changelog").pipe(b"k", 5)
        assert driver.output("out").read_map() == {b"k": 5}


def test_tables_without_the_latest_value_of_each_key_are_refused_with_the_reason(app: faust.App) -> None:
    topology = eddy.Topology("refused")
    with pytest.raises(eddy.TopologyError, match="expired windows without a record"):
        eddy.faust.table(topology, app.Table("by-hour", key_type=str, value_type=int).tumbling(3600))
    with pytest.raises(eddy.TopologyError, match="additions and removals"):
        eddy.faust.table(topology, app.SetTable("tags", key_type=str, value_type=str))
    with pytest.raises(eddy.TopologyError, match="is not a table"):
        eddy.faust.table(topology, app.topic("in"))


def test_agents_mode_needs_a_source_that_an_agent_can_read(app: faust.App) -> None:
    topology = eddy.Topology("tables-only")
    eddy.faust.table(topology, app.Table("stock", key_type=str, value_type=int)).to("out")
    with pytest.raises(eddy.ConfigurationError, match="mode='worker'"):
        eddy.faust.host(app, topology, "agents")


def test_worker_waits_for_a_changelog_that_faust_is_making(topics: Topics) -> None:
    name, asked = unique("changelog"), []

    def given_up() -> bool:
        asked.append(len(topics.log.topics([name])))
        if len(asked) == 2:
            topics.make(1, name)
        return False

    wait_for_changelogs(topics.log, [name], given_up)
    assert asked[:2] == [0, 0]
    assert name in topics.log.topics([name])


@pytest.mark.long
def test_table_that_an_agent_fills_is_joined_and_followed_in_worker_mode(start: Start, family: Family) -> None:
    parents = tree(50)
    family.write(parents)
    worker = start("descendants", HERE, NAME=family.name, MODE="worker")
    family.vote("0", "0", "0", "1")
    counts = counted(parents)
    family.wait_for({node: counts[node] * votes for node, votes in {"0": 3, "1": 1}.items()}, worker, topic="weighted")
    assert worker.stop() == 0
