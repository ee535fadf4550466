"""Named queries: clients request a query by its name, with checked arguments.

    queries = eddy.Queries()

    @queries.query
    def tree(root: str, claims: eddy.Claims) -> eddy.Query:
        return folders.where((folders.id == root) & (folders.owner == claims["user"])).nest(children=children)

A client sends the name and the arguments. Clients can also write queries themselves, which `query_text.py` reads.
Arguments have the types of their annotations, as msgspec converts them. A parameter of the type `Claims` is not an
argument: it gets the claims of the caller, which `Queries(claims=)` finds in the request.
"""

import inspect
import logging
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from eddy.errors import EddyError, QueryBuildError, QueryError
from eddy.live.query.functions_of_one import check_function_of_one
from eddy.live.query.query import Query
from eddy.live.query.refusals import (
    ForbiddenError,
    QueryArgumentError,
    QueryFailedError,
    UnknownQueryError,
)
from eddy.readable_types import check_readable

__all__ = ["Argument", "Claims", "NamedQuery", "Queries"]

_log = logging.getLogger("eddy.live")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_RESERVED = frozenset({"at_least", "wait"})
_MAX_SHOWN = 80
Function = typing.TypeVar("Function", bound=Callable[..., Query])
_required: Any = inspect.Parameter.empty


class Claims(dict[str, Any]):
    """Facts about a caller, by name, such as a user or roles. Empty if `Queries` has no function `claims`."""


FindClaims = Callable[[Mapping[str, str]], "Mapping[str, Any] | None"]
"""A function from the headers of a request, by names in lower case, to the caller's claims; None refuses the request.
"""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a query. `default` is `inspect.Parameter.empty` if there is no default."""

    name: str
    type: Any
    default: Any = _required

    @property
    def is_required(self) -> bool:
        """Whether a client has to give the argument."""
        return self.default is _required

    @property
    def type_name(self) -> str:
        """The type as its annotation is written."""
        return inspect.formatannotation(self.type)

    def convert(self, value: Any) -> Any:
        """Convert a value from JSON to the argument's type. Raises: msgspec.ValidationError."""
        return msgspec.convert(value, self.type)

    def parse(self, text: str) -> Any:
        """Convert text to the argument's type; lists and objects are written as JSON.

        Raises: msgspec.ValidationError.
        """
        try:
            return msgspec.convert(text, self.type, strict=False)
        except msgspec.ValidationError:
            try:
                return msgspec.convert(msgspec.json.decode(text), self.type)
            except msgspec.MsgspecError:
                pass
            raise


class NamedQuery:
    """A function that makes a query from arguments.

    Raises: QueryBuildError for a name or for parameters that clients cannot send.
    """

    def __init__(self, name: str, function: Callable[..., Query]) -> None:
        self.name, self._function = name, function
        self.description = inspect.getdoc(function) or ""
        if not _NAME.fullmatch(name):
            raise QueryBuildError(
                f"query '{name}': not a name for clients; up to 100 letters, digits, _ or - are needed"
            )
        self.arguments: dict[str, Argument] = {}
        self._claims: list[str] = []
        for argument in _arguments(name, function):
            if argument.type is Claims:
                self._claims.append(argument.name)
            else:
                self.arguments[argument.name] = argument

    def described(self) -> dict[str, Any]:
        """Return the name, the description and the arguments of the query, as data for JSON."""
        arguments = [
            {
                "name": a.name,
                "type": a.type_name,
                "required": a.is_required,
                "default": None if a.is_required else msgspec.to_builtins(a.default, enc_hook=repr, str_keys=True),
            }
            for a in self.arguments.values()
        ]
        return {"name": self.name, "description": self.description, "arguments": arguments}

    def bind(self, given: Mapping[str, Any], claims: Claims, *, as_text: bool = False) -> Query:
        """Return the query for these arguments, for a caller with these claims.

        `as_text`: the arguments are text, as in a URL; otherwise they are data from JSON.
        Raises: QueryArgumentError, ForbiddenError, QueryFailedError; any QueryError that the function raises.
        """
        if unknown := sorted(given.keys() - self.arguments.keys()):
            known = f"its arguments are {', '.join(self.arguments)}" if self.arguments else "it takes none"
            raise QueryArgumentError(f"query '{self.name}': there is no argument '{unknown[0][:_MAX_SHOWN]}'; {known}")
        bound: dict[str, Any] = dict.fromkeys(self._claims, claims)
        for name, argument in self.arguments.items():
            if name in given:
                bound[name] = self._value(argument, given[name], as_text)
            elif argument.is_required:
                raise QueryArgumentError(f"query '{self.name}': argument '{name}' ({argument.type_name}) is needed")
        return self._call(bound)

    def _value(self, argument: Argument, value: Any, as_text: bool) -> Any:
        try:
            return argument.parse(value) if as_text else argument.convert(value)
        except (msgspec.MsgspecError, RecursionError) as error:
            shown = repr(value)[:_MAX_SHOWN]
            raise QueryArgumentError(
                f"query '{self.name}', argument '{argument.name}': {shown} is not a valid {argument.type_name}: {error}"
            ) from error

    def _call(self, bound: dict[str, Any]) -> Query:
        try:
            made = self._function(**bound)
            if not isinstance(made, Query):
                raise TypeError(f"it returned {made!r}, which is not a Query")
            made.syntax  # noqa: B018 - raises where it depends on another row
        except PermissionError as error:
            raise ForbiddenError(f"query '{self.name}': {error or 'it may not be asked'}") from error
        except ValueError as error:
            raise QueryArgumentError(f"query '{self.name}': {error}") from error
        except QueryBuildError as error:
            raise QueryArgumentError(f"query '{self.name}': {error}") from error
        except EddyError as error:
            raise error if isinstance(error, QueryError) else self._failed(error) from error
        except Exception as error:
            raise self._failed(error) from error
        return made

    def _failed(self, error: Exception) -> QueryFailedError:
        _log.error("query '%s' has failed", self.name, exc_info=error)
        return QueryFailedError(f"query '{self.name}': its function has failed; the server's log has the error")


def _arguments(name: str, function: Callable[..., Query]) -> Iterator[Argument]:
    try:
        types = typing.get_type_hints(function)
    except NameError as error:
        raise QueryBuildError(f"query '{name}': its annotations have an unknown name: {error}") from error
    for parameter in inspect.signature(function).parameters.values():
        where = f"query '{name}', parameter '{parameter.name}'"
        if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            raise QueryBuildError(f"{where}: clients give arguments by name; a parameter with a name is needed")
        if parameter.name in _RESERVED:
            raise QueryBuildError(f"{where}: requests use this name for another purpose; another name is needed")
        kind = types.get(parameter.name)
        if kind is None:
            raise QueryBuildError(f"{where}: it has no type; one is needed, as in {parameter.name}: str")
        if kind is not Claims:
            try:
                check_readable(kind)
                msgspec.json.Decoder(kind)
            except (TypeError, ValueError) as error:
                raise QueryBuildError(f"{where}: its type cannot be read from JSON: {error}") from error
        yield Argument(parameter.name, kind, parameter.default)


class Queries:
    """The named queries of an application, which its table server offers to clients.

    Args:
        claims: a function from the headers of a request, by names in lower case, to the caller's claims; None refuses
        the request. Without this function claims are empty.

    >>> import eddy
    >>> queries = eddy.Queries()
    >>> issues = eddy.live_table("issues", key="id")
    >>> @queries.query
    ... def newest(project: str, top: int = 20) -> eddy.Query:
    ...     return issues.where(issues.project == project).order_by(-issues.created).limit(top)
    >>> queries.bind("newest", {"project": "eddy"})
    issues.where(issues.project == 'eddy').order_by(-issues.created).limit(20)
    """

    def __init__(self, claims: FindClaims | None = None) -> None:
        if claims is not None:
            check_function_of_one("queries: claims=", claims, "the headers of a request", "claims=lambda headers: …")
        self._find_claims = claims
        self._queries: dict[str, NamedQuery] = {}

    @typing.overload
    def query(self, function: Function) -> Function: ...

    @typing.overload
    def query(self, *, name: str) -> Callable[[Function], Function]: ...

    def query(self, function: Function | None = None, *, name: str | None = None) -> Any:
        """Let clients request the query that the function returns, by the function's name or by `name`.

        Returns the function unchanged. Raises: QueryBuildError.
        """
        if function is None:
            return lambda function: self._add(function, name)
        return self._add(function, name)

    def _add(self, function: Function, name: str | None) -> Function:
        if not callable(function) or isinstance(function, type):
            raise QueryBuildError(f"queries: function={function!r}; a function that returns a query is needed")
        made = NamedQuery(name or str(getattr(function, "__name__", "")), function)
        if made.name in self._queries:
            raise QueryBuildError(f"query '{made.name}': there is one of that name; another name is needed")
        self._queries[made.name] = made
        return function

    def __iter__(self) -> Iterator[NamedQuery]:
        return iter(self._queries.values())

    def __getitem__(self, name: str) -> NamedQuery:
        """Return a query by name. Raises: UnknownQueryError."""
        found = self._queries.get(name)
        if found is None:
            known = f"one of {', '.join(self._queries)} is needed" if self._queries else "this server has none"
            raise UnknownQueryError(f"query '{name[:_MAX_SHOWN]}': there is no such query; {known}")
        return found

    def bind(self, name: str, arguments: Mapping[str, Any], claims: Claims | None = None) -> Query:
        """Return the query of this name with these arguments, as for a client. Raises: QueryError."""
        return self[name].bind(arguments, Claims() if claims is None else claims)

    def claims(self, headers: Mapping[str, str]) -> Claims:
        """Return a caller's claims. Raises: ForbiddenError; QueryFailedError if the application's function fails."""
        if self._find_claims is None:
            return Claims()
        try:
            found = self._find_claims(headers)
        except PermissionError as error:
            raise ForbiddenError(f"caller: {error or 'queries may not be asked'}") from error
        except Exception as error:
            _log.error("the claims of a caller could not be found", exc_info=error)
            raise QueryFailedError(
                "caller: the application could not determine its claims; its log has the error"
            ) from error
        if found is None:
            raise ForbiddenError("caller: unknown; queries may not be asked")
        return Claims(found)
