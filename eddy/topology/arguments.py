"""Checks of the arguments of the DSL's methods, which report mistakes when the topology is built.

`where` names the step in the author's terms: `map after 'words'`, `aggregate 'totals'`.
Each check raises TopologyError.
"""

import contextlib
import functools
import inspect
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from types import FunctionType, MethodType
from typing import Any

import msgspec

from eddy.errors import TopologyError
from eddy.serde import Serde, refusal
from eddy.source_lines import line_of

__all__ = [
    "check_choice",
    "check_fits",
    "check_flag",
    "check_function",
    "check_kind",
    "check_mapping",
    "check_member",
    "check_name",
    "check_names",
    "check_number",
    "check_plain",
    "check_rows",
    "check_serdes",
    "check_whole",
    "folder_of",
    "is_type_guard",
    "name_or",
    "parameters_of",
    "renamed_choice",
    "takes_key",
    "takes_record",
]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_GUARD = re.compile(r"(\w+\.)*(TypeGuard|TypeIs)\[")
_MOST_SHOWN = 200
_SERDES = {str: "eddy.String", bytes: "eddy.Bytes", int: "eddy.Int64", float: "eddy.Float64"}


def check_name(name: Any, what: str) -> str:
    """Refuse a name that cannot be part of a topic's name or of a path."""
    if inspect.isfunction(name):
        raise TopologyError(
            f"{what}: name={_shown(name)} of {line_of(name)} is a function; a name is needed. Give the arguments in "
            "their order, or each by its name: name='…'"
        )
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in {".", ".."}:
        raise TopologyError(
            f"{what} {_shown(name)}: not a name; letters, digits, '.', '_' and '-' are needed, at most 200"
        )
    return name


def name_or(name: Any, default: str) -> str:
    """Return the author's name, or the default if none was given."""
    return check_name(default if name is None else name, "step")


def check_function(
    where: str, function: Any, *parameters: str, what: str = "", hint: str = "", iterates: bool = False
) -> Any:
    """Check that an argument is a function that takes these positional arguments, and return it.

    A function whose signature is unknown, such as some written in C, passes. `what` names the argument. `hint` is
    another form that is accepted. `iterates` says that the result is an iterable, so a generator function is accepted.
    """
    prefix = f"{what}=" if what else ""
    written = check_plain(where, function, prefix, iterates)
    try:
        signature = inspect.signature(written, follow_wrapped=False)
    except (ValueError, TypeError):
        return function
    if not _binds(signature, parameters):
        takes = f"({', '.join(map(_parameter, signature.parameters.values()))})"
        called = f"({', '.join(parameters)})" if parameters else "() without arguments"
        raise TopologyError(
            f"{where}: {prefix}{_named(written)} takes {takes} and is called with {called}; a function of "
            f"{len(parameters)} argument{'s'[: len(parameters) != 1]} is needed. "
            f"Write: lambda{_listed(parameters)}: …{hint}"
        )
    return function


def check_plain(where: str, function: Any, prefix: str = "", iterates: bool = False) -> Any:
    """Check that an argument is a function that runs when it is called. Return it without a cache of functools."""
    if not callable(function):
        raise TopologyError(f"{where}: {prefix}{_shown(function)} is not a function; a callable is needed")
    written = _uncached(function)
    if inspect.iscoroutinefunction(written):
        raise TopologyError(
            f"{where}: {prefix}{_named(written)} is a coroutine function; a plain one is needed. Write def, not async "
            "def"
        )
    _check_generator(f"{where}: {prefix}", written, iterates)
    return written


def _uncached(function: Any) -> Any:
    """Return the author's function that a cache of functools wraps."""
    while isinstance(function, functools._lru_cache_wrapper):
        function = function.__wrapped__
    return function


def _check_generator(where: str, function: Any, iterates: bool) -> None:
    """Refuse a generator function: a call of it returns a generator and runs none of its lines."""
    plain = isinstance(function, FunctionType | MethodType | functools.partial | type)
    called = function if plain else getattr(type(function), "__call__", None)  # noqa: B004 - the method of its class
    if inspect.isasyncgenfunction(called):
        raise TopologyError(
            f"{where}{_named(function)} is an asynchronous generator function; a plain one is needed. Write def, not "
            "async def"
        )
    if inspect.isgeneratorfunction(called) and not iterates:
        raise TopologyError(
            f"{where}{_named(function)} is a generator function, whose call returns a generator in place of a result; "
            "a function that returns its result is needed. Write return, not yield; for several results of a row: "
            "flat_map, flat_map_values"
        )


def takes_key(where: str, function: Any, *parameters: str, what: str = "", iterates: bool = False) -> bool:
    """Check a function as `check_function` does. If its first parameter is named `key`, it takes the key first.

    Returns whether it takes the key.
    """
    with contextlib.suppress(ValueError, TypeError):
        signature = inspect.signature(function)
        first = next(iter(signature.parameters), "")
        if first == "key" and not _binds(signature, parameters) and _binds(signature, ("key", *parameters)):
            check_function(where, function, "key", *parameters, what=what, iterates=iterates)
            return True
    hint = f", or lambda {', '.join(('key', *parameters))}: …"
    check_function(where, function, *parameters, what=what, hint=hint, iterates=iterates)
    return False


def is_type_guard(where: str, function: Any) -> bool:
    """Return whether a function takes a value alone, and its result is annotated as a `TypeGuard` or `TypeIs`.

    Raises: TopologyError if it can also be called with a key and a value: its annotation is about the first argument.
    """
    try:
        shown, own = inspect.signature(function), inspect.signature(_uncached(function), follow_wrapped=False)
    except (ValueError, TypeError):
        return False
    told = shown.return_annotation
    if not _GUARD.match(told if isinstance(told, str) else repr(told)):
        return False
    if not _binds(shown, ("value",)) or not _binds(own, ("value",)):
        return False
    if _binds(shown, ("key", "value")) and _binds(own, ("key", "value")):
        takes = f"({', '.join(map(_parameter, shown.parameters.values()))})"
        raise TopologyError(
            f"{where}: type guard {_named(function)} takes {takes}, so it could be called with a value as well as with "
            "a key and a value, and would narrow the key; a guard of a value alone is needed. Let it have one "
            "parameter without a *, and others after it by name: def guard(value, *, other=…)"
        )
    return True


def parameters_of(function: Any) -> list[str]:
    """Return the names of a function's parameters; none for a function whose signature is unknown."""
    with contextlib.suppress(ValueError, TypeError):
        return list(inspect.signature(function).parameters)
    return []


def takes_record(function: Any, *parameters: str) -> bool:
    """Return whether a function can be called with these arguments only if it also gets one named `record`.

    Of a decorated function, the signature of the function inside counts, if the decorator's function can pass a
    `record` on to it.
    """
    with contextlib.suppress(ValueError, TypeError):
        shown = inspect.signature(function)
        if "record" not in shown.parameters or _binds(shown, parameters) or not _binds(shown, parameters, record=None):
            return False
        return _binds(inspect.signature(_uncached(function), follow_wrapped=False), parameters, record=None)
    return False


def _binds(signature: inspect.Signature, parameters: tuple[str, ...], **named: Any) -> bool:
    try:
        signature.bind(*parameters, **named)
    except TypeError:
        return False
    return True


def _listed(parameters: tuple[str, ...]) -> str:
    return " " + ", ".join(parameters) if parameters else ""


def _parameter(parameter: inspect.Parameter) -> str:
    return str(parameter.replace(annotation=inspect.Parameter.empty))


def _named(function: Any) -> str:
    name = getattr(function, "__qualname__", None) or repr(function)
    line = line_of(function)
    name = name.rpartition("<locals>.")[2]
    return f"{name} of {line}" if line else name


def check_member(where: str, member: Any) -> None:
    """Check the name of a worker, which is part of a path."""
    if not isinstance(member, str) or not member or "/" in member:
        raise TopologyError(
            f"{where}: member={_shown(member)}; a name is needed, as text without '/'. Write member='0'"
        )


def check_names(where: str, given: Any) -> list[str]:
    """Return the given names, each once. Raises: TopologyError if there are none, or for anything else."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable) or not (names := list(given)):
        raise TopologyError(f"{where}={_shown(given)}; a list of names is needed")
    for name in names:
        check_name(name, where)
    if len(set(names)) < len(names):
        raise TopologyError(f"{where}={names}; each name is needed once")
    return names


def check_serdes(where: str, /, optional: bool = True, **serdes: Any) -> None:
    """Check that arguments are serdes; None is allowed if `optional`."""
    for what, given in serdes.items():
        if isinstance(given, Serde) or (given is None and optional):
            continue
        raise TopologyError(f"{where}: {what}={_shown(given)}; a serde is needed. Write {what}={_serde_for(given)}")


def check_fits(where: str, what: str, read: Serde[Any] | None, write: Serde[Any] | None) -> None:
    """Refuse a scalar serde that cannot encode the type that another serde decodes; unknown types pass."""
    if read is None or write is None or not isinstance(read.type, type) or write.name not in _SCALARS:
        return
    if issubclass(read.type, (write.type, int) if write.type is float else write.type):
        return
    kind = read.type.__name__
    raise TopologyError(
        f"{where}: {what}={write.name} cannot write {kind}, which {what}s are here (serde {read.name}); a serde of "
        f"{kind} is needed. Name it: {what}={_serde_for(read.type)}, or convert it to {write.type.__name__} before"
    )


_SCALARS = frozenset({"string", "bytes", "int64", "float64"})


def _shown(given: Any) -> str:
    """Return an argument as it is shown in a message: the name of a function, the beginning of a long text."""
    text = given.__qualname__ if inspect.isfunction(given) else repr(given)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _serde_for(given: Any) -> str:
    """Return the code of the serde that was probably meant."""
    if inspect.isfunction(given) and given.__module__ == Serde.__module__:
        return f"eddy.{given.__name__}({'MyStruct' if given.__name__ == 'Struct' else ''})"
    if isinstance(given, msgspec.StructMeta):
        return f"eddy.Struct({given.__name__})"
    return _SERDES.get(given, "eddy.Json()") if isinstance(given, type) else "eddy.String, or another of eddy's"


def check_whole(where: str, least: int, /, optional: bool = True, **numbers: Any) -> None:
    """Check that arguments are integers of at least `least`; None is allowed if `optional`."""
    for what, number in numbers.items():
        if not (number is None and optional) and (not _is_number(number, int) or number < least):
            raise TopologyError(f"{where}: {what}={_shown(number)}; {least} or more is needed, a whole number")


def check_number(where: str, least: float, /, optional: bool = True, **numbers: Any) -> None:
    """Check that arguments are numbers of at least `least`; None is allowed if `optional`."""
    for what, number in numbers.items():
        if not (number is None and optional) and not (_is_number(number, int, float) and number >= least):
            raise TopologyError(f"{where}: {what}={_shown(number)}; {least} or more is needed")


def _is_number(given: Any, *types: type) -> bool:
    return isinstance(given, types) and not isinstance(given, bool)


def check_flag(where: str, /, **flags: Any) -> None:
    """Check that arguments are True or False."""
    for what, given in flags.items():
        if not isinstance(given, bool):
            raise TopologyError(f"{where}: {what}={_shown(given)}; True or False is needed")


def check_choice(where: str, choices: tuple[str, ...], /, **chosen: Any) -> None:
    """Check that arguments are among the choices."""
    for what, given in chosen.items():
        if not isinstance(given, str) or given not in choices:
            listed = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
            raise TopologyError(f"{where}: {what}={_shown(given)}; {listed} is needed")


def renamed_choice(where: str, on_limit: Any) -> Any:
    """Return the current name of an `on_limit` policy: for relations, `error` is a deprecated name of `hold`."""
    if on_limit != "error":
        return on_limit
    warnings.warn(f"{where}: on_limit='error' is called 'hold' now", DeprecationWarning, stacklevel=3)
    return "hold"


def check_mapping(where: str, /, **mappings: Any) -> None:
    """Check that arguments are mappings from names, or None."""
    for what, given in mappings.items():
        if given is not None and not (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)):
            raise TopologyError(
                f"{where}: {what}={_shown(given)}; a dict by name is needed. Write {what}={{'name': …}}"
            )


def folder_of(where: str, /, **folders: Any) -> Path | None:
    """Return the folder that an argument gives as text or as a path; None for None."""
    ((what, given),) = folders.items()
    if given is None:
        return None
    if not isinstance(given, str | PurePath) or given == "":
        raise TopologyError(f"{where}: {what}={_shown(given)}; a folder, as text or a pathlib.Path, or None is needed")
    return Path(given)


def check_kind(where: str, needed: type, given: Iterable[Any], advice: str = "") -> None:
    """Check that all `given` collections are of the needed class."""
    for one in given:
        if not isinstance(one, needed):
            raise TopologyError(
                f"{where}: {type(one).__name__} is not a {needed.__name__}; one is needed. {advice}".strip()
            )


def check_rows(where: str, rows: Any, key: Any, value: Any) -> tuple[tuple[Any, Any], ...]:
    """Check that rows are pairs (key, value) that can be hashed and encoded."""
    check_serdes(where, key=key, value=value)
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise TopologyError(
            f"{where}: rows={_shown(rows)}; a list of pairs (key, value) is needed. A dict has .items()"
        )
    found = tuple(rows)
    for row in found:
        if not isinstance(row, tuple) or len(row) != 2:
            raise TopologyError(f"{where}: the row {_shown(row)} is not a pair; a pair (key, value) is needed")
        try:
            hash(row)
        except TypeError as error:
            raise TopologyError(
                f"{where}: the row {_shown(row)} cannot be hashed: {error}; scalars, tuples and frozen structs can be "
                "rows"
            ) from error
        for what, serde, part in (("key", key, row[0]), ("value", value, row[1])):
            if serde is not None and part is not None and (why := refusal(serde, part)):
                raise TopologyError(
                    f"{where}: the {what} {_shown(part)} is not a valid {serde.name}: {why}; name the serde that fits"
                )
    return found
