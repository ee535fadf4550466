"""The real jars, and a `java` that only pretends to be one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from eddy.connectors.broker.jars import find_jars

FakeJava = Callable[[str], Path]


@pytest.fixture(scope="session")
def jars_folder() -> Path:
    """Where the jars are that a broker runs on; fetched if need be."""
    return find_jars().files[0].parent


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJava:
    """Make the only Java of this machine one that tells its version and otherwise runs a script."""

    def make(script: str = "exit 1", version: str = "17.0.15") -> Path:
        java = tmp_path / "jdk" / "bin" / "java"
        java.parent.mkdir(parents=True, exist_ok=True)
        told = f"""echo 'openjdk version "{version}" 2025-04-15' >&2; exit 0"""
        java.write_text(f'#!/bin/sh\ncase "$*" in -version) {told};; esac\n{script}\n')
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
        return java

    return make
