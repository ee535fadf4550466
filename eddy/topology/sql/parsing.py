"""Parsing: splits a text into statements, and reads a clause that sqlglot's parser does not know.

    WITH MUTUALLY RECURSIVE [(RETURN AT | ERROR AT RECURSION LIMIT n)] name (column type, …) AS (query), … query

The clause is read from tokens. Each of its queries is parsed from the whole text, with blanks for the text before the
query, so that positions refer to the whole text. If the clause is inside a query, the parser gets WITH RECURSIVE, the
clause's queries, and blanks for the rest of the clause. The declarations are then attached to the parser's result.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from eddy.errors import TopologyError
from eddy.topology.sql.algebra import NamedColumn, RecursionLimit
from eddy.topology.sql.dialect import WholePostgres
from eddy.topology.sql.scope import folded
from eddy.topology.sql.statement_text import StatementText
from eddy.topology.sql.types import TYPE_NAMES, parse_type
from eddy.topology.sql.unsupported_syntax import parts_of, without_meaning

__all__ = ["Definition", "Mutual", "created_query", "mutual_of", "named_tables", "parse", "split"]

_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WORD = re.compile(r"\w")
_TOKEN = re.compile(r" but got <Token.*", re.DOTALL)
_BEGINNINGS = {"SELECT", "WITH", "VALUES", "TABLE", "CREATE"}
_OPEN, _CLOSE = TokenType.L_PAREN, TokenType.R_PAREN
_OPENING, _CLOSING = {_OPEN, TokenType.L_BRACKET}, {_CLOSE, TokenType.R_BRACKET}
_NAMES = WholePostgres.parser_class.ID_VAR_TOKENS | {TokenType.IDENTIFIER}
"""The tokens that can be a table's name. Keywords that are not reserved have tokens of their own."""
_AFTER_TABLES = ("WHERE", "GROUP BY", "HAVING", "WINDOW", "ORDER BY", "LIMIT", "OFFSET", "FETCH", "SELECT")
_DECLARED = "declared"


@dataclass(frozen=True)
class Definition:
    """A declared binding: its columns, its query, and its offset in the text."""

    name: str
    columns: tuple[NamedColumn, ...]
    query: exp.Expr
    offset: int


@dataclass(frozen=True)
class Mutual:
    """A query WITH MUTUALLY RECURSIVE: its definitions, its limit, and the query after the clause."""

    definitions: list[Definition]
    bound: RecursionLimit | None
    body: exp.Expr


@dataclass(frozen=True)
class _Declared:
    """The declaration of a binding. Its query is in the text from `start` to `end`."""

    name: str
    columns: tuple[NamedColumn, ...]
    offset: int
    start: int
    end: int


@dataclass(frozen=True)
class _Heading:
    """A WITH clause. `body` is the offset of its end; `blanks` are its parts that the parser does not know."""

    bindings: list[_Declared]
    bound: RecursionLimit | None
    body: int
    blanks: list[tuple[int, int]]


def split(text: StatementText) -> list[StatementText]:
    """Return the statements of a text. Each has blanks for the statements before it, so positions do not change."""
    found, start = [], 0
    tokens = _tokens(text)
    for index, token in enumerate(tokens):
        last = index == len(tokens) - 1
        if token.token_type is TokenType.SEMICOLON or last:
            end = token.start if token.token_type is TokenType.SEMICOLON else token.end + 1
            if any(start <= other.start < end for other in tokens[: index + 1]):
                found.append(StatementText(_blank(text.text[:start]) + text.text[start:end], text.name))
            start = token.end + 1
    return found


def parse(text: StatementText) -> exp.Expr | Mutual:
    """Parse the one statement of a text. Raises: TopologyError with the place of the first unreadable part."""
    tokens = [token for token in _tokens(text) if token.token_type is not TokenType.SEMICOLON]
    if not tokens:
        raise text.error(0, "there is no statement; one is needed: SELECT …")
    if tokens[0].token_type is not _OPEN and tokens[0].text.upper() not in _BEGINNINGS:
        raise text.unsupported(tokens[0].start, tokens[0].text.upper(), "a query is needed: SELECT …")
    mutual = [i for i, token in enumerate(tokens) if _is(token, "MUTUALLY") and i and _is(tokens[i - 1], "WITH")]
    headings = [_Head(text, tokens, i + 1).heading() for i in mutual]
    first = headings.pop(0) if mutual[:1] == [1] else None
    source = _Source(text, headings)
    if first is None:
        return source.parsed(tokens[0].start, tokens[-1].end + 1)
    definitions = [Definition(b.name, b.columns, source.parsed(b.start, b.end), b.offset) for b in first.bindings]
    return Mutual(definitions, first.bound, source.parsed(first.body, tokens[-1].end + 1))


def mutual_of(found: exp.With) -> Mutual | None:
    """Return the recursive block of a WITH inside a query; None for any other WITH."""
    heading = found.meta.get(_DECLARED)
    if heading is None:
        return None
    without_meaning(found, "recursive")
    definitions = [
        Definition(folded(cte.args["alias"].args["this"]), b.columns, cte.args["this"], b.offset)
        for b, cte in zip(heading.bindings, parts_of(found), strict=True)
    ]
    assert found.parent is not None
    return Mutual(definitions, heading.bound, found.parent)


def created_query(text: StatementText) -> tuple[str, StatementText | None]:
    """Return the name and the query of CREATE VIEW name AS query.

    The query is None for any other CREATE. Without a CREATE the name is empty, too.
    """
    tokens = [token for token in _tokens(text) if token.token_type is not TokenType.SEMICOLON]
    if not tokens or not _is(tokens[0], "CREATE"):
        return "", None
    as_at = next((i for i, token in enumerate(tokens) if _is(token, "AS")), None)
    if as_at is None or as_at < 2:
        return "created", None
    name = tokens[as_at - 1]
    if name.token_type is _CLOSE:
        raise text.unsupported(tokens[0].start, "CREATE … name (columns) AS", "name the columns in the query")
    quoted = name.token_type is TokenType.IDENTIFIER
    end = tokens[as_at].end + 1
    return str(name.text if quoted else name.text.lower()), StatementText(
        _blank(text.text[:end]) + text.text[end:], text.name
    )


@dataclass
class _Level:
    """An open bracket in a statement. `selects`: it has a SELECT; `listed`: a list of tables in it is not at its end.

    Only after a SELECT does FROM name tables, in contrast to `extract(year FROM t)`.
    """

    selects: bool = False
    listed: bool = False


def named_tables(text: StatementText) -> list[str]:
    """Return the names of tables after FROM and JOIN, and after their commas, that the text itself does not define."""
    tokens = _tokens(text)
    found: list[str] = []
    levels, awaited = [_Level()], False  # a level for each open bracket, the outermost first
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        level = levels[-1]
        if token.token_type in _OPENING:
            levels.append(_Level(listed=awaited))
        elif token.token_type in _CLOSING:
            levels, awaited = levels[:-1] or [_Level()], False
        elif _is(token, "JOIN") or (_is(token, "FROM") and level.selects and not (before and _is(before, "DISTINCT"))):
            level.listed = awaited = True
        elif awaited and token.token_type in _NAMES:
            if after is None or after.token_type is not _OPEN:  # the name is not a function's
                found.append(token.text if token.token_type is TokenType.IDENTIFIER else token.text.lower())
            awaited = False
        else:
            level.selects = level.selects or _is(token, "SELECT")
            level.listed = level.listed and not _is_one(token, _AFTER_TABLES)
            awaited = level.listed and (token.token_type is TokenType.COMMA or (awaited and _is(token, "LATERAL")))
    defined = {token.text.lower() for index, token in enumerate(tokens) if _defines(tokens[index + 1 :])}
    return [name for name in dict.fromkeys(found) if name.lower() not in defined]


def _defines(after: Sequence[Token]) -> bool:
    """Return whether the tokens after a name define it: [(columns)] AS (."""
    rest = list(after)
    if rest and rest[0].token_type is TokenType.L_PAREN:
        end = next((i for i, token in enumerate(rest) if token.token_type is TokenType.R_PAREN), len(rest))
        rest = rest[end + 1 :]
    return len(rest) > 1 and _is(rest[0], "AS") and rest[1].token_type is TokenType.L_PAREN


def _tokens(text: StatementText) -> list[Token]:
    try:
        found = list(WholePostgres().tokenize(text.text))
    except SqlglotError as error:
        raise text.error(0, f"the text cannot be read: {error}; a quote or a comment may not end") from error
    for token, after in zip_longest(found, found[1:]):
        if token.token_type is TokenType.NUMBER and not _is_whole(token, after):
            rest = text.text[token.start :].split(maxsplit=1)[0]
            raise text.error(token.start, f"{rest} is not a number; digits, a point and an exponent are needed")
    return found


def _is_whole(number: Token, after: Token | None) -> bool:
    """Return whether a token is a whole number and no word follows it at once, such as _000 in 1_000."""
    is_apart = after is None or after.start > number.end + 1 or not _WORD.match(after.text)
    return is_apart and _NUMBER.fullmatch(number.text) is not None


class _Source:
    """The text for the parser. The declarations of inner blocks are replaced by blanks."""

    def __init__(self, text: StatementText, inner: Sequence[_Heading]) -> None:
        self._text, self._source = text, text.text
        self._inner = {heading.bindings[0].offset: heading for heading in inner}
        for start, end in (span for heading in inner for span in heading.blanks):
            self._source = self._source[:start] + _blank(self._source[start:end]) + self._source[end:]

    def parsed(self, start: int, end: int) -> exp.Expr:
        """Parse the text from `start` to `end`. Raises: TopologyError with the place of the first unreadable part."""
        text = self._text
        source = _blank(self._source[:start]) + self._source[start:end]
        try:
            found = [node for node in WholePostgres().parse(source) if node is not None]
        except ParseError as error:
            raise self._unreadable(error) from error
        except SqlglotError as error:
            raise text.error(start, f"it cannot be read: {error}") from error
        if len(found) != 1:
            raise text.error(start, f"{len(found)} statements; one is needed. Take out the semicolon")
        for inner in found[0].find_all(exp.With):
            heading = self._inner.get(parts_of(inner)[0].args["alias"].args["this"].meta.get("start"))
            if heading is not None:
                inner.meta[_DECLARED] = heading
        return found[0]

    def _unreadable(self, error: ParseError) -> TopologyError:
        first = error.errors[0]
        line, column = first.get("line") or 1, first.get("col") or 1
        word = first.get("highlight") or ""
        place = f"line {line}, column {max(column - len(word) + 1, 1)}"
        said = _TOKEN.sub("", first.get("description") or "it cannot be read").rstrip(".")
        message = f"{said}, at '{word}'"
        return self._text.error(place, f"{message}; a query of PostgreSQL's form is needed")


def _blank(text: str) -> str:
    return "".join("\n" if letter == "\n" else " " for letter in text)


def _is(token: Token, word: str) -> bool:
    return token.text.upper() == word and token.token_type is not TokenType.IDENTIFIER


def _is_one(token: Token, words: Sequence[str]) -> bool:
    return any(_is(token, word) for word in words)


class _Head:
    """Reads the clause of a block, from the token after WITH on."""

    def __init__(self, text: StatementText, tokens: Sequence[Token], at: int) -> None:
        self._text, self._tokens, self._at = text, tokens, at
        self._blanks: list[tuple[int, int]] = []

    def heading(self) -> _Heading:
        """Read the whole clause; return its parts."""
        first = self._tokens[self._at - 1]
        self._blanks.append((first.start, first.end + 1))
        self._expect("RECURSIVE")
        bound = self._bound() if self._token().token_type is _OPEN else None
        bindings = [self._definition()]
        while self._token().token_type is TokenType.COMMA:
            self._at += 1
            bindings.append(self._definition())
        return _Heading(bindings, bound, self._token().start, self._blanks)

    def _token(self) -> Token:
        if self._at < len(self._tokens):
            return self._tokens[self._at]
        end = self._tokens[-1].end + 1
        raise self._text.error(
            end, "the statement ends; WITH MUTUALLY RECURSIVE name (column type, …) AS (query) SELECT …"
        )

    def _expect(self, word: str) -> None:
        token = self._token()
        if not _is(token, word):
            raise self._text.error(token.start, f"'{token.text}' where {word} is needed")
        self._at += 1

    def _bound(self) -> RecursionLimit:
        """Read (RETURN AT | ERROR AT RECURSION LIMIT [=] n), or (RECURSION LIMIT [=] n), which means ERROR AT."""
        start = self._token().start
        self._expect("(")
        word = self._token().text.upper()
        if word in {"RETURN", "ERROR"}:
            self._at += 1
            self._expect("AT")
        self._expect("RECURSION")
        self._expect("LIMIT")
        if self._token().token_type is TokenType.EQ:
            self._at += 1
        number = self._token()
        if not number.text.isdecimal() or int(number.text) < 1:
            raise self._text.error(number.start, f"RECURSION LIMIT {number.text}; a whole number from 1 on is needed")
        self._at += 1
        self._blanks.append((start, self._token().end + 1))
        self._expect(")")
        return RecursionLimit(int(number.text), "return" if word == "RETURN" else "hold")

    def _definition(self) -> _Declared:
        offset = self._token().start
        name = self._name("the name of a binding")
        if self._token().token_type is not _OPEN:
            raise self._text.error(
                self._token().start,
                f"binding '{name}' declares no columns; they are needed with their types. "
                f"Write: {name} (column type, …) AS (…)",
            )
        start = self._token().start
        self._at += 1
        columns = [self._column(name)]
        while self._token().token_type is TokenType.COMMA:
            self._at += 1
            columns.append(self._column(name))
        self._blanks.append((start, self._token().end + 1))
        self._expect(")")
        self._expect("AS")
        self._expect("(")
        start = self._token().start
        end = self._skip({_CLOSE})
        self._expect(")")
        if end <= start:
            raise self._text.error(start, f"binding '{name}' has no query; one is needed")
        return _Declared(name, tuple(columns), offset, start, end)

    def _name(self, what: str) -> str:
        token = self._token()
        self._at += 1
        if token.token_type is TokenType.IDENTIFIER:
            return str(token.text)
        if (
            not token.text.replace("_", "a").isalnum()
            or token.text[0].isdigit()
            or token.token_type is TokenType.STRING
        ):
            raise self._text.error(token.start, f"'{token.text}' where {what} is needed")
        return str(token.text.lower())

    def _column(self, binding: str) -> NamedColumn:
        name = self._name(f"a column of '{binding}'")
        token = self._token()
        end = self._skip({TokenType.COMMA, _CLOSE})
        written = self._text.text[token.start : end].strip()
        if not written:
            raise self._text.error(
                token.start, f"column '{name}' of '{binding}' has no type; one is needed: {name} bigint"
            )
        type = parse_type(written)
        if type is None:
            raise self._text.unsupported(
                token.start,
                f"the type {written}",
                f"{TYPE_NAMES} is needed",
            )
        return NamedColumn(name, type)

    def _skip(self, until: set[TokenType]) -> int:
        """Skip to the next of these tokens outside parentheses; return its offset."""
        depth = 0
        for token in self._rest():
            if depth == 0 and token.token_type in until:
                return int(token.start)
            depth += (token.token_type is _OPEN) - (token.token_type is _CLOSE)
            self._at += 1
        return int(self._token().start)

    def _rest(self) -> Iterator[Token]:
        while self._at < len(self._tokens):
            yield self._tokens[self._at]
