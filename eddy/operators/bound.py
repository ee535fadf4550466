"""The bound of a recursion: a depth that is part of the answer, or a limit against data without a finite answer."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from eddy.operators.batch import Row

__all__ = ["FIRST_LOOK", "Bound", "Words", "columns_of"]

FIRST_LOOK = 64
"""The iteration at which a recursion is first searched for cycles or repetitions."""


class Words(NamedTuple):
    """Texts for the errors of a recursion that was written otherwise than as `recursively(…)`, such as in SQL.

    The texts say where the recursion is, and what to do about the error.
    """

    where: str
    advice: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of a recursion. `depth` counts the applications of op that led to a row.

    With `max_depth` the recursion stops at that depth, and the answer has the rows up to it. Otherwise `on_limit` says
    what happens when the recursion reaches `limit`:

    - `hold`: hold the rows without a finite answer;
    - `error`, for streams: reject the record;
    - `return` and `dead-letter`: stop as `max_depth` does, and report the rows that were cut;
    - `rows`, only in nested time: stop, and report the rows that were cut as rows of errors.

    `limit` counts iterations. Only in a recursion by waves with `hold` it counts stale steps on a path instead
    (`operators/waves/survey.py`). With `stops` the worker ends if rows are held and no unread input could change that.
    """

    max_depth: int | None = None
    limit: int = 10_000
    on_limit: Literal["hold", "error", "return", "dead-letter", "rows"] = "hold"
    words: Words | None = None
    stops: bool = False

    @classmethod
    def of_arguments(cls, max_depth: int | None, limit: int, on_limit: str) -> "Bound":
        """Return the bound for these arguments of `recursively`, whose values are not checked here.

        `on_limit="stop"` becomes `hold` with `stops`.
        """
        said: Any = "hold" if on_limit == "stop" else on_limit
        return cls(max_depth, limit, said, stops=on_limit == "stop")

    def where(self, name: str) -> str:
        """Return the text by which errors name the recursion `name`."""
        return self.words.where if self.words else f"recursively '{name}'"

    def subject(self, name: str, row: Row) -> str:
        """Return the text by which errors name a row of the recursion `name`."""
        return f"{self.where(name)}: {f'row {columns_of(row)}' if self.words else f'key {row[0]!r}'}"

    def advice(self, otherwise: str) -> str:
        """Return the advice for errors: `otherwise`, or the advice in `words` if the recursion has `words`."""
        return self.words.advice if self.words else otherwise

    @property
    def by_depth(self) -> bool:
        """Whether the answer depends on the depth of rows, so that depth has to be stored."""
        return self.max_depth is not None or self.on_limit not in ("hold", "error")

    @property
    def depth(self) -> int:
        """The depth at which expansion stops."""
        return self.limit if self.max_depth is None else self.max_depth


def columns_of(row: Row) -> Any:
    """The columns of a row of SQL. They are in the row's value, or in its key if the row belongs to a set."""
    return row[1] or row[0]
