"""The demonstrations do what they say, and leave nothing behind."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eddy.connectors.broker.ports import listens
from tests.children import Child, without_settings

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "wordnet"
COUNTED = "✓ all {} counts equal those counted from scratch"

Start = Callable[..., Child]


@pytest.fixture
def start(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start a demonstration. Its temporary folders are in `tmp_path`."""
    said = tmp_path_factory.mktemp("said")
    ours = {"TMPDIR": str(tmp_path), "COLUMNS": "120", "PYTHONUNBUFFERED": "1"}

    def begin(name: str, *arguments: str, **variables: str) -> Child:
        command, environment = [sys.executable, EXAMPLE / name, *arguments], without_settings(**variables, **ours)
        child = Child(said, command, env=environment, stderr=subprocess.STDOUT)
        stack.callback(child.ended)
        stack.callback(child.signal, signal.SIGTERM)  # it ends what it has started
        return child

    with ExitStack() as stack:
        yield begin


def running_in(folder: Path) -> list[str]:
    """The command lines of processes that name the folder."""
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if str(folder) in line]


def check_counts(said: str) -> None:
    found = [found.group(1) for found in re.finditer(COUNTED.format("([\\d,]+)"), said)]
    assert found == ["16,897", "16,897", "16,684"], said


@pytest.mark.parametrize("missing", ["pyspark", "Java"])
def test_demo_counts_all_concepts_without_spark(start: Start, missing: str, tmp_path: Path) -> None:
    variables = {"JAVA_HOME": "/nowhere"}
    if missing == "pyspark":
        home = tmp_path / "home"
        home.mkdir()
        (home / "sitecustomize.py").write_text("import sys\n\nsys.modules['pyspark'] = None\n")
        variables = {"PYTHONPATH": os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")])])}
    said = start("demo.py", **variables).ends().out
    check_counts(said)
    needed = {"pyspark": "pip install -e '.[spark]'", "Java": "Java 17 or later, on Debian: apt-get install openjdk"}
    assert said.rstrip().splitlines()[-1].startswith(f"Not verified with Spark. What it needs: {needed[missing]}")
    assert [path for path in tmp_path.iterdir() if path.name != "home"] == []


@pytest.mark.long
@pytest.mark.xdist_group("spark-jobs")
@pytest.mark.timeout(1200)
def test_demo_ends_with_a_verification_where_there_is_spark(start: Start, tmp_path: Path) -> None:
    said = start("demo.py").ends(patience_s=1200).out
    check_counts(said)
    verdict = said[said.index("✓ verified with Spark, in ") :]
    assert (
        "wordnet: equal, at the cut concepts 82945; computed by Spark, no code of the worker's operators\n" in verdict
    )
    assert "\nsink sizes: 16,684 keys, all equal\n" in verdict
    assert list(tmp_path.iterdir()) == []


def test_demo_on_kafka_counts_right_over_a_crash(start: Start, broker: str, tmp_path: Path) -> None:
    said = start("demo_kafka.py", "--quick", "--bootstrap", broker).ends().out
    epochs, taken = re.findall(r"✗ worker b gets SIGKILL at its work, after ([\d,]+) epochs, ([\d,]+) records", said)[0]
    assert min(int(number.replace(",", "")) for number in (epochs, taken)) > 0
    assert "✓ worker b is back" in said
    assert [found.group(1) for found in re.finditer(COUNTED.format("([\\d,]+)"), said)] == ["1,108", "1,108", "895"]
    assert "both workers stopped by SIGTERM, with statuses 0 and 0" in said
    assert list(tmp_path.iterdir()) == []


def test_demo_on_kafka_ends_all_that_it_started_when_it_is_interrupted(start: Start, tmp_path: Path) -> None:
    demo = start("demo_kafka.py", "--quick")
    port = int(demo.wait_to_say(r"runs on 127\.0\.0\.1:(\d+).*two workers share")[1])
    assert listens(port)
    assert len(running_in(tmp_path)) == 2
    demo.signal(signal.SIGINT)
    demo.ends(130)
    assert running_in(tmp_path) == []
    assert not listens(port)
    assert list(tmp_path.iterdir()) == []
