"""Loads the topology that FILE[:NAME] names, from a Python file or a dotted module.

An error in the author's file is reported as a message with the line, not as a traceback of eddy.
"""

import difflib
import importlib
import importlib.util
import linecache
import os
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import click

from eddy.errors import EddyError, TopologyError
from eddy.live.query.named import Queries
from eddy.topology.compiler.circuit_compiler import check_reads
from eddy.topology.topology import Topology

__all__ = ["MODULE_NAME", "Program", "load"]

_HINT = "'FILE[:NAME]'"
MODULE_NAME = "__eddy_program__"
_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Program:
    """A topology, the named queries beside it, and the directory of its author's files."""

    topology: Topology
    home: Path
    module: ModuleType
    source: str

    @property
    def queries(self) -> Queries:
        """The named queries of the program; empty if it has no `Queries`.

        Raises: click.BadParameter if it has several.
        """
        found = {id(value): value for value in vars(self.module).values() if isinstance(value, Queries)}
        if len(found) > 1:
            raise click.BadParameter(
                f"'{self.source}' defines {len(found)} Queries; a single one is needed.", param_hint=_HINT
            )
        return next(iter(found.values()), Queries())

    def note_line(self, error: BaseException) -> None:
        """Add the author's line that led to `error` as a note, if there is one."""
        _note_line(error, self.home)


def load(program: str) -> Program:
    """Return the topology named by `FILE[:NAME]`.

    Raises: click.BadParameter if the file defines none, or several; TopologyError for an error in it.
    """
    head, _, tail = program.rpartition(":")
    source, name = (head, tail) if head and tail.isidentifier() else (program, None)
    path = Path(source)
    if not path.is_file() and (path.suffix == ".py" or "/" in source):
        raise click.BadParameter(f"there is no file '{source}'.", param_hint=_HINT)
    home = (path.parent if path.is_file() else Path.cwd()).resolve()
    sys.path.insert(0, str(home))
    try:
        module = _import_file(path) if path.is_file() else _import_module(source)
    except EddyError as error:
        _note_line(error, home)
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, click.ClickException):
            raise
        failure = TopologyError(f"{source}: {type(error).__name__}: {_text_of(error)}")
        failure.__cause__ = error
        _note_line(failure, home)
        raise failure from error
    topology = _pick(module, source, name)
    check_reads(topology.plan)
    return Program(topology, home, module, source)


def _import_file(path: Path) -> ModuleType:
    """Run a file as a module that is not `__main__` and shadows no other module."""
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    if spec is None or spec.loader is None:
        raise click.BadParameter(f"'{path}' is not a Python file; its name has to end in .py.", param_hint=_HINT)
    module = importlib.util.module_from_spec(spec)
    # Structs and dataclasses look up their module by its name to resolve annotations.
    sys.modules[MODULE_NAME] = module
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (ModuleNotFoundError, TypeError) as error:
        missing = getattr(error, "name", None) or name
        if name != missing and not name.startswith(f"{missing}."):
            raise
        raise click.BadParameter(f"there is no file and no module '{name}'.", param_hint=_HINT) from error


def _pick(module: ModuleType, source: str, name: str | None) -> Topology:
    found = {key: value for key, value in vars(module).items() if isinstance(value, Topology)}
    if name is not None and name not in found:
        those = f"its topologies are: {', '.join(found)}" if found else "it defines no Topology"
        raise click.BadParameter(f"'{source}' has no Topology called '{name}'; {those}.", param_hint=_HINT)
    if name is not None:
        return found[name]
    if not found:
        raise click.BadParameter(
            f"'{source}' defines no Topology; one is needed. Write: topology = eddy.Topology(\"my-application\")",
            param_hint=_HINT,
        )
    if len({id(topology) for topology in found.values()}) > 1:
        raise click.BadParameter(
            f"'{source}' defines {len(found)} topologies: {', '.join(found)}; one has to be named. "
            f"Write: {source}:{next(iter(found))}",
            param_hint=_HINT,
        )
    return next(iter(found.values()))


def _text_of(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return error.msg
    meant = _meant(error) if isinstance(error, AttributeError) else None
    return f"{error}. Did you mean '{meant}'?" if meant else str(error) or "no message"


def _meant(error: AttributeError) -> str | None:
    """Return the public name most like the missing one; Java's `mapValues` is compared as `map_values`."""
    words = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", error.name or "").lower()
    names = {name.lower(): name for name in dir(error.obj) if not name.startswith("_")}
    return next((names[like] for like in difflib.get_close_matches(words, names, n=1, cutoff=0.75)), None)


def _note_line(error: BaseException, home: Path) -> None:
    """Add `file:line: source` of the author's innermost frame, of `error` or its causes, as a note."""
    cause: BaseException | None = error
    line = None
    while cause is not None:
        if isinstance(cause, SyntaxError) and cause.filename and cause.lineno:
            line = (cause.filename, cause.lineno)
        for frame in traceback.extract_tb(cause.__traceback__):
            if frame.lineno is not None and _is_of(frame.filename, home):
                line = (frame.filename, frame.lineno)
        cause = cause.__cause__
    if line is not None:
        error.add_note(f"{_shown(line[0])}:{line[1]}: {linecache.getline(*line).strip()}")


def _is_of(filename: str, home: Path) -> bool:
    path = Path(filename).resolve()
    return (
        path.is_relative_to(home)
        and not path.is_relative_to(_PACKAGE)
        and "site-packages" not in path.parts
        and path.is_file()
        # The script that a package manager made for the command `eddy` itself.
        and path != Path(sys.argv[0]).resolve()
    )


def _shown(filename: str) -> str:
    path = Path(filename)
    return os.path.relpath(path) if path.resolve().is_relative_to(Path.cwd()) else str(path)
