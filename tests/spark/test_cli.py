"""`eddy backfill` and `eddy verify`: what they print and how they end."""

import re
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eddy.cli import main
from eddy.connectors.local import LocalLog
from tests.spark.rig import plant

pytestmark = [pytest.mark.xdist_group("spark-2"), pytest.mark.timeout(1200)]

PROGRAM = """\
import eddy

topology = eddy.Topology("family")
parents = topology.table("nodes", eddy.String, eddy.String)
above = parents.to_relation().map(lambda node, parent: (parent, 1))
above = above.recursively(lambda rows: rows.join(parents, lambda _, one, parent: (parent, one)), "ancestors")
above.group_by_key().count("descendants").to("descendants")
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "family.py").write_text(PROGRAM)
    (tmp_path / "nodes.tsv").write_text("leaf\ttwig\ntwig\tbranch\nbranch\ttree\n")
    assert run("produce", "nodes", "nodes.tsv").exit_code == 0
    assert run("topics", "create", "descendants", "--partitions", "1").exit_code == 0
    return "family.py"


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_a_backfill_and_a_verification(program: str, spark: Any, tmp_path: Path) -> None:
    early = run("verify", program)
    assert (early.exit_code, "it has not run on this log" in early.output) == (2, True)
    done = run("backfill", program)
    assert done.exit_code == 0, done.output
    assert "descendants: 3 records" in done.output
    again = run("backfill", program)
    assert (again.exit_code, "family: done already" in again.output) == (0, True), again.output
    equal = run("verify", program)
    assert equal.exit_code == 0, equal.output
    since = r"the cut is \d+ s old; no records have arrived since"
    assert re.search(
        rf"family: equal, at the cut nodes \d+; computed by Spark, no code of the worker's operators\n{since}\n"
        r"sink descendants: 3 keys, all equal\n",
        equal.output,
    )
    quick = run("verify", program, "--quick", "--no-stores")
    assert quick.exit_code == 0, quick.output
    assert "; quick: with the worker's own operators\n" in quick.output
    former = run("verify", program, "--one-task", "0", "--no-stores")
    assert (former.exit_code, "--one-task is deprecated here: leave it out" in former.output) == (0, True), (
        former.output
    )
    bad = run("verify", program, "--input", "nodes")
    assert (bad.exit_code, "TOPIC=VALUE is needed" in bad.output) == (2, True)


def test_a_repair(program: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "stone.tsv").write_text("stone\ttree\n")
    assert run("produce", "nodes", "stone.tsv").exit_code == 0
    done = run("backfill", program)
    assert done.exit_code == 0, done.output
    with closing(LocalLog(tmp_path / ".eddy" / "log")) as log:  # now it is of what the topic never held
        plant(SimpleNamespace(log=log), "DELETE FROM records", "nodes", b"stone")
    bad = run("verify", program, "--repair", "--no-stores")
    assert (bad.exit_code, "Leave out one of --repair and --no-stores" in bad.output) == (2, True)
    repaired = run("verify", program, "--repair")
    assert repaired.exit_code == 1, repaired.output
    assert "store nodes: 4 keys, 1 differ\n    'stone': expected nothing, found 'tree'\n" in repaired.output
    assert "corrections written: 1 to nodes; when the worker has processed them, verify again" in repaired.output
    again = run("verify", program, "--repair")
    assert again.exit_code == 2, again.output
    assert "not repaired, nothing was written: topic 'nodes' partition 0: records have arrived" in again.output
    worked = run("run", program, "--until-idle")
    assert worked.exit_code == 0, worked.output
    equal = run("verify", program)
    assert equal.exit_code == 0, equal.output
