"""A registry over HTTP that a test can take away, and serdes of a process that has seen no schema yet."""

import itertools
import os
import pathlib
from collections.abc import Callable, Iterator

import pytest

import eddy
from tests.schema_registry import apicurio
from tests.schema_registry.server import Server, served

NewRegistry = Callable[[], eddy.SchemaRegistry]
_capacities = itertools.count(1_001)


@pytest.fixture
def server() -> Iterator[Server]:
    with served() as running:
        yield running


def unseen(url: str, ids_in_headers: bool = False) -> eddy.SchemaRegistry:
    """A registry whose client has no schemas yet: a process has one client for equal settings."""
    settings = {"cache.capacity": next(_capacities), "max.retries": 0, "timeout": 5}
    return eddy.SchemaRegistry(url, settings=settings, ids_in_headers=ids_in_headers)


@pytest.fixture
def new_registry(server: Server) -> NewRegistry:
    """Registries at the server's address that have seen nothing."""
    return lambda: unseen(server.url)


@pytest.fixture(scope="module")
def real_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a registry of somebody else's making: `EDDY_TEST_REGISTRY`, or Apicurio, which is fetched."""
    if given := os.environ.get("EDDY_TEST_REGISTRY"):
        yield given
        return
    folder: pathlib.Path = tmp_path_factory.mktemp("apicurio")
    with apicurio.running(folder) as url:
        yield url
