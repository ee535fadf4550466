"""The documentation runs, says what it prints, and names everything that is public.

A block ```python is run. The blocks of one page share a namespace, in their order. A block prints exactly
what the block ```text right below it holds, and nothing where there is none.
"""

import contextlib
import dataclasses
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mypy import api

import eddy
from eddy.driver import InputTopic, KeyValueStore, OutputTopic

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *DOCS.glob("*.md")])
FENCES = re.compile(r"^```python\n(?P<code>.*?)^```$(?:\n+```text\n(?P<output>.*?)^```$)?", re.MULTILINE | re.DOTALL)

# Where the methods of each class are described: a page, and a heading in it or None for the whole page.
METHODS = [
    (eddy.Topology, "dsl.md", "Topology"),
    (eddy.KStream, "dsl.md", "KStream"),
    (eddy.KTable, "dsl.md", "KTable"),
    (eddy.Relation, "dsl.md", "Relation"),
    (eddy.KGroupedStream, "dsl.md", "KGroupedStream"),
    (eddy.KGroupedTable, "dsl.md", "KGroupedTable"),
    (eddy.Query, "live-queries.md", None),
    (eddy.LiveView, "live-queries.md", None),
    (eddy.TopologyTestDriver, "testing.md", None),
    (InputTopic, "testing.md", None),
    (OutputTopic, "testing.md", None),
    (KeyValueStore, "testing.md", None),
    (eddy.ProcessorContext, "processors.md", None),
    (eddy.StateStore, "processors.md", None),
    (eddy.WindowStore, "processors.md", None),
    (eddy.SessionStore, "processors.md", None),
    (eddy.VersionedStore, "processors.md", None),
    (eddy.Schedule, "processors.md", None),
]


class Block(NamedTuple):
    line: int
    code: str
    output: str


def blocks_of(text: str) -> Iterator[Block]:
    for found in FENCES.finditer(text):
        yield Block(text.count("\n", 0, found.start("code")), found["code"], found["output"] or "")


def run(block: Block, page: str, namespace: dict[str, Any]) -> str:
    """Run a block as a file `program.py` of its own; return what it printed. An error names the page."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(block.code, "program.py", "exec"), namespace)
        except Exception as error:
            error.add_note(f"program.py begins in {page}:{block.line + 1}")
            raise
    return printed.getvalue()


def section(text: str, heading: str | None) -> str:
    if heading is None:
        return text
    found = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no section '## {heading}'"
    return found[1]


def public_methods(of: type) -> list[str]:
    return [name for name in dir(of) if not name.startswith("_") and callable(getattr(of, name))]


@pytest.mark.parametrize("page", PAGES)
def test_page_prints_what_it_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of((ROOT / page).read_text(encoding="utf-8")):
        printed = run(block, page, namespace)
        assert printed == block.output, f"{page}:{block.line + 1}: the block prints\n{printed}"


def test_block_is_read_with_the_output_right_below_it() -> None:
    text = "a\n```python\nprint(1)\n```\n\n```text\n1\n```\n```python\nx = 2\n```\nb\n```text\nno output\n```\n"
    assert list(blocks_of(text)) == [Block(2, "print(1)\n", "1\n"), Block(9, "x = 2\n", "")]


@pytest.mark.parametrize("name", eddy.__all__)
def test_public_name_is_documented(name: str) -> None:
    texts = [page.read_text(encoding="utf-8") for page in DOCS.glob("*.md")]
    assert any(re.search(rf"\b{name}\b", text) for text in texts), f"no page of docs/ names {name}"


@pytest.mark.parametrize(("of", "page", "heading"), METHODS, ids=[of.__name__ for of, _, _ in METHODS])
def test_methods_are_documented_where_their_class_is(of: type, page: str, heading: str | None) -> None:
    text = section((DOCS / page).read_text(encoding="utf-8"), heading)
    assert [name for name in public_methods(of) if f"`{name}(" not in text] == []


def test_settings_are_documented() -> None:
    text = section((DOCS / "state-and-errors.md").read_text(encoding="utf-8"), "Config")
    assert [field.name for field in dataclasses.fields(eddy.Config) if f"`{field.name}`" not in text] == []


def test_architecture_names_tests_that_exist() -> None:
    """Every invariant names a test, and renaming the test makes this fail."""
    text = (DOCS / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_/]+\.py)(?:::(test_\w+))?`", text)
    tests = Path(__file__).parent
    found = [(file, name) for file, name in named if (tests / file).exists()]
    assert len(found) >= 16
    for file, name in found:
        assert f"def {name}(" in (tests / file).read_text(encoding="utf-8") or not name, f"{file}::{name}"


EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


def programs(folder: Path) -> list[Path]:
    """The blocks of each page as one module, on the lines that they have in the page."""
    modules = []
    for page in PAGES:
        lines: list[str] = []
        for block in blocks_of((ROOT / page).read_text(encoding="utf-8")):
            lines += [""] * (block.line - len(lines)) + block.code.splitlines()  # as it is numbered in the page
        modules.append(folder / f"{re.sub('[^a-z]', '_', page.lower())}.py")
        modules[-1].write_text("\n".join([*lines, ""]), encoding="utf-8")
    return modules


@pytest.mark.slow
def test_programs_of_the_docs_and_the_examples_pass_mypy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page are programs of a shared namespace, so that a name may become something else."""
    modules = programs(tmp_path)
    monkeypatch.setenv("MYPYPATH", str(ROOT / "examples" / "wordnet"))
    flags = [
        "--config-file=",
        f"--cache-dir={ROOT / '.mypy_cache' / 'docs'}",
        "--check-untyped-defs",
        "--allow-redefinition",
    ]
    out, errors, status = api.run([*flags, *map(str, [*modules, *EXAMPLES])])
    assert (status, errors) == (0, ""), out


REFUSED_BY_PYRIGHT = {
    ("docs_dsl_md", "No overloads for"),  # a mistake, and the message of eddy about it
    ("docs_dsl_md", "expected 3 but received 1"),
    ("docs_dsl_md", '"aggregator"'),  # of the type of an aggregate pyright sees the first value alone
    ("docs_recursion_md", '"adder"'),
    ("docs_recursion_md", '"subtractor"'),
    ("docs_recursion_md", '"Relation[Literal[0], W@join]'),  # so it does of the type of a constant
    ("docs_recursion_md", '"on_limit"'),  # a parameter without a type is a str by its default
}
"""Modules of the documentation, and words of a message: what pyright takes for a mistake there, with the reason."""


@pytest.mark.long
def test_programs_of_the_docs_pass_pyright(tmp_path: Path) -> None:
    """Needs `pip install basedpyright`: pyright with its own Node.js, 300 MB, too much for each environment."""
    pytest.importorskip("basedpyright")
    programs(tmp_path)
    settings = {
        "include": ["."],
        "extraPaths": [str(ROOT), str(ROOT / "examples" / "wordnet")],
        "typeCheckingMode": "standard",
        "reportRedeclaration": "none",  # the blocks of a page share a namespace
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    asked = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    told = json.loads(subprocess.run(asked, capture_output=True, text=True, check=False).stdout)
    assert told["summary"]["filesAnalyzed"] == len(PAGES)
    found = [
        (Path(one["file"]).stem, one["range"]["start"]["line"] + 1, one["message"])
        for one in told["generalDiagnostics"]
    ]
    known = {place: [one for one in found if one[0] == place[0] and place[1] in one[2]] for place in REFUSED_BY_PYRIGHT}
    assert [one for one in found if not any(one in them for them in known.values())] == []
    assert [place for place, them in known.items() if not them] == []  # nothing is excused that passes
