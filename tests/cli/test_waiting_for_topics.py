"""An application whose pattern matches no topic yet: it waits, says so, and begins with the first one."""

import pathlib
import signal

from tests.cli.conftest import Command, Start
from tests.waiting import PATIENCE_S

PROGRAM = """
import eddy

topology = eddy.Topology("words")
topology.stream(pattern="in-.*", key=eddy.String, value=eddy.String).group_by_key().count("counts").to("out")
"""


def test_it_waits_for_the_first_topic(start: Start, run: Command, folder: pathlib.Path) -> None:
    (folder / "words.py").write_text(PROGRAM)
    worker = start("run", "words.py")
    worker.wait_to_say("application 'words' waits: no topic matches pattern 'in-.*' yet; one is needed")
    assert "'words' waits: no topic matches" in run("status", "words.py", status=None).stderr
    run("topics", "create", "in-a")
    run("produce", "in-a", stdin="a\t1\na\t2\n")
    worker.wait_to_say("runs on")
    run("wait", "words.py", "--timeout", str(PATIENCE_S))
    assert run("consume", "out", "--latest", "--value-type", "int64").stdout == "a\t2\n"
    worker.signal(signal.SIGTERM)
    assert "stopped by SIGTERM; 2 records in" in worker.ends().errors


def test_a_stop_ends_the_wait_and_until_idle_does_not_wait(start: Start, run: Command, folder: pathlib.Path) -> None:
    (folder / "words.py").write_text(PROGRAM)
    run("topics", "create", "other")
    worker = start("run", "words.py")
    worker.wait_to_say("waits: no topic matches")
    worker.signal(signal.SIGTERM)
    worker.ends()
    assert "no topic matches pattern" in start("run", "words.py", "--until-idle").ends(78).errors
