"""Two live pages: WordNet's nouns as a tree in which subtrees move, and permissions that come and go.

    python examples/demo_live.py [PORT]

It runs on embedded logs in memory until Ctrl-C, on this machine alone: WordNet on PORT, 8080 by default, permissions
on the next one.
"""

import itertools
import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parent / "wordnet")]

import permissions
from concepts import load

import eddy
from eddy.serve import endpoint_of, served

PEOPLE = {"ann": "Ann", "bob": "Bob", "cid": "Cid", "staff": "Staff", "press": "Press", "board": "Board"}
INSIDE = [("ann", "staff"), ("bob", "press"), ("cid", "board")]
CYCLE = [("press", "staff"), ("staff", "board"), ("board", "press")]
FOLDERS = {"home": None, "plans": "home", "news": "home", "drafts": "news", "photos": "news"}

nouns = eddy.Topology("wordnet-live")
nouns.table("nouns", key=eddy.String, value=eddy.Json())
table = eddy.live_table("nouns", key="id")
queries = eddy.Queries()


def children(noun):
    return table.where(table.parent == noun.id).order_by(table.name).nest(children=children)


@queries.query
def tree() -> eddy.Query:
    """All nouns, from the most general one."""
    return table.where(table.parent.is_null()).nest(children=children)


class Job:
    """An application on a log in memory: a worker, a table server, and a client that writes."""

    def __init__(self, stack: ExitStack, topology: eddy.Topology, asked: eddy.Queries, port: int) -> None:
        log = eddy.open_log()
        stack.callback(log.close)
        eddy.create_topics(topology, log)
        stack.enter_context(eddy.run(topology, log))
        self.server = stack.enter_context(served(endpoint_of(str(port)), topology, log, queries=asked))
        self._log = log

    def write(self, topic: str, rows: dict) -> dict:
        """Write rows in one transaction; None removes one. Returns the offsets after them, for tables to wait for."""
        return self._log.write(topic, rows, value=eddy.Json())


def grow(job: Job) -> tuple[dict, dict]:
    """Write all nouns. Returns them, and the offsets after them."""
    found = {node: {"name": concept.name, "parent": concept.parent or None} for node, concept in load().items()}
    rows = list(found.items())
    for start in range(0, len(rows), 10_000):
        ends = job.write("nouns", dict(rows[start : start + 10_000]))
    return found, ends


def grant(job: Job) -> None:
    job.write("members", {key: {"name": name} for key, name in PEOPLE.items()})
    job.write("memberships", {f"{one} in {group}": {"member": one, "group": group} for one, group in INSIDE + CYCLE})
    job.write("folders", {key: {"name": key, "parent": parent} for key, parent in FOLDERS.items()})
    job.write("grants", {"staff: news": {"member": "staff", "folder": "news"}})


def main(port: int) -> None:
    with ExitStack() as stack:
        first = Job(stack, nouns, queries, port)
        second = Job(stack, permissions.topology, permissions.queries, port + 1 if port else 0)
        found, ends = grow(first)
        grant(second)
        first.server.tables.wait(ends, exact=True, timeout_s=120)
        print(f"{len(found):,} nouns, of which subtrees move:  http://localhost:{first.server.port}/#/queries/tree?")
        address = f"http://localhost:{second.server.port}/#/queries"
        print(f"who may open a folder, with a grant that comes and goes:  {address}/who_may_open?folder=photos")
        print(f"what Cid may open, through groups in a cycle:  {address}/what_may_open?member=cid", flush=True)
        levels = top_levels(found)
        tops = [node for node, row in found.items() if row["parent"] in levels]
        for turn in itertools.count():
            time.sleep(1.5)
            moved = random.choice(tops)
            other = random.choice([node for node in tops if node != moved and found[node]["parent"] != moved])
            first.write("nouns", {moved: found[moved] | {"parent": other}})
            second.write("grants", {"cid: photos": None if turn % 2 else {"member": "cid", "folder": "photos"}})
            time.sleep(1.5)
            first.write("nouns", {moved: found[moved]})


def top_levels(found: dict) -> set:
    """The root, and the nouns below it."""
    roots = {node for node, row in found.items() if row["parent"] is None}
    return roots | {node for node, row in found.items() if row["parent"] in roots}


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 8080)
    except KeyboardInterrupt:
        print("stopped")
