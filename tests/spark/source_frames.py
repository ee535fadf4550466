"""An application in a file, as `option("app", …)` names it, and frames of its log."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import eddy
from eddy.connectors.log import Log, TopicSpec
from tests.waiting import Deadline

__all__ = ["PROGRAM", "load", "program_in", "rows", "streamed", "told", "topics", "worked"]

T = TypeVar("T")

PROGRAM = """
import eddy
import msgspec


class Node(msgspec.Struct, frozen=True):
    parent: str | None
    size: int
    tags: tuple[str, ...] = ()
    shares: dict[str, float] = {}


topology = eddy.Topology("PREFIXfamily")
nodes = topology.table("PREFIXnodes", eddy.String, eddy.Struct(Node))
sizes = nodes.group_by(lambda key, node: (node.parent or "", node.size), key=eddy.String, value=eddy.Int64)
sizes.sum(name="sums").to("PREFIXsizes")
"""


def program_in(folder: Path, prefix: str = "") -> tuple[str, ModuleType]:
    """The file of `PROGRAM`, and the module in it. `prefix` is put before all names on the log."""
    path = folder / "family.py"
    path.write_text(PROGRAM.replace("PREFIX", prefix))
    spec = importlib.util.spec_from_file_location(f"{prefix}family", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return f"{path}:topology", module


def streamed(run: Callable[[], T]) -> T:
    """The result of `run`, which is called again where Spark's Python process took more than ten seconds to start.

    Spark does not wait for longer, and on a busy machine it may take so long. A query goes on from its checkpoint.
    """
    deadline = Deadline()
    while True:
        try:
            return run()
        except Exception as error:
            if "Python worker failed to connect back" not in str(error):
                raise
            deadline.check("a Python process of Spark's")


def topics(prefix: str = "") -> list[TopicSpec]:
    return [TopicSpec(f"{prefix}nodes", 2), TopicSpec(f"{prefix}sizes", 2)]


@contextmanager
def worked(topology: eddy.Topology, log: Log, state: Path, **config: Any) -> Iterator[eddy.Worker]:
    """A worker that has nothing left to do and has written a cut."""
    with closing(eddy.Worker(topology, log, eddy.Config(state_dir=state, **config))) as worker:
        worker.run_until_idle()
        worker.step()
        yield worker


def load(spark: Any, **options: Any) -> Any:
    return spark.read.format("eddy").options(**options).load()


def rows(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of some columns in the order of partitions and offsets."""
    return [tuple(row[name] for name in columns) for row in frame.orderBy("partition", "offset").collect()]


def told(error: Exception) -> str:
    """Spark's error without the lines of Python's traceback: the last one."""
    lines = [line for line in str(error).splitlines() if line.strip() and "SQLSTATE" not in line]
    return lines[-1].partition(": ")[2]
