"""Kafka Streams' own TopologyTestDriver, in a process in Java that answers one case after the other.

Its jars are those of `jars.txt` and `rocksdb.txt`, fetched once as those of the development broker are; they include a
compiler, so that a Java runtime is enough.
"""

import functools
import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from eddy.connectors.broker.jars import keep, kept_folder, read_lock
from eddy.connectors.broker.java_runtime import find_java
from tests.streams_oracle.case import Answer, Case, by_key

__all__ = ["Oracle", "kafka_streams_version"]

FOLDER = Path(__file__).parent
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-Djava.awt.headless=true")
"""To compile Kafka Streams thoroughly costs more of the processor than these cases ask of it."""


def kafka_streams_version() -> str:
    """The version that answers."""
    return next(jar.revision for jar in read_lock(FOLDER / "jars.txt") if jar.artifact == "kafka-streams")


class Oracle:
    """A process that answers cases; `folder` gets its classes and its log. It ends with the block."""

    def __init__(self, folder: Path) -> None:
        version = kafka_streams_version()
        kept = kept_folder().parent / f"kafka-streams-{version}"
        jars = keep(f"Kafka Streams {version}", read_lock(FOLDER / "jars.txt"), kept)
        (rocksdb,) = read_lock(FOLDER / "rocksdb.txt")
        jars = [*jars, *keep("RocksDB", [rocksdb], kept_folder().parent / rocksdb.file.removesuffix(".jar"))]
        path = os.pathsep.join(map(str, [folder, *jars]))
        self._jars = [jar for jar in jars if jar.name.startswith("kafka-streams")]
        self._java = java = [find_java(), *QUICK, "-cp", path]
        compiler = [*java, "org.eclipse.jdt.internal.compiler.batch.Main", "-17", "-proc:none", "-nowarn", "-cp", path]
        subprocess.run([*compiler, "-d", folder, *FOLDER.glob("*.java")], check=True)
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*java, f"-Djava.io.tmpdir={folder}", "Oracle"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )

    def answer(self, case: Case) -> Answer:
        """The records that Kafka Streams writes, and its stores at the end. Raises: ValueError with its error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"steps": case.steps, "records": case.records}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise ValueError(f"the oracle has ended: {self._log.read_text(errors='replace')[-2000:]}")
        told = json.loads(line)
        if "error" in told:
            raise ValueError(f"{told['error']} of {case}")
        out = [by_key(told["out"][str(number)]) for number in range(len(case.steps))]
        return Answer(out, {int(number): rows for number, rows in told["stores"].items()})

    @functools.cached_property
    def public_methods(self) -> set[tuple[str, str]]:
        """The class and the name of each public method that a program may call; see `PublicMethods.java`."""
        told = subprocess.run(
            [*self._java, "PublicMethods", *self._jars], check=True, stdout=subprocess.PIPE, text=True
        )
        return {(line.split("\t")[0], line.split("\t")[1]) for line in told.stdout.splitlines()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
