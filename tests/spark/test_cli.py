"""`eddy backfill` and `eddy verify`: what they print and how they end."""

import json
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

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

PROGRAM = """\
import eddy

print("the program is imported")
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


def document(*words: str) -> tuple[int, Any]:
    """The exit status of a command, and the only JSON document on its stdout."""
    ended = run(*words, "--format", "json")
    assert ended.stdout.count("\n") == 1, ended.output
    return ended.exit_code, json.loads(ended.stdout)


def test_a_verdict_is_one_document_on_stdout(program: str, spark: Any, tmp_path: Path) -> None:
    status, early = document("verify", program)
    assert (status, early["status"], early["verdict"], early["application"]) == (2, 2, "undetermined", "family")
    assert early["error"]["code"] == "CONNECTOR_CONFIGURATION"
    assert "it has not run on this log" in early["error"]["message"]
    assert run("backfill", program).exit_code == 0
    ended = run("verify", program, "--format", "json")
    equal = json.loads(ended.stdout)
    assert "the program is imported\n" in ended.stderr
    assert "family: equal, at the cut" in ended.stderr
    assert (ended.exit_code, equal["status"], equal["verdict"], equal["error"]) == (0, 0, "equal", None)
    assert (equal["computed_by"], "operators" in equal["shared"]) == ("spark", False)
    assert equal["cut"]["inputs"].keys() == {"nodes"}
    assert (equal["cut"]["lag"], equal["cut"]["age_s"] >= 0, equal["undetermined"]) == ({}, True, [])
    assert {(part["kind"], part["name"], part["rows"]) for part in equal["compared"]} >= {("sink", "descendants", 3)}
    status, refused = document("verify", program, "--accept", "ancestors")
    assert (status, refused["verdict"]) == (2, "undetermined")
    assert "step 'ancestors', of which --accept says that its result cannot be repeated" in refused["error"]["message"]
    with closing(LocalLog(tmp_path / ".eddy" / "log")) as log:
        rig = SimpleNamespace(log=log)
        plant(rig, "UPDATE records SET value = ?", "descendants", b"tree", (2**63 - 1).to_bytes(8, "big"))
        plant(rig, "UPDATE records SET key = ?", "descendants", b"twig", b"twigs")
    status, wrong = document("verify", program, "--quick", "--no-stores")
    assert (status, wrong["status"], wrong["verdict"]) == (1, 1, "different")
    assert (wrong["computed_by"], "operators" in wrong["shared"]) == ("operators", True)
    (sink,) = wrong["compared"]
    assert {name: sink[name] for name in ("differing", "missing", "extra", "different")} == {
        "differing": 3,
        "missing": 1,
        "extra": 1,
        "different": 1,
    }
    assert sink["samples"] == [
        {"key": "'tree'", "expected": "3", "found": "9223372036854775807", "remark": ""},
        {"key": "'twig'", "expected": "1", "found": None, "remark": ""},
        {"key": "'twigs'", "expected": None, "found": "1", "remark": ""},
    ]


def test_a_program_that_cannot_be_loaded_has_a_document(program: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import eddy\neddy.Topology('a').table('nodes', eddy.String)\n1 / 0\n")
    status, broken = document("verify", "broken.py")
    assert (status, broken["status"], broken["application"]) == (2, 2, None)
    assert broken["error"]["code"] == "TOPOLOGY"
    assert "ZeroDivisionError" in broken["error"]["message"]
