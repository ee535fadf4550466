"""Turn WordNet's file of nouns into a tree: one line `id TAB parent TAB name` per synset.

    python make_data.py /usr/share/wordnet/data.noun

A synset is a concept: a set of words that mean the same. Its id is `n` and its offset in
`data.noun`, its name the first of its words, its parent the concept that its first hypernym
pointer (`@`, or `@i` for an instance) names. A root has no parent: the column is empty. Lines
keep the order of `data.noun`. The same input gives the same bytes (with the same zlib).

Invariant: what is written is a forest: ids are unique, each parent is an id, no concept is its
own ancestor. The script writes nothing otherwise.

Format of `data.noun`: the manual page wndb(5WN) of WordNet 3.0. Relations other than the first
hypernym are left out, so the 2,213 concepts with several hypernyms keep one.
"""

import gzip
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import click

HYPERNYM = ("@", "@i")


class Concept(NamedTuple):
    """A noun synset; `parent` is empty for a root."""

    id: str
    parent: str
    name: str


def parse(line: str) -> Concept:
    """Read one line of `data.noun`.

    >>> parse("00001930 03 n 01 physical_entity 0 002 @ 00001740 n 0000 ~ 00002452 n 0000 | it exists")
    Concept(id='n00001930', parent='n00001740', name='physical entity')
    """
    fields = line.partition(" | ")[0].split()
    words = int(fields[3], 16)
    at = 4 + 2 * words  # each word is followed by its lexical id
    pointers = int(fields[at])
    symbols = fields[at + 1 : at + 1 + 4 * pointers : 4]
    targets = fields[at + 2 : at + 1 + 4 * pointers : 4]
    hypernyms = (f"n{target}" for symbol, target in zip(symbols, targets, strict=True) if symbol in HYPERNYM)
    return Concept(f"n{fields[0]}", next(hypernyms, ""), fields[4].replace("_", " "))


def read(source: Path) -> list[Concept]:
    """Read `data.noun`, whose licence stands before the data in lines that begin with two spaces.

    Raises: ValueError, with the line's number, if a line is not in the format.
    """
    concepts = []
    with source.open(encoding="latin-1") as lines:
        for number, line in enumerate(lines, start=1):
            if line.startswith("  "):
                continue
            try:
                concepts.append(parse(line))
            except (ValueError, IndexError) as error:
                raise ValueError(f"line {number} is not a synset: {line[:40]!r}; see wndb(5WN).") from error
    return concepts


def parents_of(concepts: Iterable[Concept]) -> dict[str, str]:
    """Map each id to its parent.

    Raises: ValueError if an id comes twice or a parent is no id.
    """
    parents: dict[str, str] = {}
    for concept in concepts:
        if concept.id in parents:
            raise ValueError(f"id {concept.id} occurs twice; ids must be unique.")
        parents[concept.id] = concept.parent
    for node, parent in parents.items():
        if parent and parent not in parents:
            raise ValueError(f"the parent {parent} of {node} is missing; each parent must be a line of its own.")
    return parents


def depths(parents: Mapping[str, str]) -> dict[str, int]:
    """Count the ancestors of each node.

    Cost: each node once.
    Raises: ValueError if a node is its own ancestor.

    >>> depths({"c": "b", "b": "a", "a": ""})
    {'a': 0, 'b': 1, 'c': 2}
    """
    found: dict[str, int] = {}
    for start in parents:
        path: dict[str, None] = {}  # an ordered set: the way up from `start` to a node that is known
        node = start
        while node and node not in found:
            if node in path:
                raise ValueError(f"{node} is its own ancestor, by way of {parents[node]}; the tree has a cycle.")
            path[node] = None
            node = parents[node]
        depth = found[node] if node else -1
        for above, member in enumerate(reversed(path), start=1):
            found[member] = depth + above
    return found


def write(concepts: Iterable[Concept], target: Path) -> None:
    """Write gzipped tab-separated lines, with no time and no file name in the header."""
    text = "".join("\t".join(concept) + "\n" for concept in concepts)
    with (
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=0) as packed,
    ):
        packed.write(text.encode())


@click.command(help=__doc__.partition("\n")[0])
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path(__file__).with_name("nouns.tsv.gz"),
    help="The file to write; nouns.tsv.gz beside this script unless given.",
)
def main(source: Path, output: Path) -> None:
    try:
        concepts = read(source)
        depth = depths(parents_of(concepts))
    except ValueError as problem:
        raise click.ClickException(f"{source}: {problem}") from problem
    if not concepts:
        raise click.ClickException(f"{source}: holds no synset; WordNet 3.0's data.noun is needed.")
    write(concepts, output)
    roots = ", ".join(concept.name for concept in concepts if not concept.parent)
    deepest = max(depth.values())
    click.echo(f"{output}: {len(concepts):,} concepts, greatest depth {deepest}, roots: {roots}")


if __name__ == "__main__":
    main()
