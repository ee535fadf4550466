"""A verdict as a document: exact numbers, and a reason wherever it is undetermined."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from eddy.connectors.spark.verification.verdict import Compared, Example, Repaired, Since, Verdict
from eddy.connectors.spark.verification.verdict_document import document_of
from eddy.runtime.quiescence import Cut

BEYOND_FLOATS = 2**53 + 1
CUT = Cut({"nodes": [BEYOND_FLOATS]}, {"out": [3]})
EQUAL = Compared("sink", "out", 4, 0, 0, [])
WRONG = Compared("sink", "out", 4, 1, 0, [Example("'a'", "1", "nothing", is_found=False)], missing=1)
MOVED = Compared("sink", "out", 4, 0, 2, [])


def verdict(*compared: Compared, **fields: Any) -> Verdict:
    return Verdict("family", CUT, list(compared), **{"undetermined": {}, "notes": {}, "left_out": 0, **fields})


def document(of: Verdict) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(document_of(of).encode())
    return read


def test_integers_that_no_float_holds_are_exact() -> None:
    found = document(verdict(EQUAL, since=Since(1.25, {"nodes": BEYOND_FLOATS})))
    assert found["cut"] == {
        "inputs": {"nodes": [BEYOND_FLOATS]},
        "outputs": {"out": [3]},
        "age_s": 1.25,
        "lag": {"nodes": BEYOND_FLOATS},
    }


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (verdict(EQUAL, undetermined={"step 'who'": "why"}), {"kind": "step", "name": "who", "reason": "why"}),
        (
            verdict(EQUAL, since=Since(9.0, {"nodes": 5}, 1.0)),
            {
                "kind": "cut",
                "name": "family",
                "reason": "the cut is 9 s old; up to 5 records have arrived since, and are not compared (nodes 5)",
            },
        ),
        (
            verdict(MOVED),
            {"kind": "sink", "name": "out", "reason": "2 keys changed since the cut and were not compared"},
        ),
        (verdict(WRONG, other_files=["others"]), {"kind": "files", "name": "family", "reason": "others"}),
    ],
    ids=["step", "stale", "moved", "files"],
)
def test_an_undetermined_verdict_has_a_reason(of: Verdict, reason: dict[str, str]) -> None:
    found = document(of)
    assert (found["verdict"], found["status"], found["undetermined"]) == ("undetermined", 2, [reason])


def test_a_difference_that_was_not_repaired_is_different_with_the_status_of_the_repair() -> None:
    found = document(verdict(WRONG, repaired=Repaired(refused="no table differs")))
    assert (found["verdict"], found["status"]) == ("different", 2)
    assert found["repair"] == {"written": {}, "refused": "no table differs"}
    (part,) = found["compared"]
    assert (part["differing"], part["missing"], part["extra"], part["different"]) == (1, 1, 0, 0)
    assert part["samples"] == [{"key": "'a'", "expected": "1", "found": None, "remark": ""}]


def test_notes_name_their_part() -> None:
    found = document(verdict(EQUAL, notes={"store 'it''s'": "not compared"}))
    assert found["notes"] == [{"kind": "store", "name": "it''s", "reason": "not compared"}]


def test_the_document_of_the_docs_has_all_fields() -> None:
    """Of the document, the cut, the parts and the samples."""
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    shown = re.search(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shown
    (documented, found) = (json.loads(shown[1]), document(verdict(WRONG)))
    assert list(documented) == list(found)
    assert list(documented["cut"]) == list(found["cut"])
    (one, other) = (of["compared"][0] for of in (documented, found))
    assert list(one) == list(other)
    assert list(one["samples"][0]) == list(other["samples"][0])
    assert documented["shared"] == found["shared"]
