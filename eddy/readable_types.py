"""Types whose values msgspec can read from JSON and MessagePack, and what else is in a type.

A decoder can be made for any class; one of a class that it does not know fails with each value.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import inspect

__all__ = ["check_readable"]


def check_readable(type: Any) -> None:
    """Raises: TypeError or ValueError if no value of a type, or of a type inside it, can be read."""
    found = inspect.type_info(type)
    for each in _all_within(found):
        if isinstance(each, inspect.CustomType):
            inside = "" if each is found else f"{each.cls!r} is in it, and "
            raise TypeError(f"{inside}msgspec knows no form of it in JSON")


def _all_within(info: inspect.Type) -> Iterator[inspect.Type]:
    """A type and all types inside it. A class that has fields of its own type is one object."""
    seen, left = set[int](), [info]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        for name in one.__struct_fields__:
            part = getattr(one, name)
            parts = part if isinstance(part, tuple) else (part,)
            left += [inner.type if isinstance(inner, inspect.Field) else inner for inner in parts if _is_type(inner)]


def _is_type(part: Any) -> bool:
    return isinstance(part, inspect.Type | inspect.Field)
