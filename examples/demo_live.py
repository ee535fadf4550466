"""Two live pages: WordNet's nouns as a tree in which subtrees move (`live_nouns.py`), and permissions that come and go.

    python examples/demo_live.py [PORT]

It runs on embedded logs in memory until Ctrl-C, on this machine alone: WordNet on PORT, 8080 by default, permissions
on the next one.
"""

import random
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parent / "wordnet")]

import live_nouns
import permissions
from concepts import load

import eddy
from eddy.serve import endpoint_of, served

PEOPLE = {"ann": "Ann", "bob": "Bob", "cid": "Cid", "staff": "Staff", "press": "Press", "board": "Board"}
INSIDE = [("ann", "staff"), ("bob", "press"), ("cid", "board")]
CYCLE = [("press", "staff"), ("staff", "board"), ("board", "press")]
FOLDERS = {"home": None, "plans": "home", "news": "home", "drafts": "news", "photos": "news"}
MOVERS = 6
"""The number of nouns that move."""


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
        first = Job(stack, live_nouns.topology, live_nouns.queries, port)
        second = Job(stack, permissions.topology, permissions.queries, port + 1 if port else 0)
        found, ends = grow(first)
        grant(second)
        first.server.tables.wait(ends, exact=True, timeout_s=120)
        moves = moves_of(found)
        first.write("nouns", next(moves))
        address = f"http://localhost:{first.server.port}/#/queries"
        print(f"the nouns that move most often, of {len(found):,}:  {address}/fastest?open-levels=1")
        print(f"the tree of all of them:  {address}/tree?open-levels=2")
        address = f"http://localhost:{second.server.port}/#/queries"
        print(f"who may open a folder, with a grant that comes and goes:  {address}/who_may_open?folder=photos")
        print(f"what Cid may open, through groups in a cycle:  {address}/what_may_open?member=cid", flush=True)
        for turn, moved in enumerate(moves):
            time.sleep(1.5)
            first.write("nouns", moved)
            if turn % 2:
                grant_now = None if turn % 4 == 1 else {"member": "cid", "folder": "photos"}
                second.write("grants", {"cid: photos": grant_now})


def moves_of(found: dict) -> Iterator[dict]:
    """Endless records, each of which moves a noun below another one, or back. Some move more often."""
    levels = top_levels(found)
    movers = [node for node, row in found.items() if row["parent"] in levels][:MOVERS]
    draw = random.Random(7)
    while True:
        (moved,) = draw.choices(movers, [2**place for place in range(len(movers))])
        other = draw.choice([node for node in movers if node != moved])
        yield {moved: found[moved] | {"parent": other}}
        yield {moved: found[moved]}


def top_levels(found: dict) -> set:
    """The roots, and the nouns below them."""
    roots = {node for node, row in found.items() if row["parent"] is None}
    return roots | {node for node, row in found.items() if row["parent"] in roots}


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 8080)
    except KeyboardInterrupt:
        print("stopped")
