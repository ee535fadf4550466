"""Pickling the author's functions for Spark's Python workers.

Functions are pickled with cloudpickle, and structs that no module defines by `pickled_structs`. Names that functions
use from the program's own file, such as its structs, are pickled by reference. So a worker that cannot import that file
runs it first, under the same module name. On a cluster the file has to be at the same path, or be given by
`--py-files`; packages, eddy included, have to be installed there.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from eddy.connectors.spark.pickled_structs import dumps
from eddy.errors import ConfigurationError

__all__ = ["Pickled"]


class Pickled:
    """A function over Arrow batches, pickled once; each Python worker unpickles it once."""

    def __init__(self, function: Callable[[Iterable[Any]], Iterator[Any]], program: str | None = None) -> None:
        name = program if program in sys.modules else None
        path = getattr(sys.modules[name], "__file__", None) if name else None
        self._program = (name, str(Path(path).resolve())) if name and path else None
        try:
            self._data = dumps(function)
        except Exception as error:
            raise ConfigurationError(
                f"spark: a function of the topology, or an object it uses, cannot be sent to Spark's workers: {error}. "
                "Use only objects that can be pickled, and open connections and the like inside the function"
            ) from error

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Process Arrow batches."""
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
