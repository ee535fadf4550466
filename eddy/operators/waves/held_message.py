"""Makes the message about a recursion's held rows, which depends only on the rows ahead of the recursion's stops."""

from collections.abc import Sequence
from operator import itemgetter

from eddy.operators.batch import Row
from eddy.operators.bound import Bound, columns_of
from eddy.operators.errors.row_sizes import RowSizes
from eddy.operators.path_text import path_text
from eddy.operators.waves.body import Explored
from eddy.operators.waves.explorer import Explorer
from eddy.operators.waves.survey import Survey, cycle_among, way_around

__all__ = ["ADVICE", "held_message"]

ADVICE = "Mend the data, or bound the recursion: recursively(..., max_depth=16)"
_DEEPER = ", or raise limit= if paths return to a key that often"
_WIDER = ", or raise max_row_bytes if rows may be that large"


def held_message(
    name: str,
    bound: Bound,
    found: Survey,
    stops: Sequence[Row],
    explore: Explorer,
    sizes: RowSizes,
) -> str:
    """Return the message that says why rows ahead of `stops` have no finite answer; empty if they have one.

    Of several cycles it names the first one in the order of the rows' bytes.
    """
    order = sizes.order
    part = columns_of if bound.words else itemgetter(0)
    if found.endless is None:
        if not found.cyclic:
            return ""
        path = cycle_among(found, order)
        why = f"the path {path_text(map(part, path))} came around"
        return _message(name, bound, path[0], why, "the keys that it reaches have no row", "")
    rows, unwritten = found.endless
    makers: list[Row] = []

    def bounded(row: Row) -> Explored:
        refusal = sizes.refused(row)
        if refusal and sizes.is_huge(row):
            return Explored([], [], [])
        try:
            explored = explore(row)
        except Exception:
            if not refusal:
                raise
            return Explored([], [], [])
        makers.extend(row for child in explored.rows if sizes.refused(child))
        return explored

    way = way_around(bounded, sorted(stops, key=order), order)
    first: Row | None = None
    more = _DEEPER
    if way:
        first, why = (
            way[0].row,
            f"the path {path_text(stage.label for stage in way)} returns to its key with ever new rows",
        )
    elif unwritten:
        first = min(makers, key=order) if makers else rows[-1]
        refusals = sorted(filter(None, map(sizes.refused, explore(first).rows)))
        why = f"it makes a row that cannot be written, since {[*refusals, unwritten][0]}"
        more = _WIDER if "max_row_bytes" in why else ""
    else:
        why = "it makes new rows without end"
    return _message(name, bound, first, why, "the recursion has no rows downstream", more)


def _message(name: str, bound: Bound, row: Row | None, why: str, held: str, more: str) -> str:
    subject = bound.where(name) if row is None else bound.subject(name, row)
    return f"{subject}: {why}, so that there is no finite answer; {held} until the data is mended. " + bound.advice(
        ADVICE + more
    )
