"""Less to read where records are left out by the thousand."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """The worker says errors only."""
    logging.getLogger("eddy.worker").setLevel("ERROR")
    yield
    logging.getLogger("eddy.worker").setLevel("NOTSET")
