"""Results as values of the user's own types: rows become dataclasses, structs or typed dicts, nests with them.

A query with a type from `into` has as its result a list of such values; with `one` a value or None; with one aggregate
its value. A nest becomes the type of the field that has its name.
"""

from typing import Any

import msgspec

from eddy.errors import QueryBuildError, QueryError

__all__ = ["check_kind", "typed"]


def check_kind(kind: Any, table: str) -> Any:
    """A type that rows can become. Raises: QueryBuildError."""
    try:
        is_known = not isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
    except TypeError:
        is_known = False
    if not is_known:
        raise QueryBuildError(
            f"into of table '{table}': rows cannot become {kind!r}; "
            "a dataclass, a msgspec.Struct or a TypedDict is needed"
        )
    return kind


def typed(found: Any, kind: Any) -> Any:
    """A result, with rows of a type. Raises: QueryError where a row does not fit it, with the place."""
    if kind is None or found is None:
        return found
    try:
        return msgspec.convert(found, list[kind] if isinstance(found, list) else kind)
    except msgspec.ValidationError as error:
        raise QueryError(f"live query: a row is no {getattr(kind, '__name__', kind)}: {error}") from error
    except RecursionError as error:
        raise QueryError(f"live query: its tree is too deep for {kind!r}; read it without into") from error
