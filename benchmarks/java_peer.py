"""The peers in Java: their jars, fetched once by PySpark's Ivy beside those of the broker, and their classes.

A folder named by EDDY_KAFKA_JARS, such as the libs folder of a Kafka distribution, is taken as it is.
"""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from benchmarks.cluster import MissingError
from benchmarks.workloads import CACHE, ROOT
from eddy.connectors.broker.jars import find_jars, keep, read_lock
from eddy.connectors.broker.java_runtime import find_java
from eddy.errors import ConnectorError

__all__ = ["java"]

_FOLDER = ROOT / "benchmarks" / "kafka_streams"


@cache
def java() -> tuple[str, str]:
    """The path of java, and the class path of the peers, compiled. Raises: MissingError."""
    try:
        found, jars = find_java(), _jars()
    except ConnectorError as error:
        raise MissingError(str(error)) from error
    classes = CACHE / "kafka_streams" / "classes"
    _compile(found, os.pathsep.join(map(str, jars)), classes)
    return found, os.pathsep.join(map(str, [classes, *jars]))


def _jars() -> list[Path]:
    """All jars of the peer: the broker's, and two more."""
    named = os.environ.get("EDDY_KAFKA_JARS")
    files = list(find_jars(Path(named) if named else None).files)
    if any(file.name.startswith("kafka-streams-") for file in files):
        return files
    return [*files, *keep("Kafka Streams", read_lock(_FOLDER / "jars.txt"), CACHE / "kafka_streams" / "jars")]


def _compile(java: str, class_path: str, classes: Path) -> None:
    """Compile the peers where a source is newer than its class."""
    sources = sorted(_FOLDER.glob("*.java"))
    made = [classes / f"{source.stem}.class" for source in sources]
    if all(m.exists() and m.stat().st_mtime > s.stat().st_mtime for m, s in zip(made, sources, strict=True)):
        return
    javac = shutil.which("javac", path=f"{Path(java).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if javac is None:
        raise MissingError(
            "no javac, which compiles the peers; a JDK of 17 or later has it: apt-get install openjdk-17-jdk-headless"
        )
    classes.mkdir(parents=True, exist_ok=True)
    command = [javac, "-cp", class_path, "-d", str(classes), *map(str, sources)]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        raise MissingError(f"the peers do not compile: {built.stderr.strip()[-400:]}")
