"""SQL's string functions where Python's differ: positions count from 1, and positions past an end are allowed."""

import functools
import re
from collections.abc import Callable

from eddy.errors import DataError
from eddy.like_pattern import like_pattern
from eddy.topology.sql.value_limits import MOST_CHARACTERS

__all__ = [
    "initcap",
    "left",
    "like",
    "pad",
    "position",
    "repeat",
    "replace",
    "right",
    "split_part",
    "substring",
    "substring_from",
    "trimmed",
]


def substring_from(text: str, start: int) -> str:
    """Return the rest of the text from the character with the number `start`, counted from 1."""
    return text[max(start - 1, 0) :]


def substring(text: str, start: int, length: int) -> str:
    """Return the characters from `start` to before `start + length`, as far as they exist."""
    if length < 0:
        raise DataError(f"substring of length {length}; 0 or more is needed")
    return text[max(start - 1, 0) : max(start - 1 + length, 0)]


def position(text: str, part: str) -> int:
    """Return the position of `part`, counted from 1, or 0 if it is not in the text."""
    return text.find(part) + 1


def left(text: str, count: int) -> str:
    """Return the first `count` characters; if `count` is negative, all but the last `-count` characters."""
    return text[:count]


def right(text: str, count: int) -> str:
    """Return the last `count` characters; if `count` is negative, all but the first `-count` characters."""
    return text[max(len(text) - count, 0) :] if count > 0 else text[-count:] if count else ""


def repeat(text: str, times: int) -> str:
    """Return the text repeated `times` times."""
    _check_size("repeat", len(text) * times)
    return text * times


def replace(text: str, old: str, new: str) -> str:
    """Return the text with `new` in each place of `old`."""
    if not old:
        return text
    if len(new) > len(old):
        _check_size("replace", len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def _check_size(name: str, characters: int) -> None:
    """Refuse a text that is too long. Raises: DataError."""
    if characters > MOST_CHARACTERS:
        raise DataError(f"{name} makes a text of {characters:,} characters; at most {MOST_CHARACTERS:,} are possible")


def pad(at_left: bool) -> Callable[..., str]:
    """Return the function `lpad` or `rpad`, which pads or cuts a text to a length."""

    def padded(text: str, length: int, fill: str = " ") -> str:
        missing = length - len(text)
        if missing <= 0 or not fill:
            return text[: max(length, 0)]
        _check_size("lpad" if at_left else "rpad", length)
        filling = (fill * (missing // len(fill) + 1))[:missing]
        return filling + text if at_left else text + filling

    return padded


def split_part(text: str, separator: str, index: int) -> str:
    """Return the part with this number, counted from 1, or from -1 backwards; "" if there is none."""
    if index == 0:
        raise DataError("split_part: part 0; a number from 1 on, or from -1 on backwards, is needed")
    parts = text.split(separator) if separator else [text]
    return parts[index - (index > 0)] if -len(parts) <= index <= len(parts) and index else ""


def trimmed(method: Callable[[str, str], str]) -> Callable[..., str]:
    """Return `trim`, `ltrim` or `rtrim`: it removes given characters, or spaces, from the ends of a text."""

    def trim(text: str, characters: str = " ") -> str:
        return method(text, characters) if characters else text

    return trim


def initcap(text: str) -> str:
    """Return the text with the first letter of each word in upper case, and the others in lower case."""
    return re.sub(r"[^\W_]+", lambda word: word[0][:1].upper() + word[0][1:].lower(), text)


def like(ignore_case: bool) -> Callable[[str, str], bool]:
    """Return `LIKE` or `ILIKE`: % matches any text, _ one character, \\ escapes the next character."""

    return lambda text, pattern: _compiled(pattern, ignore_case).fullmatch(text) is not None


@functools.lru_cache(256)
def _compiled(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise DataError("LIKE: the pattern ends in \\; a character is needed after it")
    return like_pattern(pattern, ignore_case=ignore_case)
