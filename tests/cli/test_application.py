"""`status`, `wait`, `reset` and `topics`: what an application left on the log."""

import json
import pathlib
from collections.abc import Callable

import pytest

import eddy
from eddy.cli.load import load
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from tests.at_once import errors_of
from tests.cli.conftest import Command

TakeIn = Callable[[eddy.Topology], None]

TREE = "leaf\ttwig\ntwig\tbranch\nbranch\ttree\n"
STATE = pathlib.Path(".eddy/state/family")


def topics(run: Command) -> dict[str, int]:
    return {found["topic"]: found["offsets"] for found in json.loads(run("topics", "--format", "json").stdout)}


@pytest.fixture
def family(run: Command, take_in: TakeIn) -> eddy.Topology:
    """The example after it has run once."""
    run("produce", "nodes", stdin=TREE)
    topology = load("family.py").topology
    take_in(topology)
    return topology


class TestStatus:
    def test_everything_was_taken_in(self, run: Command, family: eddy.Topology) -> None:
        status = json.loads(run("status", "family.py", "--format", "json").stdout)
        assert (status["application"], status["workers"], status["quiescent"]) == ("family", 0, True)
        nodes = {"topic": "nodes", "partition": 0, "kind": "input", "committed": 4, "end": 4, "lag": 0}
        assert status["partitions"][0] == {**nodes, "event_time_ms": None}
        assert status["exchanges"] == [{"topic": "family-ancestors-loop", "emitted": 0, "consumed": 0}]

    def test_lag_shows(self, run: Command, family: eddy.Topology) -> None:
        run("produce", "nodes", stdin="bud\ttwig\n")
        shown = run("status", "family.py").stdout
        assert "quiescent    no\n" in shown
        assert ["nodes", "0", "input", "4", "6", "2"] in [line.split() for line in shown.splitlines()]

    def test_rows_in_loops_and_the_last_cut_show(self, run: Command, folder: pathlib.Path) -> None:
        run("produce", "nodes", stdin=TREE)
        log = LocalLog(folder / ".eddy" / "log")
        log.create_topics([TopicSpec("descendants", 1)])
        # A loop with room for one row an epoch goes through its topic.
        config = eddy.Config(max_loop_rows=1, cut_interval_s=0.0)
        worker = eddy.Worker(load("family.py").topology, log, config)
        worker.run_until_idle()
        worker.close()
        log.close()
        status = json.loads(run("status", "family.py", "--format", "json").stdout)
        (loop,) = status["exchanges"]
        assert loop["emitted"] == loop["consumed"] > 0
        assert status["last_cut"]["inputs"] == {"nodes": [4]}
        assert "last cut     nodes 4 → descendants" in run("status", "family.py").stdout

    def test_application_that_never_ran_or_has_no_topics_is_told(self, run: Command) -> None:
        run("produce", "other", stdin="a\tb\n")
        assert "topics descendants, nodes do not exist" in run("status", "family.py", status=78).stderr
        run("produce", "nodes", stdin=TREE)
        run("produce", "descendants")
        told = run("status", "family.py", status=1).stderr
        assert "internal topic 'family-ancestors-loop' does not exist" in told


class TestWait:
    def test_quiescent_is_done(self, run: Command, family: eddy.Topology) -> None:
        run("wait", "family.py", "--timeout", "0")

    def test_time_is_up(self, run: Command, family: eddy.Topology) -> None:
        run("produce", "nodes", stdin="bud\ttwig\n")
        told = run("wait", "family.py", "--timeout", "0.01", status=1).stderr
        assert told.startswith("not quiescent after 0.01 s: nodes-0 is 2 offsets behind; no worker runs")

    def test_nothing_is_there_yet(self, run: Command) -> None:
        told = run("wait", "family.py", "--timeout", "0", status=1).stderr
        assert "there is no log in .eddy/log yet" in told
        assert not pathlib.Path(".eddy").exists()
        run("produce", "nodes", stdin="a\tb\n")
        assert "topics descendants do not exist" in run("wait", "family.py", "--timeout", "0", status=1).stderr


class TestReset:
    def test_nothing_is_removed_unconfirmed(self, run: Command, family: eddy.Topology) -> None:
        before = topics(run)
        for arguments, status in ((["--dry-run"], 0), ([], 2)):
            shown = run("reset", "family.py", *arguments, status=status)
            assert set(shown.stdout.splitlines()) == {
                "positions of group family",
                *(f"topic {name}" for name in before if name not in {"nodes", "descendants", "family-dead-letter"}),
                f"directory {STATE}",
            }
            assert topics(run) == before
            assert STATE.exists()
        run("wait", "family.py", "--timeout", "0")

    def test_application_starts_anew(self, run: Command, family: eddy.Topology, take_in: TakeIn) -> None:
        run("reset", "family.py", "--yes")
        assert topics(run).keys() == {"nodes", "descendants", "family-dead-letter"}
        assert not STATE.exists()
        take_in(family)
        table = run("consume", "descendants", "--latest", "--value-type", "int64").stdout
        assert set(table.splitlines()) == {"twig\t1", "branch\t2", "tree\t3"}
        run("reset", "family.py", "--yes", "--dead-letter")
        assert topics(run).keys() == {"nodes", "descendants"}
        assert "nothing to remove" in run("reset", "family.py", "--yes", "--dead-letter").stderr

    def test_topics_of_an_earlier_topology_go_too_and_those_of_users_stay(
        self, run: Command, family: eddy.Topology, folder: pathlib.Path
    ) -> None:
        for name in ("family-album", "family-album-changelog", "family-tree-loop"):
            run("produce", name, stdin="a\tb\n")
        source = (folder / "family.py").read_text()
        (folder / "family.py").write_text(source.replace('"ancestors"', '"elders"'))
        run("reset", "family.py", "--yes")
        kept = {"nodes", "descendants", "family-dead-letter", "family-album", "family-album-changelog"}
        assert topics(run).keys() == kept | {"family-tree-loop"}

    def test_internal_name_that_the_topology_reads_is_the_users(self, run: Command) -> None:
        run("produce", "app-cuts", stdin="a\tb\n")
        source = "import eddy\ntopology = eddy.Topology('app')\ntopology.stream('app-cuts').to('copy')\n"
        pathlib.Path("app.py").write_text(source)
        run("reset", "app.py", "--yes")
        assert "app-cuts" in topics(run)

    def test_directory_that_eddy_did_not_make_stays(self, run: Command, folder: pathlib.Path) -> None:
        run("produce", "nodes", stdin=TREE)
        (folder / "family").mkdir()
        (folder / "family" / "album.txt").write_text("ours")
        told = run("reset", "family.py", "--yes", "--state", ".", status=1).stderr
        assert "error [STATE]" in told
        assert (folder / "family" / "album.txt").read_text() == "ours"

    def test_resets_at_the_same_moment_are_refused_only_as_in_use(self, tmp_path: pathlib.Path) -> None:
        for number in range(40):
            (tmp_path / str(number) / "0").mkdir(parents=True)
            (tmp_path / str(number) / "1").mkdir()
        imports = "from eddy.cli.reset import _remove_states"
        assert not errors_of("_remove_states(path)", imports, tmp_path, times=40, processes=3)

    def test_worker_that_runs_is_left_alone(self, run: Command, family: eddy.Topology, folder: pathlib.Path) -> None:
        log = LocalLog(folder / ".eddy" / "log")
        worker = eddy.Worker(family, log)
        told = run("reset", "family.py", "--yes", status=1).stderr
        assert "application 'family': a worker runs on this log" in told
        assert STATE.exists()
        worker.close()
        log.close()


def test_topics_lists_policies_and_partitions(run: Command) -> None:
    run("produce", "wide", "--partitions", "3", stdin="a\t1\n")
    assert [line.split() for line in run("topics").stdout.splitlines()] == [
        ["topic", "cleanup", "policy", "partitions", "offsets"],
        ["wide", "delete", "3", "2"],
    ]
