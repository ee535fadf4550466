"""SQL's functions of texts for `verify`, apart from a worker's code.

Places are counted from 1; a place beyond an end is no error.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from eddy.errors import DataError
from eddy.topology.sql.value_limits import MOST_CHARACTERS

__all__ = ["TEXT_FUNCTIONS"]


def _substring(text: str, start: int, length: int | None = None) -> str:
    if length is not None and length < 0:
        raise DataError(f"substring of length {length}; 0 or more is needed")
    end = len(text) + 1 if length is None else start + length
    return "".join(character for place, character in enumerate(text, 1) if start <= place < end)


def _split_part(text: str, separator: str, index: int) -> str:
    if index == 0:
        raise DataError("split_part: part 0; a number from 1 on, or from -1 on backwards, is needed")
    parts = text.split(separator) if separator else [text]
    place = index if index > 0 else len(parts) + 1 + index
    return dict(enumerate(parts, 1)).get(place, "")


def _fitting(name: str, characters: int) -> None:
    if characters > MOST_CHARACTERS:
        raise DataError(f"{name} makes a text of {characters:,} characters; at most {MOST_CHARACTERS:,} are possible")


def _repeated(text: str, times: int) -> str:
    _fitting("repeat", len(text) * times)
    return "".join(text for _ in range(times if text else 0))


def _replaced(text: str, old: str, new: str) -> str:
    if not old:
        return text
    _fitting("replace", len(text) + text.count(old) * (len(new) - len(old)))
    return new.join(text.split(old))


def _padding(left: bool) -> Callable[..., str]:
    def padded(text: str, length: int, fill: str = " ") -> str:
        length = max(length, 0)
        if len(text) >= length or not fill:
            return text[:length]
        _fitting("lpad" if left else "rpad", length)
        filling = "".join(fill[i % len(fill)] for i in range(length - len(text)))
        return filling + text if left else text + filling

    return padded


def _trimming(left: bool, right: bool) -> Callable[..., str]:
    def trimmed(text: str, characters: str = " ") -> str:
        start, end = 0, len(text)
        while left and start < end and text[start] in characters:
            start += 1
        while right and start < end and text[end - 1] in characters:
            end -= 1
        return text[start:end]

    return trimmed


def _initcap(text: str) -> str:
    made, inside = [], False
    for character in text:
        made.append(character.lower() if inside else character.upper())
        inside = character.isalnum()
    return "".join(made)


def _like(text: str, pattern: str, same: Callable[[str, str], bool] = operator.eq) -> bool:
    """Whether a text matches a LIKE pattern: if a part does not match, the last % takes one character more."""
    parts = _parts_of(pattern)
    at = place = 0
    last, taken = -1, 0
    while at < len(text):
        part = parts[place] if place < len(parts) else None
        if part == _MANY:
            last, taken = place, at
            place += 1
        elif part is not None and (part == _ONE or same(part, text[at])):
            at, place = at + 1, place + 1
        elif last >= 0:
            taken += 1
            at, place = taken, last + 1
        else:
            return False
    return all(part == _MANY for part in parts[place:])


_MANY, _ONE = "many", "one"


def _parts_of(pattern: str) -> list[str]:
    """Split a pattern into its characters, and words for its wildcards."""
    parts, characters = [], iter(pattern)
    for character in characters:
        if character == "\\":
            following = next(characters, None)
            if following is None:
                raise DataError("LIKE: the pattern ends in \\; a character is needed after it")
            parts.append(following)
        else:
            parts.append({"%": _MANY, "_": _ONE}.get(character, character))
    return parts


def _same_letter(one: str, other: str) -> bool:
    return one == other or one.lower() == other.lower() or one.upper() == other.upper()


TEXT_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "length": len,
    "lower": str.lower,
    "upper": str.upper,
    "initcap": _initcap,
    "reverse": lambda text: "".join(reversed(text)),
    "repeat": _repeated,
    "substring": _substring,
    "position": lambda text, part: text.index(part) + 1 if part in text else 0,
    "left": lambda text, count: text[:count] if count >= 0 else text[: max(len(text) + count, 0)],
    "right": lambda text, count: text[max(len(text) - count, 0) :] if count >= 0 else text[min(-count, len(text)) :],
    "trim": _trimming(True, True),
    "ltrim": _trimming(True, False),
    "rtrim": _trimming(False, True),
    "replace": _replaced,
    "split_part": _split_part,
    "starts_with": lambda text, start: text[: len(start)] == start,
    "lpad": _padding(True),
    "rpad": _padding(False),
    "like": _like,
    "ilike": lambda text, pattern: _like(text, pattern, _same_letter),
    "||": operator.add,
    "concat": lambda *parts: "".join(parts),
}
