"""Apicurio Registry, a schema registry with Confluent's API, fetched once and run in memory by Java.

Ivy, a part of PySpark, fetches it from Maven Central (142 MB) into the user's cache, as it does a broker's jars. Its
SHA-256 is checked before it is unpacked.
"""

import contextlib
import hashlib
import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyspark

from eddy.connectors.broker.jars import kept_folder
from eddy.connectors.broker.java_runtime import find_java
from tests.waiting import PATIENCE_S

VERSION = "2.6.13.Final"
SHA256 = "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba"
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
_WANTED = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="eddy" module="registry"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" conf="default->default">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """The address of a registry's API while it runs. `folder` gets its output."""
    home = _home()
    (jar,) = home.glob("apicurio-registry-app-*-runner.jar")
    port = _free_port()
    log = folder / "apicurio.log"
    options = {"quarkus.http.host": "127.0.0.1", "quarkus.http.port": port, "registry.enable.multitenancy": "false"}
    command = [find_java(), "-Xmx512m", *(f"-D{name}={value}" for name, value in options.items()), "-jar", str(jar)]
    with log.open("wb") as out, subprocess.Popen(command, cwd=home, stdout=out, stderr=out) as process:
        try:
            url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
            _wait_for(f"{url}/subjects", process, log)
            yield url
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None, log.read_text(errors="replace")[-2_000:]
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2_000:]
            time.sleep(0.2)  # pause: between two looks at a server that starts


def _home() -> Path:
    kept = kept_folder().with_name(f"apicurio-{VERSION}")
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{kept.name}-", dir=kept.parent) as name:
            part = Path(name)
            archive = _fetched(part)
            with tarfile.open(archive) as tar:
                tar.extractall(part / "home", filter="data")
            with contextlib.suppress(FileExistsError, OSError):  # another run was faster
                (part / "home").rename(kept)
    return kept


def _fetched(part: Path) -> Path:
    (part / "settings.xml").write_text(_SETTINGS, encoding="ascii")
    (part / "ivy.xml").write_text(_WANTED, encoding="ascii")
    (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
    options = ["-settings", "settings.xml", "-ivy", "ivy.xml", "-cache", str(part / "cache"), "-confs", "default"]
    command = [find_java(), f"-Divy.default.ivy.user.dir={part}", "-jar", str(ivy), *options, "-warn"]
    done = subprocess.run(command, cwd=part, capture_output=True, text=True)
    found = next((part / "cache").rglob(f"*-{VERSION}-all.tar.gz"), None)
    assert found is not None, f"Ivy has not fetched Apicurio {VERSION}: {(done.stdout + done.stderr).lstrip('.')}"
    with found.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    assert digest == SHA256, f"{digest} is not the SHA-256 of Apicurio {VERSION}"
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
