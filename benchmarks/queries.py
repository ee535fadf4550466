"""Live queries: what an edit costs from the delta to the patch, beside an honest query again in the same run.

A query again is the least that plain Python needs for the answer: `heapq.nsmallest` over the rows that fit. Each is
timed in CPU seconds of this process, in chunks, of which the median counts: the machine may be busy.
"""

import heapq
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import eddy
from benchmarks.event_reduce import NOT_RUN, run_edits
from benchmarks.report import Section, Target, mebibytes, number
from benchmarks.sockets import measure
from eddy.live.dataflow.patch import Buckets, Insert
from eddy.live.dataflow.values import flat_key
from eddy.live.query.engine import LiveQueries
from eddy.live.query.nested import nested

__all__ = ["run"]

Row = dict[str, Any]
_CHUNKS, _LIMIT = 15, 100
_SOCKETS = ((10_000, 20, 5), (10_000, 1_000, 5))
"""Queries, streams, seconds."""

docs = eddy.live_table("docs", key="id")
notes = eddy.live_table("notes", key="id")
nodes = eddy.live_table("nodes", key="id")
_key = flat_key(["id"])


def run(quick: bool) -> Section:
    """Windows, filters, constants, nests and trees."""
    section = Section(
        "queries: an edit, from the delta to the patch, in one thread; again: the query anew, in plain Python",
        ["query", "edit", "µs", "again µs", "×", "event-reduce µs", "×", "its re-queries"],
    )
    sizes = (10_000,) if quick else (10_000, 100_000)
    edits = 200 if quick else 2_000
    windows = {size: _window(section, size, edits) for size in sizes}
    first = _first_rows(section, sizes[-1], edits)
    filter_us = _untouched(section, edits)
    rows, counts = (20_000, (100, 1_000)) if quick else (200_000, (100, 100_000))
    slower = _constants(section, counts, rows, max(edits, 1_500))
    _nests(section, sizes[-1], edits)
    moved = _trees(section)
    late_ms = {
        count: _every_second(section, count, 2 if quick else 5) for count in ((1_000,) if quick else (10_000, 20_000))
    }
    _memory(section, 100_000 if quick else 1_000_000)
    _on_disk(section, 20_000 if quick else 1_000_000)
    late, moved_ms = _queue(section, 20_000 if quick else 1_000_000, 3 if quick else 60), _skips(section, quick)
    sockets = [_sockets(section, *case) for case in (((1_000, 10, 3),) if quick else _SOCKETS)]
    ten, most = windows[10_000], windows[sizes[-1]]
    section.targets = [
        Target(f"top 100 of {sizes[-1]:,} sorted, an edit", 10, "µs", {kind: us for kind, (us, _) in most.items()}),
        Target("the same, of which the first rows are in memory", 10, "µs", first),
        Target("top 100 of 10,000, by the query again for each edit", 300, "×",
               {kind: again / us for kind, (us, again) in ten.items()}, at_least=True),
        Target("a change that touches no query, each condition", 2, "µs", {"": filter_us}),
        Target(f"{counts[1]:,} queries field = const, by {counts[0]}", 1.2, "×", {"": slower}),
        Target(f"{min(late_ms):,} queries, each changing every second, on one core, p99 to the patch", 100, "ms",
               {"": late_ms[min(late_ms)]}),
        Target("the same over sockets, by the clock, p99 to the client", 100, "ms", dict(sockets)),
        Target("the head of a queue, 1,000 taken a second, p99 to the patch", 50, "ms", {"": late}),
        Target("a window moved to another place of 100,000 rows", 1, "ms", {"": moved_ms}),
        Target("a subtree of 1,000 nodes that moves", 3, "operations", {"": moved}),
    ]  # fmt: skip
    return section


def _memory(section: Section, size: int) -> None:
    """The memory of a table server that shows the first 100 of so many sorted rows, which are in its store."""
    with tempfile.TemporaryDirectory() as folder:
        for mode, meaning in (("store", "the window keeps its rows and a slack"), ("memory", "the table in memory")):
            command = [sys.executable, "-m", "benchmarks.systems.live_memory", f"{folder}/store", str(size), mode]
            if mode == "store":  # which fills it, in a process of its own
                subprocess.run(command, check=True, capture_output=True, text=True)
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            if not found["right"]:
                section.wrong.append(f"the first 100 of {size:,} in the store: {mode}")
            before, after = mebibytes(found["before"]), mebibytes(found["after"])
            section.notes.append(
                f"first 100 of {size:,} rows in the store, {meaning}: resident {before} MiB before, {after} MiB with "
                f"the query, which began in {found['seconds']:.1f} s"
            )


def _on_disk(section: Section, size: int) -> None:
    """Memory and edits of queries over tables that are in memory, and on disk."""
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-m", "benchmarks.systems.live_nests", folder, str(size)]
        # The tables are filled in a process of its own.
        subprocess.run([*program, "memory", "nest"], check=True, capture_output=True, text=True)
        for name in ("nest", "exists", "aggregate"):
            answers = []
            for mode in ("memory", "disk"):
                command = [*program, mode, name]
                found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                answers.append(found["rows"])
                section.notes.append(
                    f"{name} over {size:,} children of {size // 10:,} parents, the first 100 shown, tables in {mode}: "
                    f"resident {mebibytes(found['before'])} MiB before, {mebibytes(found['edited'])} MiB with the "
                    f"query, which began in {found['seconds']:.1f} s; an edit of any child {found['edit_us']:.0f} µs, "
                    f"of one that is shown {found['shown_us']:.0f} µs"
                )
            if answers[0] != answers[1]:
                section.wrong.append(f"{name} over tables on disk")


def _queue(section: Section, size: int, seconds: int) -> float:
    """The head of a queue of so many rows. Returns the p99 in ms, by the clock, of a row that is taken."""
    found = _live_queue(section, size, "queue", seconds)
    section.notes.append(
        f"first 100 of {size:,} rows in the store, 1,000 taken a second for {seconds} s: patches after "
        f"{number(found['p50_ms'])} ms, p99 {number(found['p99_ms'])}, most {number(found['max_ms'])}, by the clock; "
        f"unknown {found['unknown']:.0%} of the time; {found['cores']:.0%} of a core; {mebibytes(found['memory'])} MiB"
    )
    return float(found["p99_ms"])


def _skips(section: Section, quick: bool) -> float:
    """A window that moves to random places. Returns the median of its moves in ms of processor time."""
    size, moves = (20_000, 20) if quick else (100_000, 1_000)
    found = _live_queue(section, size, "skip", moves)
    section.notes.append(
        f"first 100 of {size:,} rows in the store, moved to {moves:,} places: the first after "
        f"{number(found['first_ms'])} ms, others after {number(found['p50_ms'])} ms, most {number(found['max_ms'])}, "
        f"of processor time; {mebibytes(found['memory'])} MiB"
    )
    return float(found["p50_ms"])


def _live_queue(section: Section, size: int, mode: str, amount: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-m", "benchmarks.systems.live_queue", f"{folder}/store", str(size), mode]
        found = json.loads(subprocess.run([*program, str(amount)], check=True, capture_output=True, text=True).stdout)
    if not found["right"]:
        section.wrong.append(f"a window over {size:,} rows in the store: {mode}")
    section.runs[f"{mode} {size}"] = found
    return found


def _median_us(steps: Sequence[Callable[[], object]]) -> float:
    """The median of chunks' mean CPU time for each step, in microseconds."""
    return statistics.median(_chunk_us(chunk) for chunk in _chunks(steps))


def _chunks(steps: Sequence[Callable[[], object]]) -> list[Sequence[Callable[[], object]]]:
    size = max(1, len(steps) // _CHUNKS)
    return [steps[begin : begin + size] for begin in range(0, len(steps), size)]


def _chunk_us(chunk: Sequence[Callable[[], object]]) -> float:
    begun = time.process_time()
    for step in chunk:
        step()
    return (time.process_time() - begun) / len(chunk) * 1e6


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

    def edit(self, table: str, row: Row) -> None:
        self.take(table, [("UPDATE", row)])

    def take(self, table: str, edits: "Sequence[Edit]") -> None:
        """One batch."""
        delta = {_key(row): None if op == "DELETE" else row for op, row in edits}
        for view, ops in self.engine.apply({table: delta}):
            self.copies[view].apply(ops)
            self.ops += len(ops)

    def rows(self) -> Any:
        (view,) = self.views
        return nested(self.copies[view].entries, view.shape, view.operator.root.id)


Edit = tuple[str, Row]


def _window(section: Section, size: int, edits: int) -> dict[str, tuple[float, float]]:
    """The first 100 of sorted documents, a fifth of which do not fit. By kind of edit: µs, and of the query again."""
    draw = random.Random(size)

    def row(number: int, highest: float = 1.0) -> Row:
        return {"id": number, "rank": draw.random() * highest, "kind": draw.randrange(5)}

    rows = [row(number) for number in range(size)]
    live = _Live({"docs": rows}, docs.where(docs.kind > 0).order_by(docs.rank).limit(_LIMIT))
    table = {each["id"]: each for each in rows}

    def again() -> list[Row]:
        fits = (each for each in table.values() if each["kind"] > 0)
        return heapq.nsmallest(_LIMIT, fits, key=lambda each: (each["rank"], each["id"]))

    again_us = _median_us([again] * (30 if size <= 10_000 else 15))
    first = [each["id"] for each in sorted(rows, key=lambda each: each["rank"])[: 2 * _LIMIT]]
    inserts = [("INSERT", row(number)) for number in range(size, size + edits)]
    kinds: dict[str, list[Edit]] = {
        "update": [("UPDATE", row(draw.randrange(size))) for _ in range(edits)],
        "insert": inserts,
        "delete": [("DELETE", each) for _, each in inserts],
        "update, 100 at once": [("UPDATE", row(draw.randrange(size))) for _ in range(max(edits, 1_500))],
        "update of the first 200": [("UPDATE", row(draw.choice(first), 2 * _LIMIT / size)) for _ in range(edits)],
    }
    peer = run_edits(rows, kinds, _LIMIT)
    found = {}
    for kind, changed in kinds.items():
        us = _edit_us(live, changed, 100 if "at once" in kind else 1)
        for op, each in changed:
            if op == "DELETE":
                del table[each["id"]]
            else:
                table[each["id"]] = each
        right = again()
        if live.rows() != right or (peer is not None and peer[kind]["ids"] != [each["id"] for each in right]):
            section.wrong.append(f"top {_LIMIT} of {size:,}: {kind}")
        found[kind] = (us, again_us)
        beside = [NOT_RUN, "–", "–"]
        if peer is not None:
            theirs = peer[kind]["us"]
            beside = [number(theirs), number(us / theirs), f"{peer[kind]['requeries'] / len(changed):.1%}"]
        section.rows.append(
            [f"top {_LIMIT} of {size:,}", kind, number(us), number(again_us), number(again_us / us), *beside]
        )
    section.runs[f"window {size}"] = {"eddy": found, "event-reduce": peer}
    return found


def _first_rows(section: Section, size: int, edits: int) -> dict[str, float]:
    """The same window as a table server keeps it of a large table, that is, of the first rows alone: µs by kind.

    A view is opened anew from the table where its rows have become few: that is part of the chunk in which it happens,
    and of the mean, which is given beside.
    """
    draw = random.Random(size)

    def row(number: int, highest: float = 1.0) -> Row:
        return {"id": number, "rank": draw.random() * highest, "kind": draw.randrange(5)}

    table = {_key(each): each for each in map(row, range(size))}
    engine = LiveQueries()
    engine.load_passing("docs", table.items, "docs")
    query = docs.where(docs.kind > 0).order_by(docs.rank).limit(_LIMIT).syntax
    views, anew = [engine.open(query)], 0

    def take(each: Row) -> None:
        nonlocal anew
        key = _key(each)
        table[key] = each
        engine.apply({"docs": {key: each}})
        if engine.spent:
            views.append(engine.open(query))
            views.pop(0).operator.close()
            anew += 1

    first = [each["id"] for each in sorted(table.values(), key=lambda each: each["rank"])[: 2 * _LIMIT]]
    kinds = {
        "update": [row(draw.randrange(size)) for _ in range(edits)],
        "update of the first 200": [row(draw.choice(first), 2 * _LIMIT / size) for _ in range(edits)],
    }
    found = {}
    for kind, changed in kinds.items():
        anew, begun = 0, time.process_time()
        us = found[kind] = _median_us([lambda each=each: take(each) for each in changed])
        mean_us = (time.process_time() - begun) / len(changed) * 1e6
        section.rows.append([f"top {_LIMIT} of {size:,}, first rows", kind, number(us), *["–"] * 5])
        section.notes.append(
            f"of {size:,}, first rows, {kind}: {number(mean_us)} µs on average; opened anew {anew} times in "
            f"{len(changed):,} edits"
        )
        shown = [each for each in table.values() if each["kind"] > 0]
        right = heapq.nsmallest(_LIMIT, shown, key=lambda each: (each["rank"], each["id"]))
        if [op.row for op in views[0].operator.snapshot() if isinstance(op, Insert)] != right:
            section.wrong.append(f"top {_LIMIT} of {size:,}, first rows: {kind}")
    section.runs["first rows"] = found
    return found


def _edit_us(live: "_Live", edits: Sequence[Edit], at_once: int) -> float:
    """Microseconds for each edit, in batches of so many."""
    batches = [edits[begin : begin + at_once] for begin in range(0, len(edits), at_once)]
    return _median_us([lambda batch=batch: live.take("docs", batch) for batch in batches]) / at_once


def _untouched(section: Section, edits: int) -> float:
    """100 different conditions, none of which is true. Returns µs for each."""
    queries = [docs.where(docs.rank > 1_000 + number).limit(_LIMIT) for number in range(100)]
    live = _Live({"docs": [{"id": number, "rank": number % 7} for number in range(1_000)]}, *queries)
    changed = [{"id": number % 1_000, "rank": -number} for number in range(edits)]
    us = _median_us([lambda each=each: live.edit("docs", each) for each in changed])
    if live.ops:
        section.wrong.append("a change that touches no query made a patch")
    section.rows.append(["100 different conditions", "touches none", number(us), *["–"] * 5])
    section.runs["untouched"] = us
    return us / 100


def _constants(section: Section, counts: tuple[int, int], size: int, edits: int) -> float:
    """Few and many queries that differ in the constant of an equality, over so many rows; each edit is shown by one.

    They take turns, chunk by chunk, as the machine is not equally fast at all times; the first chunk does not count.
    Returns the median of the chunks' ratios: of many by few.
    """
    taken: dict[int, list[float]] = {}
    lives = {count: _constant(count, size) for count in counts}
    steps = {count: _chunks(_constant_edits(live, count, size, edits)) for count, live in lives.items()}
    for chunks in zip(*steps.values(), strict=True):
        for count, chunk in zip(counts, chunks, strict=True):
            taken.setdefault(count, []).append(_chunk_us(chunk))
    for count, live in lives.items():
        if live.ops != edits:
            section.wrong.append(f"{count:,} queries owner = const: {live.ops:,} operations")
        us = section.runs[f"constants {count}"] = statistics.median(taken[count][1:])
        section.rows.append([f"{count:,} queries owner = const", "update", number(us), *["–"] * 5])
    few, many = (taken[count][1:] for count in counts)
    return statistics.median(more / less for more, less in zip(many, few, strict=True))


def _constant(count: int, size: int) -> "_Live":
    rows = [{"id": number, "owner": number % count, "rank": 0} for number in range(size)]
    return _Live({"docs": rows}, *(docs.where(docs.owner == owner) for owner in range(count)))


def _constant_edits(live: "_Live", count: int, size: int, edits: int) -> list[Callable[[], object]]:
    draw = random.Random(count)
    ids = [draw.randrange(size) for _ in range(edits)]
    changed = [{"id": id_, "owner": id_ % count, "rank": rank} for rank, id_ in enumerate(ids, 1)]
    return [lambda each=each: live.edit("docs", each) for each in changed]  # type: ignore[misc]


def _sockets(section: Section, queries: int, streams: int, seconds: int) -> tuple[str, float]:
    """The same over HTTP: the name of the case, and the p99 in ms, from before the record is written, by the clock."""
    name = f"{queries:,} queries on {streams:,} streams"
    found = measure(queries, streams, seconds)
    p50_ms, p99_ms = found.quantile_ms(50), found.quantile_ms(99)
    section.rows.append([f"{name}, sockets", "each every second", number(found.cores / queries * 1e6), *["–"] * 5])
    section.notes.append(
        f"{name}, each changing every second: {found.cores:.0%} of a core for the server with its log, p50 "
        f"{number(p50_ms)} ms, p99 {number(p99_ms)} ms by the clock; {found.missing:,} changes came with later ones; "
        f"all were open after {number(found.opened_s)} s"
    )
    section.runs[f"sockets {queries} {streams}"] = {
        "p50_ms": p50_ms,
        "p99_ms": p99_ms,
        "cores": found.cores,
        "missing": found.missing,
    }
    return name, p99_ms


def _every_second(section: Section, count: int, seconds: int) -> float:
    """So many queries, of which each changes once a second, at even times. Returns the p99 to the patch in ms.

    The clock is the processor time of this process: it goes on while a batch is worked on, and to the next change when
    there is nothing to do. A batch is all that has come meanwhile.
    """
    rows = [{"id": number, "owner": number, "rank": 0} for number in range(count)]
    live = _Live({"docs": rows}, *(docs.where(docs.owner == owner).limit(_LIMIT) for owner in range(count)))
    clock, done, late, used, shown = 0.0, 0, [], 0.0, 0
    while done < count * seconds:
        clock = max(clock, done / count)
        stop = min(count * seconds, int(clock * count) + 1)
        batch = [("UPDATE", rows[at % count] | {"rank": at + 1}) for at in range(done, stop)]
        begun = time.process_time()
        live.take("docs", batch)
        took = time.process_time() - begun
        clock, used, shown = clock + took, used + took, shown + min(stop - done, count)
        late += [clock - at / count for at in range(done, stop)]
        done = stop
    if live.ops != shown:
        section.wrong.append(f"{count:,} queries that change every second made {live.ops:,} changes")
    p99_ms = statistics.quantiles(late, n=100)[98] * 1e3
    section.rows.append([f"{count:,} queries", "each every second", number(used / len(late) * 1e6), *["–"] * 5])
    section.notes.append(
        f"{count:,} queries, each changing every second: {used / seconds:.0%} of a core, p99 {p99_ms:.2f} ms"
    )
    section.runs[f"every second {count}"] = {"p99_ms": p99_ms, "cores": used / seconds}
    return p99_ms


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
        [
            f"20 with 3 of {size:,} and a count",
            "update",
            number(us),
            number(again_us),
            number(again_us / us),
            *["–"] * 3,
        ]
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
    section.rows.append(["a tree of 1,003", "1,000 move", number(us), *["–"] * 5])
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
    section.rows.append(["a chain of 1,001", "its end moves", number(us), *["–"] * 5])
    return operations
