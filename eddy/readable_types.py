"""Checks that msgspec can read values of a type, and of all types inside it, from JSON and MessagePack.

msgspec makes a decoder for any class, but a decoder for a class that it does not know fails on each value.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import inspect

__all__ = ["check_readable"]


def check_readable(type: Any) -> None:
    """Check that values of a type, and of all types inside it, can be read. Raises: TypeError or ValueError."""
    found = inspect.type_info(type)
    for each in _all_within(found):
        if isinstance(each, inspect.CustomType):
            inside = "" if each is found else f"{each.cls!r} is in it, and "
            raise TypeError(f"{inside}msgspec knows no form of it in JSON")


def _all_within(info: inspect.Type) -> Iterator[inspect.Type]:
    """Return a type and all types inside it. A class that contains itself is returned once."""
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
