"""`examples/spark/descendants.ipynb`: its commands and cells run, one after the other, and print the stored outputs.

Cells are plain Python, so no kernel is needed: they run in one namespace of this process, with the tests' session.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.children import without_settings
from tests.spark.test_source_docs import printed
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = EXAMPLES / "spark" / "descendants.ipynb"


def text_of(lines: list[str]) -> str:
    return "".join(lines)


def test_the_cells_print_the_stored_outputs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(EXAMPLES / "family.py", tmp_path)
    folder = tmp_path / "spark"
    folder.mkdir()
    monkeypatch.chdir(folder)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    texts = {cell["id"]: text_of(cell["source"]) for cell in cells}
    commands = texts["about"].partition("```sh\n")[2].partition("```")[0]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(
        ["sh", "-eu", "-c", commands], check=True, env=without_settings(PATH=path), timeout=PATIENCE_S, cwd=folder
    )
    namespace: dict[str, Any] = {}
    shown = {cell["id"]: printed(texts[cell["id"]], namespace) for cell in cells if cell["cell_type"] == "code"}
    stored = {
        cell["id"]: "".join(text_of(output["text"]) for output in cell["outputs"]).strip()
        for cell in cells
        if cell["cell_type"] == "code"
    }
    assert shown == stored
    assert stored["three-lines"].count("|") > 12
    assert len(texts["three-lines"].splitlines()) == 3
