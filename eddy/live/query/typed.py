"""Converts results to the user's own types: rows, with their nests, become dataclasses, structs or typed dicts.

The result of a query with a type from `into` is a list of values of this type; with `one` it is a value or None, with a
single aggregate the aggregate's value. A nest is converted to the type of the field with its name.
"""

from typing import Any

import msgspec

from eddy.errors import QueryBuildError, QueryError

__all__ = ["check_kind", "typed"]


def check_kind(kind: Any, table: str) -> Any:
    """Return a type if rows can be converted to it. Raises: QueryBuildError."""
    try:
        is_known = kind is not None and not isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
    except TypeError:
        is_known = False
    if not is_known:
        raise QueryBuildError(
            f"into of table '{table}': rows cannot become {kind!r}; "
            "a dataclass, a msgspec.Struct or a TypedDict is needed"
        )
    return kind


def typed(found: Any, kind: Any) -> Any:
    """Convert the rows of a result to a type.

    Raises: QueryError naming the place of a row that does not fit the type.
    """
    if kind is None or found is None:
        return found
    try:
        return msgspec.convert(found, list[kind] if isinstance(found, list) else kind)
    except msgspec.ValidationError as error:
        raise QueryError(f"live query: a row is not a valid {getattr(kind, '__name__', kind)}: {error}") from error
    except RecursionError as error:
        raise QueryError(f"live query: its tree is too deep for {kind!r}; read it without into") from error
