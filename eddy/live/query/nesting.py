"""Builds nests, and recursions from functions that name themselves.

`nest` calls its function once, with a proxy for the row. If the function is being called already, it is not called
again: the nest refers, by a label, to the Select that the function returns. So mutual recursion works as well.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from eddy.errors import QueryBuildError
from eddy.live.query.columns import Described, RowProxy
from eddy.live.query.conditions import linked
from eddy.live.query.functions_of_one import check_function_of_one
from eddy.live.query.syntax import Nest, Ref, Select

__all__ = ["build_nest"]

_MAX_FUNCTIONS = 64


class _Call:
    """A function that is being called, and the rows whose nests refer to it."""

    def __init__(self, function: Callable[..., Any], label: str) -> None:
        self.function, self.label = function, label
        self.rows: list[RowProxy] = []


_calls: ContextVar[tuple[_Call, ...]] = ContextVar("calls", default=())


@contextmanager
def _calling(call: _Call) -> Iterator[None]:
    token = _calls.set((*_calls.get(), call))
    try:
        yield
    finally:
        _calls.reset(token)


def build_nest(name: str, function: Any, proxy: RowProxy, depth: int | None, where: str) -> Nest:
    """Build a nest from a function, which is called with `proxy` as the row. Raises: QueryBuildError."""
    if not callable(function):
        raise QueryBuildError(
            f"{where}: {function!r} is not a function of the row; one is needed. Write: "
            f"nest({name}=lambda row: t.where(t.x == row.y))"
        )
    calls = _calls.get()
    for call in calls:
        if call.function == function:
            if depth is not None:
                raise QueryBuildError(f"{where}: depth= belongs where the recursion begins, not inside of its function")
            call.rows.append(proxy)
            # Without pairs: it uses the pairs of the nest that begins the recursion.
            return Nest(name, (), Ref(call.label))
    if len(calls) >= _MAX_FUNCTIONS:
        raise QueryBuildError(
            f"{where}: {_MAX_FUNCTIONS} functions call one another; a recursion by one function that names itself is "
            "needed, not by a new lambda in each call"
        )
    check_function_of_one(f"{where}: ", function, "a row", f"nest({name}=lambda row: t.where(t.x == row.y))")
    call = _Call(function, _label(function, {call.label for call in calls}))
    with _calling(call):
        query = function(proxy)
    if not isinstance(query, Described):
        raise QueryBuildError(f"{where}: its function returned {query!r}; a query is needed")
    if query._kind is not None:
        raise QueryBuildError(
            f"{where}: into gives a type to a whole query; the rows of a nest have the type of the field"
        )
    on = linked(query, proxy, where)
    if not call.rows:
        if depth is not None:
            raise QueryBuildError(f"{where}: depth= bounds a recursion, but its function does not refer to itself")
        return Nest(name, on, query._select)
    for row in call.rows:
        for column, _ in on:
            row[column]  # each row that leads to the function needs the columns that the function uses
    return Nest(name, on, _tied(msgspec.structs.replace(query._select, label=call.label), call.label, on), depth)


def _label(function: Callable[..., Any], taken: set[str]) -> str:
    name = getattr(function, "__name__", "nest")
    name = name if name.isidentifier() else "nest"
    number, label = 2, name
    while label in taken:
        number, label = number + 1, f"{name}_{number}"
    return label


def _tied(select: Select, label: str, on: tuple[tuple[str, str], ...]) -> Select:
    """Return the Select, in which each nest that refers to `label` compares the pairs of columns `on`."""
    nests = tuple(
        msgspec.structs.replace(nest, query=_tied(nest.query, label, on))
        if isinstance(nest.query, Select)
        else msgspec.structs.replace(nest, on=on)
        if nest.query.label == label
        else nest
        for nest in select.nests
    )
    return msgspec.structs.replace(select, nests=nests)
