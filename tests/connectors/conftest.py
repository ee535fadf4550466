"""Names that are used once, since tests share a broker."""

import uuid
from collections.abc import Callable

import pytest

from eddy.connectors.log import Log, TopicSpec
from tests.connectors.steps import KEPT

Name = Callable[[str], str]


@pytest.fixture
def name() -> Name:
    suffix = uuid.uuid4().hex[:8]
    return lambda stem: f"{stem}-{suffix}"


@pytest.fixture
def topic(log: Log, name: Name) -> str:
    """A topic of three partitions."""
    log.create_topics([TopicSpec(name("topic"), 3, KEPT)])
    return name("topic")
