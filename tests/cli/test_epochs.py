"""`eddy run` with bounds on its epochs: what an epoch takes shows in how often a table's output is written."""

import json

import pytest

from tests.cli.conftest import Command

CHAIN = "".join(f"n{n}\tn{n + 1}\n" for n in reversed(range(8)))


@pytest.mark.parametrize("bound", ["--epoch-records=1", "--epoch-bytes=1"])
def test_an_epoch_takes_no_more_than_it_may(run: Command, bound: str) -> None:
    run("produce", "nodes", stdin=CHAIN)
    run("run", "family.py", "--until-idle", bound)
    counts = set(run("consume", "descendants", "--value-type", "int64").stdout.splitlines())
    # n8 gets a descendant more in each of its epochs: every count was written.
    assert {f"n8\t{n}" for n in range(1, 9)} <= counts


def test_a_loop_goes_on_in_the_next_epoch_when_the_time_is_up(run: Command) -> None:
    run("produce", "nodes", stdin=CHAIN)
    run("run", "family.py", "--until-idle", "--epoch-seconds=1e-9")
    (loop,) = json.loads(run("status", "family.py", "--format", "json").stdout)["exchanges"]
    assert loop["emitted"] == loop["consumed"] > 0
    table = run("consume", "descendants", "--latest", "--value-type", "int64").stdout
    assert set(table.splitlines()) == {f"n{n}\t{n}" for n in range(1, 9)}


def test_a_row_that_is_larger_than_allowed_is_refused(run: Command) -> None:
    run("produce", "nodes", stdin=CHAIN)
    told = run("run", "family.py", "--until-idle", "--row-bytes=1025", status=1).output
    assert "at most max_row_bytes=1,025 are written" in told
    run("run", "family.py", "--until-idle", "--row-bytes=1100")


@pytest.mark.parametrize(
    "option",
    [
        "--row-bytes=1024",
        "--nested-rows=0",
        "--epoch-records=0",
        "--epoch-bytes=-1",
        "--epoch-seconds=0",
        "--epoch-seconds=nan",
    ],
)
def test_a_bound_that_makes_no_sense_is_refused(run: Command, option: str) -> None:
    assert option[2:7] in run("run", "family.py", "--until-idle", option, status=2).output
