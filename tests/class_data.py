"""Options with which a JVM starts in half the processor time: from an archive of the classes that its program loads.

Java's class-data sharing: one run of the program writes the archive as it ends, into the folder of the venv, and all
later ones read it. It is of one Java and one set of jars. A JVM that cannot use its archive starts without it.
"""

import fcntl
import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from eddy.connectors.broker.java_runtime import find_java

__all__ = ["QUICK_TO_START", "Archive"]

QUICK_TO_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""A JVM with these starts in two thirds of the time. It also takes less of the processor for a whole run of the tests:
to compile thoroughly costs more than the tests ask of it."""


class Archive:
    """The archive of a program, called `name`, whose classes are in `jars`; `run` runs it with more options of Java's.

    The program has to end by itself, not by a kill, for Java to write the archive.
    """

    def __init__(self, name: str, jars: Callable[[], Iterable[Path]], run: Callable[[tuple[str, ...]], None]) -> None:
        self._name, self._jars, self._run = name, jars, run

    @cache  # noqa: B019 - a few archives, as long as the process
    def options(self) -> tuple[str, ...]:
        """The options of a quick start. The first call in a venv makes the archive; others wait for it."""
        file = self._file()
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.with_suffix(".lock").open("wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not file.exists():
                    self._make(file)
        return (*QUICK_TO_START, f"-XX:SharedArchiveFile={file}") if file.exists() else QUICK_TO_START

    def _make(self, file: Path) -> None:
        new = file.with_suffix(".new")
        new.unlink(missing_ok=True)
        self._run((*QUICK_TO_START, "-Xlog:disable", f"-XX:ArchiveClassesAtExit={new}"))
        for old in file.parent.glob(f"{self._name}-*.jsa"):
            old.unlink()
        if new.exists():  # not every Java has class-data sharing
            new.rename(file)

    def _file(self) -> Path:
        """Its name has a hash of Java's version and of the jars, whose times the JVM compares, too."""
        told = subprocess.run([find_java(), "-version"], capture_output=True, check=True).stderr
        jars = [(str(jar), (about := jar.stat()).st_size, about.st_mtime_ns) for jar in self._jars()]
        digest = hashlib.sha256(told + repr(jars).encode()).hexdigest()[:16]
        return Path(sys.prefix) / "class-data" / f"{self._name}-{digest}.jsa"
