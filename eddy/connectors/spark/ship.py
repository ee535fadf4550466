"""Shipping: how the author's functions get to Spark's Python workers.

Functions travel by cloudpickle. What they name of the program's own file, such as its structs, travels as a
name; so a worker runs that file first, under the same name, where it cannot import it. On a cluster the file
has to be where it was, or be given by `--py-files`; packages have to be installed there, eddy too.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from eddy.errors import ConfigurationError

__all__ = ["Shipped"]


class Shipped:
    """A function over Arrow batches, pickled once; each Python worker unpickles it once."""

    def __init__(self, function: Callable[[Iterable[Any]], Iterator[Any]], program: str | None = None) -> None:
        name = program if program in sys.modules else None
        path = getattr(sys.modules[name], "__file__", None) if name else None
        self._program = (name, str(Path(path).resolve())) if name and path else None
        try:
            self._data: bytes = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ConfigurationError(
                f"spark: a function of the topology, or what it uses, cannot be sent to Spark's workers: {error}. "
                "Let it use what can be pickled, and make connections and the like inside the function"
            ) from error

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Take Arrow batches through."""
        return iter(_unpickled(self._data, self._program)(batches))


@lru_cache(maxsize=256)
def _unpickled(data: bytes, program: tuple[str, str] | None) -> Any:
    if program is not None and program[0] not in sys.modules:
        name, path = program
        home = str(Path(path).parent)
        if home not in sys.path:
            sys.path.insert(0, home)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return cloudpickle.loads(data)
