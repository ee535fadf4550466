"""Settings as users write them: Java's `.properties` files, `KEY=VALUE`, and references to values stored elsewhere.

    ${env:NAME}    the environment variable NAME
    ${file:PATH}   the text of a file, without white space around it

References are resolved once, when read; the resolved value is not resolved again. No error shows a value: it may be a
secret.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from eddy.errors import ConfigurationError

__all__ = ["Setting", "read_file", "read_pairs", "resolved"]

_REFERENCE = re.compile(r"\$\{([A-Za-z]\w*):([^}]*)\}")
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_KEY = re.compile(r"(?:\\.|[^\\=:\s])*", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Setting(NamedTuple):
    """One setting, and where it was read."""

    key: str
    value: str
    origin: str


def read_file(path: Path) -> Iterator[Setting]:
    """Yield the settings of a `.properties` file, in their order. Raises: ConfigurationError."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a UTF-8 text"
        raise ConfigurationError(f"settings {path}: cannot be read ({reason}); a .properties file is needed") from error
    for number, line in _logical(lines):
        origin = f"settings {path} line {number}"
        key_part = _KEY.match(line)
        assert key_part is not None
        rest = line[key_part.end() :].lstrip()
        if key_part.end() == len(line) or not _NAME.fullmatch(key := _unescaped(key_part[0])):
            raise ConfigurationError(f"{origin}: it is not a setting; NAME=VALUE is needed. A comment begins with #")
        yield Setting(key, _unescaped(rest[1:].lstrip() if rest[:1] in ("=", ":") else rest), origin)


def read_pairs(pairs: Iterable[str]) -> Iterator[Setting]:
    """Yield the settings of texts `KEY=VALUE`. Raises: ConfigurationError."""
    for number, pair in enumerate(pairs, 1):
        key, equals, value = pair.partition("=")
        if not equals or not _NAME.fullmatch(key.strip()):
            raise ConfigurationError(f"--set: number {number} is not a setting; KEY=VALUE is needed")
        yield Setting(key.strip(), value.strip(), "--set")


def resolved(setting: Setting, environ: Mapping[str, str]) -> Setting:
    """Replace the references in a setting. Raises: ConfigurationError naming the key and the reference."""

    def text(reference: re.Match[str]) -> str:
        source, name = reference.groups()
        if source == "env":
            if name in environ:
                return environ[name]
            problem = "this environment variable is not set"
        elif source == "file":
            try:
                return Path(name).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeError) as error:
                problem = f"this file cannot be read ({getattr(error, 'strerror', None) or 'it is not a UTF-8 text'})"
        else:
            name, problem = "…", "eddy knows no such reference; ${env:NAME} or ${file:PATH} is needed"
        raise ConfigurationError(f"{setting.origin}: {setting.key} refers to ${{{source}:{name}}}: {problem}")

    return setting._replace(value=_REFERENCE.sub(text, setting.value))


def _logical(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines without comments, each as (number of its first line, text with continuation lines)."""
    numbered = iter(enumerate(lines, 1))
    for number, line in numbered:
        joined = line.lstrip()
        if not joined or joined[0] in "#!":
            continue
        while _goes_on(joined):
            joined = joined[:-1] + next(numbered, (0, ""))[1].lstrip()
        yield number, joined


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def plain(escape: re.Match[str]) -> str:
        code = escape[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(plain, text)
