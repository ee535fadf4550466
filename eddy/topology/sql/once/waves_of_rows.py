"""WITH RECURSIVE over whole tables, by semi-naive waves: the step is applied to the rows of the last wave only.

    UNION       F(n+1) = step(F(n)) without the rows of earlier waves,   X = all rows, each once
    UNION ALL   F(n+1) = step(F(n)),                                     X = the sum of the weights of all F(n)

The step is linear, and weights are above 0. If there are signs that the waves may not end, the statement is left to the
circuit, which searches for a cycle or an endless path and names it. The signs are rows that occur again after many
waves, very many waves, very many rows, and long texts.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from eddy.topology.sql.once.row_function import WholeTable

__all__ = ["MOST_ROWS", "MOST_WAVES", "UndecidedError", "bag_of_waves", "set_of_waves"]

MOST_WAVES = 9_999
"""The number of waves after which the circuit computes the query, because it can find out whether waves end."""
_FIRST_LOOK = 64
"""The wave at which rows of UNION ALL are first compared with earlier rows; the next are 128, 256, …"""
MOST_ROWS, _GROWN = 1_000_000, 16
"""If the rows of UNION ALL exceed this number, and this multiple of the seed, the waves may fill the memory."""
_GLANCE, _LONG = 8, 10_000
"""The number of waves between two checks of texts, and the number of characters of a text that may be growing."""


class UndecidedError(Exception):
    """Raised if the waves of a recursion may not end; then the circuit has to answer the statement."""


def set_of_waves(
    seed: Iterable[Any],
    frontier: WholeTable,
    step: Callable[[set[Any]], list[Any]],
    texts: Sequence[int],
    *,
    ends: bool,
) -> set[Any]:
    """Return the rows of UNION. `step` returns the new rows made from `frontier`, and adds them to its argument.

    `ends` says that the waves end, however many there are. `texts` has the columns of texts. Raises: UndecidedError.
    """
    found = set(seed)
    frontier.rows = list(found)
    wave = 0
    while frontier.rows:
        wave += 1
        if wave == MOST_WAVES and not ends:
            raise UndecidedError
        if texts and wave % _GLANCE == 0:
            _check_texts(frontier.rows, texts)
        frontier.rows = step(found)
    return found


def bag_of_waves(
    seed: dict[Any, int], frontier: WholeTable, step: Callable[[], dict[Any, int]], texts: Sequence[int]
) -> dict[Any, int]:
    """Return the rows of UNION ALL with weights. `step` makes rows from `frontier`. Raises: UndecidedError."""
    found: dict[Any, int] = {}
    most = max(MOST_ROWS, _GROWN * len(seed))
    made, wave, look = seed, 0, _FIRST_LOOK
    while made:
        again = wave == look and not found.keys().isdisjoint(made)
        if again or wave == MOST_WAVES or len(found) > most:
            raise UndecidedError
        if wave == look:
            look *= 2
        if texts and wave % _GLANCE == 0:
            _check_texts(made, texts)
        if found:
            for row, weight in made.items():
                found[row] = found.get(row, 0) + weight
        else:
            found = dict(made)
        frontier.rows = made.items()
        made = step()
        wave += 1
    return found


def _check_texts(rows: Collection[Any], texts: Sequence[int]) -> None:
    for place in texts:
        if any(len(row[place] or "") > _LONG for row in rows):
            raise UndecidedError
