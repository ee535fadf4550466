"""A Java that is missing or too old is named, with what to do about it."""

from pathlib import Path

import pytest

from eddy import ConnectorError
from eddy.connectors.broker.java_runtime import find_java
from tests.connectors.broker.conftest import FakeJava


def test_java_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert Path(find_java()).name == "java"


def test_java_home_is_asked_first(fake_java: FakeJava) -> None:
    java = fake_java()
    assert find_java() == str(java)


def test_no_java_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConnectorError, match=r"^java: there is none on PATH; .* Java 17 .* apt-get install openjdk-17"):
        find_java()


def test_java_home_without_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConnectorError, match=f"there is none in JAVA_HOME={tmp_path}; "):
        find_java()


@pytest.mark.parametrize(("version", "major"), [("1.8.0_292", 8), ("11.0.2", 11), ("16", 16)])
def test_older_java_is_refused(fake_java: FakeJava, version: str, major: int) -> None:
    fake_java(version=version)
    with pytest.raises(ConnectorError, match=f"is Java {major}; .* needs Java 17 or later"):
        find_java()
