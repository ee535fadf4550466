"""The table of a view kept all its rows in a second state; an application that did so goes on."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import eddy
from tests.seeds import of_today
from tests.upgrade.applications import Application, Event
from tests.upgrade.rig import produce, run, tables

COLUMNS = {"id": "text", "team": "text", "points": "bigint"}


def view_of(topology: eddy.Topology) -> Any:
    players = topology.table("players", key=eddy.String, value=eddy.Json())
    return topology.sql("SELECT * FROM players", {"players": (players, COLUMNS)}, name="all", key="team")


def now() -> eddy.Topology:
    topology = eddy.Topology("teams")
    view_of(topology).to_table("best").map_values(lambda row: row[2]).to("points", key=eddy.String, value=eddy.Int64)
    return topology


def before() -> eddy.Topology:
    topology = eddy.Topology("teams")
    view = view_of(topology)
    key, value = view._node.key, view._node.value  # private: the serdes of its rows

    def only(key: Any, rows: Mapping[Any, int]) -> Sequence[Any]:
        if sum(rows.values()) > 1:
            raise eddy.DataError("several rows")
        return list(rows)

    rows = view.reduce(only, "best-only", key=key, value=value).group_by_key(key, value)
    table = rows.aggregate(tuple, lambda _, row, old: row, lambda _, row, old: old, "best", value)
    table.map_values(lambda row: row[2]).to("points", key=eddy.String, value=eddy.Int64)
    return topology


def one_a_team(rng: random.Random) -> Event:
    player = f"p{rng.randrange(30)}"
    row = {"id": player, "team": f"team of {player}", "points": rng.randrange(5)}
    return "players", player, None if rng.random() < 0.3 else row


def any_team(rng: random.Random) -> Event:
    _, player, row = one_a_team(rng)
    return "players", player, row and {**row, "team": f"t{rng.randrange(3)}"}


@pytest.mark.parametrize("seed", of_today(3))
def test_the_table_goes_on_from_its_rows(tmp_path: Path, seed: int) -> None:
    for build, folder in ((before, "kept"), (now, "scratch")):
        (tmp_path / folder).mkdir()
        produce(tmp_path / folder, Application(build, one_a_team), seed, 60)
        run(tmp_path / folder, Application(build, one_a_team))
    application = Application(now, one_a_team)
    for folder in ("kept", "scratch"):
        produce(tmp_path / folder, application, seed + 1, 60)
        run(tmp_path / folder, application, max_epoch_records=7)
    found = tables(tmp_path / "kept", application)
    assert found["points"]
    assert found == tables(tmp_path / "scratch", application)


def test_withheld_rows_are_not_forgotten(tmp_path: Path) -> None:
    """They were in the state that is gone."""
    produce(tmp_path, Application(before, any_team), 1, 60)
    run(tmp_path, Application(before, any_team), on_error="dead-letter")
    with pytest.raises(eddy.PlanChangedError, match="- state best-only arrangement"):
        run(tmp_path, Application(now, any_team), on_error="dead-letter")
