"""Finds a Java runtime for a broker; the error names the missing part."""

import os
import re
import shutil
import subprocess

from eddy.errors import ConnectorError

__all__ = ["OLDEST_JAVA", "find_java"]

OLDEST_JAVA = 17
"""The oldest Java version on which Kafka's brokers run, from Kafka 4.0 on."""

_FIX = "Install one: apt-get install openjdk-17-jre-headless; or name its folder: JAVA_HOME=DIR"


def find_java() -> str:
    """Return the path of `java`: in JAVA_HOME if this is set, otherwise the first `java` on PATH.

    Raises: ConnectorError if there is no `java`, or an older version.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on PATH"
        raise ConnectorError(f"java: there is none {where}; a Kafka broker needs Java {OLDEST_JAVA} or later. {_FIX}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, errors="replace")
    major = _major(told.stderr + told.stdout)
    if told.returncode or major is None or major < OLDEST_JAVA:
        what = "does not tell its version" if major is None else f"is Java {major}"
        raise ConnectorError(f"java: {java} {what}; a Kafka broker needs Java {OLDEST_JAVA} or later. {_FIX}")
    return java


def _major(told: str) -> int | None:
    """Find the major version in the output of `java -version`; None if there is none.

    >>> _major('openjdk version "17.0.15" 2025-04-15'), _major('java version "1.8.0_292"'), _major("no runtime here")
    (17, 8, None)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else None
