"""CSV as RFC 4180 defines it: one parser for `eddy produce` and for the files of a history.

A cell with no characters between its commas is None; any other cell is text: `""` is the empty text. The file does not
define the meaning of None: pandas writes both a missing value and an empty text in this way. The user states the
meaning, or the file is refused.

Lines end with LF, CRLF or CR; line breaks within quotes are part of the text. Blank lines are not rows. There are two
errors: a quote within a cell that does not begin with one, since programs read such cells differently, and a row with
more or fewer cells than the first row.

Source: RFC 4180 §2.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from eddy.errors import DataError

__all__ = ["MAX_ROW_CHARS", "Cell", "Empty", "check_width", "csv_line", "csv_rows", "meant"]

Cell = str | None
Empty = Literal["null", "text"] | None
"""The meaning of a cell without characters: no value, an empty text, or not stated."""

MAX_ROW_CHARS = 16 << 20
"""The most characters of a row. It is above the limits of logs, so that rows between the limits get a log's error."""
_CELL = re.compile(r'(?:"([^"]*(?:""[^"]*)*)"|([^",\r\n]*))(,|\r\n|\r|\n|\Z)')
_OPEN = re.compile(r'"[^"]*(?:""[^"]*)*\Z')
_SPECIAL = re.compile(r'[",\r\n]')


def csv_rows(lines: Iterable[str]) -> Iterator[tuple[int, list[Cell]]]:
    r"""Yield (number of its first line, cells) for each row of a file. `lines` are the file's lines, with line breaks.

    Raises: DataError naming the line.

    >>> list(csv_rows(['a,"so ""it"" is"\n', '"one\n', 'two",\n', '"",x']))
    [(1, ['a', 'so "it" is']), (2, ['one\ntwo', None]), (4, ['', 'x'])]
    """
    number, begin, opened, size, is_open = 0, 1, 1, 0, False
    waiting: list[str] = []
    for at, line in enumerate(lines):
        piece = line.removeprefix("\ufeff") if at == 0 else line
        quotes = piece.count('"')
        if not waiting and not quotes and "\r" not in (body := piece.removesuffix("\n").removesuffix("\r")):
            number += 1
            if body:
                yield number, [cell or None for cell in body.split(",")]
            continue
        if not waiting:
            begin, size = number + 1, 0
        is_open ^= bool(quotes % 2)
        if is_open and not waiting:
            opened = _check_open(piece, begin)
        waiting.append(piece)
        size += len(piece)
        number += _breaks(piece)
        if not is_open:
            yield from _parsed("".join(waiting), begin)
            waiting = []
        elif size > MAX_ROW_CHARS:
            break
    if waiting:
        raise DataError(
            f"line {opened}: a quote is opened and not closed "
            f"{'within 16 MiB' if size > MAX_ROW_CHARS else 'in the file'}; "
            "RFC 4180 is needed. Write a quote within a value twice, and the value between quotes"
        )


def check_width(row: list[Cell], width: int) -> None:
    """Check that a row has as many cells as the first one. Raises: DataError."""
    if len(row) != width:
        raise DataError(f"{len(row)} columns, where the first line has {width}; a value with a comma needs quotes")


def meant(cell: Cell, empty: Empty, what: str) -> Cell:
    """Return a cell's text, or None for no value. Raises: DataError for an empty cell whose meaning is not stated."""
    if cell is not None or empty == "null":
        return cell
    if empty == "text":
        return ""
    raise DataError(
        f'the {what} is empty, without quotes: CSV does not tell a missing {what} from an empty text, which is ""; one '
        "of both has to be stated: --empty-is-null or --empty-is-text"
    )


def csv_line(cells: Iterable[Cell]) -> str:
    r"""Write a row as a line that `csv_rows` reads.

    >>> csv_line(["a", "", None, 'so "it" is'])
    'a,"",,"so ""it"" is"\n'
    """
    return ",".join(map(_written, cells)) + "\n"


def _written(cell: Cell) -> str:
    if cell is None:
        return ""
    return '"' + cell.replace('"', '""') + '"' if not cell or _SPECIAL.search(cell) else cell


def _parsed(text: str, number: int) -> Iterator[tuple[int, list[Cell]]]:
    """Yield the rows of a text in which all quotes are closed, each with the number of its first line."""
    row: list[Cell] = []
    begin, at = number, 0
    while at < len(text):
        found = _CELL.match(text, at)
        if found is None:
            raise _stray(begin)
        quoted, plain, end = found.groups()
        row.append((plain or None) if quoted is None else quoted.replace('""', '"'))
        at = found.end()
        number += _breaks(found[0])
        if end != ",":
            if row != [None]:
                yield begin, row
            row, begin = [], number
    if row:  # the text ends after a comma
        yield begin, [*row, None]


def _check_open(text: str, number: int) -> int:
    """Check that a text ends within a quoted cell.

    Returns the number of the line on which the cell begins. Raises: DataError.
    """
    at = 0
    while found := _CELL.match(text, at):
        at = found.end()
        number += _breaks(found[0])
    if not _OPEN.match(text, at):
        raise _stray(number)
    return number


def _stray(number: int) -> DataError:
    return DataError(
        f'line {number}: a quote in the middle of a value, or text after a closing quote; RFC 4180 is needed. Write "a '
        '""b"" c" for a "b" c'
    )


def _breaks(text: str) -> int:
    """Count the line breaks of a text."""
    return text.count("\n") + text.count("\r") - text.count("\r\n")
