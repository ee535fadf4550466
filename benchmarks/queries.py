"""Live queries: what an edit costs from the delta to the patch, beside an honest query again in the same run.

A query again is the least that plain Python needs for the answer: `heapq.nsmallest` over the rows that fit. Each is
timed in CPU seconds of this process, in chunks, of which the median counts: the machine may be busy.
"""

import heapq
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import eddy
from benchmarks.report import Section, Target, number
from eddy.operators.views.patch import Buckets
from eddy.operators.views.values import flat_key
from eddy.topology.queries.engine import LiveQueries
from eddy.topology.queries.nested import nested

__all__ = ["run"]

Row = dict[str, Any]
_CHUNKS, _LIMIT = 15, 100

docs = eddy.live_table("docs", key="id")
notes = eddy.live_table("notes", key="id")
nodes = eddy.live_table("nodes", key="id")
_key = flat_key(["id"])


def run(quick: bool) -> Section:
    """Windows, filters, constants, nests and trees."""
    section = Section(
        "queries: an edit, from the delta to the patch, in one thread; again: the query anew, in plain Python",
        ["query", "edit", "µs", "again µs", "×"],
    )
    sizes = (10_000,) if quick else (10_000, 100_000)
    edits = 200 if quick else 2_000
    sorted_us = {size: _window(section, size, edits) for size in sizes}
    filter_us = _untouched(section, edits)
    by_constant = {count: _constants(section, count, edits) for count in ((100, 1_000) if quick else (100, 10_000))}
    _nests(section, sizes[-1], edits)
    moved = _trees(section)
    small, large = min(by_constant), max(by_constant)
    ten = sorted_us[10_000]
    section.targets = [
        Target(f"top 100 of {sizes[-1]:,} sorted, an edit", 10, "µs", {"": sorted_us[sizes[-1]]["update"][0]}),
        Target("top 100 of 10,000, by the query again", 300, "×",
               {name: again / ours for name, (ours, again) in ten.items()}, at_least=True),
        Target("a change that touches no query, each condition", 2, "µs", {"": filter_us}),
        Target(f"{large:,} queries field = const, by {small}", 1.2, "×", {"": by_constant[large] / by_constant[small]}),
        Target("a subtree of 1,000 nodes that moves", 3, "operations", {"": moved}),
    ]  # fmt: skip
    return section


def _median_us(steps: Sequence[Callable[[], object]]) -> float:
    """The median of chunks' mean CPU time for each step, in microseconds."""
    size = max(1, len(steps) // _CHUNKS)
    found = []
    for begin in range(0, len(steps), size):
        chunk = steps[begin : begin + size]
        begun = time.process_time()
        for step in chunk:
            step()
        found.append((time.process_time() - begun) / len(chunk) * 1e6)
    return statistics.median(found)


class _Live:
    """Queries over tables, each with the copy that its patches make."""

    def __init__(self, tables: dict[str, list[Row]], *queries: eddy.Query) -> None:
        self.engine = LiveQueries()
        for name, rows in tables.items():
            self.engine.load(name, {_key(row): row for row in rows})
        self.views = [self.engine.open(query.syntax) for query in queries]
        self.copies = {view: Buckets() for view in self.views}
        for view, copy in self.copies.items():
            copy.apply(view.operator.snapshot())
        self.ops = 0

    def edit(self, table: str, row: Row, gone: bool = False) -> None:
        for view, ops in self.engine.apply({table: {_key(row): None if gone else row}}):
            self.copies[view].apply(ops)
            self.ops += len(ops)

    def rows(self) -> Any:
        (view,) = self.views
        return nested(self.copies[view].entries, view.shape, view.operator.root.id)


def _window(section: Section, size: int, edits: int) -> dict[str, tuple[float, float]]:
    """The first 100 of sorted documents, a fifth of which do not fit. By kind of edit: µs, and of the query again."""
    draw = random.Random(size)

    def row(number: int) -> Row:
        return {"id": number, "rank": draw.random(), "kind": draw.randrange(5)}

    rows = [row(number) for number in range(size)]
    live = _Live({"docs": rows}, docs.where(docs.kind > 0).order_by(docs.rank).limit(_LIMIT))
    table = {each["id"]: each for each in rows}

    def again() -> list[Row]:
        fits = (each for each in table.values() if each["kind"] > 0)
        return heapq.nsmallest(_LIMIT, fits, key=lambda each: (each["rank"], each["id"]))

    again_us = _median_us([again] * (30 if size <= 10_000 else 15))
    news = {
        "update": [row(draw.randrange(size)) for _ in range(edits)],
        "insert": [row(number) for number in range(size, size + edits)],
    }
    news["delete"] = news["insert"]
    found = {}
    for kind, changed in news.items():
        gone = kind == "delete"
        us = _median_us([lambda each=each, gone=gone: live.edit("docs", each, gone) for each in changed])
        for each in changed:
            if gone:
                del table[each["id"]]
            else:
                table[each["id"]] = each
        if live.rows() != again():
            section.wrong.append(f"top {_LIMIT} of {size:,}: {kind}")
        found[kind] = (us, again_us)
        section.rows.append([f"top {_LIMIT} of {size:,}", kind, number(us), number(again_us), number(again_us / us)])
    section.runs[f"window {size}"] = found
    return found


def _untouched(section: Section, edits: int) -> float:
    """100 different conditions, none of which is true. Returns µs for each."""
    queries = [docs.where(docs.rank > 1_000 + number).limit(_LIMIT) for number in range(100)]
    live = _Live({"docs": [{"id": number, "rank": number % 7} for number in range(1_000)]}, *queries)
    changed = [{"id": number % 1_000, "rank": -number} for number in range(edits)]
    us = _median_us([lambda each=each: live.edit("docs", each) for each in changed])
    if live.ops:
        section.wrong.append("a change that touches no query made a patch")
    section.rows.append(["100 different conditions", "touches none", number(us), "–", "–"])
    section.runs["untouched"] = us
    return us / 100


def _constants(section: Section, count: int, edits: int) -> float:
    """So many queries that differ in the constant of an equality; each edit is of one of them."""
    rows = [{"id": number, "owner": number % count, "rank": 0} for number in range(20_000)]
    live = _Live({"docs": rows}, *(docs.where(docs.owner == owner).limit(_LIMIT) for owner in range(count)))
    draw = random.Random(count)
    changed = [{**rows[draw.randrange(len(rows))], "rank": number} for number in range(1, edits + 1)]
    us = _median_us([lambda each=each: live.edit("docs", each) for each in changed])
    section.rows.append([f"{count:,} queries owner = const", "update", number(us), "–", "–"])
    section.runs[f"constants {count}"] = us
    return us


def _nests(section: Section, size: int, edits: int) -> None:
    """20 documents with their latest 3 notes and the number of them, of so many notes."""
    draw = random.Random(size)

    def note(number: int) -> Row:
        return {"id": number, "doc": draw.randrange(1_000), "at": draw.random()}

    rows = [note(number) for number in range(size)]
    query = (
        docs.order_by(docs.id)
        .limit(20)
        .nest(
            notes=lambda doc: notes.where(notes.doc == doc.id).order_by(-notes.at).limit(3),
            count=lambda doc: notes.where(notes.doc == doc.id).count(),
        )
    )
    live = _Live({"docs": [{"id": number} for number in range(1_000)], "notes": rows}, query)
    table = {each["id"]: each for each in rows}

    def again() -> list[Row]:
        by_doc: dict[int, list[Row]] = {number: [] for number in range(20)}
        for each in table.values():
            if each["doc"] < 20:
                by_doc[each["doc"]].append(each)
        latest = lambda each: (-each["at"], each["id"])  # noqa: E731 - a key
        return [
            {"id": doc, "notes": heapq.nsmallest(3, found, key=latest), "count": len(found)}
            for doc, found in by_doc.items()
        ]

    again_us = _median_us([again] * 15)
    changed = [note(draw.randrange(size)) for _ in range(edits)]
    us = _median_us([lambda each=each: live.edit("notes", each) for each in changed])
    table.update((each["id"], each) for each in changed)
    if live.rows() != again():
        section.wrong.append("nests")
    section.rows.append(
        [f"20 with 3 of {size:,} and a count", "update", number(us), number(again_us), number(again_us / us)]
    )
    section.runs["nests"] = us


def _trees(section: Section) -> int:
    """A subtree of 1,000 nodes goes from one folder to another; and a chain of 1,000. Returns operations of a move."""

    def children(node: Any) -> eddy.Query:
        return nodes.where(nodes.parent == node.id).nest(children=children)

    rows: list[Row] = [{"id": name, "parent": "top" if name != "top" else None} for name in ("top", "one", "two")]
    rows += [{"id": number, "parent": "one" if number == 1 else number // 2} for number in range(1, 1_001)]
    live = _Live({"nodes": rows}, nodes.where(nodes.id == "top").nest(children=children))
    moves = [{"id": 1, "parent": ("two", "one")[number % 2]} for number in range(100)]
    us = _median_us([lambda each=each: live.edit("nodes", each) for each in moves])
    section.rows.append(["a tree of 1,003", "1,000 move", number(us), "–", "–"])
    operations = live.ops // len(moves)
    chain = [{"id": number, "parent": number - 1 if number else None} for number in range(1_001)]
    deep = _Live({"nodes": chain}, nodes.where(nodes.id == 0).nest(children=children))
    flips = [{"id": 1_000, "parent": (998, 999)[number % 2]} for number in range(100)]
    us = _median_us([lambda each=each: deep.edit("nodes", each) for each in flips])
    found, depth = deep.rows(), 0
    while found:
        found, depth = found[0]["children"], depth + 1
    if depth != 1_001:
        section.wrong.append(f"a chain of 1,001 nodes is {depth} deep")
    section.rows.append(["a chain of 1,001", "its end moves", number(us), "–", "–"])
    return operations
