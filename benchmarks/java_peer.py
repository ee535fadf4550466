"""The peers in Java: their jars, fetched once by PySpark's Ivy beside those of the broker, and their classes.

A folder named by EDDY_KAFKA_JARS, such as the libs folder of a Kafka distribution, is taken as it is.
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from benchmarks.cluster import MissingError
from benchmarks.workloads import CACHE, ROOT
from eddy.connectors.broker.jars import Jar, check, find_jars
from eddy.connectors.broker.java_runtime import find_java
from eddy.errors import ConnectorError

__all__ = ["java"]

_FOLDER = ROOT / "benchmarks" / "kafka_streams"
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


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


def _locked() -> list[Jar]:
    lines = (_FOLDER / "jars.txt").read_text(encoding="ascii").splitlines()
    split = [line.split() for line in lines if not line.startswith("#")]
    return [Jar._make([*coordinates.split(":"), sha256]) for sha256, coordinates in split]


def _jars() -> list[Path]:
    """All jars of the peer: the broker's, and two more."""
    named = os.environ.get("EDDY_KAFKA_JARS")
    files = list(find_jars(Path(named) if named else None).files)
    if any(file.name.startswith("kafka-streams-") for file in files):
        return files
    kept = CACHE / "kafka_streams" / "jars"
    locked = _locked()
    if not all((kept / jar.file).exists() for jar in locked):
        _fetch(locked, kept)
    check(kept, locked)
    return files + [kept / jar.file for jar in locked]


def _fetch(jars: list[Jar], kept: Path) -> None:
    spec = importlib.util.find_spec("pyspark")
    found = [
        ivy for folder in (spec and spec.submodule_search_locations) or () for ivy in Path(folder).glob("jars/ivy-*")
    ]
    if not found:
        raise MissingError(
            "the jars of Kafka Streams are not here, nor PySpark, whose Ivy fetches them: pip install pyspark"
        )
    wanted = "".join(
        f'<dependency org="{jar.organisation}" name="{jar.artifact}" rev="{jar.revision}" conf="default->default"/>'
        for jar in jars
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "settings.xml").write_text(_SETTINGS, encoding="ascii")
        (folder / "ivy.xml").write_text(
            '<ivy-module version="2.0"><info organisation="eddy" module="peer"/><configurations><conf name="default"/>'
            f"</configurations><dependencies>{wanted}</dependencies></ivy-module>",
            encoding="ascii",
        )
        command = [
            find_java(),
            f"-Divy.default.ivy.user.dir={name}",
            "-jar",
            str(found[0]),
            "-settings",
            "settings.xml",
        ]
        command += ["-ivy", "ivy.xml", "-cache", f"{name}/cache", "-confs", "default", "-warn"]
        command += ["-retrieve", f"{kept}/[artifact]-[revision].[ext]"]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    if not all((kept / jar.file).exists() for jar in jars):
        raise MissingError(
            f"the jars of Kafka Streams could not be fetched: {(ran.stdout + ran.stderr).strip()[-300:]}"
        )


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
