"""The types of results, as type checkers see them: mypy checks this file with the package."""

from dataclasses import dataclass
from typing import Any, assert_type

import eddy


@dataclass
class Issue:
    """A row."""

    id: int


issues = eddy.live_table("issues", key="id")


async def results(tables: eddy.Tables) -> None:
    """Rows are dicts, or of the type that `into` names; one of them or None after `one`."""
    assert_type(tables.read(issues), list[dict[str, Any]])
    assert_type(tables.read(issues.one()), dict[str, Any] | None)
    assert_type(tables.read(issues.where(issues.id == 1).into(Issue).limit(2)), list[Issue])
    assert_type(tables.read(issues.one().into(Issue)), Issue | None)
    assert_type(tables.read(issues.count()), Any)
    with tables.live(issues.into(Issue).where(issues.id == 1).one()) as view:
        assert_type(view.rows, Issue | None)
    async with tables.live(issues.into(Issue)) as view_of_all:
        assert_type(view_of_all.rows, list[Issue])
        async for patch in view_of_all:
            assert_type(patch, eddy.Patch)
