"""The data of the example is the tree it says it is, and the script that makes it refuses what is none."""

import doctest
import gzip
import importlib.util
from collections import Counter, defaultdict
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "wordnet"
Rows = list[tuple[str, str, str]]

NOUNS = """\
  1 This software and database is being provided to you, the LICENSEE, by
00000001 03 n 01 entity 0 001 ~ 00000002 n 0000 | that which is
00000002 03 n 02 living_thing 0 animate_thing 0 002 @ 00000001 n 0000 ~ 00000003 n 0000 | a living entity
00000003 18 n 01 Ada_Lovelace 0 002 @i 00000002 n 0000 @i 00000001 n 0000 | an English mathematician
"""


@pytest.fixture(scope="module")
def rows() -> Rows:
    with gzip.open(EXAMPLE / "nouns.tsv.gz", "rt", encoding="utf-8") as lines:
        return [tuple(line.rstrip("\n").split("\t")) for line in lines]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_data", EXAMPLE / "make_data.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(script: ModuleType, nouns: str, folder: Path) -> Result:
    (folder / "data.noun").write_text(nouns, encoding="ascii")
    arguments = [str(folder / "data.noun"), "--output", str(folder / "nouns.tsv.gz")]
    return CliRunner().invoke(script.main, arguments)


def test_every_noun_is_a_row_of_three_columns(rows: Rows) -> None:
    assert len(rows) == 82_115
    assert all(len(row) == 3 and row[0] and row[2] for row in rows)


def test_ids_are_unique_and_parents_exist(rows: Rows) -> None:
    ids = {node for node, _, _ in rows}
    assert len(ids) == len(rows)
    assert {parent for _, parent, _ in rows} - ids == {""}


def test_rows_are_one_tree_under_entity(rows: Rows) -> None:
    children = defaultdict(list)
    for node, parent, _ in rows:
        children[parent].append(node)
    assert children[""] == ["n00001740"]
    assert rows[0] == ("n00001740", "", "entity")

    # Each node has one parent, so a node on a cycle cannot be reached from the root.
    level, reached, depth = children[""], 0, -1
    while level:
        reached += len(level)
        depth += 1
        level = [child for node in level for child in children[node]]
    assert reached == len(rows)
    assert depth == 19


def test_counts_of_descendants_at_the_top(rows: Rows) -> None:
    parents = {node: parent for node, parent, _ in rows}
    names = {node: name for node, _, name in rows}
    descendants: Counter[str] = Counter()
    for node in parents:
        while node := parents[node]:
            descendants[node] += 1
    assert descendants.total() == 691_100
    assert len(descendants) == 16_897
    assert [(names[node], count) for node, count in descendants.most_common(5)] == [
        ("entity", 82_114),
        ("physical entity", 45_919),
        ("abstraction", 36_184),
        ("object", 35_298),
        ("whole", 31_112),
    ]


def test_script_keeps_first_hypernym_first_word_and_order(script: ModuleType, tmp_path: Path) -> None:
    result = run(script, NOUNS, tmp_path)
    assert result.exit_code == 0, result.output
    assert "3 concepts, greatest depth 2, roots: entity" in result.output
    written = gzip.decompress((tmp_path / "nouns.tsv.gz").read_bytes()).decode()
    assert written == (
        "n00000001\t\tentity\n"
        "n00000002\tn00000001\tliving thing\n"
        "n00000003\tn00000002\tAda Lovelace\n"
    )  # fmt: skip


def test_script_writes_the_same_bytes_when_run_again(script: ModuleType, tmp_path: Path) -> None:
    run(script, NOUNS, tmp_path)
    first = (tmp_path / "nouns.tsv.gz").read_bytes()
    run(script, NOUNS, tmp_path)
    assert (tmp_path / "nouns.tsv.gz").read_bytes() == first
    assert first[4:8] == bytes(4), "the header of gzip holds a time"


@pytest.mark.parametrize(
    ("nouns", "message"),
    [
        (NOUNS.replace("001 ~ 00000002", "001 @ 00000003"), "n00000001 is its own ancestor"),
        (NOUNS.replace("@ 00000001", "@ 00000009"), "the parent n00000009 of n00000002 is missing"),
        (NOUNS.replace("\n00000003", "\n00000002"), "id n00000002 occurs twice"),
        (NOUNS.replace("n 01 entity", "n zz entity"), "line 2 is not a synset"),
        (NOUNS.splitlines(keepends=True)[0], "holds no synset"),
    ],
    ids=["cycle", "orphan", "twice", "malformed", "empty"],
)
def test_script_writes_nothing_when_nouns_are_no_tree(
    script: ModuleType, tmp_path: Path, nouns: str, message: str
) -> None:
    result = run(script, nouns, tmp_path)
    assert result.exit_code == 1
    assert message in result.output
    assert not (tmp_path / "nouns.tsv.gz").exists()


def test_examples_in_the_script_hold(script: ModuleType) -> None:
    results = doctest.testmod(script)
    assert results.attempted > 0
    assert results.failed == 0
