"""FILE[:NAME]: the topology that the option `app` names, with the serdes of its topics.

The file is run as a module whose name has a hash of the file's path and text. So a Python worker of Spark does not
confuse two files, or two versions of one file.
"""

import hashlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eddy.connectors.log import Log
from eddy.connectors.spark.readable import sink_forms
from eddy.connectors.spark.source.source_options import option_error
from eddy.errors import EddyError
from eddy.runtime.internal_topics import partition_counts
from eddy.runtime.matching_topics import find_topics
from eddy.serde import Serde
from eddy.topology.topology import Topology

__all__ = ["SourceProgram"]


@dataclass(frozen=True)
class SourceProgram:
    """A topology, and the name of the module that defines it."""

    topology: Topology
    module: str

    @classmethod
    def load(cls, where: str, program: str) -> "SourceProgram":
        """Run the file. Raises: ConfigurationError if it has no such topology, or raises an error itself."""
        head, _, tail = program.rpartition(":")
        source, name = (head, tail) if head and tail.isidentifier() else (program, "")
        path = Path(source).resolve()
        if not path.is_file():
            raise option_error(where, f"option 'app': there is no file '{path}'; FILE[:NAME] is needed. Correct it")
        module = _module(where, path)
        found = {key: value for key, value in vars(sys.modules[module]).items() if isinstance(value, Topology)}
        chosen = {id(topology): topology for key, topology in found.items() if name in ("", key)}
        if len(chosen) != 1:
            raise option_error(
                where,
                f"option 'app' is '{program}': it names {len(chosen)} topologies, the file defines "
                f"{', '.join(found) or 'none'}; a single one is needed. Write .option('app', '{source}:NAME')",
            )
        return cls(next(iter(chosen.values())), module)

    def serdes(self, where: str, log: Log, topic: str) -> tuple[Serde[Any], Serde[Any]]:
        """Return the serdes of the keys and values of a source's or a sink's topic.

        A part without a type in the topology has the serde `Plain`, which cannot read.
        Raises: ConfigurationError if the topology has no such topic, or a topic is missing.
        """
        plan = self.topology.plan
        find_topics(self.topology, log)
        for source in plan.sources():
            if source.topic == topic:
                return source.topic_key, source.topic_value
        topics = {*(source.topic for source in plan.sources()), *(sink.topic for sink in plan.sinks())}
        for sink in plan.sinks():
            if sink.topic == topic:
                specs = partition_counts(log, topics, f"application '{self.topology.name}'")
                key, value = sink_forms(plan, {name: spec.partitions for name, spec in specs.items()}, sink)
                return key.in_topic(topic, "key"), value.in_topic(topic, "value")
        raise option_error(
            where,
            f"topic '{topic}' is neither read nor written by application '{self.topology.name}'; one of its topics "
            f"is needed: {', '.join(sorted(topics))}. Or name serdes in place of the application: "
            ".option('key', …), .option('value', …)",
        )


def _module(where: str, path: Path) -> str:
    """Run a file, unless it has run. Returns the name of its module."""
    name = "eddy_program_" + hashlib.sha256(str(path).encode() + b"\0" + path.read_bytes()).hexdigest()[:16]
    if name in sys.modules:
        return name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise option_error(where, f"option 'app': '{path}' is not a Python file; its name has to end in .py. Rename it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if isinstance(error, EddyError):
            raise
        raise option_error(
            where, f"option 'app': '{path}' raises {type(error).__name__}: {error}; it has to run. Mend it"
        ) from error
    return name
