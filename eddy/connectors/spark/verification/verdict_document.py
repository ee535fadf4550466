"""The verdict of a verification as a document for programs: one JSON object, with the reasons of its status.

Numbers are JSON integers of any size: an offset beyond 2^53 is exact in the document, and a program has to read it as
an integer. Keys and values are text, as in the lines for people. Later releases may add fields and remove none.
"""

from collections.abc import Iterator

import msgspec

from eddy.connectors.spark.verification.disk_verdict import DiskVerdict
from eddy.connectors.spark.verification.verdict import Compared, Example, Verdict
from eddy.runtime.quiescence import Cut

__all__ = ["VerdictDocument", "disk_document", "document_of", "failure_document"]

_SHARED = ("functions", "serdes", "plan", "sql-parser", "sql-columns")
"""The code that a verification always shares with the worker."""


class _Cut(msgspec.Struct, frozen=True):
    """Offsets by topic, one for each partition; `lag` has the offsets of inputs since the cut, by topic."""

    inputs: dict[str, list[int]]
    outputs: dict[str, list[int]]
    age_s: float | None
    lag: dict[str, int]


class _Sample(msgspec.Struct, frozen=True):
    """A row that differs. `expected` or `found` is None if there is no such row."""

    key: str
    expected: str | None
    found: str | None
    remark: str


class _Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """The comparison of a sink or a store: `differing` is the sum of `missing`, `extra` and `different`.

    `directory` is set for a store on disk.
    """

    kind: str
    name: str
    rows: int
    differing: int
    missing: int
    extra: int
    different: int
    misplaced: int
    near: int
    moved: int
    samples: list[_Sample]
    directory: str | None = None


class _Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part, and the reason why it could not be decided.

    The part is a step, a sink, a store, a topic's files, or the cut or the files of the application.
    """

    kind: str
    name: str
    reason: str
    directory: str | None = None


class _Repair(msgspec.Struct, frozen=True):
    """The number of corrections by topic, or the reason why none was written."""

    written: dict[str, int]
    refused: str | None


class _Error(msgspec.Struct, frozen=True):
    """An error in place of a verdict: its stable code, and its message."""

    code: str
    message: str


class VerdictDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict: `equal`, `different` or `undetermined`, and the exit status.

    `computed_by` is `spark`, `operators` with `quick`, or `changelogs` for stores on disk; `shared` names the code that
    the computation shares with the worker. A document with an `error` has no cut, and compares nothing.

    Invariant: an `undetermined` verdict has a reason in `undetermined`, or an `error`.
    """

    application: str | None
    verdict: str
    status: int
    computed_by: str | None = None
    shared: list[str] = []
    cut: _Cut | None = None
    tolerance: float | None = None
    compared: list[_Part] = []
    undetermined: list[_Reason] = []
    accepted: list[_Reason] = []
    notes: list[_Reason] = []
    rejected_records: int = 0
    mismatches: str | None = None
    repair: _Repair | None = None
    error: _Error | None = None

    def encode(self) -> str:
        """Encode the document as JSON, in one line."""
        return msgspec.json.encode(self).decode()


def document_of(verdict: Verdict) -> VerdictDocument:
    """Make the document of a verdict."""
    repaired = verdict.repaired
    return VerdictDocument(
        application=verdict.application,
        verdict="undetermined" if verdict.word == "could not tell" else verdict.word,
        status=verdict.status,
        computed_by="operators" if verdict.quick else "spark",
        shared=[*_SHARED, *(["operators"] if verdict.quick else [])],
        cut=_cut(verdict.cut, verdict),
        tolerance=verdict.tolerance,
        compared=[_part(part) for part in verdict.compared],
        undetermined=list(_reasons(verdict)),
        accepted=[_reason(what, why) for what, why in verdict.accepted.items()],
        notes=[_reason(what, why) for what, why in verdict.notes.items()],
        rejected_records=verdict.left_out,
        mismatches=verdict.mismatches,
        repair=None if repaired is None else _Repair(dict(repaired.written), repaired.refused or None),
    )


def disk_document(verdict: DiskVerdict) -> VerdictDocument:
    """Make the document of a comparison of stores on disk; it has no cut."""
    return VerdictDocument(
        application=verdict.application,
        verdict="undetermined" if verdict.word == "could not tell" else verdict.word,
        status=verdict.status,
        computed_by="changelogs",
        shared=["serdes", "plan"],
        compared=[_part(part, str(store.path)) for store in verdict.stores for part in store.compared],
        undetermined=[_reason(*why, str(store.path)) for store in verdict.stores for why in store.reasons()],
        notes=[_reason(*why, str(store.path)) for store in verdict.stores for why in store.notes.items()],
    )


def failure_document(application: str | None, status: int, code: str, message: str) -> VerdictDocument:
    """Make the document of a verification that an error has ended."""
    error = _Error(code, message)
    return VerdictDocument(application=application, verdict="undetermined", status=status, error=error)


def _cut(cut: Cut, verdict: Verdict) -> _Cut:
    since = verdict.since
    age_s = None if since is None or since.age_s is None else round(max(since.age_s, 0.0), 3)
    return _Cut(cut.inputs, cut.outputs, age_s, {} if since is None else dict(since.waiting))


def _part(part: Compared, directory: str | None = None) -> _Part:
    return _Part(
        part.what,
        part.name,
        part.keys,
        part.differing,
        part.missing,
        part.extra,
        part.differing - part.missing - part.extra,
        part.misplaced,
        part.near,
        part.moved,
        [_sample(example) for example in part.examples],
        directory,
    )


def _sample(example: Example) -> _Sample:
    found = example.found.removesuffix(example.remark)
    return _Sample(
        example.key,
        example.expected if example.is_expected else None,
        found if example.is_found else None,
        example.remark.removeprefix(",").strip(),
    )


def _reasons(verdict: Verdict) -> Iterator[_Reason]:
    """Yield the reasons why parts, or the whole, could not be decided."""
    yield from (_reason(what, why) for what, why in verdict.undetermined.items())
    if verdict.since is not None and verdict.since.stale and not verdict.differs:
        yield _Reason("cut", verdict.application, verdict.since.text)
    for part in verdict.compared:
        if part.moved:
            yield _Reason(part.what, part.name, f"{part.moved} keys changed since the cut and were not compared")
    if verdict.differs:
        yield from (_Reason("files", verdict.application, why) for why in verdict.other_files)
        yield from (_Reason("topic", topic, why) for topic, why in verdict.compacted.items())


def _reason(what: str, why: str, directory: str | None = None) -> _Reason:
    """Make the reason of a part; `what` is the part as  kind 'name'."""
    kind, _, name = what.partition(" ")
    return _Reason(kind, name[1:-1], why, directory)
