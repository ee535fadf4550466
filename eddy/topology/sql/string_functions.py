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
    """The rest of the text from the character `start`, counted from 1."""
    return text[max(start - 1, 0) :]


def substring(text: str, start: int, length: int) -> str:
    """The characters from `start` to before `start + length`, as far as they exist."""
    if length < 0:
        raise DataError(f"substring of length {length}; 0 or more is needed")
    return text[max(start - 1, 0) : max(start - 1 + length, 0)]


def position(text: str, part: str) -> int:
    """The position of `part`, or 0."""
    return text.find(part) + 1


def left(text: str, count: int) -> str:
    """The first `count` characters; if `count` is negative, all but the last ones."""
    return text[:count]


def right(text: str, count: int) -> str:
    """The last `count` characters; if `count` is negative, all but the first ones."""
    return text[max(len(text) - count, 0) :] if count > 0 else text[-count:] if count else ""


def repeat(text: str, times: int) -> str:
    """The text so many times."""
    _check_size("repeat", len(text) * times)
    return text * times


def replace(text: str, old: str, new: str) -> str:
    """The text with `new` in each place of `old`."""
    if not old:
        return text
    if len(new) > len(old):
        _check_size("replace", len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def _check_size(name: str, characters: int) -> None:
    """Raises: DataError for a text that is too long."""
    if characters > MOST_CHARACTERS:
        raise DataError(f"{name} makes a text of {characters:,} characters; at most {MOST_CHARACTERS:,} are possible")


def pad(at_left: bool) -> Callable[..., str]:
    """The function `lpad` or `rpad`: pads or cuts a text to a length."""

    def padded(text: str, length: int, fill: str = " ") -> str:
        missing = length - len(text)
        if missing <= 0 or not fill:
            return text[: max(length, 0)]
        _check_size("lpad" if at_left else "rpad", length)
        filling = (fill * (missing // len(fill) + 1))[:missing]
        return filling + text if at_left else text + filling

    return padded


def split_part(text: str, separator: str, index: int) -> str:
    """The part with this number, counted from 1, or from -1 backwards; "" if there is none."""
    if index == 0:
        raise DataError("split_part: part 0; a number from 1 on, or from -1 on backwards, is needed")
    parts = text.split(separator) if separator else [text]
    return parts[index - (index > 0)] if -len(parts) <= index <= len(parts) and index else ""


def trimmed(method: Callable[[str, str], str]) -> Callable[..., str]:
    """The function `trim`, `ltrim` or `rtrim`: removes these characters, by default spaces, from the ends of a text."""

    def trim(text: str, characters: str = " ") -> str:
        return method(text, characters) if characters else text

    return trim


def initcap(text: str) -> str:
    """The text with the first letter of each word in upper case, and the others in lower case."""
    return re.sub(r"[^\W_]+", lambda word: word[0][:1].upper() + word[0][1:].lower(), text)


def like(ignore_case: bool) -> Callable[[str, str], bool]:
    """`LIKE` or `ILIKE`: % matches any text, _ one character, \\ escapes the next character."""

    return lambda text, pattern: _compiled(pattern, ignore_case).fullmatch(text) is not None


@functools.lru_cache(256)
def _compiled(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise DataError("LIKE: the pattern ends in \\; a character is needed after it")
    return like_pattern(pattern, ignore_case=ignore_case)
