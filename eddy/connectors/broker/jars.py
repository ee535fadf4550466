"""The jars that a broker runs on: the jars of `jars.txt`, fetched once, or the jars in a folder of the user's.

Ivy, a part of PySpark, fetches the jars of `jars.txt` from Maven Central. Each must have the SHA-256 of `jars.txt`, or
nothing runs: the hashes are checked before the jars are stored, and each time they are used. Jars in a folder that the
user names are not checked.

Other programs in Java, for tests and benchmarks, have files like `jars.txt` of their own: `read_lock` and `keep`.

Invariant: a folder of kept jars, such as the folder in the user's cache, has all jars of its lock, or does not exist.
Jars are fetched into another folder, which is renamed at the end; other processes that need the jars wait meanwhile.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from eddy.connectors.broker.java_runtime import find_java
from eddy.errors import ConnectorError

__all__ = [
    "Jar",
    "Jars",
    "check",
    "find_jars",
    "kafka_version",
    "keep",
    "kept_folder",
    "locked_jars",
    "read_lock",
]

_NO_PYSPARK = (
    "PySpark, whose Ivy fetches them, is needed, or a folder that holds them. "
    "pip install 'eddy-streams[spark]'; or name the libs folder of a Kafka distribution: --jars DIR"
)
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
"""One resolver, at Ivy's default address. By default Ivy also reads Maven's local repository, even a half-filled
one."""


class Jar(NamedTuple):
    """A line of `jars.txt`."""

    organisation: str
    artifact: str
    revision: str
    sha256: str

    @property
    def file(self) -> str:
        """The name of the jar's file."""
        return f"{self.artifact}-{self.revision}.jar"


class Jars(NamedTuple):
    """The jars of a broker: Kafka's version, and the files."""

    version: str
    files: tuple[Path, ...]


@cache
def locked_jars() -> tuple[Jar, ...]:
    """Return the jars that `jars.txt` names."""
    return read_lock(Path(__file__).parent / "jars.txt")


def read_lock(path: Path) -> tuple[Jar, ...]:
    """Read the jars that a file names, one a line: SHA-256, then organisation:artifact:revision."""
    lines = path.read_text(encoding="ascii").splitlines()
    split = [line.split() for line in lines if not line.startswith("#")]
    return tuple(Jar._make([*coordinates.split(":"), sha256]) for sha256, coordinates in split)


def kafka_version() -> str:
    """Return the version of Kafka that `jars.txt` names."""
    return next(jar.revision for jar in locked_jars() if jar.artifact.startswith("kafka_"))


def kept_folder() -> Path:
    """Return the folder, in the user's cache, in which jars are kept."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_home, "eddy", f"kafka-{kafka_version()}")


def find_jars(folder: Path | None = None) -> Jars:
    """Return the jars in `folder`; without a folder the jars of `jars.txt`, fetched if they are missing.

    Raises: ConnectorError.
    """
    if folder is not None:
        return _given(folder)
    return Jars(kafka_version(), keep(f"Kafka {kafka_version()}", locked_jars(), kept_folder()))


def keep(what: str, jars: Sequence[Jar], kept: Path) -> tuple[Path, ...]:
    """Return the files of `jars` in the folder `kept`, fetched if there is no such folder. Errors call them `what`.

    Raises: ConnectorError.
    """
    if not kept.is_dir():
        _fetch(what, jars, kept)
    check(kept, jars)
    return tuple(kept / jar.file for jar in jars)


def check(folder: Path, jars: Sequence[Jar]) -> None:
    """Check the jars in a folder. Raises: ConnectorError if one of `jars` is missing, or has another hash."""
    for jar in jars:
        path = folder / jar.file
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            found = "of no file"
        if found != jar.sha256:
            raise ConnectorError(
                f"jar {path}: its SHA-256 is {found}; {jar.sha256} is needed, so nothing was run. "
                f"Remove the folder, and the next start fetches it again: rm -r {folder}"
            )


def _given(folder: Path) -> Jars:
    files = sorted(folder.resolve().glob("*.jar"))
    for file in files:
        if found := re.fullmatch(r"kafka_[\d.]+-(\d+\.\d+\.\d+)\.jar", file.name):
            return Jars(found[1], tuple(files))
    raise ConnectorError(
        f"jars {folder}: of {len(files)} jars none is kafka_2.13-VERSION.jar; all jars of a broker are needed. "
        "Name the libs folder of a Kafka distribution"
    )


def _fetch(what: str, jars: Sequence[Jar], kept: Path) -> None:
    java, ivy = find_java(), _ivy(what)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with _fetch_lock(kept):
        if kept.is_dir():
            return
        for left_behind in kept.parent.glob(f".{kept.name}-*"):
            shutil.rmtree(left_behind, ignore_errors=True)
        prefix = f".{kept.name}-"
        with tempfile.TemporaryDirectory(prefix=prefix, dir=kept.parent, ignore_cleanup_errors=True) as name:
            part = Path(name)
            _download(java, ivy, part, what, jars)
            check(part / "jars", jars)
            (part / "jars").rename(kept)


@contextlib.contextmanager
def _fetch_lock(kept: Path) -> Iterator[None]:
    """Let one process at a time fetch jars.

    If this process ends, even by a kill, the system lets the next process fetch.
    """
    with (kept.parent / f"{kept.name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ivy(what: str) -> Path:
    spec = importlib.util.find_spec("pyspark")
    for location in (spec and spec.submodule_search_locations) or ():
        for ivy in Path(location).glob("jars/ivy-*.jar"):
            return ivy
    raise ConnectorError(f"{what}: its jars are not on this machine; {_NO_PYSPARK}")


def _download(java: str, ivy: Path, part: Path, what: str, jars: Sequence[Jar]) -> None:
    """Let Ivy put the jars, without their declared dependencies, into `part/jars`."""
    (part / "settings.xml").write_text(_SETTINGS, encoding="ascii")
    (part / "ivy.xml").write_text(_wanted(jars), encoding="ascii")
    (part / "jars").mkdir()
    command = [java, f"-Divy.default.ivy.user.dir={part}", "-jar", str(ivy)]
    options = {
        "-settings": "settings.xml",
        "-ivy": "ivy.xml",
        "-cache": str(part / "cache"),
        "-retrieve": str(part / "jars" / "[artifact]-[revision].[ext]"),
        "-confs": "default",
    }
    command += [word for option in options.items() for word in option]
    subprocess.run([*command, "-warn"], cwd=part, capture_output=True)
    missing = [jar.file for jar in jars if not (part / "jars" / jar.file).exists()]
    if missing:
        raise ConnectorError(
            f"{what}: {len(missing)} of {len(jars)} jars, such as {missing[0]}, did not come "
            "from Maven Central; a connection to it is needed, once. Try again; behind a proxy, with "
            "JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; or name a folder of jars: --jars DIR",
            retriable=True,
        )


def _wanted(jars: Sequence[Jar]) -> str:
    dependencies = "".join(
        f'<dependency org="{jar.organisation}" name="{jar.artifact}" rev="{jar.revision}" conf="default->default"/>'
        for jar in jars
    )
    head = '<info organisation="eddy" module="broker"/><configurations><conf name="default"/></configurations>'
    return f'<ivy-module version="2.0">{head}<dependencies>{dependencies}</dependencies></ivy-module>'
