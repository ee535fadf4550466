"""The examples of `docs/spark.md` in Spark programs run, one after the other, and print their blocks ```text."""

import contextlib
import io
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.connectors.local import LocalLog
from eddy.connectors.log import TopicSpec
from tests.spark.rig import rows_of
from tests.spark.source_frames import streamed, worked

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
SECTION = "## Topics and tables as frames"
EXAMPLES = re.compile(r"^```py\n(?P<code>.*?)^```$(?:\n+```text\n(?P<output>.*?)^```$)?", re.MULTILINE | re.DOTALL)
PROGRAM = """
import eddy

topology = eddy.Topology("family")
nodes = topology.table("nodes", eddy.String, eddy.String)
nodes.group_by(lambda key, parent: (parent, key), key=eddy.String, value=eddy.String).count("count").to("descendants")
"""


def printed(code: str, namespace: dict[str, Any]) -> str:
    """The output of a program."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "program.py", "exec"), namespace)
    return out.getvalue().strip()


def test_examples_print_what_the_page_says(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("family.py").write_text(PROGRAM)
    program: dict[str, Any] = {}
    exec(PROGRAM, program)
    # Spark's Python processes have the directory in which the session began.
    text = PAGE.read_text().partition(SECTION)[2].partition("\n## ")[0]
    for path in (".eddy/log", "family.py", "checkpoint"):
        text = text.replace(f'"{path}"', f'"{tmp_path}/{path}"')
    text = text.replace('"checkpointLocation", "twigs"', f'"checkpointLocation", "{tmp_path}/twigs"')
    with closing(LocalLog(Path(".eddy/log"))) as log:
        log.create_topics(TopicSpec(topic, 1) for topic in ("nodes", "descendants", "found", "parents", "twigs"))
        log.write("nodes", {"twig": "tree", "leaf": "twig"})
        log.write("nodes", {"leaf": None}, value=eddy.String)
        with worked(program["topology"], log, tmp_path / "state"):
            pass
    namespace = {"spark": spark}
    examples = list(EXAMPLES.finditer(text))
    assert len(examples) == 6
    for example in examples:
        assert streamed(lambda code=example["code"]: printed(code, namespace)) == (example["output"] or "").strip()
    with closing(LocalLog(Path(".eddy/log"))) as log:
        assert [(key, value) for _, key, value in rows_of(log, "parents")] == [(b"leaf", b"twig"), (b"twig", b"tree")]
