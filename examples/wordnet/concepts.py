"""WordNet's nouns as the topology has them, what one looks up in them, and every count made from scratch.

    python examples/wordnet/concepts.py | eddy produce concepts --format jsonl --value-type json

prints them in shuffled order, most children before their parents: one JSON object a line, for `eddy produce`.
"""

import csv
import gzip
import random
import sys
from collections import Counter
from pathlib import Path

import msgspec
from topology import Concept, Size

__all__ = [
    "Concepts",
    "Records",
    "animals_and_furniture",
    "find",
    "from_scratch",
    "load",
    "path",
    "shuffled",
    "subtree",
]

Concepts = dict[str, Concept]
Records = list[tuple[str, Concept | None]]

DATA = Path(__file__).parent / "nouns.tsv.gz"


def load() -> Concepts:
    """All concepts by id."""
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {node: Concept(name, parent or None) for node, parent, name in rows}


def animals_and_furniture(concepts: Concepts) -> Concepts:
    """A twentieth of them: what lies below 'animal' and 'furniture', and what lies above these two."""
    roots = [find(concepts, "animal", "organism"), find(concepts, "furniture", "furnishing")]
    kept = {node for root in roots for node in [*subtree(concepts, root), *path(concepts, root)]}
    return {node: concept for node, concept in concepts.items() if node in kept}


def shuffled(concepts: Concepts) -> Records:
    """All of them as records, in an order that has nothing to do with the tree."""
    records: Records = list(concepts.items())
    random.Random(1).shuffle(records)
    return records


def from_scratch(concepts: Concepts) -> dict[str, Size]:
    """The expected sizes: every concept counts once for each of its ancestors."""
    counts: Counter[str] = Counter()
    for concept in concepts.values():
        above = concept.parent
        while above is not None and above in concepts:
            counts[above] += 1
            above = concepts[above].parent
    return {node: Size(concepts[node].name, count) for node, count in counts.items()}


def find(concepts: Concepts, name: str, parent: str) -> str:
    """The id of the concept called `name` whose parent is called `parent`."""
    return next(
        node
        for node, concept in concepts.items()
        if concept.name == name and concept.parent and concepts[concept.parent].name == parent
    )


def subtree(concepts: Concepts, root: str) -> list[str]:
    """`root` and all below it, from the top down."""
    children: dict[str, list[str]] = {}
    for node, concept in concepts.items():
        children.setdefault(concept.parent or "", []).append(node)
    found = [root]
    for node in found:
        found += children.get(node, [])
    return found


def path(concepts: Concepts, node: str) -> list[str]:
    """`node` and its ancestors."""
    found: list[str] = []
    above: str | None = node
    while above is not None:
        found.append(above)
        above = concepts[above].parent
    return found


def main() -> None:
    """Print them, for `eddy produce`."""
    lines = (msgspec.json.encode({"key": node, "value": concept}) + b"\n" for node, concept in shuffled(load()))
    sys.stdout.buffer.writelines(lines)


if __name__ == "__main__":
    main()
