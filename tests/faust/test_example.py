"""examples/faust_app as its users see it: a Faust app with a recursive topology."""

import json
from pathlib import Path

from tests.faust.conftest import Start
from tests.faust.rig import Topics
from tests.seeds import on_days

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "faust_app"


def employee(name: str, manager: str = "") -> bytes:
    return json.dumps({"name": name, "manager": manager}).encode()


@on_days({3, 4, 5}, 6)  # on the others, test_agents_mode.py has its slow test
def test_an_app_counts_everybody_below_a_manager_and_eddy_is_in_its_pages_and_commands(
    start: Start, topics: Topics
) -> None:
    topics.make(2, "employees", "headcount")
    worker = start("app", FOLDER)
    staff = {b"cid": employee("cid", "bob"), b"bob": employee("bob", "ann"), b"ann": employee("ann")}
    topics.write("employees", staff, 2)
    worker.wait_for_json("/managers/ann", {"name": "ann", "people": 2})
    topics.write("employees", {b"bob": None}, 2)
    worker.wait_for_json("/managers/ann", {"name": "ann", "people": 0})
    assert json.loads(worker.wait_for_page("/eddy/readyz"))["state"] == "RUNNING"
    assert worker.get("/eddy/healthz")[0] == 200
    assert "eddy_ready 1.0" in worker.get("/eddy/metrics")[1]
    assert "chain-of-command" in worker.get("/eddy/topology?format=text")[1]
    assert "headcount" in worker.get("/eddy/")[1]
    assert worker.command("wait").returncode == 0
    status = json.loads(worker.command("status", "--format", "json").stdout)
    assert (status["application"], status["workers"], status["quiescent"]) == ("headcount", 1, True)
    refused = worker.command("reset", "--yes")
    assert (refused.returncode, "a reset needs it stopped" in refused.stderr) == (1, True)
    assert worker.stop() == 0
